"""MQTT 5.0 on the wire, written from the specification and nothing else.

An independent witness: it shares no code with the broker, checks what it
receives, and sends what a case asks for, however wrong.
"""

import base64
import os
import socket
import struct
import time
import uuid
from dataclasses import dataclass, field

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(8, 16)

# Property identifiers (section 2.2.2.2) and how their values are written.
PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION = 1, 2, 3, 8, 9
SUBSCRIPTION_ID, SESSION_EXPIRY, ASSIGNED_ID, SERVER_KEEP_ALIVE = 11, 17, 18, 19
AUTH_METHOD, AUTH_DATA, REQUEST_PROBLEM, WILL_DELAY, REQUEST_RESPONSE = 21, 22, 23, 24, 25
RESPONSE_INFO, REASON_STRING, RECEIVE_MAX, ALIAS_MAX, ALIAS = 26, 31, 33, 34, 35
USER, MAX_PACKET = 38, 39
FORMS = {1: "B", 2: "I", 3: "s", 8: "s", 9: "b", 11: "v", 17: "I", 18: "s", 19: "H", 21: "s"}
FORMS |= {22: "b", 23: "B", 24: "I", 25: "B", 26: "s", 28: "s", 31: "s", 33: "H", 34: "H"}
FORMS |= {35: "H", 36: "B", 37: "B", 38: "p", 39: "I", 40: "B", 41: "B", 42: "B"}

# Longest that an expected packet may take.
SECONDS_MAX = 8


class Closed(Exception):
    """The broker ended the connection."""


def unique(prefix: str = "c") -> str:
    """A name that nothing else uses."""
    return prefix + uuid.uuid4().hex[:12]


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, digit = value >> 7, value & 0x7F
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def binary(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def text(words: str) -> bytes:
    return binary(words.encode())


def properties(*entries: tuple[int, object]) -> bytes:
    out = b""
    for identifier, value in entries:
        out += bytes([identifier])
        match FORMS[identifier]:
            case "s":
                out += text(value)
            case "b":
                out += binary(value)
            case "v":
                out += varint(value)
            case "p":
                out += text(value[0]) + text(value[1])
            case form:
                out += struct.pack(">" + form, value)
    return varint(len(out)) + out


def packet(kind: int, flags: int, body: bytes) -> bytes:
    return bytes([kind << 4 | flags]) + varint(len(body)) + body


@dataclass
class Will:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: tuple = ()


def connect(client_id="", clean=True, keep_alive=60, props=(), will=None, version=5, flags=0):
    """A CONNECT; `flags` are added to the right ones."""
    flags |= 2 if clean else 0
    body = text(client_id)
    if will:
        flags |= 4 | will.qos << 3 | (0x20 if will.retain else 0)
        body += properties(*will.properties) if version == 5 else b""
        body += text(will.topic) + binary(will.payload)
    head = text("MQTT") + bytes([version, flags]) + struct.pack(">H", keep_alive)
    return packet(CONNECT, 0, head + (properties(*props) if version == 5 else b"") + body)


def publish(topic, payload=b"", qos=0, retain=False, dup=False, pid=1, props=()):
    flags = qos << 1 | (1 if retain else 0) | (8 if dup else 0)
    head = text(topic) + (struct.pack(">H", pid) if qos else b"")
    return packet(PUBLISH, flags, head + properties(*props) + payload)


def ack(kind, pid, reason=0, props=()):
    flags = 2 if kind == PUBREL else 0
    return packet(kind, flags, struct.pack(">HB", pid, reason) + properties(*props))


def subscribe(pid, *filters, props=()):
    """Filters are (text, options byte)."""
    body = b"".join(text(f) + bytes([options]) for f, options in filters)
    return packet(SUBSCRIBE, 2, struct.pack(">H", pid) + properties(*props) + body)


def unsubscribe(pid, *filters):
    return packet(
        UNSUBSCRIBE, 2, struct.pack(">H", pid) + properties() + b"".join(map(text, filters))
    )


def disconnect(reason=0, props=()):
    return packet(DISCONNECT, 0, bytes([reason]) + properties(*props))


PING = packet(PINGREQ, 0, b"")


@dataclass
class Packet:
    """A received packet; fields that it does not have stay as they are."""

    kind: int
    flags: int
    size: int
    pid: int = 0
    reason: int = 0
    reasons: tuple[int, ...] = ()
    topic: str = ""
    payload: bytes = b""
    session_present: bool = False
    props: list[tuple[int, object]] = field(default_factory=list)

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    def all(self, identifier: int) -> list:
        """Values of a property, in order."""
        return [value for key, value in self.props if key == identifier]

    def one(self, identifier: int):
        """The value of a property that may be there once; None if it is not."""
        values = self.all(identifier)
        assert len(values) <= 1, f"property {identifier} occurs {len(values)} times"
        return values[0] if values else None


class Reader:
    """Takes a body apart."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        assert self.at + count <= len(self.data), "packet is cut off"
        self.at += count
        return self.data[self.at - count : self.at]

    def left(self) -> int:
        return len(self.data) - self.at

    def number(self, form: str) -> int:
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 28, 7):
            digit = self.number("B")
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                return value
        raise AssertionError("variable byte integer of more than four bytes")

    def binary(self) -> bytes:
        return self.take(self.number("H"))

    def text(self) -> str:
        return self.binary().decode()

    def properties(self) -> list[tuple[int, object]]:
        inner = Reader(self.take(self.varint()))
        found = []
        while inner.left():
            identifier = inner.varint()
            match FORMS[identifier]:
                case "s":
                    value = inner.text()
                case "b":
                    value = inner.binary()
                case "v":
                    value = inner.varint()
                case "p":
                    value = (inner.text(), inner.text())
                case form:
                    value = inner.number(form)
            found.append((identifier, value))
        return found


def parse(first: int, body: bytes, size: int, version: int) -> Packet:
    got = Packet(first >> 4, first & 15, size)
    reader = Reader(body)
    expected_flags = {PUBLISH: got.flags, PUBREL: 2}.get(got.kind, 0)
    assert got.flags == expected_flags, f"flags {got.flags} of packet type {got.kind}"
    is_v5 = version == 5
    if got.kind == CONNACK:
        present = reader.number("B")
        assert present in (0, 1), "reserved bits of the acknowledge flags"
        got.session_present, got.reason = bool(present), reader.number("B")
    elif got.kind == PUBLISH:
        assert got.qos < 3, "both QoS bits are set"
        got.topic = reader.text()
        got.pid = reader.number("H") if got.qos else 0
    elif got.kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        got.pid = reader.number("H")
        got.reason = reader.number("B") if reader.left() else 0
    elif got.kind in (SUBACK, UNSUBACK):
        got.pid = reader.number("H")
    elif got.kind in (DISCONNECT, AUTH):
        got.reason = reader.number("B") if reader.left() else 0
    if is_v5 and reader.left():
        got.props = reader.properties()
    rest = reader.take(reader.left())
    if got.kind == PUBLISH:
        got.payload = rest
    elif got.kind in (SUBACK, UNSUBACK):
        got.reasons = tuple(rest)
    else:
        assert not rest, f"{len(rest)} bytes too many"
    return got


class Peer:
    """A connection to the broker under test."""

    def __init__(
        self, port: int, version: int = 5, packet_max: int = 0, host: str = "127.0.0.1"
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.version = version
        # Maximum Packet Size that this side announced; every packet is held to it.
        self.packet_max = packet_max
        self.buffer = b""
        # Packets that came while another one was waited for.
        self.stash: list[Packet] = []

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *packets: bytes) -> "Peer":
        self.socket.sendall(b"".join(packets))
        return self

    def _more(self, deadline: float) -> None:
        self.socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self.socket.recv(65536)
        except (ConnectionError, BrokenPipeError):
            data = b""
        if not data:
            raise Closed
        self.buffer += self._unwrap(data)

    def _unwrap(self, data: bytes) -> bytes:
        return data

    def packet(self, seconds: float = SECONDS_MAX) -> Packet:
        """The next packet; raises `Closed` or `TimeoutError`."""
        if self.stash:
            return self.stash.pop(0)
        return self._receive(seconds)

    def _receive(self, seconds: float) -> Packet:
        deadline = time.monotonic() + seconds
        while True:
            head = Reader(self.buffer)
            try:
                first, length = head.number("B"), head.varint()
                body = head.take(length)
            except AssertionError:
                self._more(deadline)
                continue
            self.buffer = self.buffer[head.at :]
            too_large = self.packet_max and head.at > self.packet_max
            assert not too_large, f"{head.at} bytes, {self.packet_max} allowed"
            return parse(first, body, head.at, self.version)

    def expect(self, kind: int) -> Packet:
        """The next packet, which must be of this type."""
        got = self.packet()
        assert got.kind == kind, f"packet type {got.kind}, want {kind}: {got}"
        return got

    def answer(self, kind: int) -> Packet:
        """The next packet that is no PUBLISH, which must be of this type.
        Messages may come before a SUBACK (section 3.8.4); they are kept."""
        while (got := self._receive(SECONDS_MAX)).kind == PUBLISH:
            self.stash.append(got)
        assert got.kind == kind, f"packet type {got.kind}, want {kind}: {got}"
        return got

    def rest(self, seconds: float = SECONDS_MAX) -> list[Packet]:
        """Packets until the broker closes; fails if it does not."""
        got = []
        deadline = time.monotonic() + seconds
        while True:
            try:
                got.append(self.packet(deadline - time.monotonic()))
            except Closed:
                return got
            except TimeoutError:
                raise AssertionError(f"still open after {seconds} s; got {got}") from None

    def closes_with(self, *reasons: int) -> None:
        """The broker says DISCONNECT with one of these reasons, and closes."""
        got = self.rest()
        assert [p.kind for p in got] == [DISCONNECT], f"want one DISCONNECT, got {got}"
        assert got[0].reason in reasons, f"reason {got[0].reason:#04x}, want {reasons}"

    def until(self, topic: str) -> list[Packet]:
        """PUBLISH packets before the one with this topic, acknowledged."""
        got = []
        while True:
            message = self.expect(PUBLISH)
            self.acknowledge(message)
            if message.topic == topic:
                return got
            got.append(message)

    def acknowledge(self, message: Packet) -> None:
        """The receiver's part of the exchange, to its end."""
        if message.qos == 1:
            self.send(ack(PUBACK, message.pid))
        elif message.qos == 2:
            self.send(ack(PUBREC, message.pid))
            while (got := self._receive(SECONDS_MAX)).kind != PUBREL:
                self.stash.append(got)
            assert got.pid == message.pid, f"{got}, want {message.pid}"
            self.send(ack(PUBCOMP, message.pid))


class WebSocket(Peer):
    """The same over WebSocket; `frame` sends one frame of any kind."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.frames = b""
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET /mqtt HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: chat, mqtt\r\n\r\n"
        )
        self.socket.sendall(request.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = self.socket.recv(4096)
            assert data, f"no answer to the upgrade: {answer!r}"
            answer += data
        head, self.frames = answer.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        assert " 101 " in lines[0], lines[0]
        pairs = (line.split(":", 1) for line in lines[1:])
        self.headers = {name.strip().lower(): value.strip() for name, value in pairs}

    def frame(self, opcode: int, data: bytes, final: bool = True) -> "WebSocket":
        mask = os.urandom(4)
        size = (
            bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        )
        masked = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        self.socket.sendall(bytes([opcode | (0x80 if final else 0)]) + size + mask + masked)
        return self

    def send(self, *packets: bytes) -> "WebSocket":
        return self.frame(2, b"".join(packets))

    def _unwrap(self, data: bytes) -> bytes:
        self.frames += data
        out = b""
        while len(self.frames) >= 2:
            reader = Reader(self.frames)
            try:
                opcode, length = reader.number("B") & 15, reader.number("B")
                if length == 126:
                    length = reader.number("H")
                elif length == 127:
                    length = reader.number("Q")
                payload = reader.take(length)
            except AssertionError:
                break
            self.frames = self.frames[reader.at :]
            if opcode == 8:
                self.socket.close()
                raise Closed
            assert opcode in (0, 2, 9), f"frame of kind {opcode}"
            out += payload if opcode != 9 else b""
        return out
