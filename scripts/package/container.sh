#!/bin/sh
# Makes a container image of a static binary in target/container/: an OCI archive, which
# podman, docker (25 or newer) and skopeo read. Needs no daemon and no root.
#
#   scripts/package/container.sh [PROGRAM]
#
# PROGRAM is a static binary. Without it one is built with the profile `small`: with musl,
# where rustup's target for it and musl-gcc are there; else with the machine's own glibc, whose
# archives (libc6-dev) are in it then. The script says which.
set -eu
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
machine=$(uname -m)
program=${1:-}
fail() {
    echo "container.sh: $1" >&2
    exit 1
}
# build TRIPLE NAME=VALUE...
build() {
    triple=$1
    shift
    env "$@" "$cargo" build --locked --profile small --package dunlin --bin dunlin --target "$triple"
    program=$target/$triple/small/dunlin
}
if [ -z "$program" ]; then
    musl=$machine-unknown-linux-musl
    gnu=$machine-unknown-linux-gnu
    if ! command -v musl-gcc >/dev/null; then
        missing='musl-gcc is missing (apt-get install musl-tools)'
    elif [ ! -d "$(rustc --print target-libdir --target "$musl")" ]; then
        missing="Rust's library for $musl is missing (rustup target add $musl)"
    else
        missing=
    fi
    if [ -z "$missing" ]; then
        build "$musl" "CC_$(echo "$musl" | tr - _)=musl-gcc"
    else
        echo "container.sh: $missing: the binary is linked with glibc instead, statically"
        # Otherwise these flags would take the place of the one below.
        [ -z "${RUSTFLAGS:-}${CARGO_ENCODED_RUSTFLAGS:-}" ] || fail 'RUSTFLAGS must not be set for that'
        [ -f "$(cc -print-file-name=libc.a)" ] || fail 'libc.a is missing: apt-get install libc6-dev'
        # Random numbers come from the system call: the crate looks for a function of shared
        # libraries otherwise, finds none, and opens /dev/random.
        build "$gnu" "CARGO_TARGET_$(echo "$gnu" | tr a-z- A-Z_)_RUSTFLAGS=-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\""
    fi
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
