"""Brokers under test: how each is configured, started and stopped.

The one place that knows configuration formats. A broker is started in an
empty directory on free ports of the loopback interface.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from ports import free_port  # noqa: E402

TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")

# Longest that most brokers may take to listen, and to stop.
START_SECONDS_MAX = 20
STOP_SECONDS_MAX = 10

# Lines of a broker's log that are printed where something failed.
LOG_LINES = 30

TRANSPORTS = ("tcp", "tls", "ws", "wss", "quic")


def make_certificates(folder: Path) -> None:
    """A certificate authority and a server certificate for localhost."""
    folder.mkdir(parents=True)

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    (folder / "server.ext").write_text(
        "subjectAltName=DNS:localhost,IP:127.0.0.1\n"
        "basicConstraints=critical,CA:FALSE\n"
        "keyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth\n"
    )
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        *("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2"),
        *("-subj", "/CN=interop CA", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    openssl("req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    openssl(
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
        *("-CAcreateserial", "-days", "2", "-extfile", "server.ext", "-out", "server.pem"),
    )


class Broker:
    """A broker process."""

    name = ""
    transports: tuple[str, ...] = ()
    # Beside MQTT, at the same ports.
    speaks_amqp = False
    # Longest that it may take to listen.
    start_seconds_max = START_SECONDS_MAX
    # And to stop, before it is killed.
    stop_seconds_max = STOP_SECONDS_MAX
    # Name and password of a user, when the broker is started with one.
    user: tuple[str, str] | None = None

    def __init__(self, folder: Path, shards: int = 0) -> None:
        self.folder = folder
        # Threads; 0 is one for each core.
        self.shards = shards
        self.ports = {transport: free_port() for transport in self.transports}
        self.certificates = folder / "certificates"
        self.log = folder / "broker.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.prepared: list[str] = []

    @property
    def ca(self) -> Path:
        return self.certificates / "ca.pem"

    def command(self) -> list[str]:
        """Writes the configuration and says how to start with it."""
        raise NotImplementedError

    def start(self) -> None:
        """Starts it, for the first time or after it was killed."""
        if not self.prepared:
            make_certificates(self.certificates)
            self.prepared = self.command()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.prepared, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + self.start_seconds_max
        for transport, port in self.ports.items():
            if transport == "quic":
                continue
            while not self.listens(port):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{self.name} does not listen for {transport} on {port}:\n{self.tail()}"
                    )
                time.sleep(0.05)

    @staticmethod
    def listens(port: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def tail(self) -> str:
        """The end of the log, if it was started."""
        if not self.log.is_file():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def kill(self) -> None:
        """Ends it without a warning, as `kill -9` does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Asks it to stop; insists after a while."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(self.stop_seconds_max)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Dunlin(Broker):
    """The broker of this repository."""

    name = "dunlin"
    transports = TRANSPORTS
    speaks_amqp = True
    user = ("alice", "wonderland")
    # The authority whose certificates clients must have, where there is TLS.
    client_ca: Path | None = None

    def __init__(self, folder: Path, shards: int = 0, quic: dict[str, object] | None = None) -> None:
        super().__init__(folder, shards)
        # Keys of the section [quic].
        self.quic = quic or {}

    @staticmethod
    def binary() -> Path | None:
        named = os.environ.get("DUNLIN")
        if named:
            return Path(named).resolve()
        built = [TARGET / profile / "dunlin" for profile in ("release", "debug")]
        built = [path for path in built if path.is_file()]
        return max(built, key=lambda path: path.stat().st_mtime, default=None)

    def command(self) -> list[str]:
        lines = [f'data_dir = "{self.folder / "data"}"', f"shards = {self.shards}"]
        for transport, port in self.ports.items():
            lines += ["", "[[listener]]", f'transport = "{transport}"']
            lines += [f'address = "127.0.0.1:{port}"']
            if transport in ("tls", "wss", "quic"):
                lines += [
                    f'tls.cert = "{self.certificates / "server.pem"}"',
                    f'tls.key = "{self.certificates / "server.key"}"',
                ]
                if self.client_ca:
                    lines += [f'tls.client_ca = "{self.client_ca}"']
                    lines += ["tls.require_client_cert = true"]
        passwords = self.folder / "passwords"
        name, password = self.user
        passwd = [str(self.binary()), "passwd", "-b", str(passwords), name, password]
        subprocess.run(passwd, check=True)
        # Before the listeners: what follows them would belong to the last one.
        lines[2:2] = ["[auth]", f'password_file = "{passwords}"', "[quic]"]
        lines[5:5] = [f"{key} = {json.dumps(value)}" for key, value in self.quic.items()]
        config = self.folder / "dunlin.toml"
        config.write_text("\n".join(lines) + "\n")
        return [str(self.binary()), "broker", "--config", str(config)]


class Mosquitto(Broker):
    """Debian's broker, to test these tests with."""

    name = "mosquitto"
    transports = ("tcp", "tls", "ws", "wss")

    @staticmethod
    def binary() -> Path | None:
        found = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin")
        return Path(found) if found else None

    def command(self) -> list[str]:
        lines = ["per_listener_settings false", "allow_anonymous true", "user root"]
        lines += ["max_queued_messages 0", "max_inflight_messages 1000"]
        for transport, port in self.ports.items():
            lines += [f"listener {port} 127.0.0.1"]
            if transport in ("ws", "wss"):
                lines += ["protocol websockets"]
            if transport in ("tls", "wss"):
                lines += [
                    f"certfile {self.certificates / 'server.pem'}",
                    f"keyfile {self.certificates / 'server.key'}",
                ]
        config = self.folder / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n")
        return [str(self.binary()), "-c", str(config)]


class Mqttv5(Broker):
    """The broker of `mqttv5-cli`, which speaks QUIC too."""

    name = "mqttv5"
    transports = ("tcp", "tls", "quic")
    # Where it delivers over QUIC; its default is a stream of its own for each
    # topic, which it opens whether the client takes it or not.
    delivery = "control-only"

    @staticmethod
    def binary() -> Path | None:
        return installed("mqttv5")

    def command(self) -> list[str]:
        def address(transport: str) -> str:
            return f"127.0.0.1:{self.ports[transport]}"

        hosts = ["--host", address("tcp")]
        hosts += ["--tls-host", address("tls")] if "tls" in self.ports else []
        hosts += ["--quic-host", address("quic"), "--quic-delivery-strategy", self.delivery]
        hosts += ["--quic-early-data"]
        certificate = ["--tls-cert", str(self.certificates / "server.pem")]
        certificate += ["--tls-key", str(self.certificates / "server.key")]
        storage = ["--storage-backend", "memory", "--no-sys-topics"]
        return [
            *(str(self.binary()), "broker", "--non-interactive", "--allow-anonymous", "true"),
            *hosts,
            *certificate,
            *storage,
        ]


class Mqttv5Streams(Mqttv5):
    """The same as it comes: deliveries on streams that it opens."""

    name = "mqttv5-streams"
    transports = ("tcp", "quic")
    delivery = "per-topic"


class Rmqttd(Broker):
    """RMQTT's daemon, which speaks QUIC too, on one stream."""

    name = "rmqttd"
    transports = ("tcp", "tls", "ws", "wss", "quic")

    @staticmethod
    def binary() -> Path | None:
        return installed("rmqttd")

    def command(self) -> list[str]:
        plugins = self.folder / "plugins"
        plugins.mkdir()
        # Those without a network of their own.
        (plugins / "rmqtt-retainer.toml").write_text('storage.type = "ram"\n')
        lines = [f'rpc.server_addr = "127.0.0.1:{free_port()}"']
        lines += ['log.to = "console"', 'log.level = "warn"', f'plugins.dir = "{plugins}"']
        lines += ['plugins.default_startups = ["rmqtt-retainer", "rmqtt-shared-subscription"]']
        lines += ['plugins.disabled_default_startups = ["rmqtt-http-api", "rmqtt-acl"]']
        for transport, port in self.ports.items():
            lines += ["", f"[listener.{transport}.interop]", f'addr = "127.0.0.1:{port}"']
            lines += ["allow_anonymous = true", "min_keepalive = 0", "max_inflight = 1000"]
            if transport in ("tls", "wss", "quic"):
                lines += [
                    f'cert = "{self.certificates / "server.pem"}"',
                    f'key = "{self.certificates / "server.key"}"',
                ]
        config = self.folder / "rmqtt.toml"
        config.write_text("\n".join(lines) + "\n")
        return [str(self.binary()), "--config", str(config)]


class HiveMq(Broker):
    """HiveMQ CE, embedded by scripts/interop/hivemq; its sessions outlive a restart."""

    name = "hivemq"
    transports = ("tcp", "tls", "ws", "wss")
    LISTENERS = {
        "tcp": "tcp-listener",
        "tls": "tls-tcp-listener",
        "ws": "websocket-listener",
        "wss": "tls-websocket-listener",
    }
    FOLDER = TARGET / "peers/hivemq"
    # Java, which starts slowly on a machine with other work.
    start_seconds_max = 90
    stop_seconds_max = 60

    @staticmethod
    def binary() -> Path | None:
        java = shutil.which("java")
        built = (HiveMq.FOLDER / "classes/Embedded.class").is_file()
        return Path(java) if java and built else None

    def command(self) -> list[str]:
        store = self.folder / "server.p12"
        export = ["openssl", "pkcs12", "-export", "-passout", "pass:hivemq"]
        export += ["-in", "server.pem", "-inkey", "server.key", "-out", str(store)]
        subprocess.run(export, cwd=self.certificates, check=True, capture_output=True)
        lines = ["<hivemq><listeners>"]
        for transport, port in self.ports.items():
            kind = self.LISTENERS[transport]
            lines += [f"<{kind}><port>{port}</port><bind-address>127.0.0.1</bind-address>"]
            if transport in ("tls", "wss"):
                lines += [
                    f"<tls><keystore><path>{store}</path><password>hivemq</password>",
                    "<private-key-password>hivemq</private-key-password></keystore></tls>",
                ]
            lines += [f"</{kind}>"]
        lines += ["</listeners>"]
        lines += ["<anonymous-usage-statistics><enabled>false</enabled>"]
        lines += ["</anonymous-usage-statistics></hivemq>"]
        (self.folder / "config.xml").write_text("\n".join(lines) + "\n")
        path = f"{self.FOLDER / 'classes'}:{self.FOLDER / 'lib/*'}"
        return [str(self.binary()), "-Xmx512m", "-cp", path, "Embedded", str(self.folder)]


def installed(program: str) -> Path | None:
    """A program that the environment names, or that Cargo installed."""
    named = os.environ.get(program.upper())
    if named:
        return Path(named).resolve()
    cargo_home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    places = [str(TARGET / "peers/bin"), str(cargo_home / "bin"), os.environ.get("PATH", "")]
    found = shutil.which(program, path=":".join(places))
    return Path(found) if found else None


BROKERS = {broker.name: broker for broker in (Dunlin, Mosquitto, Mqttv5, Mqttv5Streams, Rmqttd)}
