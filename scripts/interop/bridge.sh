#!/usr/bin/env bash
# Our bridge with mosquitto and HiveMQ CE as the other broker: over TCP, TLS and WebSocket,
# in MQTT 5.0 and 3.1.1, each QoS both ways, and while the other broker is away. Prints,
# last, `N passed, N failed, N skipped`.
#
#   scripts/interop/bridge.sh [--all] [--peer mosquitto|hivemq]
#
# Without --all, over TCP and TLS only, and with mosquitto only. DUNLIN names the binary, as
# for run.sh. What is not installed is skipped in words; scripts/setup-test.sh --brokers
# installs HiveMQ CE.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need interop python3 mosquitto_sub openssl
exec python3 -B scripts/interop/run_bridge.py "$@"
