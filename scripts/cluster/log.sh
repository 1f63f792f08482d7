#!/usr/bin/env bash
# The log of a partition on three servers of NATS with three replicas: in each round the
# stream's leader, or another server, is killed while records are on their way, and all
# that was answered is read back from an empty copy.
#
#   scripts/cluster/log.sh [ROUNDS]
#
# Needs nats-server 2.15 or later: scripts/setup-test.sh installs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
DUNLIN_NATS_ROUNDS="${1:-10}" exec cargo test -p dunlin-store-nats --test it -- replicas --nocapture
