"""Runs the cases against a broker and prints a line for each that fails."""

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))

from bench import Bench, Skip  # noqa: E402
from brokers import BROKERS  # noqa: E402
from cases import CASES  # noqa: E402

# Cases that run at the same time; most of them wait.
WORKERS = 8


def run_case(name: str, bench: Bench) -> tuple[str, str]:
    """`passed`, `failed` or `skipped`, and the reason."""
    try:
        CASES[name](bench)
    except Skip as reason:
        return "skipped", str(reason)
    except Exception as error:  # noqa: BLE001 - every failure is a result
        frames = traceback.extract_tb(error.__traceback__)
        places = [f for f in frames if "/cases_" in f.filename]
        place = f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "?"
        return "failed", f"{type(error).__name__} {str(error)[:300]} ({place})"
    return "passed", ""


def run(args: argparse.Namespace, shards: int) -> Counter[str]:
    """How many cases passed, failed and were skipped with this many shards."""
    names = [name for name in CASES if args.only in name]
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        broker = BROKERS[args.broker](Path(folder), shards=shards)
        start = time.monotonic()
        try:
            broker.start()
            bench = Bench(broker.ports, broker.user)
            with ThreadPoolExecutor(WORKERS) as pool:
                results = list(pool.map(lambda name: run_case(name, bench), names))
            if not broker.alive():
                names.append("broker")
                results.append(("failed", f"it ended:\n{broker.tail()}"))
        finally:
            broker.stop()
    for name, (result, reason) in zip(names, results, strict=True):
        if reason:
            print(f"conformance: {shards} shards: {name}: {result}: {reason}")
    count = Counter(result for result, _ in results)
    seconds = time.monotonic() - start
    print(f"conformance: {shards} shards: {summary(count)}, {seconds:.1f} s")
    return count


def summary(count: Counter[str]) -> str:
    return ", ".join(f"{count[result]} {result}" for result in ("passed", "failed", "skipped"))


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
    count = sum((run(args, shards) for shards in args.shards), Counter())
    print(summary(count))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
