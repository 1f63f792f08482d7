#!/usr/bin/env bash
# Our bridge with mosquitto as the other broker: over TCP, TLS and WebSocket, in MQTT 5.0
# and 3.1.1, each QoS both ways, and while mosquitto is away. Prints, last, `N passed,
# N failed, N skipped`.
#
#   scripts/interop/bridge.sh [--all]
#
# Without --all, over TCP and TLS only. DUNLIN names the binary, as for run.sh. What is not installed is skipped in words.
set -euo pipefail
cd "$(dirname "$0")/../.."
for program in python3 mosquitto_sub openssl; do
    if ! command -v "$program" >/dev/null; then
        echo "interop: skipped: no $program"
        echo '0 passed, 0 failed, 1 skipped'
        exit 0
    fi
done
exec python3 -B scripts/interop/run_bridge.py "$@"
