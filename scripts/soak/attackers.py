"""Hostile clients: each does one thing again and again until it is stopped."""

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from wire import *  # noqa: E402

# Levels of the topic that overlapping filters match.
LEVELS = 11
# Connections that send half a CONNECT, or nothing.
STRANGERS = 200
# Longest that a send may wait for a broker that does not read.
SEND_SECONDS = 0.5


def overlap(port: int) -> Iterator[None]:
    """Filters that all match one topic, with identifiers, and its messages."""
    with session(port) as peer:
        for number, levels in enumerate(itertools.product("+t", repeat=LEVELS), 1):
            props = ((SUBSCRIPTION_ID, number),)
            peer.send(subscribe(1, ("/".join(levels), 0), props=props))
        yield
        for _ in range(500):
            peer.send(publish("/".join("t" * LEVELS), b"x"))
            yield


def subscribe_again(port: int) -> Iterator[None]:
    """The same SUBSCRIBE, by a client that takes one message and no more."""
    with session(port, (RECEIVE_MAX, 1)) as peer:
        for number in range(500):
            peer.send(publish(f"junk/{number}", bytes(2000), retain=True))
        while True:
            peer.send(*[subscribe(1, ("junk/#", 1))] * 100)
            yield


def never_read(port: int) -> Iterator[None]:
    """Everything that the others publish, and floods of answers, unread."""
    with session(port) as peer:
        peer.send(subscribe(1, ("#", 0)))
        while True:
            peer.send(PING * 1000)
            yield


def strangers(port: int) -> Iterator[None]:
    """Connections that never finish their CONNECT."""
    half = connect("c" * 60_000)[:-1]
    while True:
        peers = [Peer(port) for _ in range(STRANGERS)]
        for number, peer in enumerate(peers):
            peer.send(half if number % 2 else b"")
        for _ in range(50):
            yield
        for peer in peers:
            peer.socket.close()


def session(port: int, *props: tuple) -> Peer:
    peer = Peer(port)
    peer.send(connect(unique("attack-"), props=props)).expect(CONNACK)
    peer.socket.settimeout(SEND_SECONDS)
    return peer


KINDS = (overlap, subscribe_again, never_read, strangers)


class Attack:
    """All of them at once, each in its own thread."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(k,), daemon=True) for k in KINDS]

    def __enter__(self) -> "Attack":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(10)

    def _run(self, kind) -> None:
        while not self.stopping.is_set():
            try:
                for _ in kind(self.port):
                    time.sleep(0.01)
                    if self.stopping.is_set():
                        return
            # A broker that ends a connection is tried again.
            except (Closed, OSError, TimeoutError, AssertionError):
                time.sleep(0.05)
