#!/usr/bin/env bash
# Measures what a password file and an access list of 10,000 users cost: CPU of the
# broker for a message with them beside the same broker without, in turn, and what a
# reload takes. Prints Markdown; exits with 1 if it costs more than 3 %.
#
#   bench/acl.sh            about 8 minutes
#   bench/acl.sh --quick    one short repetition, to see that it works
#
# DUNLIN     the release binary (default: target/release/dunlin)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/options.sh"
options "--quick" "$@"
command -v python3 >/dev/null || { echo "acl.sh: python3 is needed" >&2; exit 1; }
export DUNLIN=${DUNLIN:-${CARGO_TARGET_DIR:-$here/../target}/release/dunlin}
if [ ! -x "$DUNLIN" ]; then
    echo "acl.sh: $DUNLIN is not there; build it with: cargo build --release -p dunlin" >&2
    exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/acl.py" "$@"
