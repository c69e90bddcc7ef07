#!/usr/bin/env bash
# `vodmill transcode` beside shaka-streamer: the same source, heights, codec and x264 preset (`slow`, the one that
# shaka-streamer has for files), by turns. shaka-streamer aims at bitrates of its own, so sizes differ; time is compared.
#
#   bench/streamer.sh [VIDEO]      ROUNDS=1  SECONDS_OF_VIDEO=24
#   make bench-streamer            installs shaka-streamer, and keeps the figures in bench/results
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. bench/machine.sh

streamer=$(realpath "${STREAMER:-target/streamer/bin/shaka-streamer}")
rounds=${ROUNDS:-1} seconds=${SECONDS_OF_VIDEO:-24}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

main() {
  local source=${1:-$folder/source.mp4} round way
  (($#)) || source_of "$seconds" "$source"
  configure "$(realpath "$source")"
  printf '# Beside shaka-streamer\n\n'
  machine "$folder"
  printf '| shaka-streamer | %s |\n\n' "$("$(dirname "$streamer")/pip" show shaka-streamer | sed -n 's/^Version: //p')"
  printf '%s s of 1080p30, five heights in H.264, preset slow; medians of %s rounds.\n\n' "$seconds" "$rounds"
  for ((round = 1; round <= rounds; round++)); do
    for way in streamer vodmill; do
      echo "round $round: $way" >&2
      rm -rf "${folder:?}/$way"
      measure "$way" "$source"
    done
  done
  printf '| | wall s | processor s | bytes |\n| --- | --- | --- | --- |\n'
  for way in streamer vodmill; do
    printf '| %s | %s | %s | %s |\n' "$way" "$(cut -d' ' -f1 "$folder/$way.spent" | median)" \
      "$(cut -d' ' -f2 "$folder/$way.spent" | median)" "$(find "$folder/$way" -name '*.m[p4][4s]' -exec cat {} + | wc -c)"
  done | tee "$folder/table"
  awk -F'|' '{ wall[NR] = $3; spent[NR] = $4 }
    END { printf "\nvodmill: %.3f × of the wall time and %.3f × of the processor time.\n", wall[2] / wall[1], spent[2] / spent[1] }' "$folder/table"
}

configure() {
  cat >"$folder/input.yaml" <<-INPUT
	inputs:
	  - { name: "$1", media_type: video }
	  - { name: "$1", media_type: audio }
	INPUT
  cat >"$folder/pipeline.yaml" <<-'PIPELINE'
	streaming_mode: vod
	resolutions: [1080p, 720p, 480p, 360p, 240p]
	channel_layouts: [stereo]
	audio_codecs: [aac]
	video_codecs: [h264]
	manifest_format: [hls]
	segment_size: 6
	PIPELINE
}

# measure WAY SOURCE: appends "wall cpu" to a file of its own
measure() {
  TIMEFORMAT='%R %U %S'
  local spent
  spent=$({ time run "$1" "$2" >"$folder/$1.log" 2>&1; } 2>&1) || { tail "$folder/$1.log" >&2; return 1; }
  awk '{ print $1, $2 + $3 }' <<<"$spent" >>"$folder/$1.spent"
}

run() {
  case $1 in
    streamer) "$streamer" -i "$folder/input.yaml" -p "$folder/pipeline.yaml" -o "$folder/streamer" ;;
    vodmill) vodmill transcode "$2" -o "$folder/vodmill" --preset slow --rungs 1080p,720p,480p,360p,240p --no-thumbnails ;;
  esac
}

main "$@"
