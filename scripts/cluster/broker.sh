#!/usr/bin/env bash
# A broker with its store on three servers of NATS: in each round the broker, the leader of
# the stream, or both are killed while messages are on their way, another broker with another
# number of shards goes on, and all that was acknowledged is read. With `standby`, another
# broker is a standby from before, and the first is killed and stopped in turn. Each round
# says how long nothing was acknowledged.
#
#   scripts/cluster/broker.sh [ROUNDS]
#   scripts/cluster/broker.sh standby [ROUNDS]
#
# Needs nats-server 2.15 or later: scripts/setup-test.sh installs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=DUNLIN_NATS_ROUNDS
if [[ "${1:-}" == standby ]]; then
    rounds=DUNLIN_NATS_STANDBY_ROUNDS
    shift
fi
export "$rounds=${1:-12}"
exec cargo test -p dunlin --test it -- nats_rounds --nocapture
