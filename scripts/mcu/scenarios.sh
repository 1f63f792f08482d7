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
. scripts/skip.sh
need firmware qemu-system-arm python3 openssl readelf
image=$(scripts/mcu/build.sh --no-default-features \
    --features "$provider,early-data,key-update,migration,resumption,retry$more")
exec python3 -B scripts/mcu/scenarios.py "$image" "${options[@]}"
