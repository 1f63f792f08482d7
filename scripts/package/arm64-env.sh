# What Cargo needs to build for arm64 on another machine: sourced by arm64.sh and deb.sh.
#
# Rust's library for arm64 is that of rustup, where its target is there. Otherwise rustc and
# the libraries for both machines are taken from Debian's packages, all of one version, and
# unpacked in target/arm64, with apt's lists for arm64 beside them: neither the machine's
# packages nor its architectures change. The C compiler and its library are packages of
# Debian, which are installed if they are missing.
#
# Needs Debian 12 or newer on x86-64; root only for the C compiler.

arm64=aarch64-unknown-linux-gnu

arm64_fail() {
    echo "arm64: $1" >&2
    exit 1
}

# Rust's own version that the crates ask for.
arm64_rust_version() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

arm64_compiler() (
    if command -v aarch64-linux-gnu-gcc >/dev/null; then
        exit
    fi
    packages='gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] ||
        arm64_fail "aarch64-linux-gnu-gcc is missing; as root: apt-get install $packages"
    echo "arm64: installing $packages"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null ||
        arm64_fail "apt-get cannot install $packages"
)

# arm64_apt PROGRAM ARGUMENT...: apt with arm64 beside this machine's packages.
arm64_apt() (
    program=$1
    shift
    "$program" -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 \
        -o Dir::State::lists="$arm64_folder/apt/lists" -o Dir::Cache="$arm64_folder/apt/cache" \
        -o APT::Sandbox::User=root "$@"
)

arm64_depends() {
    arm64_apt apt-cache show "$1" | sed -n '/^Depends: /{s/^Depends: //p;q}' | tr ',' '\n' |
        sed -n "s/^ *\($2[^ ]*\).*/\1/p" | head -1
}

# Debian's rustc, in target/arm64/rust; it names itself "web" where Debian keeps a newer one
# for browsers beside that of the release.
arm64_debian() (
    if [ -x "$arm64_folder/rustc" ]; then
        exit
    fi
    command -v apt-get >/dev/null && [ "$(dpkg --print-architecture)" = amd64 ] ||
        arm64_fail "Rust's library for $arm64 is missing: rustup target add $arm64"
    echo "arm64: Rust's library for arm64 from Debian, into $arm64_folder"
    rm -rf "$arm64_folder"
    mkdir -p "$arm64_folder/apt/lists/partial" "$arm64_folder/apt/cache/archives/partial" \
        "$arm64_folder/debs"
    arm64_apt apt-get update -qq || arm64_fail 'apt-get cannot fetch the lists of arm64'
    for web in '' -web; do
        version=$(arm64_apt apt-cache policy "libstd-rust$web-dev:arm64" | sed -n 's/^ *Candidate: //p')
        if dpkg --compare-versions "${version:-0}" ge "$(arm64_rust_version)"; then
            break
        fi
        version=
    done
    [ -n "$version" ] ||
        arm64_fail "Debian's Rust is older than $(arm64_rust_version); with rustup: rustup target add $arm64"
    # The compiler is in two libraries whose names have versions.
    driver=$(arm64_depends "libstd-rust$web-dev=$version" libstd-rust)
    llvm=$(arm64_depends "$driver=$version" libllvm)
    (
        cd "$arm64_folder/debs"
        arm64_apt apt-get download -qq "rustc$web=$version" "$driver=$version" "$llvm" \
            "libstd-rust$web-dev=$version" "libstd-rust$web-dev:arm64=$version"
    ) || arm64_fail "apt-get cannot download Rust $version for both machines"
    for package in "$arm64_folder"/debs/*.deb; do
        dpkg-deb -x "$package" "$arm64_folder/rust"
    done
    rm -rf "$arm64_folder/debs" "$arm64_folder/apt" "$arm64_folder/rust/usr/share"
    cat >"$arm64_folder/rustc.new" <<'END'
#!/bin/sh
rust=${0%/*}/rust/usr
LD_LIBRARY_PATH=$rust/lib/x86_64-linux-gnu exec "$rust/bin/rustc" "$@"
END
    chmod 755 "$arm64_folder/rustc.new"
    "$arm64_folder/rustc.new" --version
    mv "$arm64_folder/rustc.new" "$arm64_folder/rustc"
)

arm64_folder=${CARGO_TARGET_DIR:-$PWD/target}/arm64
if [ "$(uname -m)" != aarch64 ]; then
    arm64_compiler
    export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
fi
if [ ! -d "$(rustc --print target-libdir --target "$arm64" 2>/dev/null)" ]; then
    mkdir -p "$arm64_folder"
    arm64_folder=$(cd "$arm64_folder" && pwd)
    arm64_debian
    export RUSTC="$arm64_folder/rustc"
fi
