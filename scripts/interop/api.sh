#!/usr/bin/env bash
# The control API as programs by others see it: the OpenAPI document goes through
# openapi-spec-validator, and a client that knows nothing but the document asks every
# resource, over HTTPS, and holds each answer against its schema. Prints, last,
# `N passed, N failed, N skipped`.
#
#   DUNLIN=target/debug/dunlin scripts/interop/api.sh
#
# Skips itself, in one line, where the validator is not installed;
# scripts/setup-test.sh installs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=target/venv/bin/python
. scripts/skip.sh
"$python" -c 'import openapi_spec_validator, jsonschema' 2>/dev/null ||
    skip api 'no openapi-spec-validator'
exec "$python" -B scripts/interop/run_api.py "${DUNLIN:-target/debug/dunlin}"
