#!/usr/bin/env bash
# Measures how work is told of: by polling, by NOTIFY, by Redis, and by a Redis that fails (`vodmill bench wake`). Keeps nothing: `make bench-wake`
# writes bench/results. Arguments go to the program: --jobs, --workers …
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. bench/machine.sh

postgres=${VODMILL_TEST_POSTGRES_URL:?run it with scripts/with-services, or: make bench-wake}
redis=${VODMILL_TEST_REDIS_URL:?run it with scripts/with-services, or: make bench-wake}

# One that may be filled up.
spare=$(mktemp -d "${TMPDIR:-/tmp}/spare.XXXXXX")
trap 'scripts/redis stop "$spare" KILL; rm -rf "$spare"' EXIT
scripts/redis start "$spare"

printf '# Waking up\n\n'
machine "${TMPDIR:-/tmp}" "$postgres"
printf '| Redis | %s |\n' "$(redis-server --version | sed 's/.*v=\([^ ]*\).*/\1/')"
# shellcheck disable=SC2016
printf '\n```text\n$ vodmill bench wake %s\n' "$*"
vodmill bench wake --database-url "$postgres" --redis-url "$redis" --spare-redis-url "$(scripts/redis url "$spare")" "$@"
# shellcheck disable=SC2016
printf '```\n'
