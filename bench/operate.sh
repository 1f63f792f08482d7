#!/usr/bin/env bash
# Measures what operators cost and how soon they are obeyed; prints Markdown, and exits
# with 1 where a goal is missed. Tables:
#   looks   throughput of a broker with 10,000 silent clients while the broker's page is
#           open and metrics are scraped each second, beside the same without (2 %)
#   kick    from the order to disconnect a client to the end of its connection, among
#           10,000 (p99 10 ms)
#   tokens  CPU of a connection over TLS whose password is a token (ES256), when it comes
#           for the first time and again, beside one without (1.3 times)
#
#   bench/operate.sh [TABLE ...]   about 8 minutes
#   bench/operate.sh --quick       one short repetition, to see that it works
#
# DUNLIN     the release binary (default: target/release/dunlin)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/options.sh"
options "--quick" "$@"
command -v python3 >/dev/null || { echo "operate.sh: python3 is needed" >&2; exit 1; }
export DUNLIN=${DUNLIN:-${CARGO_TARGET_DIR:-$here/../target}/release/dunlin}
if [ ! -x "$DUNLIN" ]; then
    echo "operate.sh: $DUNLIN is not there; build it with: cargo build --release -p dunlin" >&2
    exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/operate.py" "$@"
