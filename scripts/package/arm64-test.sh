#!/usr/bin/env bash
# Runs programs for arm64 under QEMU's emulation of user programs: each starts the broker, and
# this machine's dunlin publishes and receives over QUIC, TLS and TCP; the program stops and
# starts again, and what it kept is there. A program that has clients sends and receives too.
#
#   scripts/package/arm64-test.sh [PROGRAM]...      (those of arm64.sh without a word)
#
# DUNLIN is this machine's dunlin. Needs qemu-aarch64 and glibc for arm64, which it installs
# as root (Debian: qemu-user-static, libc6-arm64-cross); without them it skips itself in one line.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
target=${CARGO_TARGET_DIR:-$PWD/target}
dunlin=$(realpath -m "${DUNLIN:-$target/release/dunlin}")
# Where glibc for arm64 is.
libraries=/usr/aarch64-linux-gnu
find_emulator() { command -v qemu-aarch64 || command -v qemu-aarch64-static || true; }
emulator=$(find_emulator)
if { [ -z "$emulator" ] || [ ! -d "$libraries" ]; } && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        qemu-user-static libc6-arm64-cross >/dev/null || true
    emulator=$(find_emulator)
fi
programs=("$@")
if [ $# = 0 ]; then
    folder=$target/aarch64-unknown-linux-gnu
    for program in "$folder/small/dunlin-small" "$folder/release/dunlin"; do
        [ ! -f "$program" ] || programs+=("$program")
    done
fi
[ -n "$emulator" ] || skip arm64 'no qemu-aarch64 (Debian: qemu-user-static)'
[ -d "$libraries" ] || skip arm64 "no $libraries (Debian: libc6-arm64-cross)"
[ -x "$dunlin" ] || skip arm64 "no $dunlin"
[ ${#programs[@]} -gt 0 ] || skip arm64 'no program for arm64; make one with: make arm64'
exec python3 -B scripts/package/arm64_test.py "$dunlin" "$emulator" "$libraries" "${programs[@]}"
