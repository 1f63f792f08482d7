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
. scripts/skip.sh
need interop python3 mosquitto_sub openssl
exec python3 -B scripts/interop/run_bridge.py "$@"
