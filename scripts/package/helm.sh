#!/usr/bin/env bash
# Checks the Helm chart: helm lint; what it renders for several values against the schemas
# of Kubernetes; the configuration in it with `dunlin broker --check`.
#
#   scripts/package/helm.sh
#
# HELM names helm, DUNLIN the binary. Skips itself, in one line, where helm or the Python
# packages PyYAML and kubernetes-validate are absent (pip install kubernetes-validate).
set -euo pipefail
cd "$(dirname "$0")/../.."
helm=${HELM:-helm}
. scripts/skip.sh
command -v "$helm" >/dev/null || skip helm 'no helm (go install helm.sh/helm/v3/cmd/helm@latest)'
python=${PYTHON:-python3}
"$python" -c 'import kubernetes_validate, yaml' 2>/dev/null || skip helm 'no Python package kubernetes-validate'
dunlin=${DUNLIN:-target/debug/dunlin}
command -v "$dunlin" >/dev/null || skip helm "no $dunlin"
"$helm" lint --strict packaging/helm/dunlin
exec "$python" -B scripts/package/helm.py "$helm" "$dunlin"
