#!/usr/bin/env bash
# Compares Vodmill's queue with graphile_worker's on one PostgreSQL: no-op tasks, drained in batches and one at a
# time, by turns, so that whatever else the machine does meets both. Keeps medians and ratios in bench/results.
#
#   scripts/with-services bench/compare.sh
#
# ROUNDS=5 and JOBS=20000 may be set. Vodmill does more for each task: a fenced lease, an execution, an audit of
# four moves, and a job that ends; graphile_worker deletes the job's row.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. bench/machine.sh

postgres=${VODMILL_TEST_POSTGRES_URL:?run it with scripts/with-services}
rounds=${ROUNDS:-5}
jobs=${JOBS:-20000}
singly=$((jobs / 10))
peer=${CARGO_TARGET_DIR:-bench/peer/target}/release/peer
folder=$(mktemp -d)
database=
trap 'drop_database; rm -rf "$folder"' EXIT
result=bench/results/compare-$(date +%F).md

main() {
  cargo build --release --quiet --locked --manifest-path bench/peer/Cargo.toml
  mkdir -p bench/results
  for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    vodmill_round
    peer_round batched "$jobs"
    peer_round singly "$singly"
  done
  report | tee "$folder/result.md"
  mv "$folder/result.md" "$result"
  echo "kept in $result" >&2
}

vodmill_round() {
  vodmill bench queue --database-url "$postgres" --only drain --rounds 1 --drain "$jobs" --json >"$folder/round.json"
  jq .figures.drain.value "$folder/round.json" >>"$folder/vodmill-batched"
  jq .figures.drain_jobs.value "$folder/round.json" >>"$folder/vodmill-jobs"
  jq .figures.drain_singly.value "$folder/round.json" >>"$folder/vodmill-singly"
}

# Each time in a new database: graphile_worker's own tables are then as fresh as Vodmill's.
peer_round() {
  database=vodmill_peer_$RANDOM
  psql "$postgres" -qc "CREATE DATABASE $database"
  "$peer" "${postgres%/*}/$database" "$2" "$1" >>"$folder/peer-$1"
  drop_database
}

drop_database() {
  [[ -z $database ]] || psql "$postgres" -qc "DROP DATABASE IF EXISTS $database WITH (FORCE)"
  database=
}

report() {
  echo "# Vodmill beside graphile_worker, $(date +%F)"
  echo
  machine "$folder" "$postgres"
  cat <<-TABLE

	Medians of $rounds rounds by turns; per second. $jobs tasks a round, $singly one at a time.

	| | Vodmill | graphile_worker | ratio |
	| --- | --- | --- | --- |
	TABLE
  row "in batches, jobs of 1,000 tasks" vodmill-batched peer-batched
  row "in batches, jobs of one task" vodmill-jobs peer-batched
  row "one at a time, 32 callers" vodmill-singly peer-singly
}

row() {
  local ours theirs
  ours=$(median "$2")
  theirs=$(median "$3")
  awk -v name="$1" -v ours="$ours" -v theirs="$theirs" \
    'BEGIN { printf "| %s | %.0f | %.0f | %.2f |\n", name, ours, theirs, ours / theirs }'
}

median() {
  sort -g "$folder/$1" | awk '{ values[NR] = $1 } END { print values[int((NR + 1) / 2)] }'
}

main
