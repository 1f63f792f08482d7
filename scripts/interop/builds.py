"""Builds the clients that have to be built. Each function says where the program
is, and why it is not when it is not. Knows no scenario.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from brokers import ROOT, TARGET, Dunlin

BUILD_SECONDS_MAX = 1800


def build(what: str, command: list[str]) -> str:
    """Runs a build in a folder of the repository; empty, or why it failed."""
    print(f"interop: building {what}", flush=True)
    try:
        folder = ROOT / what
        done = subprocess.run(command, cwd=folder, timeout=BUILD_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        return f"{what} takes longer than {BUILD_SECONDS_MAX} s to build"
    return "" if done.returncode == 0 else f"{what} does not build here"


@cache
def cargo(what: str) -> tuple[Path, str]:
    """The folder with the programs of a package in interop/."""
    target = TARGET / what
    command = ["cargo", "build", "--quiet", "--locked", "--target-dir", str(target)]
    return target / "debug", build(f"interop/{what}", command)


@cache
def example(package: str, name: str) -> tuple[Path, str]:
    """A program of this repository's own, in the profile of the binary under
    test, and chosen as the Makefile chose that: others would be built again.
    """
    binary = Dunlin.binary()
    if binary and binary.parent.name == "release":
        profile, which = "release", ["--release", "--package", "dunlin", "--package", package]
        which += ["--bin", "dunlin"]
    else:
        profile, which = "debug", ["--workspace", "--bins", "--tests"]
    command = ["cargo", "build", "--quiet", *which, "--example", name]
    command += ["--target-dir", str(TARGET)]
    return TARGET / profile / "examples" / name, build(f"crates/{package}", command)


def quic_go() -> tuple[Path, str]:
    return go("quic-go", "quic-go-peer")


@cache
def go(what: str, name: str = "") -> tuple[Path, str]:
    """Built with the modules that the sums in `go.sum` vouch for."""
    program = TARGET.resolve() / (name or what)
    go = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
    if go is None:
        return program, "go is not installed"
    command = [go, "build", "-mod=readonly", "-o", str(program), "."]
    return program, build(f"interop/{what}", command)


@cache
def cpp(what: str, library: str) -> tuple[Path, str]:
    """Built with a library of the system."""
    program = TARGET.resolve() / what
    source = ROOT / "interop" / what / "main.cpp"
    if shutil.which("g++") is None:
        return program, "g++ is not installed"
    if not Path("/usr/include/proton/container.hpp").is_file():
        return program, f"lib{library} is not installed"
    if program.is_file() and program.stat().st_mtime > source.stat().st_mtime:
        return program, ""
    command = ["g++", "-std=c++17", "-O1", "-o", str(program), str(source), f"-l{library}"]
    return program, build(f"interop/{what}", [*command, "-pthread"])


JAVA = ROOT / "target/interop-java"
# A program that runs for seconds is not worth the optimizing compiler.
JAVA_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@cache
def java() -> tuple[str, str]:
    """The class path of interop/amqp, compiled where its sources are newer."""
    jars, classes = JAVA / "jars", JAVA / "classes"
    path = f"{classes}:{jars}/*"
    if shutil.which("javac") is None:
        return path, "no Java compiler"
    if not any(jars.glob("protonj2-test-driver-*.jar")):
        return path, "target/interop-java has no jars"
    sources = sorted((ROOT / "interop/amqp/src").rglob("*.java"))
    built = classes / "built"
    newest = max(source.stat().st_mtime for source in sources)
    if built.is_file() and built.stat().st_mtime > newest:
        return path, ""
    command = ["javac", "-nowarn", "-Xlint:none", "-d", str(classes), "-cp", f"{jars}/*"]
    missing = build("interop/amqp", [*command, *map(str, sources)])
    if not missing:
        built.touch()
    return path, missing
