"""Runs the cases against a broker and prints a line for each that fails."""

import argparse
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))

from bench import Bench  # noqa: E402
from brokers import BROKERS  # noqa: E402
from cases import CASES  # noqa: E402

# Cases that run at the same time; most of them wait.
WORKERS = 8


def run_case(name: str, bench: Bench) -> str:
    """The reason why a case fails; empty when it passes."""
    try:
        CASES[name](bench)
    except Exception as error:  # noqa: BLE001 - every failure is a result
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(frames) if "/cases_" in f.filename), 0)
        return f"{type(error).__name__} {str(error)[:300]} (line {line})"
    return ""


def run(args: argparse.Namespace, shards: int) -> tuple[int, int]:
    """How many cases passed and failed with this number of shards."""
    names = [name for name in CASES if args.only in name]
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        broker = BROKERS[args.broker](Path(folder), shards=shards)
        start = time.monotonic()
        try:
            broker.start()
            bench = Bench(broker.ports)
            with ThreadPoolExecutor(WORKERS) as pool:
                results = list(pool.map(lambda name: run_case(name, bench), names))
            if not broker.alive():
                results.append(f"the broker ended:\n{broker.tail()}")
                names.append("broker")
        finally:
            broker.stop()
    failed = 0
    for name, reason in zip(names, results, strict=True):
        if reason:
            failed += 1
            print(f"conformance: {shards} shards: {name}: {reason}")
    seconds = time.monotonic() - start
    print(f"conformance: {shards} shards: {len(names)} cases, {failed} wrong, {seconds:.1f} s")
    return len(names) - failed, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=BROKERS, default="dunlin")
    parser.add_argument("--only", default="", metavar="PART_OF_NAME")
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    if BROKERS[args.broker].binary() is None:
        print(f"conformance: skipped: there is no {args.broker} binary")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    counts = [run(args, shards) for shards in args.shards]
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
