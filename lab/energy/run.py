#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Joules of the connections in captures of `iqbal-single`, by ns-3: run.py FOLDER."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[1] / "target"))
MODULES = ("core", "network", "internet", "mobility", "wifi", "energy")
# What the paper compares with, and what it said of its own.
BASE = "amqp-tls12"
PAPER = "-31 %"
ROLES = ("sender", "receiver")


def build() -> Path:
    """The program, built if it is older than its source."""
    for program in ("g++", "tshark"):
        if shutil.which(program) is None:
            sys.exit(f"energy: skipped: {program} is not installed")
    if not Path("/usr/include/ns3/wifi-module.h").is_file():
        sys.exit("energy: skipped: ns-3 is not installed (apt install libns3-dev)")
    program, source = TARGET / "energy", HERE / "energy.cc"
    if not program.is_file() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        command = ["g++", "-std=c++17", "-O1", str(source), "-o", str(program)]
        command += [f"-lns3-{module}" for module in MODULES]
        subprocess.run([*command, "-Wl,--copy-dt-needed-entries"], check=True)
    return program


def connections(capture: Path) -> list[list[tuple[float, str, int]]]:
    """The packets of each connection of the client's host, in the order of their begin."""
    fields = ("frame.time_epoch", "frame.interface_name", "ip.len")
    fields += ("udp.srcport", "udp.dstport", "tcp.srcport", "tcp.dstport")
    # What a client that has ended says by ICMP quotes a packet with its ports.
    command = ["tshark", "-r", str(capture), "-Y", "not icmp"]
    command += ["-T", "fields", "-E", "separator=,", "-E", "occurrence=f"]
    for field in fields:
        command += ["-e", field]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, list[tuple[float, str, int]]] = {}
    for line in said.splitlines():
        time, place, size, *ports = line.split(",")
        if place not in ("from-a", "to-a") or not size:
            continue
        up = place == "from-a"
        source, destination = [port for port in ports if port][:2] or ("", "")
        port = source if up else destination
        found.setdefault(port, []).append((float(time), "up" if up else "down", int(size)))
    # A single datagram, which asks whether the port is closed, is none.
    both = [it for it in found.values() if {way for _, way, _ in it} == {"up", "down"}]
    return sorted(both, key=lambda packets: packets[0][0])


def joules(program: Path, packets: list[tuple[float, str, int]]) -> float:
    begin = packets[0][0]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as trace:
        for time, way, size in packets:
            trace.write(f"{time - begin:.6f} {way} {size}\n")
        trace.flush()
        done = subprocess.run([program, trace.name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"energy: the simulation failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)["joules"]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: run.py FOLDER, that of a run of iqbal-single")
    captures = sorted(Path(sys.argv[1]).glob("*-1.pcapng"))
    if not any(path.stem == f"{BASE}-1" for path in captures):
        sys.exit(f"energy: {sys.argv[1]} has no capture {BASE}-1.pcapng")
    program = build()
    taken: dict[str, list[float]] = {}
    for path in captures:
        # The first pair brings tickets; one that is left over measures round trips.
        counted = connections(path)[2:]
        counted = counted[: len(counted) // 2 * 2]
        each = [joules(program, packets) for packets in counted]
        sides = [each[0::2], each[1::2]]
        taken[path.stem.removesuffix("-1")] = [statistics.median(side) for side in sides]
    print("| system | " + " | ".join(f"{role}, mJ | against {BASE}" for role in ROLES) + " |")
    print("|---|" + "--:|--:|" * len(ROLES))
    for system, both in taken.items():
        cells = []
        for value, base in zip(both, taken[BASE], strict=True):
            cells += [f"{value * 1e3:.1f}", f"{(value / base - 1) * 100:+.1f} %"]
        print(f"| {system} | " + " | ".join(cells) + " |")
    print(f"\nThe paper: {PAPER} with QUIC, one message.")


if __name__ == "__main__":
    main()
