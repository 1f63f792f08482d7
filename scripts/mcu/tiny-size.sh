#!/usr/bin/env bash
# usage: [DUNLIN=target/debug/dunlin] [CC=musl-gcc] [TARGET=triple] scripts/mcu/tiny-size.sh
# Makes dunlin-tiny for routers and gateways, as target/tiny-static/dunlin-tiny:
# one static program without the standard library. Fails if it is over the budget
# in scripts/mcu/sizes.toml, or needs anything beside it; then runs it against
# the broker, where DUNLIN is one.
# For another machine, CC is its compiler and TARGET the triple that rustc has a
# `core` for, such as aarch64-unknown-linux-musl.
set -euo pipefail
cd "$(dirname "$0")/../.."
cc=${CC:-musl-gcc}
if ! command -v "$cc" >/dev/null; then
    echo "tiny-size: skipped: $cc is not installed (Debian: musl-tools)" >&2
    exit 0
fi
budget=$(awk '$0 == "[dunlin-tiny]" { on = 1; next } /^\[/ { on = 0 } on && $1 == "static" { print $3 }' scripts/mcu/sizes.toml)
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$target/tiny-static"
out=$(cd "$target/tiny-static" && pwd)
(
    cd mini/firmware/linux
    # Nothing unwinds, so no tables for that.
    CARGO_TARGET_DIR=$out RUSTFLAGS="-C force-unwind-tables=no -C relocation-model=static" \
        "${CARGO:-cargo}" build -q --release --locked ${TARGET:+--target "$TARGET"}
)
"$cc" -static -no-pie "$out/${TARGET:+$TARGET/}release/libdunlin_tiny_static.a" \
    -Wl,--gc-sections,-z,noseparate-code,--build-id=none -s -o "$out/dunlin-tiny"
if readelf -lW "$out/dunlin-tiny" | grep -E '^ *(INTERP|DYNAMIC)'; then
    echo "tiny-size: not static" >&2
    exit 1
fi
size=$(stat -c %s "$out/dunlin-tiny")
echo "dunlin-tiny: $size bytes, static and stripped; budget $budget"
[ "$size" -le "$budget" ] || { echo "tiny-size: over the budget" >&2; exit 1; }
if [ -n "${DUNLIN:-}" ] && [ -z "${TARGET:-}" ]; then
    python3 -B scripts/mcu/tiny_static.py "$out/dunlin-tiny"
fi
