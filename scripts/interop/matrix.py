"""A table of features: clients that are asked for each, and what they say. Knows
neither the features nor the programs.
"""

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import results
from brokers import Broker

# Longest that one client may take with one setting of the broker.
SETTING_SECONDS_MAX = 240

# Name, setting of the broker, what is tried.
Features = tuple[tuple[str, str, str], ...]


@dataclass
class Client:
    """A client program, and why it cannot run here."""

    name: str
    command: list[str]
    missing: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    version: str = ""


@dataclass
class Column:
    """What one client said."""

    title: str
    version: str = ""
    seconds: float = 0.0
    # Name of the feature to `ok`, `FAIL`, `skip` or `peer`, and the reasons.
    marks: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    # End of the log of the broker with which one failed.
    log: str = ""

    def look_at(self, broker: Broker, names: list[str]) -> bool:
        """Whether the broker lives; keeps its log if it does not, or if a feature failed."""
        alive = broker.alive()
        if not alive:
            self.marks["broker"] = "FAIL"
            self.reasons["broker"] = f"{broker.name} ended"
        if not alive or any(self.marks.get(name) == "FAIL" for name in names):
            self.log = broker.tail()
        return alive

    def failures(self) -> list[str]:
        """A line for each feature that failed."""
        return [
            f"{self.title} quic: {name}: {self.reasons.get(name, '')} ({self.seconds:.1f} s)"
            for name, mark in self.marks.items()
            if mark == "FAIL"
        ]

    def excuse(self, known: dict[str, str]) -> None:
        """Failures of the other side, with their proof, are none of ours."""
        for name, proof in known.items():
            if self.marks.get(name) == "FAIL":
                self.marks[name] = "peer"
                self.reasons[name] = proof

    def skip(self, features: Features, reason: str) -> None:
        """Nothing could be tried."""
        print(f"interop: skipped: {self.title}: {reason}")
        for name, _, _ in features:
            self.marks[name] = "skip"


def run_client(
    client: Client, broker: Broker, setting: str, column: Column, wanted: list[str], only: str
) -> None:
    """Has a client try the wanted features, all of one setting."""
    start = time.monotonic()
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
    try:
        ended = converse(process, broker, column)
        process.wait()
    finally:
        overdue.cancel()
        process.kill()
        process.wait()
    reader.join()
    column.seconds += time.monotonic() - start
    if ended:
        return
    for name in wanted:
        if name not in column.marks and only in ("", name):
            column.marks[name] = "FAIL"
            column.reasons[name] = f"no answer; {''.join(errors).strip()[-400:]}"


def converse(process: subprocess.Popen[str], broker: Broker, column: Column) -> bool:
    """Reads its lines and does what it asks for; whether it said `end`."""
    ended = False
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
    return ended


def read_line(column: Column, line: str) -> None:
    for head, mark in (("ok ", "ok"), ("not ok ", "FAIL"), ("skip ", "skip")):
        if line.startswith(head):
            name, _, reason = line.removeprefix(head).partition(": ")
            column.marks[name] = mark
            if reason:
                column.reasons[name] = reason
            return


def print_reasons(columns: Iterable[Column]) -> None:
    for column in columns:
        for name, reason in column.reasons.items():
            print(f"interop: {column.title}: {name}: {column.marks[name]}: {reason}")


def print_table(features: Features, columns: list[Column]) -> None:
    width = max(len(name) for name, _, _ in features) + 2
    head = " " * width + "".join(f"{column.title:<17}" for column in columns)
    print(f"\n{head}\n{'-' * len(head)}")
    for name, _, _ in features:
        marks = "".join(f"{column.marks.get(name, ''):<17}" for column in columns)
        print(f"{name:<{width}}{marks}")
    print(" " * width + "".join(f"{f'{c.seconds:.1f} s':<17}" for c in columns) + "\n")


def book_table(features: Features, columns: list[Column]) -> str:
    """The same for the book, with the reasons below."""
    titles = [f"{column.title} {column.version}".strip() for column in columns]
    lines = ["| feature | " + " | ".join(titles) + " |"]
    lines += ["|---" * (len(columns) + 1) + "|"]
    words = {"ok": "pass", "FAIL": "**fail**", "skip": "skip", "peer": "peer", "": "–"}
    notes: dict[str, int] = {}
    for name, _, what in features:
        cells = []
        for column in columns:
            cell = words[column.marks.get(name, "")]
            if name in column.reasons:
                number = notes.setdefault(column.reasons[name], len(notes) + 1)
                cell += f" ({number})"
            cells.append(cell)
        lines += [f"| `{name}`: {what} | {' | '.join(cells)} |"]
    if notes:
        lines += [""] + [f"{number}. {reason}" for reason, number in notes.items()]
    return "\n".join(lines) + "\n"


def conclude(columns: list[Column]) -> int:
    """Prints the last line; the exit code."""
    count = Counter(mark for column in columns for mark in column.marks.values())
    if count["peer"]:
        print(f"{count['peer']} failures of others, see above")
    failed = [column for column in columns if column.failures()]
    failures = [line for column in failed for line in column.failures()]
    code = results.conclude(count, failures, failed[-1].log if failed else "")
    return code if columns else 1
