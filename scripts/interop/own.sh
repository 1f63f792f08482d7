#!/usr/bin/env bash
# What this repository's client does over QUIC, tried with Dunlin and with
# brokers by others, as a table of broker and feature. Prints, last, `N passed,
# N failed, N skipped`.
#
#   scripts/interop/own.sh [--brokers] [--broker NAME] [--feature NAME]
#
# DUNLIN names the binary, as for run.sh. What is not installed is skipped in
# words; scripts/setup-test.sh --brokers installs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need interop python3
exec python3 -B scripts/interop/run_own.py "$@"
