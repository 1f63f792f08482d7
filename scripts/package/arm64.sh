#!/bin/sh
# Builds for arm64 (Linux, glibc) on this machine: the broker alone as `make small` does, then
# the whole program, in target/aarch64-unknown-linux-gnu/. What it needs beside Cargo it
# installs: see arm64-env.sh.
#
#   scripts/package/arm64.sh [small | whole]...      (both without a word)
#
# PROFILE is the profile of the whole program: release, or small.
set -eu
cd "$(dirname "$0")/../.."
. scripts/package/arm64-env.sh
target=${CARGO_TARGET_DIR:-$PWD/target}
[ $# -gt 0 ] || set -- small whole
for what in "$@"; do
    case $what in
    small)
        scripts/package/small.sh "$arm64"
        # The whole program may take its place.
        cp "$target/$arm64/small/dunlin" "$target/$arm64/small/dunlin-small"
        ;;
    whole)
        "${CARGO:-cargo}" build --locked --profile "${PROFILE:-release}" --package dunlin --bin dunlin \
            --target "$arm64"
        program=$target/$arm64/${PROFILE:-release}/dunlin
        echo "arm64: $program has $(wc -c <"$program") bytes"
        ;;
    *) arm64_fail "there is no $what: small or whole" ;;
    esac
done
