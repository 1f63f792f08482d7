"""Which versions of the programs by others are here. Knows no test."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from brokers import ROOT

PYTHON = ROOT / "target/venv/bin/python"
NODE_MODULES = ROOT / "target/interop/node_modules"


@cache
def said(*command: str) -> str:
    """The first version number in what a program says; empty if there is none."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr)
    return found[0] if found else ""


def mosquitto() -> str:
    return said("mosquitto_pub", "--version")


def program(path: Path | None) -> str:
    return said(str(path), "--version") if path else ""


def python(package: str) -> str:
    """Of a package in the environment of the tests."""
    return said(str(PYTHON), "-c", f"from importlib.metadata import version as v; print(v({package!r}))")


def node(package: str) -> str:
    description = NODE_MODULES / package / "package.json"
    return json.loads(description.read_text())["version"] if description.is_file() else ""


@cache
def crate(name: str) -> str:
    """Of a crate that `interop/quic-peers` is built with."""
    lock = (ROOT / "interop/quic-peers/Cargo.lock").read_text()
    found = re.search(rf'name = "{re.escape(name)}"\nversion = "([^"]+)"', lock)
    return found[1] if found else ""


@cache
def go(module: str, package: str = "quic-go") -> str:
    """Of a module that a package in interop/ is built with."""
    text = (ROOT / "interop" / package / "go.mod").read_text()
    found = re.search(rf"{re.escape(module)} v(\S+)", text)
    return found[1] if found else ""


@cache
def jar(artifact: str) -> str:
    """Of a library that interop/amqp/pom.xml names."""
    text = (ROOT / "interop/amqp/pom.xml").read_text()
    found = re.search(rf"<artifactId>{artifact}</artifactId>\s*<version>([^<]+)<", text)
    return found[1] if found else ""


@cache
def debian(package: str) -> str:
    return said("dpkg-query", "--show", "--showformat=${Version}", package)
