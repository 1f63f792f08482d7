"""Runs the wire cases of AMQP 1.0 against a broker, in the order of the
specification, and prints a table by section.

What waits for a feature is named in interop/amqp/expected-failures.txt: such a
case counts as failed where it fails, as expected, and fails the run where it
passes, so that the list stays true.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import builds
import results
import tunnels
from brokers import ROOT, Dunlin

EXPECTED = ROOT / "interop/amqp/expected-failures.txt"

# Longest that all cases may take together.
RUN_SECONDS_MAX = 300

# Where the rows for the book are.
PART = "wire"

# Sections of the specification as the table has them: the beginning of their
# number, and what they are about.
SECTIONS = (
    ("1.", "types and encodings"),
    ("2.2", "version negotiation"),
    ("2.3", "framing"),
    ("2.4", "connections"),
    ("2.5", "sessions"),
    ("2.6", "links"),
    ("2.7", "performatives"),
    ("2.8", "definitions"),
    ("3.2", "message format"),
    ("3.4", "delivery state"),
    ("3.5", "sources and targets"),
    ("anonterm", "anonymous terminus"),
    ("4.", "transactions"),
    ("5.", "SASL"),
)


@dataclass
class Result:
    """What a case said."""

    name: str
    mark: str
    reason: str

    @property
    def section(self) -> str:
        number = self.name.partition(" ")[0]
        found = [title for title, _ in SECTIONS if number.startswith(title)]
        return found[-1] if found else number


def expected() -> set[str]:
    """Names of the cases that are to fail."""
    lines = EXPECTED.read_text().splitlines() if EXPECTED.is_file() else []
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def judge(line: str, known: set[str]) -> Result | None:
    for head, mark in (("ok ", "ok"), ("not ok ", "FAIL"), ("skip ", "skip")):
        if not line.startswith(head):
            continue
        name, _, reason = line.removeprefix(head).partition(": ")
        # A name may have a colon.
        names = [it for it in known if line.removeprefix(head).startswith(it)]
        if names and mark == "FAIL":
            return Result(max(names, key=len), "known", reason)
        if name_of(line, head) in known and mark == "ok":
            return Result(name_of(line, head), "FAIL", "it passes: take it from the list")
        if mark == "ok":
            name, reason = name_of(line, head), ""
        return Result(name, mark, reason)
    return None


def name_of(line: str, head: str) -> str:
    return line.removeprefix(head).strip()


def run(args: argparse.Namespace, folder: Path) -> tuple[list[Result], str]:
    """What the cases said, and the end of the broker's log."""
    classpath, missing = builds.java()
    if missing:
        print(f"wire: skipped: {missing}")
        return [], ""
    broker = Dunlin(folder)
    tunnel = None
    try:
        broker.start()
        port = broker.ports["tcp"]
        if args.tunnel:
            tunnel = tunnels.Tunnel(broker, folder)
            port = tunnel.port
        command = ["java", *builds.JAVA_FLAGS, "-cp", classpath, "wire.Main"]
        command += [str(port), "all" if args.all else "short", args.only]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"the driver ended with {done.returncode}:\n{done.stderr[-2000:]}")
        alive, log = broker.alive(), broker.tail()
    finally:
        if tunnel:
            tunnel.stop()
        broker.stop()
    known = expected()
    judged = (judge(line, known) for line in done.stdout.splitlines())
    found = [result for result in judged if result]
    if not alive:
        found.append(Result("broker", "FAIL", f"{broker.name} ended"))
    return found, log


def rows(found: list[Result]) -> list[tuple[str, str, Counter[str]]]:
    """A row for each section that has cases."""
    counts = {title: Counter() for title, _ in SECTIONS}
    for result in found:
        counts.setdefault(result.section, Counter())[result.mark] += 1
    about = dict(SECTIONS)
    return [(t.rstrip("."), about.get(t, ""), c) for t, c in counts.items() if c]


def print_table(found: list[Result]) -> None:
    print(f"{'section':<10}{'about':<24}{'cases':>7}{'passed':>8}{'failed':>8}{'expected':>10}")
    for title, about, count in rows(found):
        print(
            f"{title:<10}{about:<24}{sum(count.values()):>7}{count['ok']:>8}{count['FAIL']:>8}"
            f"{count['known']:>10}"
        )


def book(found: list[Result]) -> str:
    lines = ["| section | about | cases | passed | wait for a feature |", "|---|---|---:|---:|---:|"]
    for title, about, count in rows(found):
        lines.append(
            f"| {title} | {about} | {sum(count.values())} | {count['ok']} | {count['known']} |"
        )
    total = Counter(result.mark for result in found)
    lines.append(f"| | all | {sum(total.values())} | {total['ok']} | {total['known']} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="also what waits for time-outs")
    parser.add_argument("--tunnel", action="store_true", help="over QUIC, through dunlin tunnel")
    parser.add_argument("--only", default="", metavar="PART_OF_NAME")
    args = parser.parse_args()
    if Dunlin.binary() is None:
        print("wire: skipped: there is no dunlin binary")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="wire-") as folder:
        found, log = run(args, Path(folder))
    if found:
        print_table(found)
    if args.all and not args.only and not args.tunnel:
        results.write(PART, book(found))
    count = Counter(result.mark for result in found)
    known = f"; {count['known']} fail as expected" if count["known"] else ""
    print(f"wire: {len(found)} cases{known}, {time.monotonic() - start:.1f} s")
    count["skip"] += 0 if found else 1
    failures = [f"{it.name}: {it.reason}" for it in found if it.mark == "FAIL"]
    return results.conclude(count, failures, log)


if __name__ == "__main__":
    sys.exit(main())
