# Where a figure comes from: sourced by the scripts beside it.
# shellcheck shell=bash

# The program that is measured.
vodmill() {
  "${VODMILL:-${CARGO_TARGET_DIR:-target}/release/vodmill}" "$@"
}

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
