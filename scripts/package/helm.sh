#!/usr/bin/env bash
# Checks the Helm chart: helm lint; what it renders for several values against the schemas
# of Kubernetes; the configuration in it with `dunlin broker --check`.
#
#   scripts/package/helm.sh
#
# HELM names helm, PYTHON a Python, DUNLIN the binary; without them helm is that of
# `make helm-test` or of the machine. Skips itself, in one line, where helm or the Python
# packages PyYAML and kubernetes-validate are absent (scripts/setup-test.sh --helm).
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
target=${CARGO_TARGET_DIR:-target}
helm=${HELM:-$target/peers/bin/helm}
command -v "$helm" >/dev/null || helm=${HELM:-helm}
command -v "$helm" >/dev/null || skip helm 'no helm (make helm-test installs it)'
python=${PYTHON:-target/venv/bin/python}
command -v "$python" >/dev/null || python=python3
"$python" -c 'import kubernetes_validate, yaml' 2>/dev/null || skip helm 'no Python package kubernetes-validate'
dunlin=${DUNLIN:-target/debug/dunlin}
command -v "$dunlin" >/dev/null || skip helm "no $dunlin"
"$helm" lint --strict packaging/helm/dunlin
exec "$python" -B scripts/package/helm.py "$helm" "$dunlin"
