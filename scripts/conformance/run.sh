#!/usr/bin/env bash
# Raw MQTT 5.0 against a running broker, with one shard and with two. The last
# line is `N passed, N failed, N skipped`.
#
#   scripts/conformance/run.sh [--broker dunlin|mosquitto] [--only PART_OF_NAME]
#
# DUNLIN names the binary, as for scripts/interop/run.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need conformance python3 openssl
exec python3 -B scripts/conformance/run.py "$@"
