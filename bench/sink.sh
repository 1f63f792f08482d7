#!/usr/bin/env bash
# Measures what a message costs `dunlin sink` on its way into PostgreSQL; prints Markdown,
# and exits with 1 where the sink's process takes more than 10 µs of CPU for a message, so
# that one core does not store 100,000 a second, where less than 100,000 a second come into
# the table, and where one is lost or there twice. Messages wait at the broker, in the
# durable session of the sink, before it starts. Cases, those without a goal for the rate
# in brackets:
#   plain    payload, topic, time: payloads are not decoded
#   json     five columns of a JSON object
#   select   the same, where an expression of CEL selects every other message
#   compute  the same as json, where CEL computes one column
#   keyed    the same as json into a table with a key, `on_conflict = "nothing"`
#   (default)  the same as json at a broker with its default limits: 1,024 messages in flight
#   (kafka, kafka-json)  into Kafka, if `make setup` has installed it
#
#   bench/sink.sh [CASE ...]   about 8 minutes; needs PostgreSQL (initdb, postgres, psql)
#   bench/sink.sh --quick      few messages, to see that it works: no goal but that all are there
#
# DUNLIN     the release binary (default: target/release/dunlin)
# BESIDE     another one, whose `dunlin sink` is measured in turn, with the ratio of both
# MESSAGES   of each repetition (default: 400,000)
# REPEAT     repetitions, of which the median counts (default: 3)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/options.sh"
options "--quick" "$@"
command -v python3 >/dev/null || { echo "sink.sh: python3 is needed" >&2; exit 1; }
export DUNLIN=${DUNLIN:-${CARGO_TARGET_DIR:-$here/../target}/release/dunlin}
for binary in "$DUNLIN" ${BESIDE:+"$BESIDE"}; do
    if [ ! -x "$binary" ]; then
        echo "sink.sh: $binary is not there; build it with: cargo build --release -p dunlin" >&2
        exit 1
    fi
done
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/sink.py" "$@"
