"""Clients of a cluster: a publisher and a subscriber that keep the rules of QoS 1 and 2, come
back at another node when one is gone, and remember what was promised where and what arrived.
"""

import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve()
for folder in ("kill", "conformance"):
    sys.path.insert(0, str(HERE.parents[1] / folder))

from clients import SESSION_SECONDS, Client  # noqa: E402
from machines import Node  # noqa: E402
from wire import *  # noqa: E402

# Unacknowledged messages of one publisher.
WINDOW = 10
# Between two messages of one publisher.
PAUSE_SECONDS = 0.04
# Between two pings, and without any packet until the connection is given up.
BEAT_SECONDS, SILENCE_SECONDS_MAX = 1, 3
# Longest wait for SUBACK, which needs the home.
SUBACK_SECONDS_MAX = 15
# Between two attempts to reach a node.
AGAIN_SECONDS = 0.05
# Sentences about one client that are kept.
WRONG_MAX = 20
# Reasons in CONNACK after which a client tries again: unspecified, implementation specific,
# unavailable, busy, shutting down, quota, use another server, server moved, rate.
AGAIN = (0x80, 0x83, 0x88, 0x89, 0x8B, 0x97, 0x9C, 0x9D, 0x9F)
# Reasons in DISCONNECT that say that the client broke the rules, which it does not.
BLAMES = (0x81, 0x82, 0x90, 0x93, 0x94, 0x95, 0x99, 0x9A, 0x9B)

# Packets of all clients that are remembered, for the logs of a round with a violation.
JOURNAL_MAX = 400_000

# What nodes said to all clients: packet and reason.
said: Counter[str] = Counter()
# Time, client, node, connection, what was sent or came.
journal: deque[tuple[float, str, int, int, str]] = deque(maxlen=JOURNAL_MAX)


@dataclass(frozen=True)
class Promise:
    """When and by which node a message was acknowledged."""

    node: int
    at: float


class Roaming(Client):
    """A client that connects to one node after the other until it finds one that serves."""

    # Stays at its node.
    is_pinned = False
    # Has a session that outlives the connection.
    is_kept = True

    def __init__(self, nodes: list[Node], name: str, at: int) -> None:
        super().__init__(0, name)
        self.nodes, self.at = nodes, at
        self.is_moved = False
        # Connections so far, and when something came on this one.
        self.connection, self.heard = 0, 0.0
        self.wrong: list[str] = []

    @property
    def node(self) -> int:
        return self.nodes[self.at].number

    def move(self, at: int) -> None:
        """Leaves without a word, and goes to another node."""
        if at != self.at and not self.is_pinned:
            self.at, self.is_moved = at, True

    def blame(self, sentence: str) -> None:
        if len(self.wrong) < WRONG_MAX:
            self.wrong.append(f"{self.name} at node {self.node}: {sentence}")

    def note(self, what: str) -> None:
        journal.append((time.time(), self.name, self.node, self.connection, what))

    def reach(self) -> Peer:
        self.is_moved = False
        self.connection += 1
        self.heard = 0.0
        node = self.nodes[self.at]
        return Peer(node.port, host=node.host)

    def greet(self, peer: Peer) -> None:
        props = ((SESSION_EXPIRY, SESSION_SECONDS if self.is_kept else 0), (RECEIVE_MAX, 100))
        peer.send(connect(self.name, clean=not self.is_kept, props=props))
        connack = peer.packet(SILENCE_SECONDS_MAX)
        self.heed(connack)
        assert connack.kind == CONNACK, f"packet type {connack.kind} before CONNACK"
        if connack.reason in AGAIN:
            said[f"CONNACK {connack.reason:#04x}"] += 1
            raise Closed
        assert connack.reason == 0, f"CONNACK {connack.reason:#04x}"
        if self.is_kept and self.had_session and not connack.session_present:
            self.blame("the session was lost")
        self.had_session = True
        self.note(f"connected, session {'there' if connack.session_present else 'new'}")

    def heed(self, got: Packet) -> None:
        """Ends the connection where the node does."""
        if got.kind == DISCONNECT:
            said[f"DISCONNECT {got.reason:#04x}"] += 1
            assert got.reason not in BLAMES, f"DISCONNECT {got.reason:#04x} at node {self.node}"
            raise Closed

    def part(self) -> None:
        if self.heard:
            self.note("disconnected")
        if not self.is_moved and not self.is_pinned:
            self.at = (self.at + 1) % len(self.nodes)
        time.sleep(AGAIN_SECONDS)

    def talk(self, peer: Peer) -> None:
        self.begin(peer)
        self.heard = pinged = time.monotonic()
        while not self.done() and not self.is_moved:
            wait = self.work(peer)
            try:
                got = peer.packet(min(wait, BEAT_SECONDS))
            except TimeoutError:
                got = None
            now = time.monotonic()
            if got is not None:
                self.heard = now
                self.heed(got)
                self.take(peer, got)
            elif now - self.heard > SILENCE_SECONDS_MAX:
                raise Closed
            if now - pinged > BEAT_SECONDS:
                peer.send(PING)
                pinged = now

    def begin(self, peer: Peer) -> None:
        """What is said first on a connection."""

    def work(self, peer: Peer) -> float:
        """Does what is due; for how long nothing else is."""
        return BEAT_SECONDS

    def take(self, peer: Peer, got: Packet) -> None:
        raise NotImplementedError


class Publisher(Roaming):
    """Publishes numbers, each to one of its topics."""

    def __init__(
        self, nodes: list[Node], name: str, at: int, qos: int, topics: list[str], retain=False
    ) -> None:
        super().__init__(nodes, name, at)
        self.qos, self.topics, self.retain = qos, topics, retain
        self.window, self.pause = WINDOW, PAUSE_SECONDS
        self.resting = threading.Event()
        self.next = 0
        self.due = 0.0
        # Packet identifier to number; at QoS 2 until PUBREC, then in `released`.
        self.sent: dict[int, int] = {}
        self.released: dict[int, int] = {}
        # How often what is not settled was sent, and when first.
        self.times: dict[int, int] = {}
        self.first: dict[int, float] = {}
        # What nodes promised to deliver, and the last of it.
        self.promised: dict[int, Promise] = {}
        self.last = -1
        # When a message was sent first and when it was acknowledged, of this round.
        self.acks: list[tuple[float, float]] = []

    def done(self) -> bool:
        return self.stopping.is_set() and self.is_settled()

    def is_settled(self) -> bool:
        return not self.sent and not self.released

    def topic(self, number: int) -> str:
        return self.topics[number % len(self.topics)]

    def forget(self) -> None:
        """All so far is settled and was looked at."""
        self.promised, self.times, self.first, self.acks = {}, {}, {}, []

    def begin(self, peer: Peer) -> None:
        for pid, number in list(self.sent.items()):
            self._publish(peer, pid, number, dup=True)
        for pid in self.released:
            peer.send(ack(PUBREL, pid))

    def work(self, peer: Peer) -> float:
        if self.resting.is_set() or self.stopping.is_set():
            return BEAT_SECONDS / 10
        if len(self.sent) + len(self.released) >= self.window:
            return BEAT_SECONDS
        now = time.monotonic()
        if now < self.due:
            return self.due - now
        self.due = now + self.pause
        pid = self.next % 65535 + 1
        while pid in self.sent or pid in self.released:
            pid = pid % 65535 + 1
        number = self.next
        # Before the bytes leave: when sending fails, the number is used.
        self.next += 1
        self.sent[pid], self.first[number] = number, now
        self._publish(peer, pid, number)
        return self.pause

    def _publish(self, peer: Peer, pid: int, number: int, dup: bool = False) -> None:
        self.times[number] = self.times.get(number, 0) + 1
        payload = f"{self.name} {number}".encode()
        options = {"qos": self.qos, "pid": pid, "dup": dup, "retain": self.retain}
        self.note(f"> {number}, identifier {pid}{', DUP' if dup else ''}")
        peer.send(publish(self.topic(number), payload, **options))

    def take(self, peer: Peer, got: Packet) -> None:
        if got.kind in (PUBACK, PUBREC):
            # Of one that is released already, PUBREC may come again.
            number = self.sent.pop(got.pid, None)
            if number is None and got.pid not in self.released:
                self.blame(f"packet type {got.kind} for what is not open: {got}")
            elif number is not None and got.reason >= 0x80:
                said[f"refused {got.reason:#04x}"] += 1
                return
            elif number is not None:
                self._promised(number)
            if got.kind == PUBREC:
                self.released.setdefault(got.pid, number)
                peer.send(ack(PUBREL, got.pid))
        elif got.kind == PUBCOMP:
            self.released.pop(got.pid, None)

    def _promised(self, number: int) -> None:
        self.note(f"< acknowledged {number}")
        now = time.monotonic()
        self.promised[number] = Promise(self.node, now)
        self.last = max(self.last, number)
        self.acks.append((self.first[number], now))


class Probe(Publisher):
    """Has one message at a time on its way at one node, and asks again at once."""

    is_pinned = True

    def __init__(self, nodes: list[Node], name: str, at: int, topic: str) -> None:
        super().__init__(nodes, name, at, 1, [topic])
        self.window, self.pause = 1, 0.02


class Subscriber(Roaming):
    """Takes what comes, and holds it to the rules. Alone at its filter unless `group`."""

    def __init__(
        self,
        nodes: list[Node],
        name: str,
        at: int,
        qos: int,
        topics: str,
        publishers: dict[str, Publisher],
        group: str = "",
    ) -> None:
        super().__init__(nodes, name, at)
        self.qos, self.topics, self.publishers, self.group = qos, topics, publishers, group
        self.subscribed = threading.Event()
        # By publisher: number to how often it came, the last connection that it came on,
        # and how often on that.
        self.got: dict[str, dict[int, tuple[int, int, int]]] = {}
        # By publisher, the highest number so far, and the first that is not settled.
        self.highest: dict[str, int] = {}
        self.floor: dict[str, int] = {}
        # Repeated without DUP on a later connection, which only another home may do.
        self.unmarked: list[str] = []
        # QoS 2 identifiers between PUBLISH and PUBREL, and their messages.
        self.open: dict[int, str] = {}

    def forget(self) -> None:
        """All so far is settled and was looked at."""
        self.floor = {name: publisher.next for name, publisher in self.publishers.items()}
        self.got, self.unmarked, self.wrong = {}, [], []

    def begin(self, peer: Peer) -> None:
        if not self.is_kept:
            self.open = {}
        elif self.subscribed.is_set():
            return
        text = f"$share/{self.group}/{self.topics}" if self.group else self.topics
        peer.send(subscribe(1, (text, self.qos)))
        # Messages may come before it (section 3.8.4).
        while (suback := peer._receive(SUBACK_SECONDS_MAX)).kind == PUBLISH:
            peer.stash.append(suback)
        self.heed(suback)
        assert suback.kind == SUBACK, f"packet type {suback.kind} before SUBACK"
        if suback.reasons[0] >= 0x80:
            said[f"SUBACK {suback.reasons[0]:#04x}"] += 1
            raise Closed
        assert suback.reasons == (self.qos,), suback
        self.subscribed.set()

    def take(self, peer: Peer, got: Packet) -> None:
        if got.kind == PUBREL:
            self.open.pop(got.pid, None)
            peer.send(ack(PUBCOMP, got.pid))
        elif got.kind == PUBLISH:
            text = got.payload.decode()
            dup = ", DUP" if got.dup else ""
            self.note(f"< {text}, QoS {got.qos}, identifier {got.pid}{dup}")
            if got.qos == 2:
                known = self.open.get(got.pid)
                # Otherwise this message would be taken for the other and lost.
                right = known in (None, text)
                assert right, f"identifier {got.pid} of {known} given to {text}"
                if known is None:
                    self.open[got.pid] = text
                    self._count(got, text)
                peer.send(ack(PUBREC, got.pid))
            else:
                self._count(got, text)
                peer.send(ack(PUBACK, got.pid))

    def _count(self, message: Packet, text: str) -> None:
        name, _, digits = text.partition(" ")
        number = int(digits)
        known = self.got.setdefault(name, {})
        if number < self.floor.get(name, 0):
            self.blame(f"{text} came again after a round in which all was settled")
        seen = known.get(number)
        total, connection, here = seen or (0, 0, 0)
        here = here + 1 if connection == self.connection else 1
        known[number] = (total + 1, self.connection, here)
        if self.group:
            return
        highest = self.highest.get(name, -1)
        self.highest[name] = max(number, highest)
        if seen is None and number < highest:
            self.blame(f"{text} came after {highest}")
        elif seen is not None and message.qos == 1:
            self._repeated(message, text, here, self.publishers[name].times.get(number, 1))

    def _repeated(self, message: Packet, text: str, here: int, sent: int) -> None:
        """A message at QoS 1 came again. May it? As often as its publisher sent it, and on
        each later connection once for each, with DUP unless another home sends it."""
        if here > sent:
            self.blame(f"{text} came {here} times on one connection, published {sent} times")
        elif here == 1 and sent == 1 and not message.dup:
            self.unmarked.append(f"{self.name} at node {self.node}: {text}")


class Guest(Subscriber):
    """One whose session ends with its connection."""

    is_kept = False


def write_journal(path: Path) -> None:
    """What clients sent and got, in order of time."""
    with path.open("w") as out:
        for at, *who, what in sorted(journal.copy()):
            clock = time.strftime("%H:%M:%S", time.gmtime(at))
            name, node, connection = who
            out.write(f"{clock}.{int(at % 1 * 1e6):06} {name} {node} {connection} {what}\n")
