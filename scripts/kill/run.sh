#!/usr/bin/env bash
# Kills the broker again and again under load and looks for lost and doubled
# messages; with AMQP its clients and their connections too (--kills of all three). The last line is `N passed, N failed, N skipped`.
#
#   scripts/kill/run.sh [--short] [--rounds N] [--seed N] [--broker dunlin|mosquitto]
#                       [--amqp] [--kills N]
#
# DUNLIN names the binary, as for scripts/interop/run.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need kill python3 openssl
exec python3 -B scripts/kill/run.py "$@"
