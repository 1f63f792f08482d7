#!/usr/bin/env bash
# usage: scripts/mcu/lint.sh
# Format and clippy of the firmware, whose packages have workspaces of their own:
# on this host what runs on one, and for the Cortex-M4 what runs there, with the
# clippy of rustup if it has the target, and else that of scripts/mcu/toolchain.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$target/lint"
target=$(cd "$target" && pwd)
for package in mini/firmware/*/; do
    (cd "$package" && "${CARGO:-cargo}" fmt --check)
done
export CARGO_TARGET_DIR=$target/lint

# Of a package: arguments of Cargo follow.
clippy() {
    echo "lint: $*"
    (cd "mini/firmware/$1" && shift && "${CARGO_CLIPPY:-cargo-clippy}" clippy -q --locked "$@" -- -D warnings)
}
clippy linux
clippy c

thumb=(--target thumbv7em-none-eabihf)
if ! rustup target list --installed 2>/dev/null | grep -qx thumbv7em-none-eabihf; then
    scripts/mcu/toolchain.sh "$target/thumb"
    # shellcheck source=/dev/null
    . "$target/thumb/env"
    thumb+=(-Zbuild-std=core -Zbuild-std-features=optimize_for_size)
fi
# One for all, so that they share what they depend on.
export RUSTFLAGS="-C target-cpu=cortex-m4" CARGO_PROFILE_DEV_PANIC=abort
clippy c "${thumb[@]}" --features client-certificate,mps2
clippy image "${thumb[@]}" --features authority,chacha20-poly1305,client-certificate,hello-retry,qos2
clippy image "${thumb[@]}" --features smoltcp
clippy size "${thumb[@]}" --features chacha20-poly1305,client-certificate
clippy bench "${thumb[@]}" --features tiny
if command -v arm-none-eabi-gcc >/dev/null; then
    clippy image "${thumb[@]}" --features fast
    clippy bench "${thumb[@]}" --features fast
else
    echo "lint: fast: skipped: needs arm-none-eabi-gcc (package gcc-arm-none-eabi)" >&2
fi
