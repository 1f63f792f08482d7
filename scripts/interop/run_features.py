"""Runs clients that speak QUIC through the features of `features.py` and prints
and writes a table: a row for each feature, a column for each client.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import builds
import matrix
import results
import versions
from brokers import Dunlin, Mqttv5
from features import FEATURES, SETTINGS, names
from matrix import Client, Column

HERE = Path(__file__).resolve().parent
PYTHON = versions.PYTHON

# What the settings mean to the broker.
QUIC_SECTION = {"plain": {}, "retry": {"retry": "always"}, "restart": {}}


def aioquic() -> Client:
    """Bytes by hand; the widest of them."""
    has = PYTHON.exists() and not subprocess.run(
        [PYTHON, "-c", "import aioquic"], capture_output=True, check=False
    ).returncode
    command = [str(PYTHON), "-B", str(HERE / "client_aioquic.py")]
    missing = "" if has else "target/venv has no aioquic"
    return Client("aioquic", command, missing, version=versions.python("aioquic"))


def mqttv5() -> Client:
    """The program behind the crate `mqtt5`, when it is installed."""
    program = Mqttv5.binary()
    command = [sys.executable, "-B", str(HERE / "client_mqttv5.py")]
    missing = "" if program else "mqttv5 is not installed"
    version = versions.program(program)
    return Client("mqttv5-cli", command, missing, {"MQTTV5": str(program)}, version)


def clients(quic_peers: bool) -> list[Client]:
    found = [aioquic()]
    if quic_peers:
        program, missing = builds.quic_go()
        version = versions.go("github.com/quic-go/quic-go")
        found += [Client("quic-go", [str(program)], missing, version=version)]
        folder, missing = builds.cargo("quic-peers")
        for name in ("flowsdk", "mqtt5"):
            command = [str(folder / f"{name}-features")]
            found += [Client(name, command, missing, version=versions.crate(name))]
        found += [mqttv5()]
    return found


def run(args: argparse.Namespace, setting: str, columns: list[tuple[Client, Column]]) -> None:
    with tempfile.TemporaryDirectory(prefix="interop-") as folder:
        broker = Dunlin(Path(folder), quic=QUIC_SECTION[setting])
        try:
            broker.start()
            for client, column in columns:
                if client.missing:
                    continue
                matrix.run_client(client, broker, setting, column, names(setting), args.feature)
                if not column.look_at(broker, names(setting)):
                    break
        finally:
            broker.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quic-peers", action="store_true")
    parser.add_argument("--only", metavar="CLIENT", default="")
    parser.add_argument("--feature", metavar="NAME", default="")
    args = parser.parse_args()
    for missing in (
        "" if Dunlin.binary() else "there is no dunlin binary",
        "" if shutil.which("openssl") else "no openssl to make certificates with",
    ):
        if missing:
            print(f"interop: skipped: {missing}")
            print("0 passed, 0 failed, 1 skipped")
            return 0
    found = [client for client in clients(args.quic_peers) if args.only in ("", client.name)]
    columns = [(client, Column(client.name, client.version)) for client in found]
    for client, column in columns:
        if client.missing:
            column.skip(FEATURES, client.missing)
    for setting in SETTINGS:
        if args.feature in ("", *names(setting)):
            run(args, setting, columns)
    table = [column for _, column in columns]
    matrix.print_reasons(table)
    matrix.print_table(FEATURES, table)
    if args.quic_peers and not args.only and not args.feature:
        results.write("features", matrix.book_table(FEATURES, table))
    return matrix.conclude(table)


if __name__ == "__main__":
    sys.exit(main())
