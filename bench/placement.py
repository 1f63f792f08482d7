"""The tables of `compare.sh --placement`: CPU of the broker per message and
latency, by the shards on which publisher and subscriber are, and the memory of an
idle connection. The generator is DUNLIN in all rows; brokers are DUNLIN and, if set,
BASELINE, in turn."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time

from brokers import Dunlin

QUICK = "--quick" in sys.argv
PARTS = [word for word in sys.argv[1:] if not word.startswith("--")]
REPEAT = 1 if QUICK else 3
# At a fixed low rate cells scatter more widely than at saturation.
REPEAT_SPARSE = 1 if QUICK else 7
SECONDS = 1 if QUICK else 3
IDLE = 500 if QUICK else 10_000

GENERATOR = os.path.abspath(os.environ["DUNLIN"])
BASELINE = os.environ.get("BASELINE")


def chosen(*names):
    """Those of a kind that the command line names; all if it names none."""
    return [name for name in names if name in PARTS] or list(names)


TRANSPORTS = chosen("tcp", "quic")
TABLES = chosen("saturated", "fleet", "latency", "idle")
TEN = ["--pubs", "10", "--subs", "10"]
FLEET = ["--pubs", "1000", "--subs", "1000", "--rate", "5000"]
PACED = TEN + ["--rate", "1000"]

# Title, shards, placement; all pairs on one shard means that the other idles.
CELLS = [
    ("one shard", 1, None),
    ("on one of two", 2, "one-shard"),
    ("each pair on one", 2, "local"),
    ("crossing", 2, "crossing"),
    ("as they fall", 2, None),
]
ONE, ON_ONE, LOCAL, CROSSING, FALL = range(len(CELLS))

# What the generator says when a port that it wants is taken.
NO_PORTS = ("Cannot assign requested address", "not enough ports")

# Runs of the generator until it has all ports that it wants.
PORTS_TRIED = 8

# Seconds before another try: ports of connections that ended become free.
PORTS_PAUSE = 10

notes = []


def say(text):
    print(text, file=sys.stderr, flush=True)


class Binary:
    """A binary under test: one broker with one shard, one with two."""

    def __init__(self, name, path):
        self.name, self.path, self.brokers = name, os.path.abspath(path), {}

    def start(self):
        for shards in (1, 2):
            self.brokers[shards] = Dunlin(self.path, shards, self.name)

    def stop(self):
        for broker in self.brokers.values():
            broker.stop()


def bench(broker, transport, placement, options):
    """One run of the generator; its report."""
    command = [GENERATOR, "bench", "--url", broker.urls[transport], "--json", "-", "--quiet"]
    command += ["--broker-pid", str(broker.pid), "--warmup", "1", "--duration", str(SECONDS)]
    if transport != "tcp":
        command += ["--ca", broker.ca]
    if placement:
        command += ["--placement", placement, "--metrics", broker.metrics]
    for _ in range(PORTS_TRIED):
        result = subprocess.run(command + options, capture_output=True, text=True)
        # A port that led to the right shard may have been taken meanwhile.
        if not any(text in result.stderr for text in NO_PORTS):
            break
        time.sleep(PORTS_PAUSE)
    if result.returncode != 0:
        raise RuntimeError(f"{broker.name} {transport} {options}: {result.stderr.strip()}")
    report = json.loads(result.stdout)
    if report.get("messages") and report["messages"]["lost"]:
        lost, expected = report["messages"]["lost"], report["messages"]["expected"]
        notes.append(f"{broker.name} {transport} {' '.join(options)}: {lost:,} of {expected:,} lost")
    return report


def cpu_us(report):
    """CPU of the broker for one delivered message, in microseconds."""
    rate = report["broker"]["delivered_per_cpu_second"]
    return 1e6 / rate if rate else float("nan")


def p99(report):
    return report["latency"]["p99_us"]


def measure(binaries, transport, options, value, cells, repeat):
    """A median for each binary and cell, everything in turn."""
    values = {(b.name, c[0]): [] for b in binaries for c in cells}
    for _ in range(repeat):
        for title, shards, placement in cells:
            for binary in binaries:
                report = bench(binary.brokers[shards], transport, placement, options)
                values[binary.name, title].append(value(report))
        latest = ", ".join(f"{b} {c} {v[-1]:.2f}" for (b, c), v in values.items())
        say(f"  {transport} {' '.join(options)}: {latest}")
    return {b.name: [statistics.median(values[b.name, c[0]]) for c in cells] for b in binaries}


def ratio(a, b):
    return f"{a / b:.2f}" if b else "-"


def cpu_table(title, binaries, cases, repeat=REPEAT):
    print(f"\n{title}\n")
    titles = [cell[0] for cell in CELLS]
    print("| over | QoS | broker | " + " | ".join(titles) + " | a crossing adds | fall : one |")
    print("|---|---|---|" + "---:|" * (len(CELLS) + 2))
    for transport, qos, options in cases:
        medians = measure(binaries, transport, options + ["--qos", str(qos)], cpu_us, CELLS, repeat)
        for name, row in medians.items():
            cells = [f"{value:.2f}" for value in row]
            cells.append(f"{row[CROSSING] - row[LOCAL]:+.2f}")
            cells.append(ratio(row[FALL], row[ONE]))
            print(f"| {transport} | {qos} | {name} | " + " | ".join(cells) + " |", flush=True)


def latency_table(binaries):
    print("\nLatency at 1,000 messages/s over ten pairs, p99 in µs:\n")
    cells = [CELLS[index] for index in (ONE, LOCAL, CROSSING, FALL)]
    print("| over | QoS | broker | " + " | ".join(cell[0] for cell in cells) + " | fall : one |")
    print("|---|---|---|" + "---:|" * (len(cells) + 1))
    for transport in TRANSPORTS:
        for qos in (0, 1):
            options = PACED + ["--qos", str(qos)]
            medians = measure(binaries, transport, options, p99, cells, REPEAT_SPARSE)
            for name, row in medians.items():
                shown = [f"{value:.0f}" for value in row] + [ratio(row[-1], row[0])]
                print(f"| {transport} | {qos} | {name} | " + " | ".join(shown) + " |", flush=True)


def idle_table(binaries):
    """Each cell is a broker of its own: what others left behind is in no figure."""
    print(f"\n{IDLE:,} idle connections, resident memory each, KiB:\n")
    print("| over | shards | " + " | ".join(b.name for b in binaries) + " | now : before |")
    print("|---|---|" + "---:|" * (len(binaries) + 1))
    idle = ["--idle", str(IDLE)]
    for transport in (*TRANSPORTS, *(["tls"] if "tcp" in TRANSPORTS else [])):
        for shards in (1, 2):
            values = {binary.name: [] for binary in binaries}
            for _ in range(REPEAT):
                for binary in binaries:
                    with Dunlin(binary.path, shards, binary.name) as broker:
                        report = bench(broker, transport, None, idle)
                    values[binary.name].append(each(report))
            say(f"  idle {transport}, {shards}: {values}")
            medians = [statistics.median(values[binary.name]) for binary in binaries]
            shown = [f"{value:.2f}" for value in medians] + [ratio(medians[0], medians[-1])]
            print(f"| {transport} | {shards} | " + " | ".join(shown) + " |", flush=True)


def each(report):
    """Memory of the broker for one connection, in KiB."""
    connected = report["connections"]["ready"]
    if connected < IDLE:
        notes.append(f"only {connected:,} of {IDLE:,} idle connections came about")
    return report["broker"]["rss_per_connection"] / 1024


def cpu_model():
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line for line in file if line.startswith("model name")]
        return lines[0].split(":", 1)[1].strip()
    except (OSError, IndexError):
        return platform.machine()


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    started, load = time.monotonic(), os.getloadavg()[0]
    binaries = [Binary("now", GENERATOR)]
    if BASELINE:
        binaries.append(Binary("before", BASELINE))
    if "idle" in TABLES:
        idle_table(binaries)
    try:
        if TABLES != ["idle"]:
            for binary in binaries:
                binary.start()
        if "saturated" in TABLES:
            cases = [(t, q, TEN) for t in TRANSPORTS for q in (0, 1, 2)]
            what = "Ten pairs, saturated, 64 B: CPU of the broker, µs a message:"
            cpu_table(what, binaries, cases)
        if "fleet" in TABLES:
            cases = [(t, q, FLEET) for t in TRANSPORTS for q in (0, 1)]
            what = "1,000 publishers and 1,000 subscribers, 5 messages/s each: µs a message:"
            cpu_table(what, binaries, cases, REPEAT_SPARSE)
        if "latency" in TABLES:
            latency_table(binaries)
    finally:
        for binary in binaries:
            binary.stop()
    print(f"\nMeasured on {os.cpu_count()} × {cpu_model()}, Linux {platform.release()};", end=" ")
    print(f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after,", end=" ")
    print(f"{(time.monotonic() - started) / 60:.0f} minutes. Medians of {REPEAT} × {SECONDS} s, "
          f"of fleets and latency of {REPEAT_SPARSE}.")
    for note in notes:
        print(f"- {note}")


if __name__ == "__main__":
    main()
