"""Three servers of NATS and three nodes of a cluster, as processes of this one: how they are
configured, started, killed, and what they say about themselves.

Where namespaces are allowed, each node has a network of its own with two ways out: one to the
servers of NATS, which can be cut, and one to the clients, which stays.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("scripts", "scripts/interop"):
    sys.path.insert(0, str(ROOT / folder))

from brokers import TARGET, Dunlin  # noqa: E402
from ports import free_port  # noqa: E402

COUNT = 3
# Of nats-server.
VERSION_MIN = (2, 15)
# Longest that a process may take for its end when it is asked to.
STOP_SECONDS_MAX = 30
# From the end of a node that ended by itself to its next start, as by its service.
RESTART_SECONDS = 1
# Longest wait for an answer of NATS.
ASK_SECONDS_MAX = 2
# Between two looks at something that is waited for.
LOOK_SECONDS = 0.05
# Streams that are to have all replicas before anything else is killed.
STREAMS = ("dunlin-p-0", "KV_dunlin-lease", "KV_dunlin-nodes")
# What a node logs when it begins to serve, or is about to begin again.
ROLES = {
    "this node is the home of the cluster": "home",
    "this node is an edge": "edge",
    "this node is no member of the cluster": "",
    "what this node serves begins again": "",
}
# What no log may have.
FAULTS = ("panicked at", "although they cannot be: a bug")


def nats_server() -> str | None:
    """The program that the tests install, or another one that is new enough."""
    places = (os.environ.get("NATS"), str(TARGET / "peers/bin/nats-server"), "nats-server")
    for place in filter(None, map(shutil.which, filter(None, places))):
        said = subprocess.run([place, "--version"], capture_output=True, text=True).stdout
        found = re.search(r"v(\d+)\.(\d+)", said)
        if found and (int(found[1]), int(found[2])) >= VERSION_MIN:
            return str(Path(place).resolve())
    return None


def with_parent(command: list[str]) -> list[str]:
    """A command that ends when this process does, also by `kill -9`."""
    if shutil.which("setpriv"):
        return ["setpriv", "--pdeathsig", "KILL", "--", *command]
    return command


class Process:
    """A program with its log."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        # Whether it is meant to run.
        self.wanted = False
        self.ended_at = 0.0

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        self.wanted, self.ended_at = True, 0.0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.wanted = False
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def end(self) -> int | None:
        """Waits for it, which was asked to end; its exit code, or None if it had to be killed."""
        self.wanted = False
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


class Server(Process):
    """A server of NATS that syncs before it acknowledges."""

    def __init__(self, cluster: "Cluster", number: int, port: int, route: int) -> None:
        super().__init__(cluster.folder, f"nats-{number}")
        self.cluster, self.number, self.port, self.route = cluster, number, port, route

    def command(self) -> list[str]:
        routes = ", ".join(f'"nats-route://127.0.0.1:{it.route}"' for it in self.cluster.servers)
        host = "0.0.0.0" if self.cluster.has_spaces else "127.0.0.1"
        config = self.folder / f"{self.name}.conf"
        config.write_text(
            f'server_name: n{self.number}\nlisten: "{host}:{self.port}"\n'
            f'jetstream {{ store_dir: "{self.folder}/{self.name}", sync_interval: always }}\n'
            f'cluster {{ name: dunlin, listen: "127.0.0.1:{self.route}", routes: [{routes}] }}\n'
            "accounts {\n  SYS { users: [{ user: sys, password: s }] }\n"
            "  DUNLIN { jetstream: enabled, users: [{ user: dunlin, password: d }] }\n}\n"
            "system_account: SYS\n"
        )
        return with_parent([self.cluster.nats, "-c", str(config)])

    def ask(self, subject: str) -> dict:
        """A question to JetStream and its answer. Raises OSError."""
        with socket.create_connection(("127.0.0.1", self.port), ASK_SECONDS_MAX) as sock:
            stream = sock.makefile("rwb")
            stream.readline()
            who = {"verbose": False, "user": "dunlin", "pass": "d"}
            stream.write(f"CONNECT {json.dumps(who)}\r\n".encode())
            stream.write(f"SUB answer 1\r\nPUB {subject} answer 0\r\n\r\n".encode())
            stream.flush()
            while words := stream.readline().split():
                if words[0] == b"MSG":
                    return json.loads(stream.read(int(words[-1])))
        raise OSError("the connection ended")


class Node(Process):
    """A node of Dunlin."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        super().__init__(cluster.folder, f"node-{number}")
        self.cluster, self.number = cluster, number
        has_spaces = cluster.has_spaces
        self.host = f"10.78.{number}.2" if has_spaces else "127.0.0.1"
        self.port = 1883 if has_spaces else free_port()
        self.nats_host = f"10.77.{number}.1" if has_spaces else "127.0.0.1"
        self.space: subprocess.Popen[bytes] | None = None
        self.role = ""
        # Lines of the log that say what it serves from there on, and their number.
        self.served: list[str] = []
        self.faults: list[str] = []
        self.read_to = 0

    def command(self) -> list[str]:
        def urls(user: str) -> str:
            ports = (server.port for server in self.cluster.servers)
            return json.dumps([f"nats://{user}@{self.nats_host}:{port}" for port in ports])

        config = self.folder / f"{self.name}.toml"
        config.write_text(
            f'data_dir = "{self.folder}/{self.name}"\nshards = {self.number % 2 + 1}\n'
            f'[[listener]]\ntransport = "tcp"\naddress = "{self.host}:{self.port}"\n'
            '[auth]\nanonymous = "always"\n'
            f"[store.nats]\nurls = {urls('dunlin:d')}\nsystem_urls = {urls('sys:s')}\n"
            f'lease = "{self.cluster.lease}"\n[cluster]\nname = "{self.name}"\n'
            f'secret_file = "{self.folder}/cluster.key"\nlink_silence = "{self.cluster.silence}"\n'
        )
        command = with_parent([str(self.cluster.dunlin), "broker", "--config", str(config)])
        return self.enter() + command

    def start(self) -> None:
        self.role = ""
        super().start()

    def look(self) -> None:
        """Reads what was logged since the last look."""
        with self.log.open("rb") as log:
            log.seek(self.read_to)
            new = log.read()
        whole, end, _ = new.rpartition(b"\n")
        self.read_to += len(whole) + len(end)
        for line in whole.decode(errors="replace").splitlines():
            for text, role in ROLES.items():
                if text in line:
                    self.role = role
                    self.served += [role] if role else []
            if any(fault in line for fault in FAULTS):
                self.faults.append(f"{self.name}: {line}")

    # Networks.

    def enter(self) -> list[str]:
        """What a command begins with that runs in the network of the node."""
        return ["nsenter", "-t", str(self.space.pid), "-n", "--"] if self.space else []

    def make_space(self) -> None:
        self.space = subprocess.Popen(with_parent(["unshare", "--net", "sleep", "infinity"]))
        here = os.readlink("/proc/self/ns/net")
        until = time.monotonic() + STOP_SECONDS_MAX
        while os.readlink(f"/proc/{self.space.pid}/ns/net") == here:
            if time.monotonic() > until:
                raise RuntimeError("no network for a node")
            time.sleep(0.01)
        run([*self.enter(), "ip", "link", "set", "lo", "up"])
        for net, way in ((77, "bus"), (78, "clients")):
            near, far = f"{way}{self.number}", f"{way}-in"
            pair = ["ip", "link", "add", near, "type", "veth", "peer", "name", far]
            run([*pair, "netns", str(self.space.pid)])
            for where, name, end in (([], near, 1), (self.enter(), far, 2)):
                address = f"10.{net}.{self.number}.{end}/24"
                run([*where, "ip", "address", "add", address, "dev", name])
                run([*where, "ip", "link", "set", name, "up"])

    def set_link(self, state: str) -> None:
        """The way to NATS, by which the other nodes are reached too: `up` or `down`."""
        run(["ip", "link", "set", f"bus{self.number}", state])


class Cluster:
    """All of it. `has_spaces`: this process has a network of its own, and may make others.
    `patient`: a machine that stands still for some seconds loses no lease and no link."""

    def __init__(self, folder: Path, has_spaces: bool, patient: bool = False) -> None:
        self.lease, self.silence = ("9s", "8s") if patient else ("3s", "2500ms")
        self.folder, self.has_spaces = folder, has_spaces
        self.nats, self.dunlin = nats_server(), Dunlin.binary()
        self.servers: list[Server] = []
        for number in range(1, COUNT + 1):
            ports = (4221 + number, 6221 + number) if has_spaces else (free_port(), free_port())
            self.servers.append(Server(self, number, *ports))
        self.nodes = [Node(self, number) for number in range(1, COUNT + 1)]
        self.faults: list[str] = []
        # Nodes that ended by themselves, as they may, and were started again.
        self.restarts = 0

    def start(self) -> None:
        secret = self.folder / "cluster.key"
        secret.write_text(os.urandom(32).hex())
        for node in self.nodes if self.has_spaces else ():
            node.make_space()
        for process in (*self.servers, *self.nodes):
            process.start()

    def end(self) -> None:
        for process in (*self.nodes, *self.servers):
            process.kill()
        for node in self.nodes:
            if node.space:
                node.space.kill()
                node.space.wait()

    def tend(self) -> None:
        """Reads the logs, and does what a service manager does for a node that ended."""
        for node in self.nodes:
            node.look()
            self.faults += node.faults
            node.faults = []
        for process in (*self.nodes, *self.servers):
            code = process.process.poll()
            if code is None or not process.wanted:
                continue
            if not process.ended_at:
                process.ended_at = time.monotonic()
                print(f"cluster: {process.name} ended with {code}", flush=True)
                if not isinstance(process, Node) or code != 1:
                    self.faults.append(f"{process.name} ended with {code}")
            elif time.monotonic() - process.ended_at > RESTART_SECONDS:
                process.ended_at = 0.0
                self.restarts += 1
                process.start()

    def home(self) -> Node | None:
        """The node with what is durable, if there is one, and others know no other."""
        homes = [node for node in self.nodes if self.serves(node) == "home"]
        return homes[0] if len(homes) == 1 else None

    def serves(self, node: Node) -> str:
        """What a node that runs is, by its log."""
        return node.role if node.process.poll() is None else ""

    def is_whole(self) -> bool:
        """One home, all others edges, all servers of NATS in step."""
        roles = sorted(self.serves(node) for node in self.nodes)
        if roles != ["edge"] * (COUNT - 1) + ["home"]:
            return False
        return all(is_in_step(self.info(stream)) for stream in STREAMS)

    def leader(self) -> Server:
        """The server that leads the stream of the store; any one if none does."""
        name = (self.info(STREAMS[0]).get("cluster") or {}).get("leader")
        return next((it for it in self.servers if f"n{it.number}" == name), self.servers[0])

    def info(self, stream: str) -> dict:
        """What the servers say of a stream."""
        for server in self.servers:
            try:
                return server.ask(f"$JS.API.STREAM.INFO.{stream}")
            except (OSError, ValueError):
                continue
        return {}


def is_in_step(info: dict) -> bool:
    cluster = info.get("cluster") or {}
    replicas = cluster.get("replicas") or []
    are_current = all(it.get("current") and not it.get("offline") for it in replicas)
    return bool(cluster.get("leader")) and len(replicas) == COUNT - 1 and are_current


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def wait_until(holds: Callable[[], bool], seconds: float, each: Callable[[], None]) -> bool:
    """Whether it holds in time; `each` is done between two looks."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        each()
        time.sleep(LOOK_SECONDS)
    return True
