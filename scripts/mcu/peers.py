"""Certificates, and a broker or server to run the small client against. Knows no
scenario.
"""

import os
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from ports import free_port  # noqa: E402

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
# Longest wait for a server to say that it listens.
START_SECONDS = 20


def certificate(folder: Path) -> tuple[Path, Path, str]:
    """A self-signed certificate of P-256, its key, and the key's point in
    hexadecimal.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pem, key = folder / "server.pem", folder / "server.key"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    make += ["-nodes", "-keyout", str(key), "-out", str(pem), "-days", "30"]
    make += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(make, check=True, capture_output=True)
    public = ["openssl", "pkey", "-in", str(key), "-pubout", "-outform", "DER"]
    point = subprocess.run(public, check=True, capture_output=True).stdout[-65:]
    return pem, key, point.hex()


def identity(folder: Path) -> tuple[Path, bytes, bytes]:
    """An authority for devices, and what a device shows with it: a certificate in DER,
    and its private key as 32 bytes.
    """
    folder.mkdir(parents=True)

    def openssl(*words: str) -> bytes:
        return subprocess.run(
            ["openssl", *words], cwd=folder, check=True, capture_output=True
        ).stdout

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    authority = ("-keyout", "ca.key", "-out", "ca.pem", "-days", "30", "-subj", "/CN=devices")
    openssl("req", "-x509", *curve, *authority, "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", *curve, "-keyout", "key.pem", "-out", "csr.pem", "-subj", "/CN=meter-7")
    # Without an extension it would be of version 1, which servers do not take.
    (folder / "extensions").write_text("extendedKeyUsage=clientAuth\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30")
    signed += ("-extfile", "extensions")
    certificate = openssl("x509", "-req", "-in", "csr.pem", *signed, "-outform", "DER")
    key = openssl("pkey", "-in", "key.pem", "-outform", "DER")
    # Behind the version and the head of a string of 32 bytes.
    at = key.index(b"\x02\x01\x01\x04\x20") + 5
    return folder / "ca.pem", certificate, key[at : at + 32]


class Server:
    """A program that prints a line with its port."""

    def __init__(self, command: list[str], cwd: Path | None = None) -> None:
        self.process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE)
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(START_SECONDS)
        line = self.process.stdout.readline().decode() if ready else ""
        if not line.startswith("port "):
            self.stop()
            raise RuntimeError(f"{command[0]} does not start: {line!r}")
        self.port = int(line.split()[1])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Broker:
    """The broker of this repository with QUIC and TCP on free ports."""

    def __init__(self, folder: Path, sections: str = "", clients: Path | None = None) -> None:
        """`clients`: the authority whose certificates clients must have over QUIC."""
        self.folder = folder
        self.pem, self.key, self.point = certificate(folder / "certs")
        self.quic, self.tcp = free_port(), free_port()
        binary = Path(os.environ.get("DUNLIN", TARGET / "debug/dunlin"))
        lines = [f'data_dir = "{folder / "data"}"', sections]
        lines += ["[[listener]]", 'transport = "tcp"', f'address = "127.0.0.1:{self.tcp}"']
        lines += ["[[listener]]", 'transport = "quic"', f'address = "127.0.0.1:{self.quic}"']
        lines += [f'tls.cert = "{self.pem}"', f'tls.key = "{self.key}"']
        if clients:
            lines += [f'tls.client_ca = "{clients}"', "tls.require_client_cert = true"]
        config = folder / "dunlin.toml"
        config.write_text("\n".join(lines) + "\n")
        self.binary = str(binary.resolve())
        self.log = (folder / "broker.log").open("w")
        self.start()

    def start(self) -> None:
        command = [self.binary, "broker", "--config", str(self.folder / "dunlin.toml")]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.tcp)) == 0:
                    return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError("the broker does not start: " + (self.folder / "broker.log").read_text())

    def client(self, *words: str) -> list[str]:
        """A command line of the broker's own clients."""
        verb, *rest = words
        return [self.binary, verb, "--url", f"mqtt://127.0.0.1:{self.tcp}", *rest]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
