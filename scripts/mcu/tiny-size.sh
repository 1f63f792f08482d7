#!/usr/bin/env bash
# usage: scripts/mcu/tiny-size.sh
# Builds dunlin-tiny as small as it gets, and fails if it is over the budget in
# scripts/mcu/sizes.toml.
set -euo pipefail
cd "$(dirname "$0")/../.."
budget=$(awk '$0 == "[dunlin-tiny]" { on = 1; next } /^\[/ { on = 0 } on && $1 == "binary" { print $3 }' scripts/mcu/sizes.toml)
target=${CARGO_TARGET_DIR:-$PWD/target}
"${CARGO:-cargo}" build -q --profile tiny --package dunlin-tiny --bin dunlin-tiny
size=$(stat -c %s "$target/tiny/dunlin-tiny")
echo "dunlin-tiny: $size bytes stripped, budget $budget"
[ "$size" -le "$budget" ] || { echo "tiny-size: over the budget" >&2; exit 1; }
