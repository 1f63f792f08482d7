#!/usr/bin/env bash
# Measures the dunlin broker beside ActiveMQ Artemis (embedded, without
# persistence) with AMQP 1.0 over TCP in one run, one sender and one receiver, and
# prints a Markdown table: CPU of the broker a message, and memory of an idle
# connection with a session and a receiver.
#
#   bench/compare-amqp.sh [--quick]
#
# DUNLIN    the release binary (default: target/release/dunlin)
# FLOOD     the load generator (default: the example `flood` of dunlin-amqp-client,
#           built by this script)
# ADDRESS   node of the messages (default: bench/one; /queues/NAME is a queue)
#
# Artemis comes from Maven Central; without java and mvn its rows are left out,
# visibly.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}
DUNLIN=${DUNLIN:-$target/release/dunlin}
ADDRESS=${ADDRESS:-bench/one}
messages=300000 warm=200000 idle=2000
if [ "${1:-}" = --quick ]; then messages=20000 warm=20000 idle=200; fi
if [ ! -x "$DUNLIN" ]; then
    echo "compare-amqp.sh: $DUNLIN is not there; build it with: cargo build --release -p dunlin" >&2
    exit 1
fi
if [ -z "${FLOOD:-}" ]; then
    cargo build --release --quiet --manifest-path "$here/../Cargo.toml" \
        -p dunlin-amqp-client --example flood
    FLOOD=$target/release/examples/flood
fi
work=$(mktemp -d)
broker=
stop() {
    [ -z "$broker" ] || { kill "$broker" && wait "$broker" || true; }
    broker=
} 2>/dev/null
trap 'stop; rm -rf "$work"' EXIT

start_dunlin() {
    printf '%s\n' "data_dir = \"$work/data\"" 'shards = 1' '[sys]' 'interval = "0s"' \
        '[store]' 'durability = "memory"' '[[listener]]' 'transport = "tcp"' \
        "address = \"127.0.0.1:$1\"" >"$work/dunlin.toml"
    "$DUNLIN" broker --config "$work/dunlin.toml" >"$work/dunlin.log" 2>&1 &
    broker=$!
}

start_artemis() {
    java -Xmx1g -cp "$work/artemis:$work/lib/*" Embedded "$1" >"$work/artemis.log" 2>&1 &
    broker=$!
}

# Waits until something listens at the port.
await() {
    for _ in $(seq 300); do
        if (: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    echo "compare-amqp.sh: nothing listens at $1" >&2
    exit 1
}

ticks() { awk '{ print $14 + $15 }' "/proc/$broker/stat"; }
memory() { awk '/^RssAnon/ { print $2 }' "/proc/$broker/status"; }

# Broker, port.
measure() {
    local url=amqp://127.0.0.1:$2 before rate cost
    local row="| $1 |"
    "start_$1" "$2"
    await "$2"
    for how in settled unsettled; do
        for bytes in 16 1024; do
            "$FLOOD" "$url" "$ADDRESS" "$warm" "$bytes" "$how" >/dev/null
            before=$(ticks)
            rate=$("$FLOOD" "$url" "$ADDRESS" "$messages" "$bytes" "$how")
            cost=$(awk -v t=$(($(ticks) - before)) -v n="$messages" \
                -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.2f", t * 1e6 / hz / n }')
            row="$row $cost ($((rate / 1000))k/s) |"
        done
    done
    stop
    # One that has served nothing yet, so that nothing freed is used again.
    "start_$1" "$2"
    await "$2"
    "$FLOOD" "$url" "$ADDRESS" 10 idle 0 >/dev/null
    before=$(memory)
    : >"$work/idle"
    "$FLOOD" "$url" "$ADDRESS" "$idle" idle 5 >"$work/idle" &
    local holder=$!
    until grep -q connections "$work/idle"; do sleep 0.2; done
    row="$row $(awk -v k=$(($(memory) - before)) -v n="$idle" \
        'BEGIN { printf "%.1f", k / n }') |"
    wait "$holder"
    stop
    echo "$row"
}

ulimit -n 8192 2>/dev/null || true
echo "| broker | settled 16 B | settled 1 KB | unsettled 16 B | unsettled 1 KB | idle, KiB |"
echo "|---|--:|--:|--:|--:|--:|"
measure dunlin 15672
if command -v java >/dev/null && command -v mvn >/dev/null; then
    cp "$here/artemis/pom.xml" "$work"
    mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/lib"
    javac -cp "$work/lib/*" -d "$work/artemis" "$here/artemis/Embedded.java"
    measure artemis 15673
else
    echo "| artemis | left out: java and mvn are not there |||||"
fi
echo
echo "µs of the broker's CPU a message, in and out; in brackets messages a second."
