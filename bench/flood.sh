#!/usr/bin/env bash
# Measures a server under bad connections (`vodmill bench strangers`): does an honest client get its answers, and how much
# memory does the server take? Keeps nothing: `make flood` writes bench/results.
#
#   bench/flood.sh      CONNECTIONS=2000  SECONDS_EACH=60
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. bench/machine.sh

connections=${CONNECTIONS:-2000} seconds=${SECONDS_EACH:-60}
folder=$(mktemp -d)
server=
trap 'end_server; rm -rf "$folder"' EXIT
export VODMILL_ADMIN_SECRET=a-secret-for-the-benchmark VODMILL_LISTEN=127.0.0.1:18098
ulimit -n "$(ulimit -Hn)"

end_server() {
  [[ -n $server ]] || return 0
  kill "$server" 2>/dev/null || true
  wait "$server" || true
}

main() {
  local id command
  "${program:?}" serve --slots 0 --data-folder "$folder/data" --database-url "sqlite:$folder/flood.db" >"$folder/log" 2>&1 &
  server=$!
  until curl -sf "http://$VODMILL_LISTEN/health" >/dev/null; do sleep 0.2; done
  id=$(curl -sf -H "X-Admin-Secret: $VODMILL_ADMIN_SECRET" --data-binary x "http://$VODMILL_LISTEN/api/videos?slug=big" \
    | sed 's/.*"id":\([0-9]*\).*/\1/')
  mkdir -p "$folder/data/videos/$id/g-0"
  head -c 256M /dev/zero >"$folder/data/videos/$id/g-0/big.m4s"

  printf '# Bad connections\n\n'
  machine "$folder"
  command="vodmill bench strangers --connections $connections --seconds $seconds --file /videos/big/g-0/big.m4s"
  # shellcheck disable=SC2016
  printf '\nMemory before: %s MB. A server with no settings; its bound is in docs/operations.md.\n\n```text\n$ %s\n' \
    "$(awk '/^VmHWM/ { printf "%.0f", $2 * 1.024 / 1000 }' "/proc/$server/status")" "$command"
  # shellcheck disable=SC2086
  "$program" ${command#vodmill } --address "$VODMILL_LISTEN" --pid "$server"
  printf '```\n'
}

main
