"""Runs a broker through load, changes of address, attacks, a full disk and
kills, and prints one table. Nothing acknowledged may be lost, nothing at QoS 2
doubled, and memory stays bounded; latency is printed, not judged, so that the
short form holds on a busy machine.
"""

import argparse
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve()
for folder in ("interop", "kill"):
    sys.path.insert(0, str(HERE.parents[1] / folder))

from attackers import Attack  # noqa: E402
from brokers import Dunlin  # noqa: E402
from clients import Client, Publisher, Subscriber  # noqa: E402
from wire import *  # noqa: E402

SECONDS, SECONDS_SHORT = 1800, 40
# Share of the time of each part.
PARTS = {"load": 0.3, "addresses": 0.2, "attack": 0.2, "full disk": 0.1, "kills": 0.2}
# Longest wait for the last messages: much, for busy machines.
SETTLE_SECONDS_MAX = 120
# Resident memory of the broker, in MiB, at most.
MEMORY_MAX = 512
# By how much it may grow from a third of the time to the end of a long load.
GROWTH_MAX = 1.3
# The file system of the part with the full disk, in MiB.
DISK = 64
REFUSED = (0x97, 0x80, 0x83)


class Patient(Publisher):
    """A publisher that sends what is refused again, as something new."""

    def _handle(self, peer: Peer, got: Packet) -> None:
        if got.kind in (PUBACK, PUBREC) and got.reason in REFUSED:
            self.sent.pop(got.pid)
            time.sleep(0.01)
            return
        super()._handle(peer, got)


class Probe(Client):
    """Sends itself a message now and then, and notes how long it takes."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self.seconds: list[float] = []

    def talk(self, peer: Peer) -> None:
        peer.send(subscribe(1, (self.name, 1))).answer(SUBACK)
        while not self.done():
            begun = time.monotonic()
            peer.send(publish(self.name, b"x", qos=1, pid=7))
            got = peer.packet()
            while got.kind != PUBLISH:
                got = peer.packet()
            self.seconds.append(time.monotonic() - begun)
            peer.send(ack(PUBACK, got.pid))
            time.sleep(0.02)

    def p99(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[len(ordered) * 99 // 100] * 1000 if ordered else 0.0


class Relay:
    """Between a client and the broker's QUIC port: a NAT that now and then
    gives the client another port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inside.bind(("127.0.0.1", 0))
        self.client = ("127.0.0.1", 0)
        self.outside = self._bind()
        threading.Thread(target=self._outwards, daemon=True).start()

    def _bind(self) -> socket.socket:
        outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        outside.connect(("127.0.0.1", self.port))
        threading.Thread(target=self._inwards, args=(outside,), daemon=True).start()
        return outside

    def rebind(self) -> None:
        before, self.outside = self.outside, self._bind()
        before.shutdown(socket.SHUT_RDWR)
        before.close()

    def _outwards(self) -> None:
        while True:
            data, self.client = self.inside.recvfrom(65536)
            try:
                self.outside.send(data)
            except OSError:
                pass

    def _inwards(self, outside: socket.socket) -> None:
        while True:
            try:
                self.inside.sendto(outside.recv(65536), self.client)
            except OSError:
                return


class QuicSubscriber:
    """`dunlin sub` over QUIC, at QoS 2."""

    def __init__(self, broker: Dunlin, port: int, topic: str) -> None:
        self.qos, self.name, self.error = 2, "quic", ""
        self.delivered: Counter[str] = Counter()
        self.subscribed = threading.Event()
        command = [str(broker.binary()), "sub", "--url", f"quic://localhost:{port}"]
        command += ["--ca", str(broker.ca), "-i", "soak-quic", "-c", "-q", "2", "-t", topic, "-t", "soak/ready"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.subscribed.set()
            self.delivered[line.rstrip("\n")] += 1

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@dataclass
class Row:
    part: str
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    memory: tuple[int, int, int] = (0, 0, 0)
    p99: float = 0.0


class Memory:
    """Resident memory of a broker, looked at again and again, in MiB."""

    def __init__(self, broker: Dunlin) -> None:
        self.broker = broker
        self.seen: list[int] = []

    def look(self) -> None:
        try:
            status = Path(f"/proc/{self.broker.process.pid}/status").read_text()
            self.seen += [int(line.split()[1]) >> 10 for line in status.splitlines() if "VmRSS" in line]
        except OSError:
            pass

    def row(self) -> tuple[int, int, int]:
        """After a third of the time, in the end, at most."""
        return (self.seen[len(self.seen) // 3], self.seen[-1], max(self.seen)) if self.seen else (0, 0, 0)


# What happens beside the load: a step every tenth of a second.


def nothing(_broker: Dunlin):
    while True:
        yield


def attack(broker: Dunlin):
    with Attack(broker.ports["tcp"]):
        while True:
            yield


def kills(broker: Dunlin):
    while True:
        for _ in range(random.randint(2, 12)):
            yield
        broker.kill()
        broker.start()


def full_disk(broker: Dunlin):
    filler = broker.folder / "data" / "filler"
    while True:
        try:
            with filler.open("wb") as file:
                while True:
                    file.write(bytes(1 << 16))
        except OSError:
            pass
        for _ in range(10):
            yield
        filler.unlink()
        for _ in range(10):
            yield


@contextmanager
def disk(folder: Path, small: bool):
    """A folder for the data of a broker; raises OSError if it cannot be small."""
    data = folder / "data"
    data.mkdir(parents=True)
    if small:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m", "soak", str(data)]
        if subprocess.run(mount, capture_output=True).returncode:
            raise OSError("cannot mount a small file system")
    try:
        yield
    finally:
        if small:
            subprocess.run(["umount", "-l", str(data)], check=True)


def run(part: str, seconds: float, folder: Path, shards: int) -> tuple[Row, list[str]]:
    """One part; its row, and what was wrong."""
    broker = Dunlin(folder, shards=shards)
    broker.start()
    port = broker.ports["tcp"]
    memory = Memory(broker)
    subscribers = [Subscriber(port, f"soak-sub-{qos}", f"soak/{qos}/#", qos) for qos in (1, 2)]
    publishers = [Patient(port, f"soak-pub-{qos}-{n}", f"soak/{qos}/{n}", qos) for qos in (1, 2) for n in (0, 1)]
    probe = Probe(port, "soak-probe")
    relay = None
    try:
        for subscriber in subscribers:
            subscriber.start().subscribed.wait(60)
        if part == "addresses":
            relay = Relay(broker.ports["quic"])
            with Peer(port) as peer:
                peer.send(connect(unique())).expect(CONNACK)
                peer.send(publish("soak/ready", b"ready", qos=1, retain=True)).expect(PUBACK)
            subscribers.append(QuicSubscriber(broker, relay.inside.getsockname()[1], "soak/2/#"))
            assert subscribers[-1].subscribed.wait(60), "no subscription over QUIC"
        for client in (*publishers, probe):
            client.start()
        step = {"attack": attack, "full disk": full_disk, "kills": kills}.get(part, nothing)(broker)
        deadline, looks = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            next(step)
            looks += 1
            if relay and looks % 10 == 0:
                relay.rebind()
            memory.look()
            time.sleep(0.1)
        step.close()
        (folder / "data" / "filler").unlink(missing_ok=True)
        for client in (*publishers, probe):
            client.stop()
        wait(publishers, subscribers)
        memory.look()
        for subscriber in subscribers:
            subscriber.stop()
    finally:
        broker.stop()
    row = Row(part, sum(len(p.acknowledged) for p in publishers), memory=memory.row(), p99=probe.p99())
    wrong = [f"{part}: {c.error}" for c in (*publishers, *subscribers, probe) if c.error]
    for subscriber in subscribers:
        row.lost += len(missing(publishers, subscriber))
        if subscriber.qos == 2:
            row.doubled += sum(times > 1 for times in subscriber.delivered.values())
    return row, wrong


def missing(publishers: list[Publisher], subscriber: Subscriber) -> set[str]:
    mine = [p for p in publishers if p.qos == subscriber.qos]
    promised = {f"{p.name} {number}" for p in mine for number in p.acknowledged}
    return promised - subscriber.delivered.keys()


def wait(publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < deadline and any(missing(publishers, s) for s in subscribers):
        time.sleep(0.2)


def judge(row: Row, long: bool) -> list[str]:
    wrong = []
    third, end, most = row.memory
    if row.acknowledged == 0:
        wrong.append("nothing was acknowledged")
    if row.lost or row.doubled:
        wrong.append(f"{row.lost} lost, {row.doubled} doubled")
    if most > MEMORY_MAX:
        wrong.append(f"{most} MiB, {MEMORY_MAX} allowed")
    if long and row.part == "load" and end > third * GROWTH_MAX:
        wrong.append(f"memory grew from {third} to {end} MiB")
    return [f"{row.part}: {what}" for what in wrong]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    seconds = args.seconds or (SECONDS_SHORT if args.short else SECONDS)
    if Dunlin.binary() is None:
        print("soak: skipped: there is no dunlin binary")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    random.seed(args.seed)
    print(f"soak: {seconds} s, seed {args.seed}, {args.shards} shards", flush=True)
    head = ("part", "acknowledged", "lost", "doubled", "MiB", "end", "most", "p99 ms")
    print("soak: {:<10} {:>12} {:>6} {:>8} {:>5} {:>5} {:>5} {:>8}".format(*head), flush=True)
    wrong, skipped = [], 0
    for part, share in PARTS.items():
        with tempfile.TemporaryDirectory(prefix="soak-") as name:
            try:
                with disk(Path(name), part == "full disk"):
                    row, errors = run(part, seconds * share, Path(name), args.shards)
            except OSError as error:
                skipped += 1
                print(f"soak: {part}: skipped: {error}", flush=True)
                continue
        wrong += errors + judge(row, seconds >= SECONDS)
        numbers = (row.acknowledged, row.lost, row.doubled, *row.memory, row.p99)
        line = "soak: {:<10} {:>12} {:>6} {:>8} {:>5} {:>5} {:>5} {:>8.1f}"
        print(line.format(row.part, *numbers), flush=True)
    for sentence in wrong:
        print(f"soak: {sentence}")
    failed = len({sentence.split(":")[0] for sentence in wrong})
    print(f"{len(PARTS) - skipped - failed} passed, {failed} failed, {skipped} skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
