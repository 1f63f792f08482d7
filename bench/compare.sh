#!/usr/bin/env bash
# Measures the dunlin broker beside mosquitto (and, over QUIC, beside mqttv5) on
# this machine in one run, and prints a Markdown table.
#
#   bench/compare.sh            whole table, less than 10 minutes
#   bench/compare.sh --quick    one short repetition, to see that it works
#   bench/compare.sh --placement [--quick] [TABLE ...] [tcp] [quic]
#                               what it costs that publisher and subscriber are
#                               on different shards, and what an idle connection
#                               holds, about 40 minutes; tables are saturated,
#                               fleet, latency, idle
#   bench/compare.sh --fleet [--quick] [--devices N] [--rate N] [--wake N] [--idle N]
#                               many devices with a message now and then: CPU of
#                               the broker, packets, system calls, latency and
#                               memory, beside mosquitto, FlashMQ and mqttv5;
#                               --wake adds N devices that sleep and wake once a
#                               minute with tickets, --idle N silent connections
#                               over QUIC
#   bench/compare.sh --crowd [N] [--transport T] [--stay PERCENT]
#                               memory after N connections have gone (10,000), of
#                               which some stay, and how long a client that stays
#                               waits while it goes back to the system
#
# DUNLIN     the release binary (default: target/release/dunlin)
# MOSQUITTO  default: mosquitto from PATH or /usr/sbin
# MQTTV5     default: mqttv5 from PATH (cargo install mqttv5-cli); rows with it
#            are skipped, visibly, when it is not there
# FLASHMQ    default: flashmq from PATH; likewise, for --fleet
# BASELINE   another dunlin binary, measured beside DUNLIN by --placement
# TMPDIR     where the brokers keep their data; must be a disk, not memory
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/options.sh"
options "--quick --placement --fleet --devices --rate --wake --idle --crowd --transport --stay" "$@"
command -v python3 >/dev/null || { echo "compare.sh: python3 is needed" >&2; exit 1; }
export DUNLIN=${DUNLIN:-${CARGO_TARGET_DIR:-$here/../target}/release/dunlin}
if [ ! -x "$DUNLIN" ]; then
    echo "compare.sh: $DUNLIN is not there; build it with: cargo build --release -p dunlin" >&2
    exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
case " $* " in
*" --placement "*) exec python3 "$here/placement.py" "$@" ;;
*" --fleet "*)
    # A network of its own, whose packets are those of the brokers.
    if unshare --net true 2>/dev/null && command -v nft >/dev/null; then
        export FLEET_NETWORK=own
        exec unshare --net sh -c 'ip link set lo up && exec python3 "$@"' sh "$here/fleet.py" "$@"
    fi
    exec python3 "$here/fleet.py" "$@" ;;
*" --crowd "*) exec python3 "$here/crowd.py" "$@" ;;
*) exec python3 "$here/compare.py" "$@" ;;
esac
