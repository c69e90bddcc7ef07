#!/usr/bin/env bash
# Measures the queue on both engines and keeps the figures, with the machine they come from, in bench/results.
# `make bench` builds the program and starts the PostgreSQL. The files lie under TMPDIR: on a file system kept
# in memory the figures flatter, so set TMPDIR to a folder on a real disk there.
set -euo pipefail
cd "$(dirname "$0")/.."

postgres=${VODMILL_TEST_POSTGRES_URL:?run it with scripts/with-services, or: make bench}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
result=bench/results/queue-$(date +%F).md

main() {
  mkdir -p bench/results
  {
    echo "# Queue, $(date +%F)"
    echo
    machine
    engine PostgreSQL "$postgres"
    engine SQLite "sqlite:$folder/bench.db"
  } | tee "$folder/result.md"
  # A run that failed half-way has left by now: an old result is not replaced by half a new one.
  mv "$folder/result.md" "$result"
  echo "kept in $result" >&2
}

machine() {
  cat <<-FACTS
	| | |
	| --- | --- |
	| processor | $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | sort -u | paste -sd ';') |
	| cores | $(nproc) |
	| memory | $(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo) |
	| kernel | $(uname -sr) |
	| file system | $(df --output=fstype "$folder" | tail -n 1) |
	| PostgreSQL | $(psql "$postgres" -Atc 'SHOW server_version') |
	| Vodmill | $(git describe --always --dirty 2>/dev/null || echo unknown) |
	FACTS
}

engine() {
  printf '\n## %s\n\n```text\n' "$1"
  target/release/vodmill bench queue --database-url "$2"
  printf '```\n'
}

main
