#!/usr/bin/env bash
# usage: scripts/mcu/engine-size.sh [--symbols]
# Flash of the QUIC engine on a Cortex-M4 by feature, without cryptography,
# board and MQTT; fails if the image has a path to a panic, or more than the
# budget. --symbols lists the largest functions of the full build.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
scripts/mcu/toolchain.sh "$target/thumb"
# shellcheck source=/dev/null
. "$target/thumb/env"
export CARGO_TARGET_DIR="$target/engine-size"
elf="$CARGO_TARGET_DIR/thumbv7em-none-eabihf/release/dunlin-engine-size"
# The whole image of 40 KB leaves this much for the engine.
budget=29000

build() { (cd mini/firmware/size && cargo build -q --release --locked --no-default-features --features "$1"); }
# Bytes of the sections whose names match.
bytes() {
    local sum=0 size
    for size in $(readelf -SW "$elf" | sed 's/^ *\[ *[0-9]*\] *//' | awk -v p="$1" '$1 ~ p { print $5 }'); do
        sum=$((sum + 16#$size))
    done
    echo "$sum"
}
flash() { bytes '^[.](text|rodata|data)$'; }
ram() { bytes '^[.](bss|data)$'; }

all=authority,early-data,hello-retry,key-update,migration,resumption,retry
printf '%-17s %8s %8s\n' features flash static
for features in "" authority chacha20-poly1305 client-certificate resumption early-data hello-retry key-update migration retry "$all"; do
    build "$features"
    [ "$features" = "$all" ] && name=all || name=${features:-none}
    printf '%-17s %8d %8d\n' "$name" "$(flash)" "$(ram)"
done
# Not grep -q: readelf would fail when its output is not read to the end.
if readelf -sW "$elf" | grep no_panic >/dev/null; then
    echo "engine-size: the image can panic" >&2
    exit 1
fi
if [ "${1:-}" = --symbols ]; then
    readelf -sW "$elf" | awk '$4 == "FUNC" { print $3, $8 }' | sort -rn | head -40
fi
[ "$(flash)" -le "$budget" ] || { echo "engine-size: over the budget of $budget" >&2; exit 1; }
