#!/usr/bin/env bash
# Three nodes of a cluster and three servers of NATS, of which one after the other is killed,
# stopped, cut off or halted under load: nothing acknowledged may be lost, nothing at QoS 2 may
# come twice, and order is kept. The last line is `N passed, N failed, N skipped`.
#
#   scripts/cluster/kills.sh [--short] [--rounds N] [--kinds A,B] [--seed N] [--go-on] [--keep]
#
# DUNLIN names the binary, as for scripts/interop/run.sh; NATS names nats-server 2.15 or later
# (default: that of scripts/setup-test.sh). --help lists the kinds.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need cluster python3
exec python3 -B scripts/cluster/kills.py "$@"
