"""Runs clients that speak QUIC through the features of `features.py` and prints
and writes a table: a row for each feature, a column for each client.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import builds
from brokers import ROOT, Dunlin, Mqttv5
from features import FEATURES, SETTINGS, names

HERE = Path(__file__).resolve().parent
PYTHON = ROOT / "target/venv/bin/python"
TABLE = ROOT / "target/interop-features.md"

# Longest that one client may take with one setting of the broker.
SETTING_SECONDS_MAX = 240

# What the settings mean to the broker.
QUIC_SECTION = {"plain": {}, "retry": {"retry": "always"}, "restart": {}}


@dataclass
class Client:
    """A client program, and why it cannot run here."""

    name: str
    command: list[str]
    missing: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Column:
    """What one client said."""

    client: str
    seconds: float = 0.0
    # Name of the feature to `ok`, `FAIL` or `skip`, and the reasons.
    marks: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def aioquic() -> Client:
    """Bytes by hand; the widest of them."""
    has = PYTHON.exists() and not subprocess.run(
        [PYTHON, "-c", "import aioquic"], capture_output=True, check=False
    ).returncode
    command = [str(PYTHON), "-B", str(HERE / "client_aioquic.py")]
    return Client("aioquic", command, "" if has else "target/venv has no aioquic")


def mqttv5() -> Client:
    """The program behind the crate `mqtt5`, when it is installed."""
    program = Mqttv5.binary()
    command = [sys.executable, "-B", str(HERE / "client_mqttv5.py")]
    missing = "" if program else "mqttv5 is not installed"
    return Client("mqttv5 (CLI)", command, missing, {"MQTTV5": str(program)})


def clients(quic_peers: bool) -> list[Client]:
    found = [aioquic()]
    if quic_peers:
        program, missing = builds.quic_go()
        found += [Client("quic-go", [str(program)], missing)]
        folder, missing = builds.cargo("quic-peers")
        for name in ("flowsdk", "mqtt5"):
            found += [Client(name, [str(folder / f"{name}-features")], missing)]
        found += [mqttv5()]
    return found


def run_client(client: Client, broker: Dunlin, setting: str, column: Column, only: str) -> None:
    command = [*client.command, "--port", str(broker.ports["quic"]), "--ca", str(broker.ca)]
    command += ["--setting", setting, *(["--only", only] if only else [])]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **client.environment},
    )
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)
    reader.start()
    overdue = threading.Timer(SETTING_SECONDS_MAX, process.kill)
    overdue.start()
    ended = False
    try:
        for line in process.stdout:
            if line.strip() in ("kill", "restart"):
                broker.kill() if line.strip() == "kill" else broker.stop()
                broker.start()
                process.stdin.write("done\n")
                process.stdin.flush()
            elif line.strip() == "end":
                ended = True
            else:
                read_line(column, line.rstrip("\n"))
        process.wait()
    finally:
        overdue.cancel()
        process.kill()
        process.wait()
    reader.join()
    if ended:
        return
    silent = [n for n in names(setting) if n not in column.marks and only in ("", n)]
    for name in silent:
        column.marks[name] = "FAIL"
        column.reasons[name] = f"no answer; {''.join(errors).strip()[-400:]}"


def read_line(column: Column, line: str) -> None:
    for head, mark in (("ok ", "ok"), ("not ok ", "FAIL"), ("skip ", "skip")):
        if line.startswith(head):
            name, _, reason = line.removeprefix(head).partition(": ")
            column.marks[name] = mark
            if reason:
                column.reasons[name] = reason
            return


def run(args: argparse.Namespace, setting: str, columns: list[tuple[Client, Column]]) -> None:
    with tempfile.TemporaryDirectory(prefix="interop-") as folder:
        broker = Dunlin(Path(folder), quic=QUIC_SECTION[setting])
        try:
            broker.start()
            for client, column in columns:
                if client.missing:
                    for name in names(setting):
                        column.marks[name] = "skip"
                    continue
                start = time.monotonic()
                run_client(client, broker, setting, column, args.feature)
                column.seconds += time.monotonic() - start
                if not broker.alive():
                    raise RuntimeError(f"the broker ended:\n{broker.tail()}")
        finally:
            broker.stop()


def print_table(columns: list[Column]) -> None:
    width = max(len(name) for name, _, _ in FEATURES) + 2
    head = " " * width + "".join(f"{column.client:<17}" for column in columns)
    print(f"\n{head}\n{'-' * len(head)}")
    for name, _, _ in FEATURES:
        marks = "".join(f"{column.marks.get(name, ''):<17}" for column in columns)
        print(f"{name:<{width}}{marks}")
    print(" " * width + "".join(f"{f'{c.seconds:.1f} s':<17}" for c in columns) + "\n")


def write_table(columns: list[Column]) -> None:
    """The same for the book."""
    lines = ["| feature | " + " | ".join(column.client for column in columns) + " |"]
    lines += ["|---" * (len(columns) + 1) + "|"]
    words = {"ok": "pass", "FAIL": "**fail**", "skip": "skip", "": "–"}
    for name, _, what in FEATURES:
        marks = " | ".join(words[column.marks.get(name, "")] for column in columns)
        lines += [f"| `{name}`: {what} | {marks} |"]
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")


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
            print(f"features: skipped: {missing}")
            print("0 passed, 0 failed, 1 skipped")
            return 0
    columns = [(c, Column(c.name)) for c in clients(args.quic_peers) if args.only in ("", c.name)]
    for client, _ in columns:
        if client.missing:
            print(f"features: skipped: {client.name}: {client.missing}")
    for setting in SETTINGS:
        if args.feature in ("", *names(setting)):
            run(args, setting, columns)
    found = [column for _, column in columns]
    for column in found:
        for name, reason in column.reasons.items():
            print(f"features: {column.client}: {name}: {column.marks[name]}: {reason}")
    print_table(found)
    if not args.only and not args.feature:
        write_table(found)
    count = Counter(mark for column in found for mark in column.marks.values())
    print(f"{count['ok']} passed, {count['FAIL']} failed, {count['skip']} skipped")
    return 1 if count["FAIL"] or not found else 0


if __name__ == "__main__":
    sys.exit(main())
