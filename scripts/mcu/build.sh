#!/usr/bin/env bash
# usage: scripts/mcu/build.sh [ARGUMENTS OF CARGO BUILD]
# Builds the firmware and prints the path of its image. Takes the compiler of
# rustup if it has the target, and else the one of scripts/mcu/toolchain.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
if ! rustup target list --installed 2>/dev/null | grep -qx thumbv7em-none-eabihf; then
    scripts/mcu/toolchain.sh "$target/thumb" >&2
    # shellcheck source=/dev/null
    . "$target/thumb/env"
fi
export CARGO_TARGET_DIR="$target/firmware"
(cd mini/firmware/image && "${CARGO:-cargo}" build --quiet --release --locked "$@") >&2
echo "$CARGO_TARGET_DIR/thumbv7em-none-eabihf/release/dunlin-firmware"
