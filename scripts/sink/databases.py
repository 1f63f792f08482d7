"""Databases under test, each in an empty folder on a free port of the loopback interface,
and a server that answers as databases do over HTTP."""

import http.server
import json
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

from brokers import free_port, make_certificates

# Longest that a database may take to start and to stop.
SECONDS_MAX = 60


def account() -> dict[str, object]:
    """Whom a database runs as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        # An account without rights.
        return {"user": 65534, "group": 65534, "extra_groups": []}
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def certificates(folder: Path) -> Path:
    """Of an authority of the test, for `localhost` and 127.0.0.1."""
    made = folder / "certificates"
    if not made.exists():
        make_certificates(made)
        os.chmod(made, 0o755)
    return made


class Postgres:
    """PostgreSQL over TCP, without passwords."""

    name = "postgres"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "postgres"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.account = account()
        # Takes encrypted connections only.
        self.encrypted = False
        # More settings.
        self.settings: dict[str, str] = {}

    @staticmethod
    def binaries() -> Path | None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        on_path = shutil.which("initdb")
        if on_path:
            found.append(Path(on_path).resolve())
        return found[-1].parent if found else None

    @property
    def url(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=sink dbname=postgres"

    def encrypt(self, data: Path) -> dict[str, str]:
        """Settings with the certificate, whose key the server wants for itself."""
        made = certificates(self.folder.parent)
        for name in ("server.pem", "server.key"):
            copy = data / name
            shutil.copyfile(made / name, copy)
            if "user" in self.account:
                os.chown(copy, self.account["user"], self.account["group"])
            os.chmod(copy, 0o600)
        (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust\n")
        return {"ssl": "on", "ssl_cert_file": "server.pem", "ssl_key_file": "server.key"}

    def start(self) -> None:
        binaries = self.binaries()
        data = self.folder / "data"
        if not data.exists():
            self.folder.mkdir(parents=True)
            if "user" in self.account:
                os.chown(self.folder, self.account["user"], self.account["group"])
            initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "sink", "-A", "trust"]
            initdb += ["-E", "UTF8", "--no-locale", "--no-sync"]
            subprocess.run(initdb, check=True, capture_output=True, cwd="/", **self.account)
        command = [str(binaries / "postgres"), "-D", str(data), "-p", str(self.port)]
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
            "restart_after_crash": "off",
        }
        if self.encrypted:
            settings |= self.encrypt(data)
        settings |= self.settings
        for key, value in settings.items():
            command += ["-c", f"{key}={value}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", **self.account
            )
        until = time.monotonic() + SECONDS_MAX
        while self.try_query("SELECT 1") != "1":
            if time.monotonic() > until or self.process.poll() is not None:
                raise RuntimeError(f"PostgreSQL does not start:\n{(self.folder / 'log').read_text()}")
            time.sleep(0.05)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Its first process, as `kill -9` does; the others end when they see it."""
        self.process.kill()
        self.process.wait()
        # The next one does not start while the others have its memory.
        pid = self.folder / "data" / "postmaster.pid"
        pid.unlink(missing_ok=True)
        until = time.monotonic() + SECONDS_MAX
        while time.monotonic() < until and self.children():
            time.sleep(0.02)

    def children(self) -> bool:
        """Whether a process still works in the folder of data."""
        data = str(self.folder / "data")
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.readlink(entry / "cwd") == data:
                        return True
                except OSError:
                    pass
        return False

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            # At once, with what is committed on disk.
            self.process.send_signal(3)
            try:
                self.process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def query(self, text: str) -> str:
        command = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url]
        done = subprocess.run(
            [*command, "-c", text], capture_output=True, text=True, timeout=SECONDS_MAX
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done.stdout.strip()

    def try_query(self, text: str) -> str:
        try:
            return self.query(text)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return f"error: {error}"


class Nats:
    """A NATS server with JetStream, and the little of its protocol that asks for streams."""

    name = "nats"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "nats"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        # Takes encrypted connections only.
        self.encrypted = False
        self.host = "127.0.0.1"

    @staticmethod
    def binary() -> str | None:
        return shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        config = self.folder / "nats.conf"
        config.write_text(
            f'listen: "{self.host}:{self.port}"\n'
            f'jetstream {{ store_dir: "{self.folder}/data" }}\n'
        )
        if self.encrypted:
            made = certificates(self.folder.parent)
            with config.open("a") as more:
                more.write(f'tls {{ cert_file: "{made}/server.pem", key_file: "{made}/server.key" }}\n')
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.binary()), "-c", str(config)], stdout=log, stderr=log
            )
        until = time.monotonic() + SECONDS_MAX
        while True:
            try:
                self.ask("$JS.API.INFO", {})
                return
            except (OSError, RuntimeError) as error:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise RuntimeError("the NATS server does not start") from error
                time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(SECONDS_MAX)

    def ask(self, subject: str, question: dict[str, object]) -> dict[str, object]:
        """A request to JetStream and its answer."""
        body = json.dumps(question).encode()
        with socket.create_connection((self.host, self.port), timeout=5) as sock:
            if self.encrypted:
                # What the server says first is not.
                while not sock.recv(4096).endswith(b"\n"):
                    pass
                trust = ssl.create_default_context(cafile=str(certificates(self.folder.parent) / "ca.pem"))
                sock = trust.wrap_socket(sock, server_hostname="localhost")
            stream = sock.makefile("rwb")
            if not self.encrypted:
                stream.readline()
            stream.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
            stream.write(b"SUB answer 1\r\n")
            stream.write(f"PUB {subject} answer {len(body)}\r\n".encode() + body + b"\r\n")
            stream.flush()
            while True:
                words = stream.readline().split()
                if not words:
                    raise RuntimeError("the connection ended")
                if words[0] == b"MSG":
                    answer = json.loads(stream.read(int(words[-1])))
                    if "error" in answer:
                        raise RuntimeError(str(answer["error"]))
                    return answer
                if words[0] == b"HMSG":
                    raise RuntimeError("JetStream is not there")

    def messages(self, stream: str, last: int) -> list[bytes]:
        """All messages of a stream, by their number."""
        import base64

        found = []
        for seq in range(1, last + 1):
            got = self.ask(f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": seq})
            found.append(base64.b64decode(got["message"].get("data", "")))
        return found


class Kafka:
    """A server of Kafka, its own controller, and Kafka's client to look into it."""

    name = "kafka"
    # Of the users `plain` and `scram`.
    password = "wonderland"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "kafka"
        self.port, self.controller_port = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None
        # Takes encrypted connections of known users only.
        self.encrypted = False

    @staticmethod
    def jars() -> str | None:
        folder = Path(__file__).resolve().parents[2] / "target/kafka"
        there = (folder / "done").exists() and shutil.which("javac")
        return f"{folder}/*" if there else None

    def java(self, *args: str) -> list[str]:
        # Starts sooner, and takes less of what the test has of the machine.
        return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", str(self.jars()), *args]

    @property
    def server(self) -> str:
        return f"{'localhost' if self.encrypted else '127.0.0.1'}:{self.port}"

    def settings(self) -> dict[str, object]:
        listener = "SASL_SSL" if self.encrypted else "PLAINTEXT"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"{listener}://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"{listener}://{self.server}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": listener,
            "listener.security.protocol.map": f"{listener}:{listener},CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        if self.encrypted:
            made = certificates(self.folder.parent)
            module = "org.apache.kafka.common.security"
            user = f'username="plain" password="{self.password}" user_plain="{self.password}"'
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.folder / "keystore.pem",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": made / "ca.pem",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required {user};",
                "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            }
            keys = [(made / name).read_text() for name in ("server.key", "server.pem")]
            (self.folder / "keystore.pem").write_text("".join(keys))
            client = {
                "security.protocol": "SASL_SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": made / "ca.pem",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{module}.plain.PlainLoginModule required {user};",
            }
            self.write("client.properties", client)
        else:
            self.write("client.properties", {})
        return settings

    def write(self, name: str, settings: dict[str, object]) -> Path:
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def start(self) -> None:
        if not (self.folder / "data").exists():
            self.folder.mkdir()
            config = self.write("server.properties", self.settings())
            command = self.java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ")
            scram = f"SCRAM-SHA-256=[name=scram,password={self.password}]"
            subprocess.run(
                [*command, "-c", str(config), "--add-scram", scram],
                check=True,
                capture_output=True,
                timeout=SECONDS_MAX,
            )
        command = self.java("kafka.Kafka", str(self.folder / "server.properties"))
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        until = time.monotonic() + SECONDS_MAX
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5):
                    return
            except OSError as error:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise RuntimeError("Kafka does not start") from error
                time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        # Its end takes seconds, and what is in its folder is not needed any more.
        if self.process and self.process.poll() is None:
            self.kill()

    def topics(self, *args: str) -> str:
        source = Path(__file__).resolve().parent / "kafka/Topics.java"
        command = self.java(str(source), self.server, str(self.folder / "client.properties"), *args)
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-1000:])
        return done.stdout

    def create(self, topic: str, partitions: int, *setting: str) -> None:
        self.topics("create", topic, str(partitions), *setting)

    def records(self, topic: str) -> list[list[str]]:
        """Partition, key, header and value of each, in the order of their partitions."""
        return [line.split("\t") for line in self.topics("read", topic).splitlines()]


class Web:
    """Takes rows by HTTP and answers as it is asked to."""

    def __init__(self) -> None:
        web = self
        # What became of each request: path, headers, body.
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        # Bodies that were answered with 2xx.
        self.stored: list[bytes] = []
        # Says what to answer to a body: status and text.
        self.answer = lambda body: (204, "")

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                web.requests.append((self.path, headers, body))
                status, text = web.answer(body)
                if status == 0:
                    # Stored or not: the client cannot know.
                    self.close_connection = True
                    return
                if 200 <= status < 300:
                    web.stored.append(body)
                self.send_response(status)
                self.send_header("content-length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
