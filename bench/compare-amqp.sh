#!/usr/bin/env bash
# Measures the dunlin broker with AMQP 1.0 beside ActiveMQ Artemis (embedded,
# without persistence) on this machine in one run, with `dunlin bench` over TCP,
# and prints a Markdown table.
#
#   bench/compare-amqp.sh            whole table, about 5 minutes
#   bench/compare-amqp.sh --quick    one short repetition, to see that it works
#
# DUNLIN    the release binary (default: target/release/dunlin)
# TMPDIR    where the brokers keep their data; must be a disk, not memory
#
# Artemis comes from Maven Central; without java and mvn its cells are left out,
# visibly.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/options.sh"
options "--quick" "$@"
command -v python3 >/dev/null || { echo "compare-amqp.sh: python3 is needed" >&2; exit 1; }
export DUNLIN=${DUNLIN:-${CARGO_TARGET_DIR:-$here/../target}/release/dunlin}
if [ ! -x "$DUNLIN" ]; then
    echo "compare-amqp.sh: $DUNLIN is not there; build it with: cargo build --release -p dunlin" >&2
    exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/compare_amqp.py" "$@"
