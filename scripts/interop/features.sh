#!/usr/bin/env bash
# What QUIC offers, tried with clients by others, as a table of client and
# feature. Prints, last, `N passed, N failed, N skipped`.
#
#   scripts/interop/features.sh [--quic-peers] [--only CLIENT] [--feature NAME]
#
# DUNLIN names the binary, as for run.sh. What is not installed is skipped in
# words; scripts/setup-test.sh installs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v python3 >/dev/null; then
    echo 'interop: skipped: no python3'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi
exec python3 -B scripts/interop/run_features.py "$@"
