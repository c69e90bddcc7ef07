#!/usr/bin/env bash
# Measures the queue on both engines and keeps the figures, with the machine they come from, in bench/results.
# `make bench` builds the program and starts the PostgreSQL. Arguments go to `vodmill bench queue`: --quick …
# The files lie under TMPDIR: on a file system kept in memory the figures flatter, so set TMPDIR to a folder on a
# real disk there.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. bench/machine.sh

postgres=${VODMILL_TEST_POSTGRES_URL:?run it with scripts/with-services, or: make bench}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
result=bench/results/queue-$(date +%F).md

main() {
  mkdir -p bench/results
  {
    echo "# Queue, $(date +%F)"
    echo
    machine "$folder" "$postgres"
    engine PostgreSQL "$postgres" "$@"
    engine SQLite "sqlite:$folder/bench.db" "$@"
  } | tee "$folder/result.md"
  # A run that failed half-way has left by now: an old result is not replaced by half a new one.
  mv "$folder/result.md" "$result"
  echo "kept in $result" >&2
}

engine() {
  local name=$1 url=$2
  shift 2
  printf '\n## %s\n\n```text\n$ vodmill %s\n' "$name" "bench queue --database-url … $*"
  vodmill bench queue --database-url "$url" "$@"
  printf '```\n'
}

main "$@"
