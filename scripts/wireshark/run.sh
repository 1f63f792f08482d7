#!/usr/bin/env bash
# Captures a conversation over QUIC on the loopback of a namespace of its own,
# and asks tshark for the MQTT packets in it, by the two lines of
# docs/wireshark/mqtt-quic.lua and the secrets that broker and client log.
#
#   DUNLIN=target/debug/dunlin scripts/wireshark/run.sh
#
# Skips itself, in one line, where tshark or namespaces cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() {
    printf 'wireshark: skipped: %s\n' "$*"
    exit 0
}

if [ "${1:-}" != inside ]; then
    command -v tshark >/dev/null || skip 'no tshark'
    command -v dumpcap >/dev/null || skip 'no dumpcap'
    unshare -rn true 2>/dev/null || skip 'no namespace can be made'
    exec unshare -rn "$0" inside
fi

dunlin=$(realpath "${DUNLIN:-target/debug/dunlin}")
lua=$PWD/docs/wireshark/mqtt-quic.lua
dir=$(mktemp -d)
jobs_started=()
finish() {
    for pid in "${jobs_started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$dir"
}
trap finish EXIT
cd "$dir"

fail() {
    printf 'wireshark: FAILED: %s\n' "$*" >&2
    tail -n 5 ./*.log >&2 || true
    exit 1
}

# Waits for a command to hold, 10 s at most.
until_true() {
    for _ in $(seq 200); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.05
    done
    fail "in vain: $*"
}

ip link set lo up
dumpcap -q -i lo -f 'udp port 14567' -w capture.pcapng >dumpcap.log 2>&1 &
capture=$!
jobs_started+=("$capture")
until_true test -s capture.pcapng

"$dunlin" broker --data-dir data --set shards=1 --set tls.key_log=broker.secrets >broker.log 2>&1 &
jobs_started+=($!)
until_true grep -q 'try it' broker.log

export SSLKEYLOGFILE=client.secrets
url=(--url quic://localhost:14567 --ca data/certs/ca.pem)
"$dunlin" sub "${url[@]}" -t 'demo/#' -q 1 -C 1 -d >sub.log 2>&1 &
sub=$!
jobs_started+=("$sub")
until_true grep -qi 'subscribed' sub.log
"$dunlin" pub "${url[@]}" -t demo/hello -m hi -q 1 >pub.log 2>&1 || fail 'pub'
wait "$sub" || fail 'sub'
# Types of the MQTT packets, and how many there are of each.
packets() {
    tshark -r capture.pcapng -o "tls.keylog_file:$1" -X "lua_script:$lua" \
        -Y mqtt -T fields -e mqtt.msgtype 2>tshark.log | tr ',' '\n' | sort -n | uniq -c |
        awk '{ printf "%s×%s ", $2, $1 }'
}

disconnected() {
    [ "$(packets client.secrets | grep -o '14×2')" = 14×2 ]
}
# The capture reaches the file some time after the wire.
until_true disconnected
kill -INT "$capture"
wait "$capture" || true

for who in client broker; do
    [ -s "$who.secrets" ] || fail "the $who logged no secrets"
    [ "$(stat -c %a "$who.secrets")" = 600 ] || fail "others can read $who.secrets"
    found=$(packets "$who.secrets")
    # CONNECT and CONNACK twice, PUBLISH and PUBACK in and out, SUBSCRIBE and
    # SUBACK, DISCONNECT of both.
    expected='1×2 2×2 3×2 4×2 8×1 9×1 14×2 '
    [ "$found" = "$expected" ] || fail "with the secrets of the $who: $found, not $expected"
done
topic=$(tshark -r capture.pcapng -o tls.keylog_file:client.secrets -X "lua_script:$lua" \
    -Y 'mqtt.msgtype == 3' -T fields -e mqtt.topic 2>/dev/null | sort -u)
[ "$topic" = demo/hello ] || fail "topic: $topic"
printf 'wireshark: ok: %s shows MQTT in QUIC streams\n' "$(tshark --version 2>/dev/null | head -n 1)"
