#!/bin/sh
# Builds the broker alone, as small as it gets: MQTT over QUIC, TCP, TLS, WebSocket, with
# `ctl`, `cert`, `cid`, `passwd` and `store`. Fails if it is over the limit of paper 002.
#
#   scripts/package/small.sh [TRIPLE]      (of another machine: arm64.sh uses it)
#
# Linux with GNU's or LLVM's linker, and glibc 2.36 or musl 1.2.4 where it runs, because its
# relocations are packed.
set -eu
cd "$(dirname "$0")/../.."
# 8 MiB.
limit=8388608
triple=${1:-}
"${CARGO:-cargo}" rustc --locked --profile small --package dunlin --bin dunlin \
    --no-default-features ${triple:+--target "$triple"} -- \
    -C "link-arg=-Wl,-T,$PWD/packaging/no-unwind.ld" -C link-arg=-Wl,--no-eh-frame-hdr \
    -C link-arg=-Wl,-z,pack-relative-relocs
program=${CARGO_TARGET_DIR:-target}/${triple:+$triple/}small/dunlin
size=$(wc -c <"$program")
echo "small: $program has $size bytes; the limit is $limit"
[ "$size" -le "$limit" ] || { echo 'small: over the limit' >&2; exit 1; }
