#!/bin/sh
# Builds a Debian package of the release binary, with the service, the manual pages
# and the completions, in target/debian/.
#
#   scripts/package/deb.sh
#
# cargo-deb is installed in target/tools if it is not there.
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
"$cargo" build --release --locked --package dunlin
dunlin=$target/release/dunlin
made=$target/release/package
rm -rf "$made"
mkdir -p "$made"
"$dunlin" man --out "$made/man1"
gzip -9n "$made"/man1/*.1
"$dunlin" completions bash > "$made/dunlin.bash"
"$dunlin" completions zsh > "$made/_dunlin"
"$dunlin" completions fish > "$made/dunlin.fish"
rm -f "$target"/debian/dunlin_*.deb
"$tool" --no-build --strip --package dunlin --output "$target/debian/"
ls -l "$target"/debian/dunlin_*.deb
