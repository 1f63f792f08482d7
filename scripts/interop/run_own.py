"""Runs this repository's client library through the features of QUIC against
brokers by others, and prints and writes a table: a row for each feature, a
column for each broker.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import builds
import matrix
import results
import versions
from brokers import Broker, Dunlin, Mqttv5, Mqttv5Streams, Rmqttd
from matrix import Client, Column

# Name of the feature, setting of the broker, what is tried.
FEATURES = (
    ("single", "plain", "QoS 0, 1, 2 there and back on the control stream"),
    ("data-streams", "plain", "`per-topic` and `per-publish` on bidirectional streams"),
    ("uni-streams", "plain", "`per-topic` and `per-publish` on unidirectional streams"),
    ("auto", "plain", "stream policy `auto`: streams if the broker says that it takes them"),
    ("server-streams", "plain", "deliveries on streams that the broker may open"),
    ("datagrams", "plain", "QoS 0 in datagrams, both ways"),
    ("ciphers", "plain", "AES-128-GCM, AES-256-GCM and ChaCha20-Poly1305"),
    ("key-update", "plain", "new keys every 20 packets under traffic"),
    ("rebind", "plain", "the port of the client changes under the connection"),
    ("migrate", "plain", "the client moves to another socket, probing first and at once"),
    ("race", "plain", "`auto://`: TLS where UDP is blocked, else QUIC"),
    ("0rtt", "plain", "early data with a ticket from a file"),
    ("retry", "retry", "the address is validated by Retry"),
    ("0rtt-restart", "restart", "a ticket from a file outlives a restart of the broker"),
)
# What brokers by others cannot do, with the proof; it is not our failure.
KNOWN = {
    ("rmqttd", "data-streams"): (
        "rmqttd gives credit for a second stream, which it never accepts "
        "(rmqtt-net 0.5.0, `src/builder.rs`: one `accept_bi`): no answer comes"
    ),
    ("rmqttd", "datagrams"): (
        "rmqttd announces datagrams and reads none "
        "(rmqtt-net 0.5.0 has no `read_datagram`): they are lost"
    ),
}
# Settings besides `plain` that a broker has, or that make sense with it.
SETTINGS = {"dunlin": ("retry", "restart")}
BROKERS: tuple[type[Broker], ...] = (Dunlin, Mqttv5, Mqttv5Streams, Rmqttd)


def wanted(setting: str) -> list[str]:
    return [name for name, its, _ in FEATURES if its == setting]


def run(client: Client, kind: type[Broker], setting: str, column: Column, only: str) -> None:
    with tempfile.TemporaryDirectory(prefix="interop-") as folder:
        quic = {"retry": "always"} if setting == "retry" else {}
        broker = kind(Path(folder), quic=quic) if kind is Dunlin else kind(Path(folder))
        try:
            broker.start()
            command = [*client.command, "--tls-port", str(broker.ports.get("tls", 0))]
            command += ["--streams-in-order", "true" if kind is Dunlin else "false"]
            client = Client(client.name, command)
            matrix.run_client(client, broker, setting, column, wanted(setting), only)
            column.look_at(broker, wanted(setting))
        finally:
            broker.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", action="store_true", help="those by others, too")
    parser.add_argument("--broker", metavar="NAME", default="")
    parser.add_argument("--feature", metavar="NAME", default="")
    args = parser.parse_args()
    if Dunlin.binary() is None or shutil.which("openssl") is None:
        print("interop: skipped: there is no dunlin binary or no openssl")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    program, missing = builds.example("dunlin-client", "features")
    client = Client("dunlin", [str(program)], missing)
    columns = []
    for kind in BROKERS:
        if args.broker not in ("", kind.name) or (kind is not Dunlin and not args.brokers):
            continue
        version = "" if kind is Dunlin else versions.program(kind.binary())
        column = Column(kind.name, version)
        columns.append(column)
        missing = client.missing or ("" if kind.binary() else f"{kind.name} is not installed")
        if missing:
            column.skip(FEATURES, missing)
            continue
        for setting in ("plain", *SETTINGS.get(kind.name, ())):
            if args.feature in ("", *wanted(setting)):
                run(client, kind, setting, column, args.feature)
        column.excuse({name: why for (its, name), why in KNOWN.items() if its == kind.name})
    matrix.print_reasons(columns)
    matrix.print_table(FEATURES, columns)
    if args.brokers and not args.broker and not args.feature:
        results.write("own", matrix.book_table(FEATURES, columns))
    return matrix.conclude(columns)


if __name__ == "__main__":
    sys.exit(main())
