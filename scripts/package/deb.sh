#!/bin/sh
# Builds a Debian package of the release binary, with the service, the manual pages
# and the completions, in target/debian/.
#
#   scripts/package/deb.sh [arm64]
#
# arm64: for arm64 on another machine, by what arm64-env.sh installs; the program runs under
# QEMU then (qemu-user-static), to write its manual pages. cargo-deb is installed in
# target/tools if it is not there.
set -eu
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
version=3.8.0
tool=$target/tools/bin/cargo-deb
if [ ! -x "$tool" ]; then
    echo "installing cargo-deb $version in $target/tools: some minutes"
    "$cargo" install cargo-deb --locked --quiet --version "$version" --root "$target/tools"
fi
case ${1:-} in
'') triple= folder=$target/release architecture=$(dpkg --print-architecture) emulated= ;;
arm64)
    . scripts/package/arm64-env.sh
    triple=$arm64 folder=$target/$arm64/release architecture=arm64
    emulated="$(command -v qemu-aarch64 || command -v qemu-aarch64-static) -L /usr/aarch64-linux-gnu" || {
        echo 'deb.sh: qemu-aarch64 is missing: apt-get install qemu-user-static' >&2
        exit 1
    }
    ;;
*)
    echo "deb.sh: no package for $1: arm64, or this machine without a word" >&2
    exit 1
    ;;
esac
"$cargo" build --release --locked --package dunlin ${triple:+--target "$triple"}
dunlin() { $emulated "$folder/dunlin" "$@"; }
made=$folder/package
rm -rf "$made"
mkdir -p "$made"
dunlin man --out "$made/man1"
gzip -9n "$made"/man1/*.1
dunlin completions bash > "$made/dunlin.bash"
dunlin completions zsh > "$made/_dunlin"
dunlin completions fish > "$made/dunlin.fish"
rm -f "$target"/debian/dunlin_*_"$architecture".deb
"$tool" --no-build --strip --package dunlin ${triple:+--target "$triple"} --output "$target/debian/"
ls -l "$target"/debian/dunlin_*_"$architecture".deb
