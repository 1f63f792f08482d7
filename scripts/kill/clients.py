"""A publisher and a subscriber that keep the rules of QoS 1 and 2 over any
number of connections, and remember what was promised and what arrived."""

import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from wire import *  # noqa: E402

# Unacknowledged messages of one publisher.
WINDOW = 50
SESSION_SECONDS = 86_400
# Longest that a client may take for what it has begun.
FINISH_SECONDS_MAX = 60
# Between attempts to reach a broker that is not there.
RETRY_SECONDS = 0.02


class Client:
    """A client with a session that it keeps; runs in its own thread."""

    def __init__(self, port: int, name: str) -> None:
        self.port, self.name = port, name
        self.had_session = False
        self.sessions_lost = 0
        self.stopping = threading.Event()
        self.error = ""
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> "Client":
        self.thread.start()
        return self

    def stop(self) -> None:
        """Lets it finish what it has begun."""
        self.stopping.set()
        self.thread.join(FINISH_SECONDS_MAX)
        if self.thread.is_alive():
            self.error = f"{self.name}: not finished after {FINISH_SECONDS_MAX} s"

    def _run(self) -> None:
        while not self.done():
            try:
                with self.reach() as peer:
                    self.greet(peer)
                    self.talk(peer)
            except (Closed, OSError, TimeoutError):
                self.part()
            except AssertionError as error:
                # A packet that should not be: not the kill's doing.
                self.error = f"{self.name}: {error}"
                return

    def reach(self) -> Peer:
        """A connection on which nothing was said yet."""
        return Peer(self.port)

    def greet(self, peer: Peer) -> None:
        """CONNECT and CONNACK."""
        props = ((SESSION_EXPIRY, SESSION_SECONDS), (RECEIVE_MAX, 1000))
        peer.send(connect(self.name, clean=False, props=props))
        connack = peer.expect(CONNACK)
        assert connack.reason == 0, f"CONNACK {connack.reason:#04x}"
        self.sessions_lost += self.had_session and not connack.session_present
        self.had_session = True

    def part(self) -> None:
        """The connection ended, or could not be made."""
        time.sleep(RETRY_SECONDS)

    def done(self) -> bool:
        return self.stopping.is_set()

    def talk(self, peer: Peer) -> None:
        raise NotImplementedError


class Publisher(Client):
    """Publishes numbers as fast as the window allows."""

    def __init__(self, port: int, name: str, topic: str, qos: int) -> None:
        super().__init__(port, name)
        self.topic, self.qos = topic, qos
        self.next = 0
        # Packet identifier to number; at QoS 2 until PUBREC, then in `released`.
        self.sent: dict[int, int] = {}
        self.released: dict[int, int] = {}
        # Numbers that the broker has promised to deliver.
        self.acknowledged: set[int] = set()

    def done(self) -> bool:
        return self.stopping.is_set() and not self.sent and not self.released

    def talk(self, peer: Peer) -> None:
        for pid, number in self.sent.items():
            self._publish(peer, pid, number, dup=True)
        for pid in self.released:
            peer.send(ack(PUBREL, pid))
        while not self.done():
            while not self.stopping.is_set() and len(self.sent) + len(self.released) < WINDOW:
                pid = self._free_identifier()
                number = self.next
                # Before the bytes leave: when sending fails, the number is used.
                self.next += 1
                self.sent[pid] = number
                self._publish(peer, pid, number)
            self._handle(peer, peer.packet())

    def _publish(self, peer: Peer, pid: int, number: int, dup: bool = False) -> None:
        payload = f"{self.name} {number}".encode()
        peer.send(publish(self.topic, payload, qos=self.qos, pid=pid, dup=dup))

    def _free_identifier(self) -> int:
        pid = self.next % 65535 + 1
        while pid in self.sent or pid in self.released:
            pid = pid % 65535 + 1
        return pid

    def _handle(self, peer: Peer, got: Packet) -> None:
        assert got.reason < 0x80 or got.reason == 0x92, f"refused: {got}"
        if got.kind == PUBACK:
            self.acknowledged.add(self.sent.pop(got.pid))
        elif got.kind == PUBREC:
            number = self.sent.pop(got.pid)
            self.acknowledged.add(number)
            self.released[got.pid] = number
            peer.send(ack(PUBREL, got.pid))
        elif got.kind == PUBCOMP:
            self.released.pop(got.pid)


class Subscriber(Client):
    """Counts how often each message was delivered to the application."""

    def __init__(self, port: int, name: str, topic: str, qos: int) -> None:
        super().__init__(port, name)
        self.topic, self.qos = topic, qos
        self.subscribed = threading.Event()
        self.delivered: Counter[str] = Counter()
        # QoS 2 identifiers between PUBLISH and PUBREL, and their messages.
        self.open: dict[int, str] = {}

    def talk(self, peer: Peer) -> None:
        if not self.subscribed.is_set():
            suback = peer.send(subscribe(1, (self.topic, self.qos))).expect(SUBACK)
            assert suback.reasons == (self.qos,), suback
            self.subscribed.set()
        while not self.done():
            try:
                got = peer.packet(0.2)
            except TimeoutError:
                continue
            if got.kind == PUBREL:
                self.open.pop(got.pid, None)
                peer.send(ack(PUBCOMP, got.pid))
            elif got.kind == PUBLISH:
                self._deliver(peer, got)

    def _deliver(self, peer: Peer, message: Packet) -> None:
        assert message.qos == self.qos, message
        payload = message.payload.decode()
        if self.qos == 1:
            self.delivered[payload] += 1
            peer.send(ack(PUBACK, message.pid))
            return
        known = self.open.get(message.pid)
        # Otherwise this message would be taken for the other and lost.
        assert known in (None, payload), f"identifier {message.pid} of {known} given to {payload}"
        if known is None:
            self.open[message.pid] = payload
            self.delivered[payload] += 1
        peer.send(ack(PUBREC, message.pid))


def settle(subscribers: list[Subscriber], seconds: float) -> None:
    """Waits until nothing has arrived for a second, or too long."""
    deadline = time.monotonic() + seconds
    before, quiet_since = -1, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < 1:
        now = sum(sum(s.delivered.values()) for s in subscribers)
        if now != before:
            before, quiet_since = now, time.monotonic()
        time.sleep(0.05)
