"""Makes an OCI image archive of a static program, without a daemon and without root: one
layer with the program, a configuration, a user and the authorities of the system. The
same input gives the same bytes.

    python3 scripts/package/image.py PROGRAM ARCHITECTURE VERSION OUT
"""

import gzip
import hashlib
import io
import json
import struct
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Who the broker is in the container.
USER = 65532
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
PORTS = ["14567/udp", "1883/tcp", "8883/tcp", "8083/tcp", "8084/tcp"]
PORTS += ["5671/udp", "5672/tcp", "5671/tcp", "9464/tcp"]
SECOND = 1_000_000_000
PROGRAM = "/usr/bin/dunlin"
# For glibc, which has other defaults in some versions: hosts of /etc/hosts, then of DNS.
NAME_SERVICES = b"passwd: files\ngroup: files\nhosts: files dns\n"
# A header of an ELF file that names the loader of shared libraries.
PT_INTERP = 3


class Tar:
    """A tar archive whose bytes depend on nothing but what is in it."""

    def __init__(self) -> None:
        self.bytes = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w", format=tarfile.USTAR_FORMAT)

    def add(self, path: str, content: bytes | None, mode: int, owner: int = 0) -> None:
        """A file, or without content a folder."""
        info = tarfile.TarInfo(path)
        info.mode, info.uid, info.gid = mode, owner, owner
        if content is None:
            info.type = tarfile.DIRTYPE
            self.tar.addfile(info)
        else:
            info.size = len(content)
            self.tar.addfile(info, io.BytesIO(content))

    def done(self) -> bytes:
        self.tar.close()
        return self.bytes.getvalue()


def is_static(program: bytes) -> bool:
    """Whether a program of 64 bits, little endian, asks for no loader."""
    if program[:6] != b"\x7fELF\x02\x01":
        return False
    (start,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    kinds = [struct.unpack_from("<I", program, start + at * size)[0] for at in range(count)]
    return PT_INTERP not in kinds


def layer(program: bytes) -> bytes:
    tar = Tar()
    for folder in ("etc", "etc/dunlin", "etc/ssl", "etc/ssl/certs", "usr", "usr/bin", "var", "var/lib"):
        tar.add(folder, None, 0o755)
    tar.add("tmp", None, 0o1777)
    tar.add("var/lib/dunlin", None, 0o700, USER)
    tar.add("usr/bin/dunlin", program, 0o755)
    configuration = ROOT / "packaging/container/dunlin.toml"
    tar.add("etc/dunlin/dunlin.toml", configuration.read_bytes(), 0o644)
    tar.add("etc/passwd", f"dunlin:x:{USER}:{USER}::/var/lib/dunlin:{PROGRAM}\n".encode(), 0o644)
    tar.add("etc/group", f"dunlin:x:{USER}:\n".encode(), 0o644)
    tar.add("etc/nsswitch.conf", NAME_SERVICES, 0o644)
    if AUTHORITIES.exists():
        tar.add("etc/ssl/certs/ca-certificates.crt", AUTHORITIES.read_bytes(), 0o644)
    return tar.done()


def configuration(architecture: str, version: str, layer_digest: str) -> dict:
    return {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "WorkingDir": "/var/lib/dunlin",
            "Entrypoint": [PROGRAM],
            "Cmd": ["broker", "--config", "/etc/dunlin/dunlin.toml"],
            "ExposedPorts": {port: {} for port in PORTS},
            "Volumes": {"/var/lib/dunlin": {}},
            "StopSignal": "SIGTERM",
            # Not in OCI's format; Docker reads it, and Podman takes it as --health-cmd.
            "Healthcheck": {
                "Test": ["CMD", PROGRAM, "ctl", "status"],
                "Interval": 30 * SECOND,
                "Timeout": 5 * SECOND,
                "StartPeriod": 60 * SECOND,
            },
            "Labels": {
                "org.opencontainers.image.title": "dunlin",
                "org.opencontainers.image.description": "A broker of MQTT and AMQP 1.0 over QUIC, TCP, TLS and WebSocket",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    }


class Archive:
    """An OCI image layout in a tar archive."""

    def __init__(self) -> None:
        self.tar = Tar()
        self.tar.add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644)
        self.tar.add("blobs", None, 0o755)
        self.tar.add("blobs/sha256", None, 0o755)

    def blob(self, media: str, content: bytes) -> dict:
        digest = hashlib.sha256(content).hexdigest()
        self.tar.add(f"blobs/sha256/{digest}", content, 0o644)
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    def json(self, media: str, content: dict) -> dict:
        return self.blob(media, json.dumps(content, sort_keys=True).encode())


def main() -> int:
    program, architecture, version, out = sys.argv[1:]
    binary = Path(program).read_bytes()
    if not is_static(binary):
        print(f"image.py: {program} is not a static program of 64 bits", file=sys.stderr)
        return 1
    files = layer(binary)
    archive = Archive()
    kind = "application/vnd.oci.image"
    packed = archive.blob(f"{kind}.layer.v1.tar+gzip", gzip.compress(files, 9, mtime=0))
    digest = "sha256:" + hashlib.sha256(files).hexdigest()
    config = archive.json(f"{kind}.config.v1+json", configuration(architecture, version, digest))
    manifest = archive.json(
        f"{kind}.manifest.v1+json",
        {"schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json", "config": config, "layers": [packed]},
    )
    manifest["annotations"] = {
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": f"localhost/dunlin:{version}",
    }
    index = {"schemaVersion": 2, "mediaType": f"{kind}.index.v1+json", "manifests": [manifest]}
    archive.tar.add("index.json", json.dumps(index, sort_keys=True).encode(), 0o644)
    Path(out).write_bytes(archive.tar.done())
    size = len(files) / 1e6
    print(f"{out}: {size:.1f} MB, {packed['size'] / 1e6:.1f} MB compressed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
