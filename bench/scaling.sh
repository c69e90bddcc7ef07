#!/usr/bin/env bash
# Simulates one long video on fleets of every size, and writes docs/scaling.md and its picture.
#
#   make scaling
set -euo pipefail
cd "$(dirname "$0")/.."
vodmill=${VODMILL:-${CARGO_TARGET_DIR:-target}/release/vodmill}

table=$("$vodmill" bench scaling --svg docs/scaling.svg)
cat >docs/scaling.md <<TEXT
# How it scales

One two-hour video (1080p, 30 frames a second) on fleets of 1 to 1,000 workers, simulated by \`vodmill bench scaling\`: no frame is
encoded, but the chunks are the planner's, and leases, recovery and hedging follow the product's rules. A worker encodes the whole
ladder at 0.4 times the speed of playing, as one core of the benchmark machine does with \`veryfast\`; scenes differ in difficulty.
In the rough fleet one worker in fifty is four times slower, and each dies once an hour on average, whatever it does; its chunk is
missed when its lease of 60 s has run out, and its machine is back after two minutes. Ideal is all of the work divided by the
workers, with nothing before and nothing after.

$table

![Speed-up over workers](scaling.svg)

- A chunk is at least 12 seconds long, so two hours have at most 600: beyond that, workers have nothing to do for one video. A second
  video would give it to them.
- What remains at the end of a large fleet is what cannot be shared: probing and planning, the last chunk, and the gate.
- Set \`parallel\` (\`VODMILL_PARALLEL\`) to the number of slots of the fleet: the planner cuts a video accordingly.
- Hedging matters where one slow worker holds the last chunk; where there are many chunks for each worker it hardly does.

Made by \`make scaling\`; the same seed gives the same figures.
TEXT
