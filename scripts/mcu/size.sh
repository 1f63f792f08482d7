#!/usr/bin/env bash
# usage: scripts/mcu/size.sh [--symbols] [IMAGE...]
# Builds the firmware with each provider of cryptography (tiny, fast) and, as
# "smoltcp", with tiny and that network, or those that are named, prints what the
# image takes, and fails if that is more than
# scripts/mcu/sizes.toml allows, or if the image has a path to a panic.
# --symbols lists the largest functions. Needs readelf (package binutils).
set -euo pipefail
cd "$(dirname "$0")/../.."
symbols=
[ "${1:-}" = --symbols ] && { symbols=1; shift; }
if [ $# -eq 0 ]; then
    set -- tiny smoltcp
    if command -v arm-none-eabi-gcc >/dev/null; then
        set -- tiny fast smoltcp
    else
        echo "size: fast: skipped: needs arm-none-eabi-gcc (package gcc-arm-none-eabi)" >&2
    fi
fi
parts=early-data,key-update,migration,resumption,retry

# Bytes of the sections of $elf whose names match.
bytes() {
    readelf -SW "$elf" | sed 's/^ *\[ *[0-9]*\] *//' |
        awk -v p="$1" '$1 ~ p { print "0x" $5 }' | { sum=0; while read -r n; do sum=$((sum + n)); done; echo "$sum"; }
}
# A figure of sizes.toml.
allowed() {
    awk -v t="[$1]" -v k="$2" '$0 == t { on = 1; next } /^\[/ { on = 0 } on && $1 == k { print $3 }' \
        scripts/mcu/sizes.toml
}

failed=0
printf '%-8s %10s %10s\n' image flash static
for provider in "$@"; do
    features=$provider
    [ "$provider" = smoltcp ] && features=tiny,smoltcp
    elf=$(scripts/mcu/build.sh --no-default-features --features "$features,$parts")
    flash=$(bytes '^[.](vector_table|text|rodata|data)$')
    static=$(bytes '^[.](bss|data|uninit)$')
    printf '%-8s %10d %10d\n' "$provider" "$flash" "$static"
    if [ "$flash" -gt "$(allowed "$provider" flash)" ]; then
        echo "size: $provider: more than $(allowed "$provider" flash) bytes of flash" >&2
        failed=1
    fi
    if [ "$static" -gt "$(allowed "$provider" static)" ]; then
        echo "size: $provider: more than $(allowed "$provider" static) bytes of static memory" >&2
        failed=1
    fi
    # Not grep -q: readelf would fail when its output is not read to the end.
    if readelf -sW "$elf" | grep image_can_panic >/dev/null; then
        echo "size: $provider: the image can panic" >&2
        # Where that is known, sizes.toml says why.
        [ -n "$(allowed "$provider.missed" panics)" ] || failed=1
    fi
    if [ -n "$symbols" ]; then
        readelf -sW "$elf" | awk '$4 == "FUNC" { print $3, $8 }' | sort -rn | head -40
    fi
done
exit "$failed"
