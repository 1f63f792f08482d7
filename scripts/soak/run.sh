#!/usr/bin/env bash
# Load, kills, a full disk, changes of address and attacks, one after another,
# and one table: what was lost, doubled, held in memory and how long it took.
# The last line is `N passed, N failed, N skipped`.
#
#   scripts/soak/run.sh [--short] [--seconds N] [--shards N] [--seed N]
#
# DUNLIN names the binary, as for scripts/interop/run.sh. The full disk is a
# small file system in memory, which only root can mount.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need soak python3 openssl
exec python3 -B scripts/soak/run.py "$@"
