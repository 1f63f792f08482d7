"""The tables of `compare.sh --fleet`: a fleet of devices with a message now and
then, and what each costs the broker: CPU, packets and bytes each way, system calls,
latency, memory. Brokers are measured in turn; medians are printed."""

import argparse
import concurrent.futures
import contextlib
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import time

from brokers import Dunlin, FlashMq, Mosquitto, Mqttv5, program
from compare import BINARY, MOSQUITTO, MQTTV5, bench, cpu_model, notes, say, version

FLASHMQ = program("FLASHMQ", "flashmq", "/usr/sbin", "/usr/local/bin")
COUNTS_PACKETS = os.environ.get("FLEET_NETWORK") == "own"
PERF, STRACE = shutil.which("perf"), shutil.which("strace")

# How messages arrive, and the options for that.
ARRIVALS = [
    ("one by one", ["--arrival", "even"]),
    ("at random", ["--arrival", "poisson"]),
    ("ten at a time", ["--arrival", "clusters", "--cluster", "10"]),
]
WARM_UP = 1
# Kinds of system calls that are shown; the others are added up.
CALLS_SHOWN = 5


def arguments():
    parser = argparse.ArgumentParser(prog="compare.sh")
    parser.add_argument("--fleet", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--devices", type=int, help="2,000; quick: 100")
    parser.add_argument("--rate", type=int, help="5,000 messages a second; quick: 250")
    parser.add_argument("--wake", type=int, metavar="N", help="devices that wake once a minute")
    parser.add_argument("--idle", type=int, metavar="N", help="silent connections over QUIC")
    args = parser.parse_args()
    args.devices = args.devices or (100 if args.quick else 2000)
    args.rate = args.rate or (250 if args.quick else 5000)
    args.repeat, args.seconds = (1, 1) if args.quick else (3, 4)
    args.arrivals = ARRIVALS[-1:] if args.quick else ARRIVALS
    return args


class Packets:
    """Counts packets to a port and from it, in a network of its own."""

    def __init__(self, url):
        self.port = int(url.rsplit(":", 1)[1])
        self.kind = "udp" if url.startswith("quic:") else "tcp"

    def __enter__(self):
        rules = "add table inet fleet; add chain inet fleet out { type filter hook output priority 0; };"
        for way in ("dport", "sport"):
            rules += f"add rule inet fleet out {self.kind} {way} {self.port} counter;"
        subprocess.run(["nft", rules], check=True)
        return self

    def counts(self):
        """Packets and bytes to the broker, and those from it."""
        said = subprocess.run(
            ["nft", "-j", "list", "table", "inet", "fleet"], capture_output=True, text=True, check=True
        )
        counters = []
        for item in json.loads(said.stdout)["nftables"]:
            for part in item.get("rule", {}).get("expr", []):
                if "counter" in part:
                    counters += [part["counter"]["packets"], part["counter"]["bytes"]]
        return counters

    def __exit__(self, *_):
        subprocess.run(["nft", "delete table inet fleet"], check=True)


def during(broker, transport, options, args, watch):
    """A run of the generator, and what `watch` saw in the middle of it."""
    # Connecting takes a second or some; messages flow after that.
    wait = WARM_UP + 1 + args.devices / 2000
    with concurrent.futures.ThreadPoolExecutor() as pool:
        watching = pool.submit(lambda: time.sleep(wait) or watch())
        report = bench(broker, transport, *options, seconds=args.seconds + 2 * wait)
        return watching.result(), report


def packets(broker, transport, options, args):
    """Packets and bytes each way for one message that is sent."""
    def watch():
        first = counter.counts()
        time.sleep(args.seconds)
        return [last - first for first, last in zip(first, counter.counts())]

    with Packets(broker.urls[transport]) as counter:
        seen, report = during(broker, transport, options, args, watch)
    sent = report["messages"]["sent_per_second"] * args.seconds
    return [count / sent for count in seen]


def traced(broker, args):
    """Runs the tracer for a while; how often each system call was made."""
    pid = str(broker.pid)
    if PERF:
        command = [PERF, "trace", "-s", "-p", pid, "--", "sleep", str(args.seconds)]
        said = subprocess.run(command, capture_output=True, text=True)
        found = re.findall(r"^ +(\w+) +(\d+) +\d+ +[\d.]+ ", said.stderr + said.stdout, re.M)
        calls = {}
        for name, count in found:
            calls[name] = calls.get(name, 0) + int(count)
        return calls
    command = ["timeout", "-s", "INT", str(args.seconds), STRACE, "-c", "-f", "-p", pid]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    found = re.findall(r"^ +[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", said, re.M)
    return {name: int(count) for count, name in found if name != "total"}


def calls(broker, transport, options, args):
    """System calls of the broker for one message, the most frequent first."""
    seen, report = during(broker, transport, options, args, lambda: traced(broker, args))
    sent = report["messages"]["sent_per_second"] * args.seconds
    ranked = sorted(seen.items(), key=lambda item: -item[1])
    shown = [f"{name} {count / sent:.2f}" for name, count in ranked[:CALLS_SHOWN]]
    rest = sum(count for _, count in ranked[CALLS_SHOWN:]) / sent
    return ", ".join(shown + ([f"others {rest:.2f}"] if rest >= 0.005 else [])) or "none seen"


def median(reports, value):
    values = [value(report) for report in reports]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def cpu_us(report):
    """CPU of the broker for a message that is delivered."""
    rate = report["broker"]["delivered_per_cpu_second"]
    return 1e6 / rate if rate else None


def times(reports):
    at = lambda name: median(reports, lambda report: report["latency"][name])
    return " / ".join(f"{at(name) / 1e3:.2f}" for name in ("p50_us", "p99_us", "p999_us"))


def show(value, digits=1):
    return "-" if value is None else f"{value:,.{digits}f}"


def main_table(brokers, args):
    fleet = ["--pattern", "fleet", "--devices", str(args.devices), "--rate", str(args.rate)]
    print(f"\n{args.devices:,} devices, half of them subscribe, {args.rate:,} messages/s, 64 B:\n")
    print("| messages | QoS | broker | CPU, µs a message | p50 / p99 / p99.9, ms | generator busy |", end="")
    print(" packets to / from the broker | bytes to / from | memory a connection, KiB |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for arrival, options in args.arrivals:
        for qos in (0, 1):
            options_here = fleet + options + ["--qos", str(qos)]
            cells = {key: [] for key in brokers}
            for _ in range(args.repeat):
                for key in brokers:
                    broker, transport = key
                    cells[key].append(bench(broker, transport, *options_here, seconds=args.seconds))
                    say(f"  {arrival}, QoS {qos}, {broker.name} {transport}: {show(cpu_us(cells[key][-1]))} µs")
            for (broker, transport), reports in cells.items():
                busy = median(reports, lambda report: report["generator"]["busy"] * 100)
                memory = reports[0]["broker"]["private_per_connection"] / 1024
                row = [arrival, str(qos), f"{broker.name} {transport}"]
                row += [show(median(reports, cpu_us)), times(reports), f"{busy:.0f} %"]
                if COUNTS_PACKETS:
                    there, bytes_there, back, bytes_back = packets(broker, transport, options_here, args)
                    row += [f"{there:.2f} / {back:.2f}", f"{bytes_there:.0f} / {bytes_back:.0f}"]
                else:
                    row += ["not counted", "not counted"]
                # Later runs find memory that the first left behind.
                row.append(f"{memory:.1f}" if (arrival, qos) == (args.arrivals[0][0], 0) else "")
                print("| " + " | ".join(row) + " |", flush=True)


def calls_table(brokers, args):
    if not (PERF or STRACE):
        print("\nSystem calls: skipped, neither perf nor strace is installed.")
        return
    tracer = "perf trace" if PERF else "strace, which slows the broker"
    print(f"\nSystem calls of the broker for one message, by {tracer}, in runs of their own:\n")
    print("| messages | broker | QoS 0 | QoS 1 |")
    print("|---|---|---|---|")
    fleet = ["--pattern", "fleet", "--devices", str(args.devices), "--rate", str(args.rate)]
    for arrival, options in (args.arrivals if args.quick else [ARRIVALS[0], ARRIVALS[-1]]):
        for broker, transport in brokers:
            cells = [calls(broker, transport, fleet + options + ["--qos", qos], args) for qos in ("0", "1")]
            print(f"| {arrival} | {broker.name} {transport} | {cells[0]} | {cells[1]} |", flush=True)


def wake_row(args):
    """Devices that wake once a minute with tickets."""
    options = ["--pattern", "fleet", "--devices", str(args.wake), "--subscribing", "0"]
    options += ["--sleeping", "100", "--qos", "1", "--rate", str(max(args.wake / 60, 1))]
    with Dunlin(BINARY) as dunlin:
        report = bench(dunlin, "quic", *options, seconds=10 if args.quick else 60)
    fleet, broker = report["fleet"], report["broker"]
    cpu = broker["cpu_seconds"] * 1e6 / max(fleet["wakes"], 1)
    print(f"\n{args.wake:,} devices that wake once a minute over QUIC, QoS 1: {fleet['wakes']:,} wakes,", end=" ")
    print(f"{fleet['early_data_accepted']:,} with early data taken, {fleet['early_data_refused']:,} refused;", end=" ")
    print(f"{cpu:.0f} µs of broker CPU each; to PUBACK p50 {report['acknowledgement']['p50_us'] / 1e3:.2f} ms,", end=" ")
    print(f"p99 {report['acknowledgement']['p99_us'] / 1e3:.2f} ms.")


def idle_row(args):
    with Dunlin(BINARY) as dunlin:
        report = bench(dunlin, "quic", "--idle", str(args.idle), seconds=3 if args.quick else 30)
    broker, ready = report["broker"], report["connections"]["ready"]
    print(f"\n{ready:,} silent connections over QUIC: {broker['private_per_connection'] / 1024:.1f} KiB each,", end=" ")
    print(f"{broker['cores']:.3f} cores.")


def started(stack, what, start):
    """A broker, or a visible gap."""
    if start is None:
        notes.append(f"{what}: skipped, it is not installed")
        return None
    try:
        return stack.enter_context(start())
    except RuntimeError as error:
        notes.append(f"{what}: skipped: {error}")
        return None


def main():
    args = arguments()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    begun, load = time.monotonic(), os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        brokers = []
        for transport in ("tcp", "tls", "quic"):
            # One for each, so that memory is that of its transport.
            brokers.append((stack.enter_context(Dunlin(BINARY)), transport))
        certs = os.path.join(brokers[0][0].dir, "data", "certs")
        pair = [os.path.join(certs, name) for name in ("server.pem", "server.key")]
        others = [
            ("mosquitto", MOSQUITTO and (lambda: Mosquitto(MOSQUITTO, True, *pair)), ("tcp", "tls")),
            ("FlashMQ", FLASHMQ and (lambda: FlashMq(FLASHMQ, *pair)), ("tcp", "tls")),
            ("mqttv5", MQTTV5 and (lambda: Mqttv5(MQTTV5, *pair)), ("quic",)),
        ]
        for what, start, transports in others:
            for transport in transports:
                broker = started(stack, f"{what} over {transport}", start)
                if broker:
                    brokers.append((broker, transport))
        main_table(brokers, args)
        calls_table(brokers, args)
    if args.wake:
        wake_row(args)
    if args.idle:
        idle_row(args)
    print(f"\nMeasured on {os.cpu_count()} × {cpu_model()}, Linux {platform.release()};", end=" ")
    print(f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after,", end=" ")
    print(f"{(time.monotonic() - begun) / 60:.0f} minutes. Medians of {args.repeat} × {args.seconds} s.", end=" ")
    print("Packets are those given to the device: of TCP they may be segments of 64 KiB,", end=" ")
    print("and of QUIC trains of datagrams that one call sends.", end=" ")
    print(f"{version([BINARY, '--version'])}.")
    if not COUNTS_PACKETS:
        notes.append("packets: not counted, that needs root and nft")
    for note in notes:
        print(f"- {note}")


if __name__ == "__main__":
    main()
