"""qpid-proton (PyPI) as an AMQP 1.0 client under the scenarios, with paho-mqtt
at the other end where a message changes protocol."""

import os
import queue
import time
import uuid

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton import SASL, ConnectionException, Message, ProtonException, SSLDomain, ulong
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import AtMostOnce, Container
from proton.utils import BlockingConnection, LinkDetached, SendException
from scenarios import (
    AMQP_NAMES,
    BURST_MESSAGES,
    LARGE_BYTES,
    SECONDS_MAX,
    arguments,
    expect,
    run_all,
)

ARGS = arguments()
PREFIX = f"interop/proton/{ARGS.transport}/{uuid.uuid4().hex[:8]}"
SCHEME = "amqps" if ARGS.transport == "tls" else "amqp"
URL = f"{SCHEME}://{ARGS.host}:{ARGS.port}"

# Smallest frame that AMQP 1.0 lets a peer ask for (part 2, section 2.4.1).
SMALLEST_FRAME = 512


def tls():
    if ARGS.transport != "tls":
        return None
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(ARGS.ca)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    return domain


def connect(**options):
    return BlockingConnection(URL, timeout=SECONDS_MAX, ssl_domain=tls(), **options)


def receive(receiver, accept=True):
    """The next message, accepted unless it came settled."""
    message = receiver.receive(timeout=SECONDS_MAX)
    if accept and receiver.fetcher.unsettled:
        receiver.accept()
    return message


def payload(message):
    """A binary body, which lives as long as its message."""
    return bytes(message.body)


class Mqtt:
    """A client of MQTT 5.0 at the same broker."""

    def __init__(self, topic=None, qos=1):
        self.messages = queue.Queue()
        ready = queue.Queue()
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.paho.on_message = lambda c, u, message: self.messages.put(message)
        self.paho.on_connect = lambda c, u, f, reason, p: ready.put(reason)
        self.paho.on_subscribe = lambda c, u, mid, reasons, p: ready.put(reasons[0])
        self.paho.connect(ARGS.host, int(os.environ["INTEROP_TCP_PORT"]))
        self.paho.loop_start()
        expect(ready.get(timeout=SECONDS_MAX).is_failure, False, "CONNACK")
        if topic:
            self.paho.subscribe(topic, qos)
            expect(ready.get(timeout=SECONDS_MAX).value, qos, "SUBACK")

    def message(self):
        return self.messages.get(timeout=SECONDS_MAX)

    def publish(self, topic, payload, qos=1, **properties):
        packed = Properties(PacketTypes.PUBLISH)
        for name, value in properties.items():
            setattr(packed, name, value)
        info = self.paho.publish(topic, payload, qos, properties=packed)
        info.wait_for_publish(SECONDS_MAX)
        expect(info.is_published(), True, "acknowledged")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.paho.disconnect()
        self.paho.loop_stop()


def through(options=None, **connection):
    """Some messages from a sender to a receiver of one topic."""
    topic = f"{PREFIX}/{uuid.uuid4().hex[:8]}"
    conn = connect(**connection)
    receiver = conn.create_receiver(topic, credit=10)
    sender = conn.create_sender(topic, options=options)
    for body in (b"one", b"", "drei €".encode()):
        sender.send(Message(body=body, inferred=True))
        expect(payload(receive(receiver)), body, "body")
    conn.close()


def unsettled():
    through()
    topic = f"{PREFIX}/mode"
    conn = connect()
    receiver = conn.create_receiver(topic, credit=2)
    conn.create_sender(topic).send(Message(body="x"))
    receive(receiver, accept=False)
    expect(len(receiver.fetcher.unsettled), 1, "deliveries that wait for an outcome")
    receiver.accept()
    with Mqtt() as mqtt:
        mqtt.publish(topic, b"y", qos=0)
        receive(receiver, accept=False)
    expect(len(receiver.fetcher.unsettled), 0, "deliveries of QoS 0 that wait")
    conn.close()


def sasl():
    """Who may enter, and how."""
    for options in (
        {"allowed_mechs": "ANONYMOUS"},
        {"sasl_enabled": False},
        {"allowed_mechs": "PLAIN", "user": "alice", "password": "wonderland"},
        # The strongest that both have.
        {"user": "alice", "password": "wonderland"},
    ):
        connect(**options).close()
    # A build without Cyrus SASL has no SCRAM.
    scram = ("SCRAM-SHA-256",) if SASL.extended() else ()
    for mechanism in scram:
        connect(allowed_mechs=mechanism, user="alice", password="wonderland").close()
    for mechanism in ("PLAIN", *scram):
        wrong = {"allowed_mechs": mechanism, "user": "alice", "password": "looking-glass"}
        try:
            connect(**wrong)
        except (ConnectionException, ProtonException) as error:
            expect("amqp:unauthorized-access" in str(error), True, str(error))
        else:
            raise AssertionError(f"a wrong password was accepted by {mechanism}")


def settled():
    through(options=AtMostOnce())


def small_frames():
    through(max_frame_size=SMALLEST_FRAME)


def large():
    topic = f"{PREFIX}/large"
    conn = connect()
    receiver = conn.create_receiver(topic, credit=1)
    body = os.urandom(LARGE_BYTES)
    conn.create_sender(topic).send(Message(body=body, inferred=True))
    expect(payload(receive(receiver)) == body, True, "body")
    conn.close()


def wildcard():
    conn = connect()
    receiver = conn.create_receiver(f"{PREFIX}/w/+/c/#", credit=10)
    for tail in ("a/x", "a/c", "b/c/d/e", "c"):
        conn.create_sender(f"{PREFIX}/w/{tail}").send(Message(body=tail))
    got = sorted(receive(receiver).body for _ in range(2))
    expect(got, ["a/c", "b/c/d/e"], "matches")
    conn.close()


def relay():
    """A sender without a target: `to` says where each message goes."""
    conn = connect()
    receiver = conn.create_receiver(f"{PREFIX}/relay/#", credit=10)
    sender = conn.create_sender(None)
    for tail in ("a", "b"):
        sender.send(Message(address=f"{PREFIX}/relay/{tail}", body=tail))
        expect(receive(receiver).body, tail, "body")
    conn.close()


def properties():
    """What AMQP says beside the body comes out as it went in."""
    topic = f"{PREFIX}/properties"
    conn = connect()
    receiver = conn.create_receiver(topic, credit=1)
    identifier = uuid.uuid4()
    sent = Message(
        id=identifier,
        correlation_id=ulong(7),
        subject="greeting",
        reply_to=f"{topic}/reply",
        content_type="text/plain",
        group_id="group",
        group_sequence=4,
        properties={"text": "a", "number": 42, "real": 0.5, "flag": True},
        body={"list": [1, 2, None], "bytes": b"\x00\xff"},
        priority=7,
        durable=True,
    )
    conn.create_sender(topic).send(sent)
    got = receive(receiver)
    for name in (
        "id correlation_id subject reply_to content_type group_id group_sequence properties"
        " body priority durable"
    ).split():
        expect(getattr(got, name), getattr(sent, name), name)
    conn.close()


def expiry():
    topic = f"{PREFIX}/expiry"
    conn = connect()
    receiver = conn.create_receiver(topic, credit=1)
    conn.create_sender(topic).send(Message(body=b"x", ttl=30))
    expect(0 < receive(receiver).ttl <= 30, True, "time to live is what is left")
    conn.close()


def to_mqtt():
    topic = f"{PREFIX}/to-mqtt"
    conn = connect()
    with Mqtt(topic, 2) as mqtt:
        sender = conn.create_sender(topic)
        sender.send(
            Message(
                body=b"payload",
                inferred=True,
                durable=True,
                content_type="text/plain",
                reply_to="answers",
                correlation_id=b"\x01\x02",
                properties={"k": "v"},
                ttl=60,
            )
        )
        got = mqtt.message()
        expect((got.payload, got.qos, got.retain), (b"payload", 1, False), "message")
        p = got.properties
        expect(p.ContentType, "text/plain", "Content Type")
        expect(p.ResponseTopic, "answers", "Response Topic")
        expect(p.CorrelationData, b"\x01\x02", "Correlation Data")
        expect(("k", "v") in p.UserProperty, True, "User Property")
        expect(0 < p.MessageExpiryInterval <= 60, True, "Message Expiry Interval")
        sender.send(Message(body="text"))
        got = mqtt.message()
        expect((got.payload, got.properties.PayloadFormatIndicator), (b"text", 1), "a string")
    conn.close()


def from_mqtt():
    topic = f"{PREFIX}/from-mqtt"
    conn = connect()
    receiver = conn.create_receiver(topic, credit=10)
    with Mqtt() as mqtt:
        mqtt.publish(
            topic,
            b"payload",
            ContentType="text/plain",
            ResponseTopic="answers",
            CorrelationData=b"\x01\x02",
            UserProperty=("k", "v"),
            MessageExpiryInterval=60,
        )
        got = receive(receiver)
        expect((payload(got), got.address, got.durable), (b"payload", topic, True), "message")
        expect(got.content_type, "text/plain", "content-type")
        expect(got.reply_to, "answers", "reply-to")
        expect(bytes(got.correlation_id), b"\x01\x02", "correlation-id")
        expect(got.properties, {"k": "v"}, "application-properties")
        expect(0 < got.ttl <= 60, True, "ttl")
        mqtt.publish(topic, "text", PayloadFormatIndicator=1)
        expect(receive(receiver).body, "text", "a string")
        mqtt.publish(topic, b"zero", qos=0)
        got = receive(receiver)
        expect((payload(got), got.durable), (b"zero", False), "QoS 0")
    conn.close()


def outcomes():
    """A message that is released or modified comes again; one that is
    rejected does not."""
    topic = f"{PREFIX}/outcomes"
    conn = connect()
    receiver = conn.create_receiver(topic, credit=1)
    sender = conn.create_sender(topic)
    sender.send(Message(body="first"))
    expect(receive(receiver, accept=False).body, "first", "body")
    receiver.release(delivered=False)
    receiver.link.flow(1)
    expect(receive(receiver, accept=False).body, "first", "again")
    receiver.reject()
    sender.send(Message(body="second"))
    receiver.link.flow(1)
    expect(receive(receiver).body, "second", "the next")
    conn.close()


class Drain(MessagingHandler):
    """Asks for ten messages with drain where there are four."""

    def __init__(self, topic):
        super().__init__(prefetch=0)
        self.topic, self.got, self.drained = topic, 0, False
        self.sent, self.accepted = 0, 0

    def on_start(self, event):
        options = {"ssl_domain": tls()} if ARGS.transport == "tls" else {}
        conn = event.container.connect(URL, reconnect=False, **options)
        self.receiver = event.container.create_receiver(conn, self.topic)
        self.conn = conn

    def on_link_opened(self, event):
        if event.link.is_receiver:
            self.sender = event.container.create_sender(self.conn, self.topic)

    def on_sendable(self, event):
        while self.sent < 4 and event.sender.credit:
            event.sender.send(Message(body=self.sent))
            self.sent += 1

    def on_accepted(self, event):
        self.accepted += 1
        if self.accepted == 4:
            self.receiver.drain(10)

    def on_message(self, event):
        self.got += 1

    def on_link_flow(self, event):
        if event.link.is_receiver and self.got == 4 and not event.link.credit:
            self.drained = True
            self.conn.close()


def drain():
    handler = Drain(f"{PREFIX}/drain")
    container = Container(handler)
    container.timeout = 0.5
    container.start()
    deadline = time.monotonic() + SECONDS_MAX
    while container.process() and time.monotonic() < deadline and not handler.drained:
        pass
    container.stop()
    expect((handler.got, handler.drained), (4, True), "messages, and the credit is used up")


class Burst(MessagingHandler):
    """Many messages in flight from one link to another."""

    def __init__(self, topic):
        super().__init__(prefetch=100)
        self.topic, self.sent, self.accepted, self.bodies = topic, 0, 0, []

    def on_start(self, event):
        options = {"ssl_domain": tls()} if ARGS.transport == "tls" else {}
        self.conn = event.container.connect(URL, reconnect=False, **options)
        event.container.create_receiver(self.conn, self.topic)

    def on_link_opened(self, event):
        if event.link.is_receiver:
            event.container.create_sender(self.conn, self.topic)

    def on_sendable(self, event):
        while self.sent < BURST_MESSAGES and event.sender.credit:
            event.sender.send(Message(body=self.sent))
            self.sent += 1

    def on_accepted(self, event):
        self.accepted += 1
        self.check()

    def on_message(self, event):
        self.bodies.append(event.message.body)
        self.check()

    def check(self):
        if self.accepted == len(self.bodies) == BURST_MESSAGES:
            self.conn.close()


def burst():
    handler = Burst(f"{PREFIX}/burst")
    container = Container(handler)
    container.timeout = 0.5
    container.start()
    deadline = time.monotonic() + SECONDS_MAX
    while container.process() and time.monotonic() < deadline:
        pass
    container.stop()
    expect(handler.accepted, BURST_MESSAGES, "accepted")
    expect(handler.bodies, list(range(BURST_MESSAGES)), "messages in order")


def refused():
    """An address that cannot be one is refused on its link; the connection
    goes on."""
    conn = connect()
    for address in ("a/#/b", "$SYS/x", "/queues/"):
        try:
            conn.create_sender(address).send(Message(body=b"x"))
        except (LinkDetached, SendException) as error:
            expect("amqp:" in str(error) or isinstance(error, SendException), True, str(error))
        else:
            raise AssertionError(f"{address} was accepted")
    conn.create_sender(f"{PREFIX}/refused").send(Message(body=b"x"))
    conn.close()


def idle():
    """Empty frames keep a connection that asks for them."""
    conn = connect(heartbeat=1)
    receiver = conn.create_receiver(f"{PREFIX}/idle", credit=1)
    deadline = time.monotonic() + 4
    conn.container.timeout = 0.2
    while time.monotonic() < deadline:
        conn.container.process()
    conn.create_sender(f"{PREFIX}/idle").send(Message(body=b"still here", inferred=True))
    expect(payload(receive(receiver)), b"still here", "body")
    conn.close()


class Transactions(TransactionHandler):
    """What the coordinator says."""

    def __init__(self, conn):
        super().__init__()
        self.conn = conn
        self.declared = self.ended = None

    def on_transaction_declared(self, event):
        self.declared = event.transaction

    def on_transaction_committed(self, event):
        self.ended = "committed"

    def on_transaction_aborted(self, event):
        self.ended = "aborted"

    def begin(self):
        self.declared = self.ended = None
        self.conn.container.declare_transaction(self.conn.conn, handler=self)
        self.conn.wait(lambda: self.declared, msg="declared")
        return self.declared

    def end(self, how):
        self.conn.wait(lambda: self.ended, msg=how)
        expect(self.ended, how, "end of the transaction")


def transaction():
    topic = f"{PREFIX}/{uuid.uuid4().hex[:8]}"
    conn = connect()
    receiver = conn.create_receiver(topic, credit=10)
    sender = conn.create_sender(topic)
    transactions = Transactions(conn)
    first = transactions.begin()
    first.send(sender.link, Message(body=b"rolled back", inferred=True))
    first.abort()
    transactions.end("aborted")
    second = transactions.begin()
    second.send(sender.link, Message(body=b"committed", inferred=True))
    # One outside of it is not held up.
    sender.send(Message(body=b"before", inferred=True))
    expect(payload(receive(receiver)), b"before", "body")
    second.commit()
    transactions.end("committed")
    expect(payload(receive(receiver)), b"committed", "body")
    conn.close()


run_all(
    {
        "settled": settled,
        "unsettled": unsettled,
        "sasl": sasl,
        "small-frames": small_frames,
        "large": large,
        "wildcard": wildcard,
        "relay": relay,
        "properties": properties,
        "expiry": expiry,
        "to-mqtt": to_mqtt,
        "from-mqtt": from_mqtt,
        "outcomes": outcomes,
        "drain": drain,
        "burst": burst,
        "refused": refused,
        "idle": idle,
        "transaction": transaction,
    },
    AMQP_NAMES,
)
