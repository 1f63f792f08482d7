#!/usr/bin/env bash
# `dunlin sink` and real databases: PostgreSQL, NATS JetStream and Kafka, with kills of the sink,
# of the broker and of the database, refused rows and a database that is away; and a server
# that answers as others do over HTTP. Prints, last, `N passed, N failed, N skipped`.
#
#   scripts/sink/run.sh [--short] [--rounds N] [--seed N] [--only NAME]
#
# DUNLIN names the binary, as for scripts/interop/run.sh. What is not installed is
# skipped in words.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need sink python3 openssl
exec python3 -B scripts/sink/run.py "$@"
