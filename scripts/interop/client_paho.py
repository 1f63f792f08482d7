"""paho-mqtt (PyPI) as a client under the scenarios."""

import queue
import socket
import ssl
import sys
import uuid

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from scenarios import (
    BURST_MESSAGES,
    LARGE_BYTES,
    SECONDS_MAX,
    SHARED_MESSAGES,
    arguments,
    expect,
    run_all,
)

ARGS = arguments()
IS_V5 = ARGS.version == "5"
PREFIX = f"interop/paho/{ARGS.transport}/{ARGS.version}/{uuid.uuid4().hex[:8]}"


class Client:
    """A connected client whose messages and acknowledgements can be awaited."""

    def __init__(self, client_id="", clean=True, expiry=0, will=None):
        self.messages = queue.Queue()
        self.connected = queue.Queue()
        self.subscribed = queue.Queue()
        kwargs = {} if IS_V5 else {"clean_session": clean}
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=client_id or f"paho-{uuid.uuid4().hex[:12]}",
            protocol=paho.MQTTv5 if IS_V5 else paho.MQTTv311,
            transport="websockets" if ARGS.transport in ("ws", "wss") else "tcp",
            **kwargs,
        )
        self.paho.max_inflight_messages_set(0)
        if ARGS.transport in ("ws", "wss"):
            self.paho.ws_set_options(path="/mqtt")
        if ARGS.transport in ("tls", "wss"):
            self.paho.tls_set(ca_certs=ARGS.ca, cert_reqs=ssl.CERT_REQUIRED)
        if will:
            self.paho.will_set(**will)
        self.paho.on_connect = lambda c, u, flags, reason, p: self.connected.put((flags, reason))
        self.paho.on_subscribe = lambda c, u, mid, reasons, p: self.subscribed.put(reasons)
        self.paho.on_message = lambda c, u, message: self.messages.put(message)
        kwargs = {}
        if IS_V5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = expiry
            kwargs = {"clean_start": clean, "properties": properties}
        self.paho.connect(ARGS.host, ARGS.port, keepalive=30, **kwargs)
        self.paho.loop_start()
        flags, reason = self.connected.get(timeout=SECONDS_MAX)
        expect(reason.is_failure, False, f"CONNACK {reason}")
        self.session_present = flags.session_present

    def subscribe(self, topic, qos):
        self.paho.subscribe(topic, qos)
        reasons = self.subscribed.get(timeout=SECONDS_MAX)
        expect([r.value for r in reasons], [qos], "SUBACK")
        return self

    def publish(self, topic, payload, qos, retain=False):
        info = self.paho.publish(topic, payload, qos, retain)
        info.wait_for_publish(SECONDS_MAX)
        expect(info.is_published(), True, "acknowledged")

    def message(self):
        return self.messages.get(timeout=SECONDS_MAX)

    def close(self):
        self.paho.disconnect()
        self.paho.loop_stop()

    def vanish(self):
        """Ends the connection without DISCONNECT."""
        self.paho.reconnect_delay_set(60, 120)
        wrapper = self.paho.socket()
        getattr(wrapper, "_socket", wrapper).shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def at_qos(qos):
    def scenario():
        topic = f"{PREFIX}/qos{qos}"
        with Client() as client:
            client.subscribe(topic, qos)
            for payload in (b"one", b"", "drei €".encode()):
                client.publish(topic, payload, qos)
                message = client.message()
                got = (message.topic, message.payload, message.qos, message.retain)
                expect(got, (topic, payload, qos, False), "message")

    return scenario


def wildcard():
    with Client() as client:
        client.subscribe(f"{PREFIX}/w/+/c/#", 1)
        for tail in ("a/x", "a/c", "b/c/d/e", "c"):
            client.publish(f"{PREFIX}/w/{tail}", tail, 1)
        # No order between topics is promised.
        got = sorted([client.message().payload, client.message().payload])
        expect(got, [b"a/c", b"b/c/d/e"], "matches")
        expect(client.messages.qsize(), 0, "surplus")


def retained():
    topic = f"{PREFIX}/retained"
    with Client() as publisher:
        publisher.publish(topic, b"kept", 1, retain=True)
        with Client() as client:
            message = client.subscribe(topic, 1).message()
            expect((message.payload, message.retain), (b"kept", True), "retained")
        publisher.publish(topic, b"", 1, retain=True)
        publisher.publish(f"{topic}/end", b"end", 1, retain=True)
        with Client() as client:
            expect(client.subscribe(f"{topic}/#", 1).message().payload, b"end", "cleared")
        publisher.publish(f"{topic}/end", b"", 1, retain=True)


def will():
    topic = f"{PREFIX}/will"
    with Client() as watcher:
        watcher.subscribe(topic, 1)
        Client(will={"topic": topic, "payload": b"clean", "qos": 1}).close()
        Client(will={"topic": topic, "payload": b"gone", "qos": 1}).vanish()
        expect(watcher.message().payload, b"gone", "will")


def shared():
    topic = f"{PREFIX}/shared"
    with Client() as one, Client() as two, Client() as publisher:
        for member in (one, two):
            member.subscribe(f"$share/group/{topic}", 1)
        for number in range(SHARED_MESSAGES):
            publisher.publish(topic, str(number), 1)
        # A marker that both get ends the wait for surplus messages.
        for member in (one, two):
            member.subscribe(f"{topic}/end", 1)
        publisher.publish(f"{topic}/end", b"end", 1)
        shares = []
        for member in (one, two):
            share = []
            while (message := member.message()).payload != b"end":
                share.append(int(message.payload))
            shares.append(share)
        expect(sorted(shares[0] + shares[1]), list(range(SHARED_MESSAGES)), "each once")
        expect(all(shares), True, "both take part")


def persistent():
    topic = f"{PREFIX}/persistent"
    session = {"client_id": f"paho-keep-{uuid.uuid4().hex[:8]}", "clean": False, "expiry": 300}
    with Client(**session) as client:
        expect(client.session_present, False, "session present at first")
        client.subscribe(topic, 1)
    with Client() as publisher:
        for number in range(3):
            publisher.publish(topic, str(number), 1)
    with Client(**session) as client:
        expect(client.session_present, True, "session present")
        got = [client.message().payload for _ in range(3)]
        expect(got, [b"0", b"1", b"2"], "queued")
    Client(**{**session, "clean": True, "expiry": 0}).close()


def large():
    topic = f"{PREFIX}/large"
    payload = bytes(range(256)) * (LARGE_BYTES // 256)
    with Client() as client:
        client.subscribe(topic, 1).publish(topic, payload, 1)
        expect(client.message().payload == payload, True, "payload survives")


def burst():
    topic = f"{PREFIX}/burst"
    with Client() as client:
        client.subscribe(topic, 1)
        infos = [client.paho.publish(topic, str(n), 1) for n in range(BURST_MESSAGES)]
        for info in infos:
            info.wait_for_publish(SECONDS_MAX)
        got = [int(client.message().payload) for _ in range(BURST_MESSAGES)]
        expect(got, list(range(BURST_MESSAGES)), "in order")


if __name__ == "__main__":
    sys.setswitchinterval(0.001)
    run_all(
        {
            "qos0": at_qos(0),
            "qos1": at_qos(1),
            "qos2": at_qos(2),
            "wildcard": wildcard,
            "retained": retained,
            "will": will,
            "shared": shared,
            "persistent": persistent,
            "large": large,
            "burst": burst,
        }
    )
