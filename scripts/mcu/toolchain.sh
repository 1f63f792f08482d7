#!/usr/bin/env bash
# Puts a rustc with the sources of core, and its clippy, into target/thumb, from
# Debian packages: rustup has no sources or targets to download on some networks.
# Leaves rustup and /usr alone, and needs no root. A user with rustup can run
# `rustup target add thumbv7em-none-eabihf` instead.
# Needs: apt (Debian 12), rustup's cargo and its rust-lld.
set -euo pipefail
prefix=${1:-${CARGO_TARGET_DIR:-target}/thumb}
mkdir -p "$prefix/debs"
prefix=$(cd "$prefix" && pwd)
[ -e "$prefix/env" ] && [ -x "$prefix/usr/bin/clippy-driver" ] && exit 0
lld=$(ls "$(rustc --print sysroot)"/lib/rustlib/*/bin/rust-lld)
cd "$prefix/debs"
dep() { apt-cache depends "$1" | awk -v p="$2" '$1 == "Depends:" && $2 ~ p { print $2; exit }'; }
# The compiler is in two libraries whose names have its version in them.
driver=$(dep libstd-rust-web-dev '^libstd-rust-web-[0-9]')
if [ -z "$driver" ] && [ "$(id -u)" -eq 0 ]; then
    # A fresh machine has no list of packages.
    apt-get update -qq
    driver=$(dep libstd-rust-web-dev '^libstd-rust-web-[0-9]')
fi
if [ -z "$driver" ]; then
    echo "toolchain: apt knows no libstd-rust-web-dev: apt-get update, or rustup target add" \
        "thumbv7em-none-eabihf" >&2
    exit 1
fi
llvm=$(dep "$driver" '^libllvm')
apt-get download -q rustc-web libstd-rust-web-dev rust-web-src rust-web-clippy "$driver" "$llvm"
for package in rustc-web_* rust-web-clippy_* libstd-rust-web-dev_* "$driver"_* "$llvm"_*; do
    dpkg-deb -x "$package" "$prefix"
done
dpkg-deb --fsys-tarfile rust-web-src_* |
    tar -x -C "$prefix" --wildcards './usr/src/rustc-*/library' './usr/lib/rustlib/src*'
rm -rf "$prefix/debs" "$prefix/usr/share"
cat > "$prefix/env" <<EOF
export RUSTC=$prefix/usr/bin/rustc RUSTDOC=$prefix/usr/bin/rustdoc RUSTC_BOOTSTRAP=1
export CARGO_CLIPPY=$prefix/usr/bin/cargo-clippy
export LD_LIBRARY_PATH=$prefix/usr/lib/x86_64-linux-gnu
export CARGO_TARGET_THUMBV7EM_NONE_EABIHF_LINKER=$lld
EOF
