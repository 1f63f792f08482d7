#!/usr/bin/env python3
"""Qpid Proton against the broker: AMQP 1.0 on TCP and TLS, beside a client of MQTT.

Usage: amqp.py DUNLIN   (the program); skips itself where Proton is missing.
Proton is python-qpid-proton of PyPI, or python3-qpid-proton of Debian.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    from proton import Message, SSLDomain, symbol
    from proton.reactor import AtMostOnce, LinkOption
    from proton.utils import BlockingConnection, LinkDetached
except ImportError:
    # Debian's package is for Debian's Python.
    system = "/usr/bin/python3"
    if sys.executable != system and os.path.exists(system):
        os.execv(system, [system, "-B", *sys.argv])
    print("amqp: skipped: Qpid Proton is not installed")
    sys.exit(0)

DUNLIN = sys.argv[1]
CONFIG = """
shards = 2
[[listener]]
transport = "tcp"
address = "127.0.0.1:0"
[[listener]]
transport = "tcp"
protocol = "amqp"
address = "127.0.0.1:0"
[[listener]]
transport = "tls"
protocol = "amqp"
address = "127.0.0.1:0"
"""
PATIENCE = 30
done = 0


def check(what, is_true):
    global done
    if not is_true:
        sys.exit(f"amqp: failed: {what}")
    done += 1


class Broker:
    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory()
        path = Path(self.dir.name)
        (path / "dunlin.toml").write_text(f'data_dir = "{path}/data"\n{CONFIG}')
        self.log = open(path / "out", "w+")
        command = [DUNLIN, "broker", "--config", str(path / "dunlin.toml")]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        end = time.monotonic() + PATIENCE
        while "try it" not in (text := (path / "out").read_text()):
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"amqp: the broker did not start:\n{text}")
            time.sleep(0.05)
        ports = [line.split() for line in text.splitlines() if "listening" in line]
        self.mqtt = next(p[2].rsplit(":", 1)[1] for p in ports if p[-1] != "AMQP")
        amqp = {p[1]: p[2].rsplit(":", 1)[1] for p in ports if p[-1] == "AMQP"}
        self.amqp, self.amqps = amqp["tcp"], amqp["tls"]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.dir.cleanup()

    def connect(self, **options):
        return BlockingConnection(f"127.0.0.1:{self.amqp}", timeout=PATIENCE, **options)

    def connect_tls(self):
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(f"{self.dir.name}/data/certs/ca.pem")
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        url = f"amqps://localhost:{self.amqps}"
        return BlockingConnection(url, timeout=PATIENCE, ssl_domain=domain, allowed_mechs="ANONYMOUS")

    def publish(self, topic, text):
        url = f"mqtt://127.0.0.1:{self.mqtt}"
        subprocess.run([DUNLIN, "pub", "--url", url, "-q", "1", "-t", topic, "-m", text], check=True)


def properties(connection):
    """What Proton sends comes back as it was."""
    receiver = connection.create_receiver("t/+", name="in", credit=10)
    sender = connection.create_sender("t/a", name="out")
    sent = Message(
        id="id-1",
        subject="a subject",
        reply_to="answers",
        correlation_id=7,
        content_type="text/plain",
        durable=True,
        ttl=60.0,
        priority=7,
        properties={"text": "t", "number": 5, "flag": True},
        annotations={symbol("x-opt-own"): "kept"},
        body={"list": [1, 2, 3], "text": "value"},
    )
    sender.send(sent)
    got = receiver.receive(timeout=PATIENCE)
    for name in ("id", "subject", "reply_to", "correlation_id", "durable", "priority"):
        check(name, getattr(got, name) == getattr(sent, name))
    check("body", got.body == sent.body and got.properties == sent.properties)
    check("annotations", got.annotations == sent.annotations)
    check("ttl", 0 < got.ttl <= 60)
    receiver.accept()
    return sender, receiver


def outcomes(broker, sender, receiver):
    """Released and modified messages come again, others do not."""
    for body in ("one", "two"):
        sender.send(Message(body=body, durable=True))
    check("first", receiver.receive(timeout=PATIENCE).body == "one")
    receiver.release(delivered=False)
    again = receiver.receive(timeout=PATIENCE)
    # The second may have been on its way before the first came back.
    if again.body == "two":
        receiver.accept()
        again = receiver.receive(timeout=PATIENCE)
        check("released", again.body == "one")
        receiver.release(delivered=True)
    else:
        check("released", again.body == "one")
        receiver.release(delivered=True)
        check("second", receiver.receive(timeout=PATIENCE).body in ("one", "two"))
        receiver.accept()
    check("more", receiver.receive(timeout=PATIENCE) is not None)
    receiver.accept()
    broker.publish("t/m", "by MQTT")
    got = receiver.receive(timeout=PATIENCE)
    body = got.body if isinstance(got.body, str) else bytes(got.body).decode()
    check("from MQTT", body == "by MQTT" and got.durable and got.address == "t/m")
    receiver.accept()


def refused(connection, make, condition):
    try:
        make(connection)
    except LinkDetached as detached:
        check(condition, condition in str(detached.condition or detached))
        return
    sys.exit(f"amqp: failed: {condition}: the link was accepted")


class Dynamic(LinkOption):
    def apply(self, link):
        link.source.dynamic = True


def main():
    with Broker() as broker:
        for options in ({"allowed_mechs": "ANONYMOUS"}, {"sasl_enabled": False}):
            connection = broker.connect(**options)
            sender, receiver = properties(connection)
            outcomes(broker, sender, receiver)
            settled = connection.create_receiver("s/#", name="settled", options=AtMostOnce(), credit=5)
            relay = connection.create_sender(None, name="relay")
            relay.send(Message(address="s/x", body="relayed"))
            check("relay", settled.receive(timeout=PATIENCE).body == "relayed")
            connection.close()
        connection = broker.connect_tls()
        properties(connection)
        connection.close()
        refused(broker.connect(), lambda c: c.create_sender("/queues/q"), "amqp:not-found")
        refused(broker.connect(), lambda c: c.create_sender("a/#"), "amqp:invalid-field")
        refused(broker.connect(), lambda c: c.create_receiver(None, options=Dynamic()), "amqp:not-implemented")
        check("the broker lives", broker.process.poll() is None)
    print(f"amqp: {done} checks with Qpid Proton passed")


main()
