#!/usr/bin/env bash
# Raw MQTT 5.0 against a running broker, with one shard and with two. The last
# line is `N passed, N failed, N skipped`.
#
#   scripts/conformance/run.sh [--broker dunlin|mosquitto] [--only PART_OF_NAME]
#
# DUNLIN names the binary, as for scripts/interop/run.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v python3 >/dev/null || ! command -v openssl >/dev/null; then
    echo 'conformance: skipped: no python3 or no openssl'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi
exec python3 -B scripts/conformance/run.py "$@"
