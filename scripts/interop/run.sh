#!/usr/bin/env bash
# Third-party clients against a running broker. Prints a table and, last,
# `N passed, N failed, N skipped`.
#
#   scripts/interop/run.sh [--broker NAME] [--quic-peers] [--tunnel] [--only CLIENT] [--over TRANSPORT]
#
# DUNLIN names the binary; without it, the newer of target/release/dunlin and
# target/debug/dunlin is taken. What is not installed is skipped in words;
# scripts/setup-test.sh installs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need interop python3
exec python3 -B scripts/interop/run.py "$@"
