#!/usr/bin/env bash
# AMQP 1.0 on the wire, in the order of the specification, spoken by
# protonj2-test-driver (interop/amqp) to a running broker. Prints a table by section
# and, last, `N passed, N failed, N skipped`.
#
#   scripts/interop/wire.sh [--all] [--tunnel] [--only PART_OF_NAME]
#
# --all has the cases that wait for the broker's time-outs, --tunnel goes over QUIC.
# DUNLIN names the binary, as for run.sh. What is not installed is skipped in
# words; scripts/setup-test.sh installs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need wire python3 openssl
exec python3 -B scripts/interop/run_wire.py "$@"
