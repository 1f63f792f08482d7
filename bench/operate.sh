#!/usr/bin/env bash
# Measures what it costs that operators look: throughput of a broker with 10,000 silent
# clients while the broker's page is open and metrics are scraped each second, beside the
# same broker without, in turn. Prints Markdown; exits with 1 if it costs more than 2 %.
#
#   bench/operate.sh            about 6 minutes
#   bench/operate.sh --quick    one short repetition, to see that it works
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
