#!/usr/bin/env bash
# Loads a server and a remote worker for long, and fails if their memory, open files or threads grow. Keeps nothing: `make
# soak` writes bench/results. crates/cli/tests/program/soak.rs says what the load is, and what counts as growth.
#
#   bench/soak.sh      MINUTES=30  ENGINE=sqlite
set -euo pipefail
cd "$(dirname "$0")/.."
VODMILL=${CARGO_TARGET_DIR:-target}/debug/vodmill
mkdir -p "$(dirname "$VODMILL")"
# shellcheck source=/dev/null
. bench/machine.sh

export VODMILL_SOAK_MINUTES=${MINUTES:-30} VODMILL_SOAK_ENGINE=${ENGINE:-sqlite}

printf '# Soak\n\n'
machine .
# shellcheck disable=SC2016
printf '\nA development build. Command: `make soak MINUTES=%s ENGINE=%s`\n\n' "$VODMILL_SOAK_MINUTES" "$VODMILL_SOAK_ENGINE"
cargo test --workspace --test program --locked -- soak:: --nocapture | grep -E '^(\||$)'
