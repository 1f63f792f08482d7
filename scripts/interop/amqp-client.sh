#!/usr/bin/env bash
# This repository's client of AMQP, as `dunlin send` and `dunlin receive`, against
# servers by others: one that protonj2-test-driver plays (interop/amqp), case by case
# in the order of the specification, and ActiveMQ Artemis. Prints, last, `N passed,
# N failed, N skipped`.
#
#   scripts/interop/amqp-client.sh [--artemis] [--only PART_OF_NAME]
#
# --artemis has Artemis too, which bench/artemis embeds. DUNLIN names the binary, as for
# run.sh. What is not installed is skipped in words; scripts/setup-test.sh installs
# it.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need amqp-client python3
exec python3 -B scripts/interop/run_amqp_client.py "$@"
