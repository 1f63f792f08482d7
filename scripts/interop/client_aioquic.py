"""aioquic as a client of MQTT over QUIC: the features of `features.py`, and bytes
that no proper client sends. Runs in the test environment (target/venv).
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator

import features
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite, Epoch
from features import ask
from quic_mqtt import (
    CONTROL,
    DISCONNECT,
    PUBACK,
    PUBLISH,
    SUBACK,
    Link,
    Packet,
    Server,
    connect,
    packet,
    publish,
    quic_varint,
    split,
    subscribe,
)
from scenarios import Skip, expect

ARGS = features.arguments()
SERVER = Server(ARGS.host, ARGS.port, ARGS.ca)
RUN = uuid.uuid4().hex[:8]
# Longest that one feature may take.
FEATURE_SECONDS_MAX = 60.0
# A version that does not exist, of the form that asks for negotiation.
GREASED_VERSION = 0x1A2A3A4A
# No stream: where a packet out of a datagram came from.
DATAGRAM = -1
FLOW_ALPN = "MQTT-next"
# Flow headers of the MQTT-next draft.
FLOW_CONTROL, FLOW_CLIENT, FLOW_SERVER, FLOW_USER = 0x11, 0x12, 0x13, 0x14
FLAG_ABORT_IF_NO_STATE = 0x02
# Reason codes of MQTT, and error codes of streams in the draft.
MALFORMED_PACKET, PROTOCOL_ERROR = 0x81, 0x82
NO_FLOW_STATE, STREAM_TYPE, BAD_FLOW_ID = 0xB3, 0xB5, 0xB6
INCOMPLETE_PACKET, FLOW_REFUSED = 0xBA, 0xBE
REPLAYS = 20
KEY_UPDATES = 3
BROKER_DOWN_SECONDS_MAX = 10.0


def topic(name: str) -> str:
    return f"interop/aioquic/{RUN}/{name}"


def client_id() -> str:
    return f"aioquic-{uuid.uuid4().hex[:12]}"


@contextlib.asynccontextmanager
async def session(user: dict[str, str] | None = None, **more) -> AsyncIterator[Link]:
    """A connected client, with user properties in its CONNECT."""
    async with SERVER.dial(connect(client_id(), user=user), **more) as link:
        await link.connack()
        yield link


async def there_and_back(link: Link, name: str, forth: int = CONTROL, back: int = CONTROL) -> None:
    """A message of each QoS by one stream and back by another."""
    for qos in (0, 1, 2):
        await link.subscribe(topic(f"{name}/{qos}"), qos, back)
    for qos in (0, 1, 2):
        payload = f"{name} {qos}".encode()
        publishing = asyncio.ensure_future(link.publish(topic(f"{name}/{qos}"), payload, qos, forth))
        message = await link.message(back)
        await publishing
        expect((message.qos, message.payload), (qos, payload), "message")


async def single() -> None:
    async with session() as link:
        await there_and_back(link, "single")


async def data_streams() -> None:
    async with session() as link:
        one, two = link.stream(), link.stream()
        await there_and_back(link, "data", one, two)
        # Both streams may use an identifier at once.
        for stream in (one, two):
            link.send(stream, publish(topic("ids"), b"", 1, 777))
        for stream in (one, two):
            expect((await link.packet(PUBACK, stream)).packet_id, 777, "identifier")


async def early_streams() -> None:
    # The data stream is there before CONNECT, and before the handshake ends.
    async with SERVER.dial() as link:
        await link.handshake()
        control, data = link.stream(), link.stream()
        link.send(data, subscribe(1, topic("early"), 1) + publish(topic("early"), b"early", 1, 2))
        link.send(control, connect(client_id()))
        await link.connack()
        expect((await link.packet(SUBACK, data)).code, 1, "granted")
        expect((await link.message(data)).payload, b"early", "message")


async def uni_streams() -> None:
    async with session() as link:
        await there_and_back(link, "uni", link.stream(uni=True))
        # One for each message, ended after it.
        await link.subscribe(topic("uni/each"), 1)
        for number in range(30):
            stream = link.stream(uni=True)
            link.send(stream, publish(topic("uni/each"), b"%d" % number, 1, 100 + number), fin=True)
            expect((await link.packet(PUBACK, CONTROL)).packet_id, 100 + number, "identifier")
            expect((await link.message(CONTROL)).payload, b"%d" % number, "message")


def flow_header(kind: int, flow: int, expiry: int | None = None, flags: int = 0) -> bytes:
    expiry_bytes = b"" if expiry is None else quic_varint(expiry)
    return quic_varint(kind) + quic_varint(flow) + expiry_bytes + bytes([flags])


@contextlib.asynccontextmanager
async def flows(control: bytes = b"") -> AsyncIterator[Link]:
    """A client that offers flow headers."""
    first = control + connect(client_id())
    async with SERVER.dial(first, alpn_protocols=[FLOW_ALPN, "mqtt"]) as link:
        chosen = (await link.handshake()).alpn_protocol
        if chosen != FLOW_ALPN:
            raise Skip(f"the broker chose ALPN {chosen}")
        link.header_of = header_length
        await link.connack()
        yield link


def header_length(data: bytes) -> int:
    """Length of a flow header of the broker; 0 while it is not whole."""
    if data and data[0] != FLOW_SERVER:
        raise AssertionError(f"a stream of the broker begins with {data[:8].hex(' ')}")
    at = 1
    for _ in ("flow id", "expiry"):
        if len(data) <= at:
            return 0
        at += 1 << (data[at] >> 6)
    return at + 1 if len(data) > at else 0


async def flow_headers() -> None:
    async with flows() as link:
        forth, back = link.stream(), link.stream()
        link.send(forth, flow_header(FLOW_CLIENT, 2, 60))
        link.send(back, flow_header(FLOW_CLIENT, 4, 60))
        await there_and_back_anywhere(link, "flow", forth, back)
        uni = link.stream(uni=True)
        link.send(uni, flow_header(FLOW_CLIENT, 6, 60))
        await there_and_back_anywhere(link, "flow/uni", uni, CONTROL)
    # The control stream may say what it is.
    async with flows(flow_header(FLOW_CONTROL, 0)) as link:
        await link.ping()


async def there_and_back_anywhere(link: Link, name: str, forth: int, back: int) -> None:
    """As `there_and_back`; the broker chooses the stream of the delivery."""
    await link.subscribe(topic(f"{name}/#"), 2, back)
    for qos in (0, 1, 2):
        await link.publish(topic(f"{name}/{qos}"), b"x", qos, forth)
        message = await link.message()
        expect((message.qos, message.topic), (qos, topic(f"{name}/{qos}")), "message")


async def server_streams() -> None:
    # A client of plain `mqtt` asks for them; one of `MQTT-next` has them.
    async with session({"dunlin-streams": "4"}) as link, session() as publisher:
        link.header_of = header_length
        await pushed(link, publisher)
    async with flows() as link, session() as publisher:
        await pushed(link, publisher)


async def pushed(link: Link, publisher: Link) -> None:
    """Deliveries come on streams that the broker opens, one for each topic."""
    await link.subscribe(topic("push/#"), 2)
    streams: dict[str, set[int]] = {"a": set(), "b": set()}
    for qos in (0, 1, 2):
        for name, seen in streams.items():
            await publisher.publish(topic(f"push/{name}"), name.encode(), qos)
            message = await link.message()
            expect((message.qos, message.payload), (qos, name.encode()), "message")
            seen.add(message.stream)
    expect([len(seen) for seen in streams.values()], [1, 1], "streams for each topic")
    expect(streams["a"] & streams["b"], set(), "streams of both topics")
    for stream in streams["a"] | streams["b"]:
        expect(stream % 4, 1, "kind of the stream")
        flow = link.arrived.headers[stream][1]
        expect(flow & 1, 1, "owner of the flow")


async def datagrams() -> None:
    user = {"dunlin-datagrams": "5000"}
    async with session(user, max_datagram_frame_size=65535) as link:
        if not link._quic._remote_max_datagram_frame_size:
            raise Skip("the broker takes no datagrams")
        await link.subscribe(topic("datagram"), 0)
        # On loopback nothing is lost that is not meant to be.
        link.send_datagram(publish(topic("datagram"), b"by datagram"))
        arrived = link.arrived
        await link.until("message", lambda: arrived.datagrams or arrived.packets)
        expect(arrived.packets, [], "deliveries on streams")
        message = split(bytearray(arrived.datagrams.pop()), DATAGRAM)
        expect((message.topic, message.payload), (topic("datagram"), b"by datagram"), "message")
        # Too large for a datagram: a stream carries it.
        await link.publish(topic("datagram"), bytes(4000), 0)
        expect(len((await link.message()).payload), 4000, "large message")
    # To a client that takes none, and from a publisher on a stream.
    async with session() as link:
        await link.subscribe(topic("stream"), 0)
        await link.publish(topic("stream"), b"by stream", 0)
        expect((await link.message(CONTROL)).payload, b"by stream", "message")


async def ciphers() -> None:
    for suite in (
        CipherSuite.AES_128_GCM_SHA256,
        CipherSuite.AES_256_GCM_SHA384,
        CipherSuite.CHACHA20_POLY1305_SHA256,
    ):
        async with session(cipher_suites=[suite]) as link:
            expect(link._quic.tls.key_schedule.cipher_suite, suite, "cipher suite")
            await there_and_back(link, f"cipher/{suite.name}")


async def version() -> None:
    async with session(
        supported_versions=[GREASED_VERSION, QuicProtocolVersion.VERSION_1]
    ) as link:
        expect(link._quic._version_negotiated_incompatible, True, "negotiated")
        await link.ping()


async def key_update() -> None:
    async with session() as link:
        await link.subscribe(topic("keys"), 1)
        for number in range(KEY_UPDATES):
            link.request_key_update()
            await link.publish(topic("keys"), b"%d" % number, 1)
            expect((await link.message()).payload, b"%d" % number, "message")
            # Whether the broker sends with the new keys too.
            keys = link._quic._cryptos[Epoch.ONE_RTT]
            expect(keys.recv.key_phase, (number + 1) % 2, "key phase of the broker")
            expect(keys.send.key_phase, (number + 1) % 2, "key phase")


async def rebind() -> None:
    await moving(new_cid=False)


async def migrate() -> None:
    await moving(new_cid=True)


async def moving(*, new_cid: bool) -> None:
    """Under a session with messages of others in between."""
    async with session() as link, session() as other:
        name = topic(f"moving/{new_cid}")
        await link.subscribe(name, 2)
        stream = link.stream()
        await link.publish(name, b"before", 2, stream)
        await link.message()
        for number in range(3):
            await link.rebind()
            if new_cid:
                link.change_connection_id()
            await link.publish(name, b"%d mine" % number, 2, stream)
            expect((await link.message()).payload, b"%d mine" % number, "own message")
            await other.publish(name, b"%d other" % number, 2)
            expect((await link.message()).payload, b"%d other" % number, "message of another")


async def ticket(**more) -> object:
    """A ticket that allows early data."""
    tickets: list = []
    async with session(tickets=tickets, **more) as link:
        await link.until("ticket", lambda: tickets)
        await link.ping()
    found = tickets[-1]
    if found.max_early_data_size is None:
        raise Skip("the tickets of the broker allow no early data")
    return found


def first_flight(name: str) -> bytes:
    return connect(client_id()) + publish(topic(name), b"early", 1, 1)


async def zero_rtt() -> None:
    early = await ticket()
    async with session() as watcher:
        await watcher.subscribe(topic("0rtt"), 1)
        # What follows the first flight is held back until the message is there.
        async with SERVER.dial(first_flight("0rtt"), session_ticket=early, hold=True) as link:
            expect((await watcher.message()).payload, b"early", "message in early data")
            held, link.held = link.held, None
            for data in held:
                link._transport.sendto(data, ("127.0.0.1", ARGS.port))
            expect((await link.handshake()).early_data_accepted, True, "accepted")
            await link.connack()
            expect((await link.packet(PUBACK)).packet_id, 1, "identifier")
            await there_and_back(link, "0rtt/after")


async def zero_rtt_once() -> None:
    early = await ticket()
    async with session() as watcher:
        await watcher.subscribe(topic("once/#"), 1)
        async with SERVER.dial(first_flight("once/1"), session_ticket=early) as link:
            expect((await link.handshake()).early_data_accepted, True, "accepted at first")
            await link.connack()
            await link.packet(PUBACK)
            expect((await watcher.message()).topic, topic("once/1"), "first message")
        # The ticket is spent. The client sends the same bytes again by itself.
        async with SERVER.dial(first_flight("once/2"), session_ticket=early) as link:
            expect((await link.handshake()).early_data_accepted, False, "accepted again")
            await link.connack()
            await link.packet(PUBACK)
        expect((await watcher.message()).topic, topic("once/2"), "second message")
        await nothing_more(watcher)


async def zero_rtt_replay() -> None:
    early = await ticket()
    async with session() as watcher:
        await watcher.subscribe(topic("replay"), 1)
        async with SERVER.dial(first_flight("replay"), session_ticket=early) as link:
            flight = list(link.sent)
            await link.handshake()
            await link.connack()
            await watcher.message()
        loop = asyncio.get_running_loop()
        for _ in range(REPLAYS):
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
            )
            for data in flight:
                transport.sendto(data, ("127.0.0.1", ARGS.port))
            transport.close()
        # A fresh handshake through the same socket comes after all of them.
        async with session() as link:
            await link.ping()
        await nothing_more(watcher)


async def nothing_more(watcher: Link) -> None:
    await watcher.ping()
    left = [p for p in watcher.arrived.packets if p.kind == PUBLISH]
    expect(left, [], "surplus messages")


async def refused(link: Link, stream: int, code: int) -> None:
    """The broker ends a stream; the connection goes on."""
    expect(hex((await link.ended(stream, "reset", "stop")).code), hex(code), "error code")
    await link.ping()


async def bad_connect() -> None:
    # What is for the control stream only, and a second CONNECT on that.
    for wrong in (connect(client_id()), packet(0xE0, b""), packet(0xF0, b"\x18\0")):
        async with session() as link, session() as other:
            link.send(link.stream(), wrong)
            expect(hex((await link.packet(DISCONNECT, CONTROL)).code), hex(PROTOCOL_ERROR), "code")
            expect(await link.closed_by_peer(), 0, "close code")
            await other.ping()
    async with session() as link:
        link.send(CONTROL, connect(client_id()))
        expect(hex((await link.packet(DISCONNECT, CONTROL)).code), hex(PROTOCOL_ERROR), "code")


async def bad_packet() -> None:
    async with session() as link:
        good = link.stream()
        await link.subscribe(topic("good"), 1, good)
        for wrong in (b"\x30\x05\x00\x09abc", b"\x00\x00", b"\x36\x04\x00\x01ab", b"\x10\xff\xff\xff\xff"):
            stream = link.stream()
            link.send(stream, wrong)
            await refused(link, stream, MALFORMED_PACKET)
        await link.publish(topic("good"), b"still here", 1)
        expect((await link.message(good)).payload, b"still here", "message")


async def bad_order() -> None:
    async with SERVER.dial(subscribe(1, topic("order"), 0)) as link:
        await link.closed_by_peer()
    # A data stream alone is parked, and nothing on it has an effect.
    async with session() as watcher, SERVER.dial() as link:
        await watcher.subscribe(topic("parked"), 0)
        await link.handshake()
        link.stream()
        link.send(link.stream(), publish(topic("parked"), b"too early"))
        async with session() as later:
            await later.ping()
        await nothing_more(watcher)


async def bad_half() -> None:
    async with flows() as link:
        for half in (b"\x12", b"\x12\x40", b"\x12\x02", b"\x12\x02\x80\0"):
            for uni in (False, True):
                stream = link.stream(uni=uni)
                link.send(stream, half, fin=True)
                # A stream that has only our side, and that ended, has nothing to end.
                if not uni:
                    await refused(link, stream, INCOMPLETE_PACKET)
        await link.publish(topic("half"), b"", 1, link.stream())


async def bad_flow() -> None:
    async with flows() as link:
        for header, code in (
            # Of the control stream, of the broker's kind, with ids of others.
            (flow_header(FLOW_CONTROL, 0), STREAM_TYPE),
            (flow_header(FLOW_SERVER, 3, 60), STREAM_TYPE),
            (flow_header(FLOW_CLIENT, 3, 60), BAD_FLOW_ID),
            (flow_header(FLOW_CLIENT, 0, 60), BAD_FLOW_ID),
            # A flow to recover that is not known, a kind that is not taken.
            (flow_header(FLOW_CLIENT, 2, 60, FLAG_ABORT_IF_NO_STATE), NO_FLOW_STATE),
            (flow_header(FLOW_USER, 2), FLOW_REFUSED),
        ):
            stream = link.stream()
            link.send(stream, header + publish(topic("flow"), b"", 1, 1))
            await refused(link, stream, code)


async def retry() -> None:
    async with session() as link:
        expect(link._quic._retry_count, 1, "Retry packets")
        await there_and_back(link, "retry")


async def token() -> None:
    tokens: list[bytes] = []
    async with session(tokens=tokens) as link:
        await link.ping()
        if not tokens:
            raise Skip("the broker gives no token")
    async with session(token=tokens[-1]) as link:
        expect(link._quic._retry_count, 0, "Retry packets")
        await link.ping()


async def reset() -> None:
    async with session() as link:
        ask("kill")
        link.send(CONTROL, packet(0xC0, b""))
        await link.closed_by_peer()
        expect(link.reset_seen, True, "stateless reset")


async def zero_rtt_restart() -> None:
    early = await ticket()
    ask("restart")
    async with asyncio.timeout(BROKER_DOWN_SECONDS_MAX):
        async with SERVER.dial(first_flight("restart"), session_ticket=early) as link:
            accepted = (await link.handshake()).early_data_accepted
            await link.connack()
            await link.packet(PUBACK)
            expect(accepted, True, "accepted")
    async with SERVER.dial(first_flight("restart"), session_ticket=early) as link:
        expect((await link.handshake()).early_data_accepted, False, "accepted again")


if __name__ == "__main__":
    features.run(
        ARGS,
        {
            "single": single,
            "data-streams": data_streams,
            "early-streams": early_streams,
            "uni-streams": uni_streams,
            "flow-headers": flow_headers,
            "server-streams": server_streams,
            "datagrams": datagrams,
            "ciphers": ciphers,
            "version": version,
            "key-update": key_update,
            "rebind": rebind,
            "migrate": migrate,
            "0rtt": zero_rtt,
            "0rtt-once": zero_rtt_once,
            "0rtt-replay": zero_rtt_replay,
            "bad-connect": bad_connect,
            "bad-packet": bad_packet,
            "bad-order": bad_order,
            "bad-half": bad_half,
            "bad-flow": bad_flow,
            "retry": retry,
            "token": token,
            "reset": reset,
            "0rtt-restart": zero_rtt_restart,
        },
        FEATURE_SECONDS_MAX,
    )
