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
