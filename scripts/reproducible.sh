#!/bin/sh
# Builds a release program twice, from two folders with names of different
# lengths, and compares the files byte by byte. Takes twice the time of a build.
#
# usage: scripts/reproducible.sh [PACKAGE]
set -eu

package=${1:-dunlin}
root=$(git rev-parse --show-toplevel)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
work=${CARGO_TARGET_DIR:-$root/target}/reproducible
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

rm -rf "$work"
for place in one another-place; do
    folder=$work/$place
    mkdir -p "$folder"
    git -C "$root" archive HEAD | tar -x -C "$folder"
    # Paths in panics, debug information and C are those of no machine.
    map="$folder=/dunlin"
    RUSTFLAGS="--remap-path-prefix=$map --remap-path-prefix=$cargo_home=/cargo" \
    CFLAGS="-ffile-prefix-map=$map -ffile-prefix-map=$cargo_home=/cargo" \
    CARGO_TARGET_DIR="$folder/target" CARGO_INCREMENTAL=0 \
        cargo build --quiet --release --locked --package "$package" --bins \
        --manifest-path "$folder/Cargo.toml"
done

status=0
for program in "$work"/one/target/release/*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    name=$(basename "$program")
    if cmp "$program" "$work/another-place/target/release/$name"; then
        echo "reproducible: $name $(sha256sum "$program" | cut -d' ' -f1)"
    else
        status=1
    fi
done
exit $status
