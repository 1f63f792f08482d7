"""MQTT 5.0 over QUIC with aioquic, by hand: every byte on every stream is the
caller's, so that what no proper client does can be tried too. Knows no feature
and no broker.
"""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

# Longest that one expected packet may take.
WAIT_SECONDS_MAX = 20.0

CONTROL = 0
CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 2, 3, 4, 5, 6, 7
SUBACK, UNSUBACK, PINGRESP, DISCONNECT = 9, 11, 13, 14


def varint(value: int) -> bytes:
    """A Variable Byte Integer of MQTT."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def quic_varint(value: int) -> bytes:
    """A variable-length integer of QUIC, as in flow headers."""
    if value < 0x40:
        return bytes([value])
    if value < 0x4000:
        return struct.pack(">H", value | 0x4000)
    return struct.pack(">I", value | 0x8000_0000)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


def connect(
    client_id: str, *, clean: bool = True, expiry: int = 0, keep_alive: int = 30, user: dict | None = None
) -> bytes:
    """CONNECT of MQTT 5.0; `user` are user properties."""
    properties = b"\x11" + struct.pack(">I", expiry) if expiry else b""
    for name, value in (user or {}).items():
        properties += b"\x26" + text(name) + text(value)
    flags = 2 if clean else 0
    head = text("MQTT") + bytes([5, flags]) + struct.pack(">H", keep_alive)
    return packet(0x10, head + varint(len(properties)) + properties + text(client_id))


def subscribe(packet_id: int, topic_filter: str, qos: int) -> bytes:
    return packet(0x82, struct.pack(">H", packet_id) + b"\0" + text(topic_filter) + bytes([qos]))


def publish(topic: str, payload: bytes, qos: int = 0, packet_id: int = 0) -> bytes:
    identifier = struct.pack(">H", packet_id) if qos else b""
    return packet(0x30 | qos << 1, text(topic) + identifier + b"\0" + payload)


def ack(kind: int, packet_id: int) -> bytes:
    return packet(kind << 4 | (2 if kind == PUBREL else 0), struct.pack(">H", packet_id))


@dataclass
class Packet:
    """A packet that arrived, and where."""

    stream: int
    kind: int
    flags: int
    body: bytes

    @property
    def packet_id(self) -> int:
        return struct.unpack_from(">H", self.body, self._id_at)[0]

    @property
    def _id_at(self) -> int:
        if self.kind != PUBLISH:
            return 0
        return 2 + struct.unpack_from(">H", self.body)[0]

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def topic(self) -> str:
        return self.body[2 : self._id_at].decode()

    @property
    def payload(self) -> bytes:
        at = self._id_at + (2 if self.qos else 0)
        # Properties of less than 128 bytes.
        return self.body[at + 1 + self.body[at] :]

    @property
    def code(self) -> int:
        """Reason code of an acknowledgement, a CONNACK or a DISCONNECT."""
        at = {CONNACK: 1, DISCONNECT: 0}.get(self.kind, 2)
        if self.kind in (SUBACK, UNSUBACK):
            at = len(self.body) - 1
        return self.body[at] if at < len(self.body) else 0


def split(data: bytearray, stream: int) -> Packet | None:
    """Takes one whole packet from the front of the bytes."""
    length = shift = 0
    for at in range(1, 5):
        if len(data) <= at:
            return None
        length |= (data[at] & 0x7F) << shift
        shift += 7
        if data[at] < 0x80:
            break
    if len(data) < at + 1 + length:
        return None
    found = Packet(stream, data[0] >> 4, data[0] & 15, bytes(data[at + 1 : at + 1 + length]))
    del data[: at + 1 + length]
    return found


class Closed(Exception):
    """The connection ended."""

    def __init__(self, event: events.ConnectionTerminated) -> None:
        super().__init__(f"closed with {event.error_code:#x} {event.reason_phrase!r}")
        self.code = event.error_code


@dataclass
class Ended:
    """What the broker did to a stream."""

    stream: int
    # `fin`, `reset` or `stop`.
    how: str
    code: int = 0


@dataclass
class Arrived:
    """Everything that arrived and was not asked for yet."""

    packets: list[Packet] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    datagrams: list[bytes] = field(default_factory=list)
    # First bytes of streams that the broker opened with a flow header.
    headers: dict[int, bytes] = field(default_factory=dict)
    closed: events.ConnectionTerminated | None = None
    handshake: events.HandshakeCompleted | None = None


class Link(QuicConnectionProtocol):
    """One connection."""

    def __init__(self, quic: QuicConnection) -> None:
        super().__init__(quic)
        self.arrived = Arrived()
        self.changed = asyncio.Event()
        self.buffers: dict[int, bytearray] = {}
        # Length of the flow header of streams that the broker opens.
        self.header_of: Callable[[bytes], int] | None = None
        self.reset_seen = False
        # Datagrams that were held back, while they are.
        self.held: list[bytes] | None = None
        self.sent: list[bytes] = []
        self.next_id = 1

    # From aioquic.

    def quic_event_received(self, event: events.QuicEvent) -> None:
        arrived = self.arrived
        if isinstance(event, events.StreamDataReceived):
            self._take(event.stream_id, event.data)
            if event.end_stream:
                arrived.ends.append(Ended(event.stream_id, "fin"))
        elif isinstance(event, events.StreamReset):
            arrived.ends.append(Ended(event.stream_id, "reset", event.error_code))
        elif isinstance(event, events.StopSendingReceived):
            arrived.ends.append(Ended(event.stream_id, "stop", event.error_code))
        elif isinstance(event, events.DatagramFrameReceived):
            arrived.datagrams.append(event.data)
        elif isinstance(event, events.ConnectionTerminated):
            arrived.closed = event
        elif isinstance(event, events.HandshakeCompleted):
            arrived.handshake = event
        self.changed.set()

    def _take(self, stream: int, data: bytes) -> None:
        buffer = self.buffers.setdefault(stream, bytearray())
        buffer += data
        by_broker = stream % 2 == 1
        if by_broker and self.header_of and stream not in self.arrived.headers:
            length = self.header_of(bytes(buffer))
            if not length:
                return
            self.arrived.headers[stream] = bytes(buffer[:length])
            del buffer[:length]
        while found := split(buffer, stream):
            self.arrived.packets.append(found)

    def datagram_received(self, data: bytes | str, addr: Any) -> None:
        quic = self._quic
        known = [quic._peer_cid, *quic._peer_cid_available]
        tokens = [cid.stateless_reset_token for cid in known if cid.stateless_reset_token]
        # aioquic leaves stateless resets (RFC 9000 section 10.3) to us.
        if bytes(data[-16:]) in tokens:
            self.reset_seen = True
            self.changed.set()
            return
        super().datagram_received(data, addr)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        send = transport.sendto

        def sendto(data: bytes, addr: Any) -> None:
            if self.held is not None:
                self.held.append(data)
                return
            self.sent.append(data)
            send(data, addr)

        transport.sendto = sendto

    # For the caller.

    async def until(self, what: str, found: Callable[[], Any]) -> Any:
        """Waits until `found` finds something; a closed connection fails."""
        async with asyncio.timeout(WAIT_SECONDS_MAX) as deadline:
            try:
                while not (value := found()):
                    if self.arrived.closed and what != "close":
                        raise Closed(self.arrived.closed)
                    self.changed.clear()
                    await self.changed.wait()
                return value
            except asyncio.CancelledError:
                if deadline.expired():
                    raise TimeoutError(f"no {what} in {WAIT_SECONDS_MAX} s") from None
                raise

    async def packet(self, kind: int, stream: int | None = None) -> Packet:
        """The next packet of a type, on one stream or on any."""

        def found() -> Packet | None:
            for at, candidate in enumerate(self.arrived.packets):
                if candidate.kind == kind and stream in (None, candidate.stream):
                    return self.arrived.packets.pop(at)
            return None

        return await self.until(f"packet of type {kind} on stream {stream}", found)

    async def ended(self, stream: int, *hows: str) -> Ended:
        """Waits for what the broker does to a stream."""

        def found() -> Ended | None:
            ends = [e for e in self.arrived.ends if e.stream == stream]
            return next((e for e in ends if not hows or e.how in hows), None)

        return await self.until(f"end of stream {stream}", found)

    async def closed_by_peer(self) -> int:
        """Waits for the end of the connection; its error code."""
        await self.until("close", lambda: self.arrived.closed or self.reset_seen)
        return self.arrived.closed.error_code if self.arrived.closed else -1

    async def handshake(self) -> events.HandshakeCompleted:
        return await self.until("handshake", lambda: self.arrived.handshake)

    def stream(self, *, uni: bool = False) -> int:
        """Opens a stream; nothing is sent yet."""
        stream = self._quic.get_next_available_stream_id(is_unidirectional=uni)
        self._quic.send_stream_data(stream, b"")
        return stream

    def send(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        self._quic.send_stream_data(stream, data, fin)
        self.transmit()

    def send_datagram(self, data: bytes) -> None:
        self._quic.send_datagram_frame(data)
        self.transmit()

    def packet_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    async def connack(self) -> Packet:
        answer = await self.packet(CONNACK, CONTROL)
        if answer.code:
            raise AssertionError(f"CONNACK {answer.code:#x}")
        return answer

    async def subscribe(self, topic_filter: str, qos: int, stream: int = CONTROL) -> None:
        self.send(stream, subscribe(self.packet_id(), topic_filter, qos))
        answer = await self.packet(SUBACK, stream)
        if answer.code != qos:
            raise AssertionError(f"SUBACK {answer.code:#x}")

    async def publish(self, topic: str, payload: bytes, qos: int, stream: int = CONTROL) -> None:
        """Publishes; at QoS 1 and 2 all acknowledgements have come, on control
        where the stream has no way back."""
        packet_id = self.packet_id() if qos else 0
        self.send(stream, publish(topic, payload, qos, packet_id))
        back = CONTROL if stream & 2 else stream
        await self.acknowledged(packet_id, qos, back, stream)

    async def acknowledged(self, packet_id: int, qos: int, back: int, forth: int) -> None:
        for kind in {1: (PUBACK,), 2: (PUBREC, PUBCOMP)}.get(qos, ()):
            answer = await self.packet(kind, back)
            if answer.packet_id != packet_id or answer.code >= 0x80:
                raise AssertionError(f"{answer}, want packet identifier {packet_id}")
            if kind == PUBREC:
                self.send(forth, ack(PUBREL, packet_id))

    async def message(self, stream: int | None = None) -> Packet:
        """The next message; it is acknowledged on the stream it came on, or on
        control when that has no way back."""
        message = await self.packet(PUBLISH, stream)
        back = CONTROL if message.stream & 2 else message.stream
        if message.qos == 1:
            self.send(back, ack(PUBACK, message.packet_id))
        elif message.qos == 2:
            self.send(back, ack(PUBREC, message.packet_id))
            await self.packet(PUBREL)
            self.send(back, ack(PUBCOMP, message.packet_id))
        return message

    async def ping(self, stream: int = CONTROL) -> None:
        """PINGREQ and its answer: everything before has been handled."""
        self.send(stream, packet(0xC0, b""))
        await self.packet(PINGRESP, stream)

    async def rebind(self) -> None:
        """Goes on from another port, as behind a NAT that forgot."""
        loop = asyncio.get_running_loop()
        old = self._transport
        await loop.create_datagram_endpoint(lambda: Forward(self), local_addr=("127.0.0.1", 0))
        old.close()


class Forward(asyncio.DatagramProtocol):
    """Another socket of a connection."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.link.connection_made(transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.link.datagram_received(data, addr)


@dataclass
class Server:
    """Where the broker is."""

    host: str
    port: int
    ca: str

    def configuration(self, **more: Any) -> QuicConfiguration:
        more.setdefault("alpn_protocols", ["mqtt"])
        more.setdefault("idle_timeout", 20.0)
        configuration = QuicConfiguration(
            server_name=self.host, verify_mode=ssl.CERT_REQUIRED, **more
        )
        configuration.cafile = self.ca
        return configuration

    @contextlib.asynccontextmanager
    async def dial(
        self,
        first: bytes = b"",
        *,
        tickets: list | None = None,
        tokens: list | None = None,
        hold: bool = False,
        datagrams: list[bytes] | None = None,
        **configuration: Any,
    ) -> AsyncIterator[Link]:
        """Connects; `first` goes to the control stream before the handshake
        ends, as early data when there is a ticket. With `hold`, only the first
        flight leaves. Tickets and tokens that the broker gives are collected."""
        quic = QuicConnection(
            configuration=self.configuration(**configuration),
            session_ticket_handler=tickets.append if tickets is not None else None,
            token_handler=tokens.append if tokens is not None else None,
        )
        loop = asyncio.get_running_loop()
        _, link = await loop.create_datagram_endpoint(
            lambda: Link(quic), local_addr=("127.0.0.1", 0)
        )
        link.connect(("127.0.0.1", self.port), transmit=False)
        if first:
            quic.send_stream_data(quic.get_next_available_stream_id(), first)
        for datagram in datagrams or ():
            quic.send_datagram_frame(datagram)
        link.transmit()
        if hold:
            link.held = []
        try:
            yield link
        finally:
            link.held = None
            if not link.arrived.closed:
                link.close()
            link._transport.close()
