#!/usr/bin/env python3
"""usage: measure.py --image ELF --plugin PLUGIN --stack LOW:HIGH --out JSON
                     [--wakes N] [--readings N] [--no-early] [--series FILE]
                     [--hist FILE [--span N]]

Runs the firmware under QEMU and the counting plugin against a broker of its
own, and writes what it did: notes, marks, and the datagrams of each wake.
DUNLIN names the broker's binary; without it, the newer of target/release and
target/debug is taken.
"""

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import device

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
# Longest that a broker may take to listen, and a device to be done.
START_SECONDS_MAX = 30
RUN_SECONDS_MAX = 120
# An Ethernet, an IPv4 and a UDP header, and the number of UDP.
HEADERS = (14, 20, 8)
UDP = 17


def binary():
    """The broker's binary."""
    named = os.environ.get("DUNLIN")
    if named:
        return Path(named).resolve()
    built = [TARGET / kind / "dunlin" for kind in ("release", "debug")]
    built = [path for path in built if path.exists()]
    if not built:
        sys.exit("measure: there is no broker: cargo build --package dunlin")
    return max(built, key=lambda path: path.stat().st_mtime)


class Broker:
    """A broker with a QUIC listener on a free port."""

    def __init__(self, folder, early):
        self.folder = folder
        config = folder / "dunlin.toml"
        config.write_text(
            f"""shards = 1
data_dir = "data"
[quic]
retry = "never"
[early_data]
mode = "{"safe" if early else "off"}"
[[listener]]
transport = "quic"
address = "127.0.0.1:0"
anonymous = "always"
"""
        )
        self.log = folder / "broker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [binary(), "broker", "--config", config], stdout=log, stderr=log, cwd=folder
            )
        self.port = self.find_port()

    def find_port(self):
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"quic.*?127\.0\.0\.1:(\d+)", self.log.read_text(errors="replace"))
            if found:
                return int(found[1])
            time.sleep(0.05)
        self.process.kill()
        sys.exit(f"measure: the broker does not listen:\n{self.log.read_text(errors='replace')}")

    def key(self):
        return device.public_key(self.folder / "data/certs/server.pem")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def datagrams(capture, port):
    """Datagrams to and from a port of the host, by the device's port: how many
    and how many bytes of QUIC, up and down."""
    bytes_ = capture.read_bytes()
    wakes = {}
    at = 24
    while at + 16 <= len(bytes_):
        _, _, length, _ = struct.unpack_from("<IIII", bytes_, at)
        frame = bytes_[at + 16 : at + 16 + length]
        at += 16 + length
        ethernet, ip, udp = HEADERS
        if len(frame) < sum(HEADERS) or frame[12:14] != b"\x08\x00" or frame[ethernet + 9] != UDP:
            continue
        source, target, size = struct.unpack_from(">HHH", frame, ethernet + ip)
        if port not in (source, target):
            continue
        up = target == port
        wake = wakes.setdefault(
            source if up else target,
            {"up": 0, "up_bytes": 0, "down": 0, "down_bytes": 0, "sizes": []},
        )
        way = "up" if up else "down"
        wake[way] += 1
        wake[f"{way}_bytes"] += size - udp
        wake["sizes"].append((size - udp) * (1 if up else -1))
    # In the order of the first datagram of each.
    return list(wakes.values())


def marks(path):
    """The lines of the plugin: mark, instructions, cycles, lowest store."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [
        {"mark": int(mark), "instructions": int(n), "cycles": int(c), "lowest": int(low, 16)}
        for mark, n, c, low, *_ in lines
    ]


def main():
    parser = argparse.ArgumentParser()
    for name in ("image", "plugin", "stack", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--wakes", type=int, default=2)
    parser.add_argument("--readings", type=int, default=1)
    parser.add_argument("--no-early", action="store_true")
    parser.add_argument("--series")
    parser.add_argument("--period", type=int, default=2000)
    parser.add_argument("--hist")
    parser.add_argument("--span", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dunlin-mcu-") as folder:
        result = run(options, Path(folder))
    Path(options.out).write_text(json.dumps(result))


def run(options, folder):
    broker = Broker(folder, not options.no_early)
    counted, capture = folder / "marks", folder / "wire.pcap"
    plugin = f"{options.plugin},out={counted},stack={options.stack}"
    if options.series:
        plugin += f",series={options.series},period={options.period}"
    if options.hist:
        plugin += f",hist={options.hist},span={options.span}"
    page = device.settings(
        (device.GATEWAY, broker.port),
        broker.key(),
        wakes=options.wakes,
        readings=options.readings,
    )
    network = "user,model=lan9118,id=net"
    dump = ["-plugin", plugin, "-object", f"filter-dump,id=dump,netdev=net,file={capture}"]
    started = device.Device(options.image, page, network, dump, show=False)
    try:
        started.process.wait(RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        seen = [name for _, name, _ in started.notes[:12]]
        sys.exit(f"measure: the device is not done; it reported {', '.join(seen)} ...")
    finally:
        started.end()
        broker.stop()
    return {
        "notes": [[name, value] for _, name, value in started.notes],
        "marks": marks(counted),
        "wakes": datagrams(capture, broker.port),
    }


if __name__ == "__main__":
    main()
