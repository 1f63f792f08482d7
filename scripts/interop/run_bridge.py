"""Runs a bridge of this repository's broker to brokers by others: a row for each of them,
transport and version of MQTT.
"""

import argparse
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import results
from brokers import Broker, Dunlin, HiveMq, Mosquitto

SCHEMES = {"tcp": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss"}
VERSIONS = ("5.0", "3.1.1")

# Longest that a message may take.
SECONDS_MAX = 20
# Time in which a message that must not come would have come.
QUIET_SECONDS = 1
# Messages published while the other broker is away.
AWAY_MESSAGES = 50


class KeptMosquitto(Mosquitto):
    """Mosquitto whose sessions outlive a restart."""

    def command(self) -> list[str]:
        command = super().command()
        config = self.folder / "mosquitto.conf"
        kept = f"persistence true\npersistence_location {self.folder}/\n"
        config.write_text(kept + config.read_text())
        return command


# Those that take what says in MQTT 3.1.1 that a client is a bridge, so that topics may go
# both ways.
TAKE_BRIDGES = (KeptMosquitto,)
PEERS: tuple[type[Broker], ...] = (KeptMosquitto, HiveMq)


class Bridging(Dunlin):
    """Our broker with a bridge."""

    transports = ("tcp",)

    def __init__(self, folder: Path, remote: Broker, transport: str, version: str) -> None:
        super().__init__(folder)
        self.remote = remote
        self.transport = transport
        self.version = version
        # Where what comes in is: among what goes out, where that comes back to no one.
        has_both = version == "5.0" or isinstance(remote, TAKE_BRIDGES)
        self.inward = "b" if has_both else "c"

    def command(self) -> list[str]:
        command = super().command()
        # Without properties, what goes out beside topics that come in has QoS 1 at most.
        qos = 2 if self.version == "5.0" else 1
        port = self.remote.ports[self.transport]
        connection = 'reconnect_min = "50ms", reconnect_max = "200ms"'
        topics = {"b": "both"}
        if self.inward != "b":
            connection += ", bridge_flag = false"
            topics = {"b": "out", self.inward: "in"}
        lines = [
            "[[bridge]]",
            'name = "up"',
            f'url = "{SCHEMES[self.transport]}://localhost:{port}"',
            f'version = "{self.version}"',
            f'tls.ca = "{self.remote.ca}"',
            f"connection = {{ {connection} }}",
        ]
        for topic, direction in topics.items():
            lines += [
                "[[bridge.topic]]",
                f'pattern = "{topic}/#"',
                f'direction = "{direction}"',
                f"qos = {qos}",
                'remote_prefix = "far/"',
            ]
        config = self.folder / "dunlin.toml"
        config.write_text(config.read_text() + "\n".join(lines) + "\n")
        return command


class Subscriber:
    """A running mosquitto_sub; lines are `topic qos payload`."""

    def __init__(self, port: int, topic: str, *more: str) -> None:
        command = ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(port), "-t", topic]
        command += ["-q", "2", "-F", "%t %q %p", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def next(self, seconds: float = SECONDS_MAX) -> str:
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return "nothing"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def publish(port: int, topic: str, payload: str, qos: int, *more: str) -> None:
    command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-t", topic]
    command += ["-m", payload, "-q", str(qos), *more]
    subprocess.run(command, check=True, timeout=SECONDS_MAX)


def expect(got: object, wanted: object, what: str) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: {got!r} instead of {wanted!r}")


def joined(ours: Bridging, theirs: Broker, here: Subscriber, there: Subscriber) -> None:
    """Waits until messages go both ways."""
    probes = (
        (ours.ports["tcp"], "b/probe", there),
        (theirs.ports["tcp"], f"far/{ours.inward}/probe", here),
    )
    for port, topic, at in probes:
        until = time.monotonic() + SECONDS_MAX
        publish(port, topic, "probe", 1)
        while "probe" not in at.next(0.3):
            if time.monotonic() > until:
                raise AssertionError(f"{topic} does not come through")
            publish(port, topic, "probe", 1)
    for at in (here, there):
        while at.next(QUIET_SECONDS) != "nothing":
            pass


def both_ways(ours: Bridging, theirs: Broker) -> None:
    here = Subscriber(ours.ports["tcp"], "#")
    there = Subscriber(theirs.ports["tcp"], "far/#")
    try:
        joined(ours, theirs, here, there)
        for qos in (0, 1, 2) if ours.version == "5.0" else (0, 1):
            ways = (
                (ours.ports["tcp"], "", "b/x"),
                (theirs.ports["tcp"], "far/", f"{ours.inward}/x"),
            )
            for port, prefix, topic in ways:
                payload = f"q{qos} {prefix}{topic}"
                publish(port, prefix + topic, payload, qos)
                expect(here.next(), f"{topic} {qos} {payload}", "here")
                expect(there.next(), f"far/{topic} {qos} {payload}", "there")
        expect(here.next(QUIET_SECONDS), "nothing", "an echo here")
        expect(there.next(QUIET_SECONDS), "nothing", "an echo there")
    finally:
        here.stop()
        there.stop()


def away(ours: Bridging, theirs: Broker) -> None:
    """What is published while the other broker is away comes in order, once or more."""
    port = theirs.ports["tcp"]
    session = ["-i", "reader", "-c"]
    reader = Subscriber(port, "far/b/#", *session)
    until = time.monotonic() + SECONDS_MAX
    try:
        # What comes before it has subscribed is not for it.
        publish(ours.ports["tcp"], "b/y", "before", 1)
        while "before" not in reader.next(0.3):
            if time.monotonic() > until:
                raise AssertionError("the reader hears nothing")
            publish(ours.ports["tcp"], "b/y", "before", 1)
    finally:
        reader.stop()
    theirs.stop()
    for number in range(AWAY_MESSAGES):
        publish(ours.ports["tcp"], "b/y", str(number), 1)
    theirs.start()
    reader = Subscriber(port, "far/b/#", *session)
    try:
        got: list[int] = []
        while not got or got[-1] != AWAY_MESSAGES - 1:
            line = reader.next()
            if line == "nothing":
                raise AssertionError(f"only {len(got)} came: {got[-5:]}")
            if line.split()[-1] not in ("before", "probe"):
                got.append(int(line.split()[-1]))
        expect(list(dict.fromkeys(got)), list(range(AWAY_MESSAGES)), "in order")
    finally:
        reader.stop()


CASES = (("both ways, without echo", both_ways), ("while it is away", away))


def run_one(
    peer: type[Broker],
    transport: str,
    version: str,
    count: Counter[str],
    failures: list[str],
) -> str:
    row = f"{peer.name:9} {transport:4} {version:5}"
    with tempfile.TemporaryDirectory(prefix="bridge-") as folder:
        (Path(folder) / "there").mkdir()
        (Path(folder) / "here").mkdir()
        theirs = peer(Path(folder) / "there")
        ours = Bridging(Path(folder) / "here", theirs, transport, version)
        name = "start"
        try:
            theirs.start()
            ours.start()
            for name, case in CASES:
                case(ours, theirs)
                count["ok"] += 1
                print(f"ok    {row} {name}", flush=True)
        except (AssertionError, RuntimeError, subprocess.SubprocessError) as error:
            count["FAIL"] += 1
            failures.append(f"{row} {name}: {error}")
            print(f"FAIL  {row} {name}", flush=True)
            return ours.tail()
        finally:
            ours.stop()
            theirs.stop()
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="each transport and each broker")
    parser.add_argument("--peer", choices=[peer.name for peer in PEERS], help="only this broker")
    args = parser.parse_args()
    count: Counter[str] = Counter()
    failures: list[str] = []
    if Dunlin.binary() is None:
        print("interop: skipped: no dunlin")
        count["skip"] += 1
        return results.conclude(count, failures)
    log = ""
    # WebSocket is the same bridge on other bytes.
    transports = tuple(SCHEMES) if args.all else ("tcp", "tls")
    for peer in PEERS:
        is_wanted = args.peer == peer.name if args.peer else args.all or peer is KeptMosquitto
        if not is_wanted:
            continue
        if peer.binary() is None:
            needs = "" if peer is KeptMosquitto else " --brokers"
            print(f"interop: skipped: no {peer.name}: scripts/setup-test.sh{needs}")
            count["skip"] += 1
            continue
        for transport in transports:
            for version in VERSIONS:
                log = run_one(peer, transport, version, count, failures) or log
    return results.conclude(count, failures, log)


if __name__ == "__main__":
    sys.exit(main())
