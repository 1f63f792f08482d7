"""A broker, a network and clients around a device, for runs and scenarios.

The device's network ends in QEMU on this machine, so that datagrams of the
device come from an address of the loopback interface. `Network` stands between
them and the broker: it loses, holds back and moves datagrams as a real path
would, without rights that a test may not have.
"""

import random
import selectors
import socket
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))

from brokers import Dunlin  # noqa: E402

# Datagrams that may wait in one direction.
QUEUE_MAX = 65_536


class Broker(Dunlin):
    """The broker of this repository, for devices and for tests next to them."""

    transports = ("quic", "tcp")

    def key_file(self):
        return str(self.certificates / "server.pem")

    def publish(self, topic, payload):
        """Publishes a command with QoS 1."""
        url = f"mqtt://127.0.0.1:{self.ports['tcp']}"
        subprocess.run(
            [str(self.binary()), "pub", "--url", url, "-t", topic, "-m", payload, "-q", "1"],
            check=True,
            timeout=60,
            stdout=subprocess.DEVNULL,
        )

    def subscriber(self, topic):
        return Subscriber(self, topic)


class Subscriber:
    """What arrives at the broker."""

    def __init__(self, broker, topic):
        url = f"mqtt://127.0.0.1:{broker.ports['tcp']}"
        command = [str(broker.binary()), "sub", "--url", url, "-t", topic, "-q", "1"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.payloads = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.payloads.append(line.strip())

    def end(self):
        self.process.terminate()
        self.process.wait()


class Network:
    """A path to the broker that can be bad. Datagrams of each address that is
    seen leave from a socket of their own, as from a NAT."""

    def __init__(self, server, loss=0.0, seed=1):
        self.server = server
        self.loss = loss
        self.random = random.Random(seed)
        self.inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inside.bind(("127.0.0.1", 0))
        # What was announced may be gone, as an error that another call reported.
        self.inside.setblocking(False)
        self.port = self.inside.getsockname()[1]
        self.outside = {}
        self.lock = threading.Lock()
        self.passed = self.lost = self.rebound = 0
        self.bytes = {"out": 0, "in": 0}
        # Connection ids of Initial packets of the device. That of the first one
        # of a connection is random.
        self.ids = []
        self.open = True
        self.events = selectors.DefaultSelector()
        self.events.register(self.inside, selectors.EVENT_READ, None)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while self.open:
            for key, _ in self.events.select(timeout=0.2):
                try:
                    data, sender = key.fileobj.recvfrom(QUEUE_MAX)
                except OSError:
                    continue
                with self.lock:
                    self.forward(key.data, data, sender)

    def forward(self, client, data, sender):
        if self.random.random() < self.loss:
            self.lost += 1
            return
        self.passed += 1
        try:
            if client is None:
                self.bytes["out"] += len(data)
                if len(data) >= 1200 and data[0] & 0xF0 == 0xC0 and data[5] == 8:
                    self.ids.append(data[6:14])
                self.socket_of(sender).send(data)
            else:
                self.bytes["in"] += len(data)
                self.inside.sendto(data, client)
        except OSError:
            # The broker is away: the network says nothing either.
            pass

    def socket_of(self, client):
        if client not in self.outside:
            outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            outside.connect(self.server)
            outside.setblocking(False)
            self.events.register(outside, selectors.EVENT_READ, client)
            self.outside[client] = outside
        return self.outside[client]

    def rebind(self):
        """Forgets who was where, as a NAT does: the same datagrams leave from
        other ports."""
        with self.lock:
            for outside in self.outside.values():
                self.events.unregister(outside)
                outside.close()
            self.rebound += len(self.outside)
            self.outside.clear()

    def end(self):
        self.open = False
        self.thread.join()
        self.rebind()
        self.inside.close()
