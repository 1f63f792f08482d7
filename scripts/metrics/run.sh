#!/usr/bin/env bash
# Asks promtool what it thinks of /metrics.
#
#   DUNLIN=target/debug/dunlin scripts/metrics/run.sh
#
# Skips itself, in one line, where there is no promtool or curl.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() {
    printf 'metrics: skipped: %s\n' "$*"
    exit 0
}
command -v promtool >/dev/null || skip 'no promtool'
command -v curl >/dev/null || skip 'no curl'

dunlin=$(realpath "${DUNLIN:-target/debug/dunlin}")
dir=$(mktemp -d)
broker=
finish() {
    [ -z "$broker" ] || kill "$broker" 2>/dev/null || true
    wait
    rm -rf "$dir"
}
trap finish EXIT
cd "$dir"

cat >dunlin.toml <<'TOML'
shards = 2
data_dir = "data"
[metrics]
address = "127.0.0.1:0"
[[listener]]
transport = "tcp"
address = "127.0.0.1:0"
[[listener]]
transport = "quic"
address = "127.0.0.1:0"
TOML
"$dunlin" broker --config dunlin.toml >broker.log 2>&1 &
broker=$!
url=
for _ in $(seq 200); do
    url=$(sed -n 's/^ *metrics *\(http.*\)$/\1/p' broker.log)
    [ -n "$url" ] && break
    sleep 0.05
done
[ -n "$url" ] || { cat broker.log; exit 1; }
curl --silent --fail --max-time 10 "$url" >metrics.txt
found=$(promtool check metrics <metrics.txt 2>&1) || { printf '%s\n' "$found"; exit 1; }
[ -z "$found" ] || { printf 'metrics: promtool complains:\n%s\n' "$found"; exit 1; }
printf 'metrics: ok: promtool has nothing to say of %s lines\n' "$(wc -l <metrics.txt)"
