#!/usr/bin/env bash
# Measures the dunlin broker beside mosquitto (and, over QUIC, beside mqttv5) on
# this machine in one run, and prints a Markdown table.
#
#   bench/compare.sh            whole table, less than 10 minutes
#   bench/compare.sh --quick    one short repetition, to see that it works
#   bench/compare.sh --placement [--quick]
#                               what it costs that publisher and subscriber are
#                               on different shards, about 20 minutes
#
# DUNLIN     the release binary (default: target/release/dunlin)
# MOSQUITTO  default: mosquitto from PATH or /usr/sbin
# MQTTV5     default: mqttv5 from PATH (cargo install mqttv5-cli); rows with it
#            are skipped, visibly, when it is not there
# BASELINE   another dunlin binary, measured beside DUNLIN by --placement
# TMPDIR     where the brokers keep their data; must be a disk, not memory
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "compare.sh: python3 is needed" >&2; exit 1; }
export DUNLIN=${DUNLIN:-${CARGO_TARGET_DIR:-$here/../target}/release/dunlin}
if [ ! -x "$DUNLIN" ]; then
    echo "compare.sh: $DUNLIN is not there; build it with: cargo build --release -p dunlin" >&2
    exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
case " $* " in
*" --placement "*) exec python3 "$here/placement.py" "$@" ;;
*) exec python3 "$here/compare.py" "$@" ;;
esac
