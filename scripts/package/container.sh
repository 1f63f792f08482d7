#!/bin/sh
# Makes a container image of a static binary in target/container/: an OCI archive, which
# podman, docker (25 or newer) and skopeo read. Needs no daemon and no root.
#
#   scripts/package/container.sh [PROGRAM]
#
# PROGRAM is a static binary; without it one is built with the profile `small`, for which
# rustup's target for musl and musl-gcc must be there (the script says so).
set -eu
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
machine=$(uname -m)
triple=$machine-unknown-linux-musl
program=${1:-}
if [ -z "$program" ]; then
    command -v musl-gcc >/dev/null || {
        echo "container.sh: musl-gcc is missing: apt-get install musl-tools" >&2
        exit 1
    }
    libraries=$(rustc --print target-libdir --target "$triple")
    if [ ! -d "$libraries" ]; then
        echo "container.sh: Rust's library for $triple is missing: rustup target add $triple" >&2
        exit 1
    fi
    env "CC_$(echo "$triple" | tr - _)=musl-gcc" "$cargo" build --locked --profile small \
        --package dunlin --bin dunlin --target "$triple"
    program=$target/$triple/small/dunlin
fi
case $machine in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture=$machine ;;
esac
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
mkdir -p "$target/container"
python3 -B scripts/package/image.py "$program" "$architecture" "$version" \
    "$target/container/dunlin-$version-$architecture.tar"
