"""A client that comes back to another node of a cluster with a ticket: when its first message is
acknowledged, over a link with a round trip of 100 ms and, in turn, over one without, which tells
what the link costs from what the machine does.

    DUNLIN=target/release/dunlin UP_COMMAND='python3 scripts/cluster/back.py' \\
        scripts/cluster/up.sh

UP_FOLDER  the folder of scripts/cluster/up.sh
DUNLIN     the program (default: target/debug/dunlin)
ROUNDS     connections of each kind that are counted (default: 30)
"""

import heapq
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve()
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target"))
DUNLIN = os.environ.get("DUNLIN", str(TARGET / "debug/dunlin"))
FOLDER = Path(os.environ["UP_FOLDER"])
PORTS = (11883, 12883, 13883)
# Each way.
DELAY_SECONDS = 0.05
# Copies of a ticket are at all nodes by then, and the connection before is over.
PAUSE_SECONDS = 0.6
# Messages over TCP, without a delay, from which the time of a commit follows.
COMMITS = 50
COMMAND_SECONDS_MAX = 60


class Relay:
    """UDP of one client at a time, late by the same in both directions."""

    def __init__(self) -> None:
        self.front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.front.bind(("127.0.0.1", 0))
        self.port = self.front.getsockname()[1]
        self.back: socket.socket | None = None
        self.client: tuple[str, int] | None = None
        self.to = ("127.0.0.1", PORTS[0])
        self.delay = DELAY_SECONDS
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        late: list[tuple[float, int, socket.socket, tuple[str, int], bytes]] = []
        count = 0
        while True:
            sockets = [self.front] + ([self.back] if self.back else [])
            wait = max(0.0, late[0][0] - time.monotonic()) if late else 1.0
            readable, _, _ = select.select(sockets, [], [], wait)
            now = time.monotonic()
            for source in readable:
                datagram, address = source.recvfrom(65536)
                if source is self.front:
                    if address != self.client:
                        # A new client is another address for the node, too.
                        self.client = address
                        self.back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                        self.back.bind(("127.0.0.1", 0))
                    out, to = self.back, self.to
                else:
                    out, to = self.front, self.client
                count += 1
                heapq.heappush(late, (now + self.delay, count, out, to, datagram))
            while late and late[0][0] <= time.monotonic():
                _, _, out, to, datagram = heapq.heappop(late)
                out.sendto(datagram, to)


def dunlin(*args: str) -> dict:
    """What a command says with --timing."""
    said = subprocess.run(
        [DUNLIN, *args], capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
    )
    if said.returncode != 0:
        sys.exit(f"back.py: {' '.join(args)}: {said.stderr}")
    lines = [line for line in (said.stdout + said.stderr).splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def publish(port: int, name: str) -> dict:
    ca, tickets = FOLDER / "certs/ca.pem", FOLDER / "tickets"
    return dunlin(
        "pub", "--url", f"quic://localhost:{port}", "--cafile", str(ca),
        "--tickets", str(tickets), "--timing", "-q", "1", "-i", "back", "-t", "back/x", "-m", name,
    )  # fmt: skip


def commit() -> float:
    """How long a stored message takes at an edge over TCP, in ms."""
    took = []
    for number in range(COMMITS):
        said = dunlin(
            "pub", "--url", f"mqtt://127.0.0.1:{PORTS[number % 3]}", "--timing", "-q", "1",
            "-t", "back/x", "-m", "commit",
        )  # fmt: skip
        took.append((said["acknowledged_us"] - said["connected_us"]) / 1000)
    return statistics.median(took)


def main() -> None:
    rounds = int(os.environ.get("ROUNDS", "30"))
    # A session that everything is stored for.
    dunlin(
        "sub", "--url", f"mqtt://127.0.0.1:{PORTS[0]}", "-i", "keeper", "-c", "-q", "1",
        "-t", "back/#", "-E",
    )  # fmt: skip
    relay = Relay()
    far: list[float] = []
    near: list[float] = []
    refused = 0
    for number in range(2 * rounds + 1):
        relay.to = ("127.0.0.1", PORTS[number % 3])
        relay.delay = DELAY_SECONDS * (number % 2)
        said = publish(relay.port, str(number))
        if number and said.get("early_data") is True:
            (far if number % 2 else near).append(said["acknowledged_us"] / 1000)
        elif number:
            refused += 1
        time.sleep(PAUSE_SECONDS)
    if not far or not near:
        sys.exit("back.py: no early data was taken")
    trip, stored = 2000 * DELAY_SECONDS, commit()
    print(f"{len(far)} and {len(near)} connections with early data, {refused} without")
    for name, column in (("over the link", far), ("without it", near)):
        print(
            f"first PUBACK {name}: {min(column):.1f} ms at least, "
            f"{statistics.median(column):.1f} p50, {max(column):.1f} at most"
        )
    middle, beside = statistics.median(far), statistics.median(near)
    print(f"a stored message over TCP without it: {stored:.1f} ms, p50")
    print(f"the link costs {(middle - beside) / trip:.3f} round trips of {trip:.0f} ms")
    print(f"all but one commit: {(middle - stored) / trip:.3f} of these")


main()
