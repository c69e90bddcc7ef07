#!/usr/bin/env bash
# What chunks, leases and the gate cost: `vodmill transcode` beside the one ffmpeg command that makes the same ladder
# (`vodmill plan --as-ffmpeg`), with ffmpeg's own threads and with one thread everywhere. Each round runs all three, so
# that a busy machine is unfair to all alike. Processor time counts every process.
#
# Four minutes, for that is what people put up most: of a clip, starting and checking are a larger part, and of an hour a
# smaller one. On two cores a round takes a quarter of an hour.
#
#   bench/transcode.sh [VIDEO]      ROUNDS=3  SECONDS_OF_VIDEO=240  PRESET=veryfast
#   make bench-transcode            the same, and keeps the figures in bench/results
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. bench/machine.sh

rounds=${ROUNDS:-3} seconds=${SECONDS_OF_VIDEO:-240} preset=${PRESET:-veryfast}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

main() {
  local source=${1:-$folder/source.mp4}
  (($#)) || source_of "$seconds" "$source"
  heading "$source"
  local command
  command=$(vodmill plan "$source" --preset "$preset" --no-thumbnails --as-ffmpeg)
  local round way
  for ((round = 1; round <= rounds; round++)); do
    for way in default single vodmill; do
      echo "round $round: $way" >&2
      rm -rf "${folder:?}/$way"
      mkdir "$folder/$way"
      measure "$way" "$source"
    done
  done
  table "$source"
  stages
  around
}

heading() {
  printf '# Transcoding\n\n'
  machine "$folder"
  printf "| ffmpeg | %s |\n\n" "$(ffmpeg -version | sed -n "1s/^ffmpeg version \([^ ]*\).*/\1/p")"
  printf 'Source: %s; preset %s; medians of %s rounds.\n' \
    "$(ffprobe -v error -show_entries stream=codec_name,width,height,avg_frame_rate,duration -of csv=p=0 "$1" | head -1)" "$preset" "$rounds"
}

# measure WAY SOURCE: appends "wall cpu" to a file of its own
measure() {
  local way=$1 source=$2 spent
  TIMEFORMAT='%R %U %S'
  spent=$({ time run "$way" "$source" >"$folder/$way.log" 2>&1; } 2>&1)
  awk '{ print $1, $2 + $3 }' <<<"$spent" >>"$folder/$way.spent"
}

run() {
  local way=$1 source=$2
  case $way in
    vodmill) vodmill transcode "$source" -o "$folder/vodmill" --preset "$preset" --no-thumbnails ;;
    default) (cd "$folder/default" && eval "$command") ;;
    single) (cd "$folder/single" && eval "$(one_thread <<<"$command")") ;;
  esac
}

one_thread() { sed 's/ -copyts / -threads 1 -filter_complex_threads 1 -copyts /; s/ -video_track_timescale / -threads 1 -video_track_timescale /g'; }

table() {
  local way best
  best=$(basename "$(find "$folder/vodmill" -mindepth 2 -maxdepth 2 -type d -name '*p' | sort -V | tail -1)")
  printf '\n| | wall s | processor s | bytes | SSIM of %s |\n| --- | --- | --- | --- | --- |\n' "$best"
  for way in default single vodmill; do
    printf '| %s | %s | %s | %s | %s |\n' "$(name_of "$way")" \
      "$(cut -d' ' -f1 "$folder/$way.spent" | median)" "$(cut -d' ' -f2 "$folder/$way.spent" | median)" \
      "$(size_of "$way")" "$(ssim_of "$way" "$best" "$1")"
  done | tee "$folder/table"
  printf '\nvodmill: '
  ratio 3 default 'the wall time and ' 4 default 'the processor time of ffmpeg with its own threads, ' \
    4 single 'the processor time of ffmpeg with one thread; ' 5 default 'the bytes of the former and ' 5 single 'those of the latter.'
}

name_of() {
  case $1 in
    default) echo 'one ffmpeg, its own threads' ;;
    single) echo 'one ffmpeg, one thread everywhere' ;;
    vodmill) echo 'vodmill transcode' ;;
  esac
}

size_of() {
  if [[ $1 == vodmill ]]; then
    find "$folder/vodmill" \( -name '*.m4s' -o -name 'init*.mp4' \) -exec cat {} + | wc -c
  else
    cat "$folder/$1"/*.mp4 | wc -c
  fi
}

ssim_of() {
  local file
  if [[ $1 == vodmill ]]; then file=$(find "$folder/vodmill" -path "*/$2/index.m3u8"); else file=$folder/$1/$2.mp4; fi
  ffmpeg -nostdin -i "$file" -i "$3" -lavfi '[0:v]settb=AVTB,setpts=N/30/TB[a];[1:v]settb=AVTB,setpts=N/30/TB[b];[a][b]ssim' \
    -f null - 2>&1 | sed -n 's/.*All:\([0-9.]*\).*/\1/p'
}

# ratio COLUMN WAY WORDS …
ratio() {
  while (($#)); do
    awk -F'|' -v column="$1" -v other="$(name_of "$2")" -v words="$3" '
      index($2, "vodmill") { ours = $column } index($2, other) { theirs = $column }
      END { printf "%.3f × %s", ours / theirs, words }' "$folder/table"
    shift 3
  done
  echo
}

# What became of the processor time of the last round, by stages, and how much memory the largest process of each took at most.
# A slot runs one at a time.
stages() {
  local database="sqlite:$folder/vodmill/.vodmill/vodmill.db" command
  for command in tasks executions; do
    vodmill job "$command" 1 --json --database-url "$database" | jq -s flatten >"$folder/$command.json"
  done
  printf '\n| stage | tasks | processor s | peak memory MB |\n| --- | --- | --- | --- |\n'
  jq -r --slurpfile tasks "$folder/tasks.json" '
    ($tasks[0] | map({ (.id): .stage }) | add) as $stage
    | group_by($stage[.id | sub("[.][0-9]+$"; "")])[]
    | [$stage[.[0].id | sub("[.][0-9]+$"; "")], length, (map(.cpu_ms // 0) | add / 100 | round / 10),
       (map(.peak_memory_bytes // 0) | max / 1e6 | round)]
    | select(.[2] > 0) | "| \(map(tostring) | join(" | ")) |"' "$folder/executions.json"
  printf '\nPeak memory of a slot: %s MB.\n' "$(jq 'map(.peak_memory_bytes // 0) | max / 1e6 | round' "$folder/executions.json")"
}

# Everything around ffmpeg: what a clip of five seconds takes with one slot, less the time its commands ran.
around() {
  local clip=$folder/clip.mp4 best='' spent commands round
  ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=s=640x360:r=30:d=5 -f lavfi -i sine=d=5 -preset veryfast -c:a aac "$clip"
  for ((round = 1; round <= 5; round++)); do
    rm -rf "$folder/around"
    TIMEFORMAT=%R
    spent=$({ time vodmill transcode "$clip" -o "$folder/around" --slots 1 >/dev/null 2>&1; } 2>&1)
    commands=$(vodmill job steps 1 --json --database-url "sqlite:$folder/around/.vodmill/vodmill.db" |
      jq -s 'flatten | map(.duration_ms) | add')
    awk -v spent="$spent" -v commands="$commands" 'BEGIN { printf "%d\n", spent * 1000 - commands }' >>"$folder/around.ms"
  done
  printf 'Around ffmpeg, for a clip of 5 s: %s ms (median of 5).\n' "$(median <"$folder/around.ms")"
}

main "$@"
