"""Brokers under test: each runs on private ports in a temporary directory and
is stopped by its own process id."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from ports import free_port  # noqa: E402


def program(variable, name, *places):
    """The program that a variable of the environment names, or that is found."""
    path = os.environ.get(variable) or shutil.which(name)
    for place in places:
        path = path or shutil.which(name, path=place)
    return path


class Broker:
    """A running broker; `urls` by transport."""

    name = "broker"

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="dunlin-bench-")
        self.urls = {}
        self.ca = None
        self.log = open(os.path.join(self.dir, "log"), "wb")
        self.process = None

    def start(self, command):
        self.process = subprocess.Popen(
            command, cwd=self.dir, stdout=self.log, stderr=self.log
        )
        tcp = self.urls.get("tcp") or self.urls.get("tls") or self.urls.get("amqp")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} did not start:\n{self.output()}")
            try:
                port = int(tcp.rsplit(":", 1)[1])
                socket.create_connection(("127.0.0.1", port), 1).close()
                time.sleep(0.3)
                return self
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"{self.name} does not listen:\n{self.output()}")

    def output(self):
        with open(os.path.join(self.dir, "log"), errors="replace") as log:
            return log.read()[-2000:]

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Dunlin(Broker):
    name = "dunlin"

    def __init__(self, binary, shards=1, name="dunlin", files=None, auth="", durability="fsync"):
        super().__init__()
        for file, text in (files or {}).items():
            with open(os.path.join(self.dir, file), "w") as out:
                out.write(text)
        self.binary, self.name, self.shards = binary, name, shards
        self.metrics = f"127.0.0.1:{free_port()}"
        listeners = []
        for transport, scheme in [("tcp", "mqtt"), ("tls", "mqtts"), ("quic", "quic")]:
            port = free_port()
            self.urls[transport] = f"{scheme}://127.0.0.1:{port}"
            listeners.append(
                f'[[listener]]\ntransport = "{transport}"\naddress = "127.0.0.1:{port}"\n'
            )
            if transport == "tcp":
                self.urls["amqp"] = f"amqp://127.0.0.1:{port}"
        config = os.path.join(self.dir, "dunlin.toml")
        with open(config, "w") as file:
            file.write(f'data_dir = "data"\nshards = {shards}\n')
            file.write(f'[log]\nlevel = "warn"\n[store]\ndurability = "{durability}"\n')
            file.write('[sys]\ninterval = "0s"\n')
            file.write(f"[auth]\n{auth}\n")
            file.write(f'[metrics]\naddress = "{self.metrics}"\n')
            file.write("\n".join(listeners))
        self.ca = os.path.join(self.dir, "data", "certs", "ca.pem")
        self.start([binary, "broker", "--config", config])


class Mosquitto(Broker):
    name = "mosquitto"

    def __init__(self, binary, nodelay, cert=None, key=None):
        super().__init__()
        port = free_port()
        self.urls["tcp"] = f"mqtt://127.0.0.1:{port}"
        config = os.path.join(self.dir, "mosquitto.conf")
        with open(config, "w") as file:
            file.write(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
            file.write("persistence false\nmax_queued_messages 0\nsys_interval 0\n")
            file.write(f"log_type error\nset_tcp_nodelay {'true' if nodelay else 'false'}\n")
            if cert:
                file.write(self.tls_listener(cert, key))
        os.chmod(self.dir, 0o755)
        self.start([binary, "-c", config])

    def tls_listener(self, cert, key):
        # It gives up root, so the key must be readable to others.
        for name, source in [("cert.pem", cert), ("key.pem", key)]:
            shutil.copyfile(source, os.path.join(self.dir, name))
            os.chmod(os.path.join(self.dir, name), 0o644)
        port = free_port()
        self.urls["tls"] = f"mqtts://127.0.0.1:{port}"
        return (
            f"listener {port} 127.0.0.1\ntls_version tlsv1.3\n"
            f"certfile {self.dir}/cert.pem\nkeyfile {self.dir}/key.pem\n"
        )


class FlashMq(Broker):
    name = "flashmq"

    def __init__(self, binary, cert, key):
        super().__init__()
        config = os.path.join(self.dir, "flashmq.conf")
        with open(config, "w") as file:
            file.write(f"allow_anonymous true\nthread_count 1\nlog_file {self.dir}/flashmq.log\n")
            for transport, scheme in [("tcp", "mqtt"), ("tls", "mqtts")]:
                port = free_port()
                self.urls[transport] = f"{scheme}://127.0.0.1:{port}"
                file.write("listen {\n  protocol mqtt\n  inet_protocol ip4\n")
                file.write(f"  inet4_bind_address 127.0.0.1\n  port {port}\n")
                if transport == "tls":
                    file.write(f"  fullchain {cert}\n  privkey {key}\n")
                file.write("}\n")
        self.start([binary, "--config-file", config])


class Mqttv5(Broker):
    name = "mqttv5"

    def __init__(self, binary, cert, key):
        super().__init__()
        tcp, quic = free_port(), free_port()
        self.urls["tcp"] = f"mqtt://127.0.0.1:{tcp}"
        self.urls["quic"] = f"quic://127.0.0.1:{quic}"
        self.start(
            [binary, "broker", "--host", f"127.0.0.1:{tcp}"]
            + ["--quic-host", f"127.0.0.1:{quic}", "--tls-cert", cert, "--tls-key", key]
            + ["--allow-anonymous", "true", "--no-persistence", "--storage-backend", "memory"]
            + ["--no-sys-topics", "--non-interactive"]
            + ["--quic-delivery-strategy", "control-only"]
        )


class Artemis(Broker):
    """ActiveMQ Artemis; `path` has its jars and the class that embeds it."""

    name = "artemis"

    def __init__(self, path):
        super().__init__()
        port = free_port()
        self.urls["amqp"] = f"amqp://127.0.0.1:{port}"
        self.start(["java", "-Xmx1g", "-cp", path, "Embedded", str(port)])
