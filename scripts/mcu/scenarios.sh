#!/usr/bin/env bash
# usage: scripts/mcu/scenarios.sh [--smoltcp] [--client-certificate] [--quick]
#                                 [--only NAME] [--show] [PROVIDER]
# Builds the firmware with a provider of cryptography (tiny if none is named), with
# the features that are named, and lets it show under QEMU what it must do: report,
# resume with early data, across restarts, losses and changes of address. DUNLIN
# names the broker's binary. Prints, last, `N passed, N failed, N skipped`.
set -euo pipefail
cd "$(dirname "$0")/../.."
provider=tiny
more=
options=()
while [ $# -gt 0 ]; do
    case "$1" in
    tiny | fast) provider=$1 ;;
    --smoltcp | --client-certificate) more+=,${1#--} && options+=("$1") ;;
    *) options+=("$1") ;;
    esac
    shift
done
for program in qemu-system-arm python3 openssl readelf; do
    if ! command -v "$program" >/dev/null; then
        echo "firmware: skipped: no $program"
        echo '0 passed, 0 failed, 1 skipped'
        exit 0
    fi
done
image=$(scripts/mcu/build.sh --no-default-features \
    --features "$provider,early-data,key-update,migration,resumption,retry$more")
exec python3 -B scripts/mcu/scenarios.py "$image" "${options[@]}"
