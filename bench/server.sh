#!/usr/bin/env bash
# Measures a server on both engines: simulated workers and listeners (`vodmill bench server`), and uploads beside a plain
# copy of the same bytes to the same disk. Keeps nothing: `make bench-server` writes bench/results.
#
#   scripts/with-services bench/server.sh      WORKERS=1000  LISTENERS=1000  TASKS=20000  UPLOAD_MB=1024
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. bench/machine.sh

postgres=${VODMILL_TEST_POSTGRES_URL:?run it with scripts/with-services, or: make bench-server}
workers=${WORKERS:-1000} listeners=${LISTENERS:-1000} tasks=${TASKS:-20000} megabytes=${UPLOAD_MB:-1024}
folder=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
export VODMILL_ADMIN_SECRET=a-secret-for-the-benchmark VODMILL_LISTEN=127.0.0.1:18099
ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)"

main() {
  printf '# Server\n\n'
  machine "$folder" "$postgres"
  engine PostgreSQL "$postgres"
  uploads
  stop
  engine SQLite "sqlite:$folder/bench.db"
}

engine() {
  stop
  VODMILL_DATABASE_URL=$2 vodmill migrate >/dev/null
  VODMILL_DATABASE_URL=$2 VODMILL_DATABASE_CONNECTIONS=32 \
    "${VODMILL:-${CARGO_TARGET_DIR:-target}/release/vodmill}" serve --slots 0 --data-folder "$folder/data" >"$folder/log" 2>&1 &
  server=$!
  until curl -sf "http://$VODMILL_LISTEN/health" >/dev/null; do sleep 0.2; done
  printf '\n## %s\n' "$1"
  crowd 0
  crowd "$listeners"
}

# Each listener is told of every task: with a thousand of them, that is most of what the server does.
crowd() {
  printf '\n%s workers, %s listeners, %s tasks.\n\n```text\n' "$workers" "$1" "$tasks"
  vodmill bench server --address "http://$VODMILL_LISTEN" --pid "$server" \
    --workers "$workers" --listeners "$1" --tasks "$tasks"
  printf '```\n'
}

stop() {
  [[ -n $server ]] || return 0
  kill "$server"
  wait "$server" || true
  server=
}

# The server writes, hashes and syncs; the copy only writes and syncs.
uploads() {
  local plain sent
  head -c "${megabytes}M" /dev/urandom >"$folder/video"
  TIMEFORMAT=%R
  plain=$({ time { cat "$folder/video" >"$folder/copy" && sync "$folder/copy"; }; } 2>&1)
  sent=$({ time curl -sf -H "X-Admin-Secret: $VODMILL_ADMIN_SECRET" -T "$folder/video" -X POST -o "$folder/answer" \
    "http://$VODMILL_LISTEN/api/videos?name=video.bin"; } 2>&1)
  awk -v mb="$megabytes" -v plain="$plain" -v sent="$sent" 'BEGIN {
    printf "\nUpload of %d MiB: %.0f MiB/s, %.2f × the time of `cat` and `sync` to the same disk.\n", mb, mb / sent, sent / plain }'
}

main "$@"
