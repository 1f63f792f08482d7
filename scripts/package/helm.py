"""Renders the Helm chart for several values and checks what comes out. See helm.sh."""

import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import kubernetes_validate
import yaml

CHART = Path(__file__).resolve().parents[2] / "packaging/helm/dunlin"
# A version that the validator has schemas of; all kinds of the chart are older.
KUBERNETES = "1.31"
# Not of Kubernetes itself.
FOREIGN = {"ServiceMonitor"}

PLAIN = """
"""
FULL = """
image: {repository: registry.example/dunlin, tag: "1.2.3"}
imagePullSecrets: [{name: pull}]
config: |
  shards = 2
  [limits]
  max_connections = 1000
tls: {secretName: dunlin-tls}
auth: {secretName: dunlin-users, rules: rules}
persistence: {size: 1Gi, storageClass: fast}
service:
  tcp: {type: LoadBalancer, annotations: {a: b}}
  udp: {type: LoadBalancer}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
podAnnotations: {a: b}
podLabels: {c: d}
nodeSelector: {disk: fast}
tolerations: [{key: iot, operator: Exists}]
affinity: {nodeAffinity: {}}
"""
LEAST = """
service: {udp: {enabled: false}}
podDisruptionBudget: {enabled: false}
"""

KINDS = {
    "plain": (PLAIN, ["ConfigMap", "PodDisruptionBudget", "Service", "Service", "Service", "StatefulSet"]),
    "full": (FULL, ["ConfigMap", "PodDisruptionBudget", "Service", "Service", "Service", "ServiceMonitor", "StatefulSet"]),
    "least": (LEAST, ["ConfigMap", "Service", "Service", "StatefulSet"]),
}


def rendered(helm: str, values: str) -> list[dict]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        command = [helm, "template", "plant", str(CHART), "--values", file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [it for it in yaml.safe_load_all(text) if it]


def check_ports(objects: list[dict]) -> None:
    """Every port of a Service is one of the container, by name and protocol."""
    (container,) = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    ports = {(it["name"], it["protocol"]) for it in container["ports"]}
    assert len(ports) == len({name for name, _ in ports}), "a name of a port is there twice"
    for service in (it for it in objects if it["kind"] == "Service"):
        for port in service["spec"]["ports"]:
            wanted = (port["targetPort"], port.get("protocol", "TCP"))
            assert wanted in ports, f"{service['metadata']['name']}: {wanted}"


def check_pod(objects: list[dict]) -> None:
    """It runs as the image does."""
    pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == 65532
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    volumes = {it["name"] for it in pod["volumes"]} | {"data"}
    mounted = {it["name"] for it in container["volumeMounts"]}
    assert volumes == mounted, f"{volumes} and {mounted}"


def check_config(objects: list[dict], dunlin: str) -> None:
    """The broker takes its configuration."""
    text = one(objects, "ConfigMap")["data"]["dunlin.toml"]
    with tempfile.TemporaryDirectory(prefix="helm-") as folder:
        path = Path(folder) / "dunlin.toml"
        path.write_text(text)
        override = f"data_dir={folder}/data"
        command = [dunlin, "broker", "--config", str(path), "--set", override, "--check"]
        said = subprocess.run(command, capture_output=True, text=True)
        # The files of secrets are not here.
        missing = "/etc/dunlin/" in said.stderr and "No such file" in said.stderr
        assert said.returncode == 0 or missing, f"{text}\n{said.stderr}"


def one(objects: list[dict], kind: str) -> dict:
    (found,) = [it for it in objects if it["kind"] == kind]
    return found


def main() -> int:
    warnings.simplefilter("ignore")
    helm, dunlin = sys.argv[1:]
    failed = 0
    for name, (values, kinds) in KINDS.items():
        try:
            objects = rendered(helm, values)
            found = sorted(it["kind"] for it in objects)
            assert found == kinds, f"{found} instead of {kinds}"
            for it in objects:
                if it["kind"] not in FOREIGN:
                    kubernetes_validate.validate(it, KUBERNETES, strict=True)
            check_ports(objects)
            check_pod(objects)
            check_config(objects, dunlin)
            print(f"helm: {name}: {len(objects)} objects: ok")
        except (AssertionError, subprocess.CalledProcessError, kubernetes_validate.ValidationError) as error:
            failed += 1
            print(f"helm: {name}: {getattr(error, 'stderr', '') or error}")
    print(f"{len(KINDS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
