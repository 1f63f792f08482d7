#!/usr/bin/env bash
# usage: [INTEROP=target/debug/examples/interop] scripts/mcu/interop.sh [--peer NAME]...
#            [--only SCENARIO]... [--book]
# The small client over sockets against QUIC servers by others: quinn, s2n-quic,
# quiche (needs cmake and C++), aioquic (from target/venv), quic-go (needs Go).
# A peer that cannot be built here is skipped with one line that says why. --book
# writes the table into docs/book/src/mcu-interop.md. INTEROP names the client
# where it is built already.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
if [ -z "${INTEROP:-}" ]; then
    "${CARGO:-cargo}" build -q --package dunlin-tiny --example interop
    INTEROP=$target/debug/examples/interop
fi
exec python3 -B scripts/mcu/interop.py "$INTEROP" "$@"
