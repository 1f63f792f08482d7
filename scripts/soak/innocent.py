"""How long an innocent client waits while others attack, for each kind of attack by
itself, in one table.

A client sends itself a message at QoS 1 every 20 ms. Each attack has three parts:
nothing else happens; the attack goes to another broker of the same kind, which
tells what the attackers cost the machine; the attack goes to the client's broker.
The p99 of the last part is held to a goal where that of the second allows it.
"""

import argparse
import itertools
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve()
for folder in ("conformance", "interop", "kill", "soak"):
    sys.path.insert(0, str(HERE.parents[1] / folder))

# Before the others, which look for theirs in another folder.
from run import Memory, Probe, Relay  # noqa: E402, I001
from attackers import never_read, overlap, session, strangers, subscribe_again  # noqa: E402
from brokers import Dunlin, free_port  # noqa: E402
from wire import *  # noqa: E402

GOAL_MS = 50
QUIET_SECONDS = 5
# Attackers give way to the client, whose waits are measured.
ATTACKER_NICE = 5
SILENT = 9_000
SILENT_METRICS = 600
HALF = 300
CROWD = 2_000
UNFINISHED = 50
UNFINISHED_BYTES = 950_000
HANDSHAKES = 400
COPIED = 5
Ports = dict[str, int]


def silent(ports: Ports) -> Iterator[None]:
    """Sockets that say nothing, more than may be pending."""
    peers: list[socket.socket] = []
    while True:
        for _ in range(200):
            peers.append(socket.create_connection(("127.0.0.1", ports["tcp"]), 5))
        while len(peers) > SILENT:
            peers.pop(0).close()
        yield


def of_tcp(attack):
    return lambda ports: attack(ports["tcp"])


def crowd(ports: Ports) -> Iterator[None]:
    """Sessions that stay, with long filters and wills."""
    filters = [(f"crowd/{'f' * 900}/{n}", 1) for n in range(20)]
    for number in itertools.count():
        name, will = f"crowd-{number % CROWD}", Will("crowd/w", bytes(30_000), 1)
        with Peer(ports["tcp"]) as peer:
            peer.send(connect(name, clean=False, props=((SESSION_EXPIRY, 3600),), will=will))
            if peer.expect(CONNACK).reason == 0:
                peer.send(subscribe(1, *filters)).answer(SUBACK)
                peer.send(disconnect(4))
        if number % 10 == 0:
            yield


def retained(ports: Ports) -> Iterator[None]:
    """Retained messages of 100 kB, each on a topic of its own."""
    with session(ports["tcp"]) as peer:
        for number in itertools.count():
            peer.send(publish(f"kept/{number}", bytes(100_000), retain=True))
            if number % 10 == 0:
                yield


def upgrades(ports: Ports) -> Iterator[None]:
    """Half of a TLS handshake, half of an upgrade to WebSocket, and silence where
    the metrics are."""
    hello = bytes.fromhex("1603010200010001fc0303") + bytes(400)
    lines = b"GET /mqtt HTTP/1.1\nHost: x\nUpgrade: websocket\r\n" + b"X-A: b\r\n" * 50
    kinds = [("tls", hello), ("wss", hello), ("ws", lines), ("metrics", b"")]
    peers: list[socket.socket] = []
    while True:
        for port, data in itertools.islice(itertools.cycle(kinds), 100):
            peer = socket.create_connection(("127.0.0.1", ports[port]), 5)
            peers.append(peer)
            peer.sendall(data)
        while len(peers) > HANDSHAKES + SILENT_METRICS:
            peers.pop(0).close()
        yield


def quic_strangers(ports: Ports) -> Iterator[None]:
    """First packets of QUIC, 1,200 bytes each, that lead to nothing."""
    senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(100)]
    for sender in senders:
        sender.connect(("127.0.0.1", ports["quic"]))
    while True:
        for sender in senders:
            ids = bytes([8]) + os.urandom(8) + bytes([8]) + os.urandom(8)
            head = b"\xc3\x00\x00\x00\x01" + ids + b"\x00" + (0x4000 | 1100).to_bytes(2, "big")
            try:
                sender.send((head + os.urandom(1200))[:1200])
            except OSError:
                pass
        yield


class Copying(Relay):
    """A relay, and an address that sends a copy of each packet before it."""

    def __init__(self, port: int) -> None:
        self.forger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.forger.connect(("127.0.0.1", port))
        super().__init__(port)

    def _outwards(self) -> None:
        while True:
            data, self.client = self.inside.recvfrom(65536)
            try:
                self.forger.send(data)
                self.outside.send(data)
            except OSError:
                pass


def quic_paths(ports: Ports) -> Iterator[None]:
    """Clients of QUIC that change their address all the time, with a copy of each
    packet from elsewhere."""
    relays = [Copying(ports["quic"]) for _ in range(COPIED)]
    command = [str(Dunlin.binary()), "sub", "--insecure", "-t", "nothing"]
    programs = []
    try:
        for relay in relays:
            url = f"quic://localhost:{relay.inside.getsockname()[1]}"
            programs.append(subprocess.Popen([*command, "--url", url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        while True:
            for relay in relays:
                relay.rebind()
                if relay.client[1]:
                    relay.forger.send(b"\x40" + os.urandom(40))
            time.sleep(0.05)
            yield
    finally:
        for program in programs:
            program.terminate()


def unfinished(ports: Ports) -> Iterator[None]:
    """Packets of 1 MB without their last bytes."""
    most = publish("half", bytes(UNFINISHED_BYTES))[:-1]
    while True:
        peers = []
        for _ in range(UNFINISHED):
            peer = session(ports["tcp"])
            peer.send(most)
            peers.append(peer)
            yield
        for peer in peers:
            peer.socket.close()


ATTACKS = {
    "7 silent sockets": silent,
    "8 overlapping filters": of_tcp(overlap),
    "9 SUBSCRIBE again": of_tcp(subscribe_again),
    "9 # without reading": of_tcp(never_read),
    "10 half a CONNECT": of_tcp(strangers),
    "10 sessions, wills": crowd,
    "10 retained": retained,
    "11 half handshakes": upgrades,
    "12 QUIC strangers": quic_strangers,
    "12 QUIC paths, copies": quic_paths,
    "13 unfinished packets": unfinished,
}


class Watched(Dunlin):
    """A broker whose metrics can be asked for."""

    def __init__(self, folder: Path, shards: int) -> None:
        super().__init__(folder, shards)
        self.metrics = free_port()

    def command(self) -> list[str]:
        command = super().command()
        with Path(command[-1]).open("a") as config:
            config.write(f'\n[metrics]\naddress = "127.0.0.1:{self.metrics}"\n')
        return command

    def all_ports(self) -> Ports:
        return {**self.ports, "metrics": self.metrics}


def attack_only(name: str, ports: Ports) -> None:
    """The program of an attacker, until it is ended."""
    # It ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.nice(ATTACKER_NICE)
    raise_files()
    while True:
        try:
            for _ in ATTACKS[name](ports):
                time.sleep(0.005)
        # A broker that ends a connection is tried again.
        except (Closed, OSError, TimeoutError, AssertionError):
            time.sleep(0.02)


def raise_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def waits(probe: Probe, seconds: float) -> tuple[float, int]:
    """p99 in milliseconds and number of messages of the next so many seconds."""
    probe.seconds = []
    time.sleep(seconds)
    return probe.p99(), len(probe.seconds)


def attacked(name: str, ports: Ports, probe: Probe, seconds: float) -> tuple[float, int]:
    pairs = [f"{key}={port}" for key, port in ports.items()]
    program = subprocess.Popen([sys.executable, "-B", str(HERE), "--attack", name, *pairs])
    try:
        # Until it stands.
        time.sleep(1)
        return waits(probe, seconds)
    finally:
        program.terminate()
        program.wait()


def measure(name: str, seconds: float, shards: int) -> bool:
    """A row; whether the goal was met, as far as the machine allows one."""
    with tempfile.TemporaryDirectory(prefix="innocent-") as one, tempfile.TemporaryDirectory(prefix="innocent-") as two:
        broker, other = Watched(Path(one), shards), Watched(Path(two), shards)
        try:
            broker.start()
            other.start()
            probe = Probe(broker.ports["tcp"], "innocent")
            probe.start()
            time.sleep(0.5)
            quiet, _ = waits(probe, QUIET_SECONDS)
            control, _ = attacked(name, other.all_ports(), probe, seconds)
            time.sleep(0.5)
            memory = Memory(broker)
            p99, count = attacked(name, broker.all_ports(), probe, seconds)
            memory.look()
            probe.stop()
        finally:
            broker.stop()
            other.stop()
    met = count > 0 and not probe.error and p99 < max(GOAL_MS, 2 * control)
    verdict = "met" if p99 < GOAL_MS and met else "met, busy machine" if met else "MISSED"
    row = (name, quiet, control, p99, count, memory.row()[1], verdict)
    print("innocent: {:<24} {:>8.1f} {:>8.1f} {:>8.1f} {:>8} {:>6} {}".format(*row), flush=True)
    if probe.error:
        print(f"innocent: {probe.error}", flush=True)
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=10, help="of each attack")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--only", default="", help="attacks whose names contain this")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("ports", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.attack:
        pairs = (pair.split("=") for pair in args.ports)
        attack_only(args.attack, {key: int(port) for key, port in pairs})
    if Dunlin.binary() is None:
        print("innocent: skipped: there is no dunlin binary")
        return 0
    raise_files()
    print(f"innocent: p99 in ms of one client, {args.shards} shards, load {os.getloadavg()[0]:.1f}", flush=True)
    head = ("attack", "quiet", "on other", "attacked", "messages", "MiB", "< 50 ms")
    print("innocent: {:<24} {:>8} {:>8} {:>8} {:>8} {:>6} {}".format(*head), flush=True)
    met = [measure(name, args.seconds, args.shards) for name in ATTACKS if args.only in name]
    print(f"{sum(met)} passed, {len(met) - sum(met)} failed, 0 skipped")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
