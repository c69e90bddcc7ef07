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

# Of a long video: some megabytes, of which a playlist needs a few hundred bytes.
large_manifest() {
  python3 - "$folder/flood.db" "$1" <<'END'
import json, sqlite3, sys
files = [{"path": f"1080p/seg-{n:05}.m4s", "bytes": 4000000, "sha256": "0" * 64} for n in range(40000)]
master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n1080p/index.m3u8\n"
manifest = {"generation": "g-0", "duration": 80000.0, "indexes": [{"name": "master.m3u8", "text": master}], "files": files}
database, video = sqlite3.connect(sys.argv[1], timeout=30), int(sys.argv[2])
job, = database.execute("SELECT min(id) FROM job WHERE video_id = ?", (video,)).fetchone()
added = database.execute(
    "INSERT INTO generation (video_id, job_id, task_id, manifest, created_at) VALUES (?, ?, 1, ?, 0)",
    (video, job, json.dumps(manifest)))
database.execute("UPDATE video SET generation_id = ? WHERE id = ?", (added.lastrowid, video))
database.commit()
END
}

# 100,000, which nothing here takes.
queue_tasks() {
  for _ in {1..10}; do
    curl -sf -o /dev/null -H "X-Admin-Secret: $VODMILL_ADMIN_SECRET" -H 'Content-Type: application/json' \
      -d '{"name": "queued", "stage": [{"name": "a", "kind": "noop", "segments": 10000}]}' "http://$VODMILL_LISTEN/api/jobs"
  done
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

  large_manifest "$id"
  queue_tasks

  printf '# Bad connections\n\n'
  machine "$folder"
  command="vodmill bench strangers --connections $connections --seconds $seconds --file /videos/big/g-0/big.m4s --playlist /videos/big/master.m3u8"
  # shellcheck disable=SC2016
  printf '\nMemory before: %s MB. A server with no settings; its bound is in docs/operations.md.\n\n```text\n$ %s\n' \
    "$(awk '/^VmHWM/ { printf "%.0f", $2 * 1.024 / 1000 }' "/proc/$server/status")" "$command"
  # shellcheck disable=SC2086
  "$program" ${command#vodmill } --address "$VODMILL_LISTEN" --pid "$server"
  printf '```\n'
}

main
