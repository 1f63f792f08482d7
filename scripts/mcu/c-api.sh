#!/usr/bin/env bash
# usage: DUNLIN=target/debug/dunlin scripts/mcu/c-api.sh
# Builds the C library and its example: for this host, and runs it against the
# broker; for a Cortex-M4 where arm-none-eabi-gcc is installed, and runs it
# against the broker where qemu-system-arm is.
# A library with a path to a panic does not link.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$target/c-api"
target=$(cd "$target" && pwd)
out=$target/c-api
flags=(-std=c11 -Wall -Wextra -Wpedantic -Werror -Os -ffunction-sections -fdata-sections
    -I mini/dunlin-tiny-c/include -I mini/firmware/c/example)
example=mini/firmware/c/example

(cd mini/firmware/c && CARGO_TARGET_DIR=$out "${CARGO:-cargo}" build -q --release --locked)
"${CC:-cc}" "${flags[@]}" "$example/main.c" "$example/posix.c" \
    "$out/release/libdunlin_tiny.a" -Wl,--gc-sections -s -o "$out/example"
echo "c-api: example on this host: $(stat -c %s "$out/example") bytes"
# Without any library of the system, where musl is installed.
if command -v musl-gcc >/dev/null; then
    musl-gcc -static "${flags[@]}" "$example/main.c" "$example/posix.c" \
        "$out/release/libdunlin_tiny.a" -Wl,--gc-sections -s -o "$out/example-static"
    echo "c-api: example on this host, static with musl: $(stat -c %s "$out/example-static") bytes"
    python3 -B scripts/mcu/c_api.py "$out/example-static"
fi
# The header alone is for older languages, and for C++.
header() {
    echo '#include "dunlin_tiny.h"' | "$@" -Wall -Wextra -Wpedantic -Wundef -Werror \
        -I mini/dunlin-tiny-c/include -fsyntax-only -
}
header "${CC:-cc}" -x c -std=c99 -Wstrict-prototypes
if command -v "${CXX:-c++}" >/dev/null; then
    for standard in c++11 c++20; do
        header "${CXX:-c++}" -x c++ -std=$standard
    done
fi
"${CC:-cc}" "${flags[@]}" "$example/words.c" "$example/posix.c" \
    "$out/release/libdunlin_tiny.a" -Wl,--gc-sections -s -o "$out/words"
# With certificates of the device, which need more room.
(cd mini/firmware/c && CARGO_TARGET_DIR=$out/certificates "${CARGO:-cargo}" build -q --release \
    --locked --features client-certificate)
"${CC:-cc}" "${flags[@]}" -DHELLO=1536 "$example/main.c" "$example/posix.c" \
    "$out/certificates/release/libdunlin_tiny.a" -Wl,--gc-sections -s -o "$out/identified"
echo "c-api: example with certificates on this host: $(stat -c %s "$out/identified") bytes"
python3 -B scripts/mcu/c_api.py "$out/example" "$out/words" "$out/identified"

if ! command -v arm-none-eabi-gcc >/dev/null; then
    echo "c-api: skipped: Cortex-M4: arm-none-eabi-gcc is not installed" >&2
    exit 0
fi
(
    scripts/mcu/toolchain.sh "$target/thumb"
    # shellcheck source=/dev/null
    . "$target/thumb/env"
    cd mini/firmware/c
    CARGO_TARGET_DIR=$out RUSTFLAGS="-C target-cpu=cortex-m4" "${CARGO:-cargo}" build -q --release \
        --locked --features mps2 \
        --target thumbv7em-none-eabihf -Zbuild-std=core -Zbuild-std-features=optimize_for_size
)
cd "$root"
arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 "${flags[@]}" \
    "$example/main.c" "$example/bare.c" "$example/boot.c" \
    "$out/thumbv7em-none-eabihf/release/libdunlin_tiny.a" \
    -nostartfiles -specs=nano.specs -T "$example/mps2.ld" -Wl,--gc-sections -Wl,-z,noexecstack \
    -o "$out/example.elf"
echo "c-api: example on a Cortex-M4, with the board:"
arm-none-eabi-size "$out/example.elf"
if ! command -v qemu-system-arm >/dev/null; then
    echo "c-api: skipped: run on a Cortex-M4: qemu-system-arm is not installed" >&2
    exit 0
fi
python3 -B scripts/mcu/c_board.py "$out/example.elf"
