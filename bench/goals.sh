#!/usr/bin/env bash
# Measures what fleets over QUIC cost beside TLS and mosquitto, and prints the table
# of goals in Markdown: what is so now, and what it is to be.
#
#   bench/goals.sh              whole table, about half an hour
#   bench/goals.sh --quick      shortest form, to see that it works
#   --devices N --rate N        of the fleet: 2,000 and 5,000 messages/s; quick: 100 and 250
#   --idle N                    silent connections over QUIC: 10,000; quick: 200
#
# Each row is a ratio of what was measured in this run, brokers in turn. A row that
# cannot be measured here says why; links and the experiments on them need root.
#
# DUNLIN      the release binary (default: target/release/dunlin)
# DUNLIN_LAB  the testbed (default: beside DUNLIN)
# MOSQUITTO   default: mosquitto from PATH or /usr/sbin
# TMPDIR      where brokers keep their data; must be a disk, not memory
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/options.sh"
options "--quick --devices --rate --idle" "$@"
command -v python3 >/dev/null || { echo "goals.sh: python3 is needed" >&2; exit 1; }
export DUNLIN=${DUNLIN:-${CARGO_TARGET_DIR:-$here/../target}/release/dunlin}
export DUNLIN_LAB=${DUNLIN_LAB:-${DUNLIN%/*}/dunlin-lab}
if [ ! -x "$DUNLIN" ]; then
    echo "goals.sh: $DUNLIN is not there; build it with: cargo build --release -p dunlin -p dunlin-lab" >&2
    exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/goals.py" "$@"
