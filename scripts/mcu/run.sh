#!/usr/bin/env bash
# usage: scripts/mcu/run.sh [ARGUMENTS OF CARGO BUILD]
# Runs the firmware under QEMU against a broker started for it, and tells what
# happens. DUNLIN names the broker's binary.
set -euo pipefail
cd "$(dirname "$0")/../.."
for program in qemu-system-arm python3 openssl readelf; do
    command -v "$program" >/dev/null || { echo "firmware: skipped: no $program"; exit 0; }
done
image=$(scripts/mcu/build.sh "$@")
exec python3 -B scripts/mcu/run.py "$image"
