#!/usr/bin/env bash
# usage: scripts/mcu/tiny-size.sh
# Builds dunlin-tiny as small as it gets, and fails if it is over its budget.
set -euo pipefail
cd "$(dirname "$0")/../.."
# 400 KB: QUIC, TLS with its own cryptography, MQTT, and Rust's standard library.
readonly BUDGET=400000
target=${CARGO_TARGET_DIR:-$PWD/target}
"${CARGO:-cargo}" build -q --profile tiny --package dunlin-tiny --bin dunlin-tiny
size=$(stat -c %s "$target/tiny/dunlin-tiny")
echo "dunlin-tiny: $size bytes stripped, budget $BUDGET"
[ "$size" -le "$BUDGET" ] || { echo "tiny-size: over the budget" >&2; exit 1; }
