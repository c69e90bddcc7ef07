# Where a figure comes from: sourced by the scripts beside it.
# shellcheck shell=bash

# The program that is measured, also from another folder.
program=$(realpath "${VODMILL:-${CARGO_TARGET_DIR:-target}/release/vodmill}")
vodmill() { "$program" "$@"; }

# machine FOLDER [POSTGRES_URL]
machine() {
  cat <<-FACTS
	| | |
	| --- | --- |
	| processor | $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | sort -u | paste -sd ';') |
	| cores | $(nproc) |
	| load before | $(cut -d ' ' -f 1-3 /proc/loadavg) |
	| memory | $(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo) |
	| kernel | $(uname -sr) |
	| file system | $(df --output=fstype "$1" | tail -n 1) |
	| Vodmill | $(git describe --always --dirty 2>/dev/null || echo unknown) |
	FACTS
  [[ -z ${2-} ]] || printf '| PostgreSQL | %s |\n' "$(psql "$2" -Atc 'SHOW server_version')"
}

# Moving pictures with detail, noise and cuts, as an hour of television has them in a minute.
# source_of SECONDS FILE
source_of() {
  local third=$(($1 / 3))
  ffmpeg -nostdin -v error -y \
    -f lavfi -i "mandelbrot=s=1920x1080:r=30:end_pts=400" -f lavfi -i "testsrc2=s=1920x1080:r=30" \
    -f lavfi -i "life=s=960x540:r=30:mold=10:ratio=0.1,scale=1920:1080,format=yuv420p" -f lavfi -i "sine=b=4" \
    -filter_complex "[0]format=yuv420p,noise=alls=6:allf=t,trim=duration=${third}[a];[1]trim=duration=${third}[b];
      [2]trim=duration=${third}[c];[a][b][c]concat=n=3[v]" \
    -map '[v]' -map 3 -t "$1" -c:v libx264 -preset veryfast -crf 18 -c:a aac "$2"
}

median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
