"""Runs third-party clients against a broker and prints what they say."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import builds
import results
import tunnels
import versions
from brokers import BROKERS, ROOT, TRANSPORTS, Broker, Dunlin
from scenarios import AMQP_NAMES, JMS_NAMES, NAMES, WAITING

HERE = Path(__file__).resolve().parent
PYTHON = versions.PYTHON
NODE_MODULES = ROOT / "target/interop"

# Longest that one client may take for all scenarios.
CLIENT_SECONDS_MAX = 300

VERSIONS = ("3.1.1", "5")

# Where the rows for the book are.
PART = "scenarios"


@dataclass
class Client:
    """A third-party client program."""

    name: str
    transports: tuple[str, ...]
    command: list[str]
    versions: tuple[str, ...] = VERSIONS
    # Why it cannot run here.
    missing: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    # Its own.
    version: str = ""
    # What it is asked to do.
    names: tuple[str, ...] = NAMES
    # Where it runs in the short form, if not over all.
    quick: tuple[str, ...] = ()
    # It knows nothing of QUIC, and is tried through `dunlin tunnel` too.
    tunnelled: bool = False

    @property
    def speaks_amqp(self) -> bool:
        return self.names is not NAMES


def cli(
    name: str, transports: tuple[str, ...], publisher: str, subscriber: str, missing: str
) -> Client:
    """Two command line programs."""
    version = versions.mosquitto() if "mosquitto" in (publisher, subscriber) else ""
    command = [sys.executable, "-B", str(HERE / "client_cli.py")]
    command += ["--publisher", publisher, "--subscriber", subscriber]
    environment = {"DUNLIN": str(Dunlin.binary())}
    return Client(name, transports, command, VERSIONS, missing, environment, version)


def has_clients(dunlin: Path) -> bool:
    """Whether the binary has the commands, not only the broker."""
    helps = ([str(dunlin), verb, "--help"] for verb in ("pub", "sub"))
    return all(subprocess.run(h, capture_output=True, check=False).returncode == 0 for h in helps)


def clients(quic_peers: bool) -> list[Client]:
    """Every client, those that are not installed included."""
    streams = ("tcp", "tls", "ws", "wss")
    have_mosquitto = shutil.which("mosquitto_pub") and shutil.which("mosquitto_sub")
    have_mqttjs = shutil.which("node") and (NODE_MODULES / "node_modules/mqtt").is_dir()
    no_mosquitto = "" if have_mosquitto else "mosquitto_pub is not installed"
    dunlin = Dunlin.binary()
    no_dunlin = "" if dunlin and has_clients(dunlin) else "there is no dunlin with pub and sub"
    found = [
        cli("mosquitto", ("tcp", "tls"), "mosquitto", "mosquitto", no_mosquitto),
        cli("dunlin", TRANSPORTS, "dunlin", "dunlin", no_dunlin),
        # Through the broker from one program and transport to another.
        cli("dun->mosq", ("quic",), "dunlin", "mosquitto", no_dunlin or no_mosquitto),
        cli("mosq->dun", ("quic",), "mosquitto", "dunlin", no_dunlin or no_mosquitto),
        Client(
            "paho-mqtt",
            streams,
            [str(PYTHON), "-B", str(HERE / "client_paho.py")],
            missing="" if PYTHON.exists() else "target/venv is not there",
            version=versions.python("paho-mqtt"),
        ),
        Client(
            "MQTT.js",
            streams,
            ["node", str(HERE / "client_mqttjs.mjs")],
            missing="" if have_mqttjs else "target/interop has no MQTT.js",
            environment={"INTEROP_MODULES": str(NODE_MODULES)},
            version=versions.node("mqtt"),
        ),
    ]
    if quic_peers:
        found += quic_clients()
    return found + amqp_clients()


def amqp_clients() -> list[Client]:
    """Clients of AMQP 1.0."""
    have_proton = PYTHON.exists() and versions.python("python-qpid-proton")
    have_rhea = shutil.which("node") and (NODE_MODULES / "node_modules/rhea").is_dir()
    return [
        Client(
            "qpid-proton",
            ("tcp", "tls"),
            [str(PYTHON), "-B", str(HERE / "client_proton.py")],
            ("1.0",),
            missing="" if have_proton else "target/venv has no python-qpid-proton",
            version=versions.python("python-qpid-proton"),
            names=AMQP_NAMES,
            tunnelled=True,
        ),
        Client(
            "rhea",
            ("tcp", "tls", "ws", "wss"),
            ["node", str(HERE / "client_rhea.mjs")],
            ("1.0",),
            missing="" if have_rhea else "target/interop has no rhea",
            environment={"INTEROP_MODULES": str(NODE_MODULES)},
            version=versions.node("rhea"),
            names=AMQP_NAMES,
            tunnelled=True,
        ),
        go_client(),
        cpp_client(),
        java_client("protonj2", "ProtonJ2", "protonj2-client", AMQP_NAMES),
        java_client("qpid-jms", "Jms", "qpid-jms-client", JMS_NAMES),
    ]


def go_client() -> Client:
    program, missing = builds.go("amqp-go")
    version = versions.go("github.com/Azure/go-amqp", "amqp-go")
    return Client(
        "go-amqp", ("tcp", "tls"), [str(program)], ("1.0",), missing, {}, version,
        AMQP_NAMES, tunnelled=True,
    )  # fmt: skip


def cpp_client() -> Client:
    program, missing = builds.cpp("amqp-cpp", "qpid-proton-cpp")
    version = versions.debian("libqpid-proton-cpp12-dev")
    return Client(
        "proton-cpp", ("tcp", "tls"), [str(program)], ("1.0",), missing, {}, version,
        AMQP_NAMES, tunnelled=True,
    )  # fmt: skip


def java_client(name: str, main: str, artifact: str, names: tuple[str, ...]) -> Client:
    classpath, missing = builds.java()
    command = ["java", *builds.JAVA_FLAGS, "-cp", classpath, f"clients.{main}"]
    return Client(
        name, ("tcp", "tls", "ws", "wss"), command, ("1.0",), missing, {},
        versions.jar(artifact), names, ("tcp", "wss"), tunnelled=True,
    )  # fmt: skip


def quic_clients() -> list[Client]:
    """The Rust clients that speak QUIC; building them takes minutes."""
    folder, missing = builds.cargo("quic-peers")
    programs = [
        ("mqtt5", "mqtt5", "control"),
        ("mqtt5-topic", "mqtt5", "topic"),
        ("mqtt5-publish", "mqtt5", "publish"),
        ("flowsdk", "flowsdk", "control"),
        ("flowsdk-streams", "flowsdk-streams", "data"),
    ]
    return [
        Client(
            name,
            ("quic",),
            [str(folder / program), "--streams", streams],
            missing=missing,
            version=versions.crate(name.partition("-")[0]),
        )
        for name, program, streams in programs
    ]


@dataclass
class Row:
    """What one client said over one transport in one version."""

    client: str
    transport: str
    version: str
    client_version: str = ""
    seconds: float = 0.0
    # Name of the scenario to `ok`, `FAIL` or `skip`, and the reasons.
    marks: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.client} {self.transport} {self.version}"

    def failures(self) -> list[str]:
        """A line for each scenario that failed."""
        return [
            f"{self.title}: {name}: {self.reasons.get(name, '')} ({self.seconds:.1f} s)"
            for name, mark in self.marks.items()
            if mark == "FAIL"
        ]


def run_client(
    client: Client, broker: Broker, transport: str, version: str, waiting: bool = True
) -> Row:
    """`waiting`: also what waits for a feature."""
    row = Row(client.name, transport, version, client.version)
    names = [name for name in client.names if waiting or name not in WAITING]
    if client.missing:
        row.marks = dict.fromkeys(client.names, "skip")
        return row
    # A tunnel is TCP to the client.
    spoken = "tcp" if transport == "tunnel" else transport
    command = [*client.command, "--port", str(broker.ports[transport]), "--transport", spoken]
    command += ["--version", version, "--ca", str(broker.ca)]
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS_MAX,
            env={
                **os.environ,
                **client.environment,
                "INTEROP_TCP_PORT": str(broker.ports["tcp"]),
                "INTEROP_SCENARIOS": " ".join(names),
            },
            check=False,
        )
        output, errors = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode()
        errors = f"no end within {CLIENT_SECONDS_MAX} s"
    row.seconds = time.monotonic() - start
    read_lines(row, output)
    if client.speaks_amqp:
        judge_waiting(row, [name for name in client.names if name in WAITING])
    silent = [name for name in client.names if name not in row.marks]
    for name in silent:
        row.marks[name] = "FAIL"
        row.reasons[name] = "no answer"
    if silent:
        row.reasons[silent[-1]] += f"; {errors.strip()[-400:]}"
    return row


def read_lines(row: Row, output: str) -> None:
    for line in output.splitlines():
        for head, mark in (("ok ", "ok"), ("not ok ", "FAIL"), ("skip ", "skip")):
            if line.startswith(head):
                name, _, reason = line.removeprefix(head).partition(": ")
                row.marks[name] = mark
                if reason:
                    row.reasons[name] = reason
                break


def judge_waiting(row: Row, names: list[str]) -> None:
    """What waits for a feature is skipped where it fails or was not asked for;
    where it passes, the list is wrong."""
    for name in names:
        if row.marks.get(name) == "ok":
            row.marks[name] = "FAIL"
            row.reasons[name] = "it passes: take it from WAITING"
        elif row.marks.get(name) != "skip":
            row.marks[name] = "skip"
            row.reasons[name] = f"waits for {WAITING[name]}"


def print_table(rows: list[Row], protocol: str, names: tuple[str, ...]) -> None:
    wide = [max(len(name), len("FAIL")) + 2 for name in names]
    titles = "".join(f"{name:<{width}}" for name, width in zip(names, wide, strict=True))
    head = f"{'client':<16}{'over':<6}{protocol:<7}{titles}seconds"
    print(f"\n{head}\n{'-' * len(head)}")
    for row in rows:
        marks = "".join(
            f"{row.marks.get(name, ''):<{width}}" for name, width in zip(names, wide, strict=True)
        )
        print(f"{row.client:<16}{row.transport:<6}{row.version:<7}{marks}{row.seconds:.1f}")
    print()


def book_rows(broker: type[Broker], rows: list[Row]) -> str:
    """A row for each client and transport."""
    version = "" if broker is Dunlin else versions.program(broker.binary())
    title = f"{broker.name} {version}".strip()
    lines = []
    for client, transport in dict.fromkeys((row.client, row.transport) for row in rows):
        its = [row for row in rows if (row.client, row.transport) == (client, transport)]
        count = Counter(mark for row in its for mark in row.marks.values())
        name = f"{client} {its[0].client_version}".strip()
        spoken = ", ".join(row.version for row in its)
        counts = f"{count['ok']} | {count['FAIL']} | {count['skip']}"
        lines += [f"| {name} | {title} | {transport} | {spoken} | {counts} |"]
    return "\n".join(lines) + "\n"


def amqp_book(rows: list[Row]) -> str:
    """What each client of AMQP passes, a row for each scenario."""
    names = [*AMQP_NAMES, *(name for name in JMS_NAMES if name not in AMQP_NAMES)]
    clients = list(dict.fromkeys(row.client for row in rows))
    versions_of = {row.client: row.client_version for row in rows}
    head = " | ".join(f"{client} {versions_of[client]}".strip() for client in clients)
    lines = [f"| scenario | {head} |", "|---|" + "---|" * len(clients)]
    for name in names:
        cells = []
        for client in clients:
            marks = [(row.transport, row.marks.get(name)) for row in rows if row.client == client]
            passed = [transport for transport, mark in marks if mark == "ok"]
            failed = [transport for transport, mark in marks if mark == "FAIL"]
            cell = ", ".join(passed) if passed else "–"
            cells.append(cell + (f" **fails: {', '.join(failed)}**" if failed else ""))
        waits = f" (waits for {WAITING[name]})" if name in WAITING else ""
        lines.append(f"| `{name}`{waits} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def wanted(args: argparse.Namespace, broker: Broker) -> Iterator[tuple[Client, str, str]]:
    """Each client that is asked for, with its transports and versions."""
    for client in clients(args.quic_peers):
        if args.only and client.name != args.only:
            continue
        if client.missing:
            print(f"interop: skipped: {client.name}: {client.missing}")
        if client.speaks_amqp and not broker.speaks_amqp:
            continue
        transports = client.quick or client.transports
        if args.tunnel:
            transports = client.transports + ("tunnel",) * client.tunnelled
        for transport in transports:
            if transport in broker.ports and args.over in ("", transport):
                yield from ((client, transport, version) for version in client.versions)


def run(args: argparse.Namespace, folder: Path) -> tuple[list[Row], str]:
    """What the clients said, until the broker ended if it did, and its log as it ended
    where the last of them failed."""
    broker = BROKERS[args.broker](folder)
    rows, log = [], ""
    tunnel = None
    try:
        broker.start()
        if args.tunnel:
            tunnel = tunnels.Tunnel(broker, folder)
            broker.ports["tunnel"] = tunnel.port
        for client, transport, version in wanted(args, broker):
            row = run_client(client, broker, transport, version, args.tunnel)
            rows.append(row)
            if ended := not broker.alive():
                row.marks["broker"] = "FAIL"
                row.reasons["broker"] = f"{broker.name} ended"
            for name, reason in row.reasons.items():
                print(f"interop: {row.title}: {name}: {reason}")
            if row.failures():
                log = broker.tail()
            if ended:
                break
    finally:
        if tunnel:
            tunnel.stop()
        broker.stop()
    return rows, log


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=BROKERS, default="dunlin")
    parser.add_argument("--quic-peers", action="store_true")
    parser.add_argument("--tunnel", action="store_true", help="AMQP: all, also over QUIC")
    parser.add_argument("--only", metavar="CLIENT")
    parser.add_argument("--over", metavar="TRANSPORT", choices=TRANSPORTS, default="")
    args = parser.parse_args()
    if BROKERS[args.broker].binary() is None:
        print(f"interop: skipped: there is no {args.broker} binary")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    if shutil.which("openssl") is None:
        print("interop: skipped: no openssl to make certificates with")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    with tempfile.TemporaryDirectory(prefix="interop-") as folder:
        rows, log = run(args, Path(folder))
    if of_mqtt := [row for row in rows if row.version in VERSIONS]:
        print_table(of_mqtt, "MQTT", NAMES)
    for names in (AMQP_NAMES, JMS_NAMES):
        asked = {client.name for client in amqp_clients() if client.names is names}
        if spoken := [row for row in rows if row.client in asked]:
            print_table(spoken, "AMQP", names)
    kind = BROKERS[args.broker]
    count = Counter(mark for row in rows for mark in row.marks.values())
    failures = [line for row in rows for line in row.failures()]
    whole = not args.over and all("broker" not in row.marks for row in rows)
    if whole and not args.only and args.tunnel:
        spoken = [row for row in rows if row.version not in VERSIONS]
        rows = [row for row in rows if row.version in VERSIONS]
        results.write("amqp", amqp_book(spoken))
    if whole and (args.quic_peers or kind is not Dunlin):
        results.write(f"{PART}-{args.broker}", book_rows(kind, rows))
    code = results.conclude(count, failures, log)
    return code if rows else 1


if __name__ == "__main__":
    sys.exit(main())
