#!/usr/bin/env python3
"""What qlog costs a broker: CPU per message and per handshake over QUIC, by what
is logged, as ratios to a broker without `[qlog]` in the same run.

    scripts/qlog/cost.py [--dunlin FILE] [--base FILE] [--rounds N] [--seconds S]

With `--base`, the ratios are to another binary, such as one built before qlog.
"""

import argparse
import json
import re
import signal
import statistics
import subprocess
import tempfile
from pathlib import Path

HANDSHAKES = 400
# Longest that one measurement may take, beyond the seconds asked for.
PATIENCE_SECONDS = 60

CONFIG = """shards = 1
data_dir = "data"
[store]
durability = "memory"
{qlog}
[[listener]]
transport = "quic"
address = "127.0.0.1:0"
"""

# What the brokers log, by the name of the row.
MODES = {
    "no [qlog]": "",
    "directory only": '[qlog]\ndir = "q"',
    "another address": '[qlog]\ndir = "q"\naddresses = ["203.0.113.0/24"]',
    "another client": '[qlog]\ndir = "q"\nclients = ["no-client"]',
    "everything": '[qlog]\ndir = "q"\none_in = 1\nmax_file_size = "1GiB"\nmax_total_size = "8GiB"',
}


def cpu_seconds(pid: int) -> float:
    """Time that all threads of a process ran, finer than clock ticks."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure(broker: Path, generator: Path, qlog: str, seconds: float) -> tuple[float, float]:
    """Microseconds of CPU per message, and per handshake."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "dunlin.toml").write_text(CONFIG.format(qlog=qlog))
        command = [broker, "broker", "--config", "dunlin.toml"]
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            port = None
            for line in process.stdout:
                if found := re.search(r"quic +127\.0\.0\.1:(\d+)", line):
                    port = found[1]
                if " pub --url" in line:
                    break
            if port is None:
                raise SystemExit("the broker did not start")
            url = ["--url", f"quic://127.0.0.1:{port}", "--ca", f"{folder}/data/certs/ca.pem"]

            def bench(*more: str) -> tuple[dict, float]:
                before = cpu_seconds(process.pid)
                done = subprocess.run(
                    [generator, "bench", *url, "-q", "--json", "-", *more],
                    capture_output=True,
                    check=True,
                    timeout=seconds + PATIENCE_SECONDS,
                )
                return json.loads(done.stdout), cpu_seconds(process.pid) - before

            handshakes = bench("--handshakes", str(HANDSHAKES))[1]
            load = ("--batch", "16", "--warmup", "0.5", "--duration", str(seconds))
            report, messages = bench(*load)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
    return messages / report["messages"]["delivered"] * 1e6, handshakes / HANDSHAKES * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dunlin", type=Path, default=Path("target/release/dunlin"))
    parser.add_argument("--base", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.5)
    args = parser.parse_args()
    dunlin = args.dunlin.resolve()
    rows = {name: (dunlin, qlog) for name, qlog in MODES.items()}
    if args.base:
        rows = {"base": (args.base.resolve(), ""), **rows}
    first = next(iter(rows))
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    for number in range(args.rounds):
        # Each goes first at some time.
        names = list(rows)
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            broker, qlog = rows[name]
            seen[name].append(measure(broker, dunlin, qlog, args.seconds))
    print(f"{'':16} {'µs/message':>10} {'ratio':>6} {'µs/handshake':>12} {'ratio':>6}")
    for name, values in seen.items():
        cells = []
        for part in (0, 1):
            ratios = [v[part] / b[part] for v, b in zip(values, seen[first], strict=True)]
            cells += [statistics.median(v[part] for v in values), statistics.median(ratios)]
        print("{:16} {:10.2f} {:6.2f} {:12.0f} {:6.2f}".format(name, *cells))


if __name__ == "__main__":
    main()
