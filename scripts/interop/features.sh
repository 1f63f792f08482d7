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
. scripts/skip.sh
need interop python3
exec python3 -B scripts/interop/run_features.py "$@"
