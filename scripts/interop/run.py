"""Runs third-party clients against a broker and prints what they say."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import builds
import results
import versions
from brokers import BROKERS, ROOT, TRANSPORTS, Broker, Dunlin
from scenarios import AMQP_NAMES, NAMES

HERE = Path(__file__).resolve().parent
PYTHON = versions.PYTHON
NODE_MODULES = ROOT / "target/interop"

# Longest that one client may take for all scenarios.
CLIENT_SECONDS_MAX = 120

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
        ),
        Client(
            "rhea",
            ("tcp", "tls", "ws", "wss"),
            ["node", str(HERE / "client_rhea.mjs")],
            ("1.0",),
            missing="" if have_rhea else "target/interop has no rhea",
            environment={
                "INTEROP_MODULES": str(NODE_MODULES),
                "INTEROP_SCENARIOS": " ".join(AMQP_NAMES),
            },
            version=versions.node("rhea"),
            names=AMQP_NAMES,
        ),
    ]


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
    reasons: list[str] = field(default_factory=list)


def run_client(client: Client, broker: Broker, transport: str, version: str) -> Row:
    row = Row(client.name, transport, version, client.version)
    if client.missing:
        row.marks = dict.fromkeys(client.names, "skip")
        return row
    command = [*client.command, "--port", str(broker.ports[transport]), "--transport", transport]
    command += ["--version", version, "--ca", str(broker.ca)]
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS_MAX,
            env={**os.environ, **client.environment, "INTEROP_TCP_PORT": str(broker.ports["tcp"])},
            check=False,
        )
        output, errors = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode()
        errors = f"no end within {CLIENT_SECONDS_MAX} s"
    row.seconds = time.monotonic() - start
    read_lines(row, output)
    silent = [name for name in client.names if name not in row.marks]
    for name in silent:
        row.marks[name] = "FAIL"
    if silent:
        row.reasons.append(f"{', '.join(silent)}: no answer; {errors.strip()[-400:]}")
    return row


def read_lines(row: Row, output: str) -> None:
    for line in output.splitlines():
        for head, mark in (("ok ", "ok"), ("not ok ", "FAIL"), ("skip ", "skip")):
            if line.startswith(head):
                name, _, reason = line.removeprefix(head).partition(": ")
                row.marks[name] = mark
                if reason:
                    row.reasons.append(f"{name}: {reason}")
                break


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


def run(args: argparse.Namespace, folder: Path) -> list[Row]:
    broker = BROKERS[args.broker](folder)
    rows = []
    try:
        broker.start()
        for client in clients(args.quic_peers):
            if args.only and client.name != args.only:
                continue
            if client.missing:
                print(f"interop: skipped: {client.name}: {client.missing}")
            if client.names is AMQP_NAMES and not broker.speaks_amqp:
                continue
            for transport in client.transports:
                if transport not in broker.ports or args.over not in ("", transport):
                    continue
                for version in client.versions:
                    row = run_client(client, broker, transport, version)
                    rows.append(row)
                    for reason in row.reasons:
                        print(f"interop: {client.name} {transport} {version}: {reason}")
            if not broker.alive():
                raise RuntimeError(f"{broker.name} ended:\n{broker.tail()}")
    finally:
        broker.stop()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=BROKERS, default="dunlin")
    parser.add_argument("--quic-peers", action="store_true")
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
        rows = run(args, Path(folder))
    print_table([row for row in rows if row.version in VERSIONS], "MQTT", NAMES)
    if spoken := [row for row in rows if row.version not in VERSIONS]:
        print_table(spoken, "AMQP", AMQP_NAMES)
    kind = BROKERS[args.broker]
    if not args.over and (args.quic_peers or kind is not Dunlin):
        results.write(f"{PART}-{args.broker}", book_rows(kind, rows))
    count = Counter(mark for row in rows for mark in row.marks.values())
    print(f"{count['ok']} passed, {count['FAIL']} failed, {count['skip']} skipped")
    return 1 if count["FAIL"] or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
