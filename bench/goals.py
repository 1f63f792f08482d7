"""The table of `goals.sh`: what fleets over QUIC cost, as ratios of one run, beside
what they are to cost. Fleets and silent connections are measured with `dunlin bench`
on loopback; memory of half-open connections, a wake and losses with `dunlin-lab` on
emulated links."""

import argparse
import contextlib
import glob
import json
import os
import platform
import resource
import statistics
import subprocess
import tempfile
import time

from brokers import Dunlin, Mosquitto
from compare import BINARY, MOSQUITTO, bench, cpu_model, notes, say, version

LAB = os.environ["DUNLIN_LAB"]
ARRIVALS = {
    "in clusters": ["--arrival", "clusters", "--cluster", "10"],
    "one by one": ["--arrival", "even"],
}
# Longest that an experiment may take.
LAB_SECONDS_MAX = 3600


class Unmeasured(Exception):
    """Why there is no number."""


def arguments():
    parser = argparse.ArgumentParser(prog="goals.sh", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--devices", type=int)
    parser.add_argument("--rate", type=int)
    parser.add_argument("--idle", type=int)
    args = parser.parse_args()
    args.devices = args.devices or (100 if args.quick else 2000)
    args.rate = args.rate or (250 if args.quick else 5000)
    args.idle = args.idle or (200 if args.quick else 10_000)
    args.repeat, args.seconds = (1, 1) if args.quick else (5, 4)
    return args


def cpu_us(report):
    """CPU of the broker for a message that is delivered."""
    rate = report["broker"]["delivered_per_cpu_second"]
    if not rate:
        raise Unmeasured("the broker used no CPU that was seen, or delivered nothing")
    return 1e6 / rate


class Fleet:
    """CPU a message by arrival, QoS and broker: medians, measured in turn."""

    def __init__(self, args):
        self.args, self.cpu, self.failed = args, {}, None
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            self.measure()
        except (RuntimeError, Unmeasured) as error:
            self.failed = str(error)

    def measure(self):
        with contextlib.ExitStack() as stack:
            brokers = {
                transport: (stack.enter_context(Dunlin(BINARY)), transport)
                for transport in ("tls", "quic")
            }
            if MOSQUITTO:
                certs = os.path.join(brokers["tls"][0].dir, "data", "certs")
                pair = [os.path.join(certs, name) for name in ("server.pem", "server.key")]
                mosquitto = stack.enter_context(Mosquitto(MOSQUITTO, True, *pair))
                brokers["mosquitto"] = (mosquitto, "tls")
            fleet = ["--pattern", "fleet", "--devices", str(self.args.devices)]
            fleet += ["--rate", str(self.args.rate)]
            for arrival, options in ARRIVALS.items():
                for qos in (0, 1):
                    seen = {name: [] for name in brokers}
                    for _ in range(self.args.repeat):
                        for name, (broker, transport) in brokers.items():
                            here = fleet + options + ["--qos", str(qos)]
                            report = bench(broker, transport, *here, seconds=self.args.seconds)
                            seen[name].append(cpu_us(report))
                    for name, values in seen.items():
                        self.cpu[arrival, qos, name] = statistics.median(values)
                    say(f"  fleet {arrival}, QoS {qos}: {seen}")

    def ratio(self, arrival, ours, theirs):
        if theirs == "mosquitto" and not MOSQUITTO:
            raise Unmeasured("mosquitto is not installed")
        if self.failed:
            raise Unmeasured(self.failed)
        ratios = [self.cpu[arrival, qos, ours] / self.cpu[arrival, qos, theirs] for qos in (0, 1)]
        return " / ".join(f"{ratio:.2f}" for ratio in ratios)


def idle(args):
    with Dunlin(BINARY) as dunlin:
        report = bench(dunlin, "quic", "--idle", str(args.idle), seconds=3 if args.quick else 30)
    ready = report["connections"]["ready"]
    if ready < args.idle:
        notes.append(f"silent connections: only {ready:,} of {args.idle:,} came about")
    return f"{report['broker']['private_per_connection'] / 1000:.1f} KB"


class Lab:
    """Experiments on emulated links, and what their cells recorded."""

    def __init__(self, args):
        self.quick = args.quick
        self.out = tempfile.TemporaryDirectory(prefix="dunlin-goals-")
        self.failed = {}

    def values(self, name, system, metric, **factors):
        """Valid observations of a metric of a system, where these factors hold."""
        found = []
        for record in self.records(name, system):
            if record["outcome"]["invalid"]:
                raise Unmeasured(f"{name}, {system}: {record['outcome']['invalid']}")
            for measure in record["outcome"]["measures"]:
                at = {**record["cell"]["factors"], **measure.get("factors", {})}
                if measure["metric"] == metric and all(at.get(key) == value for key, value in factors.items()):
                    found += [value for value in measure["values"] if value is not None]
        if not found:
            raise Unmeasured(f"{name} recorded no {metric} of {system}")
        return found

    def records(self, name, system):
        with open(self.run(name)) as lines:
            records = [json.loads(line) for line in lines]
        return [record for record in records if record["cell"]["system"] == system]

    def cells(self, name):
        """The file with the cells of an experiment that has run."""
        found = glob.glob(os.path.join(glob.escape(self.out.name), f"{name}-*", "cells.jsonl"))
        return found[0] if found else None

    def run(self, name):
        """Runs an experiment, unless it has run; the file with its cells."""
        if name in self.failed:
            raise Unmeasured(self.failed[name])
        file = self.cells(name)
        if file:
            return file
        try:
            return self.run_now(name)
        except Unmeasured as error:
            self.failed[name] = str(error)
            raise

    def run_now(self, name):
        if not os.access(LAB, os.X_OK):
            raise Unmeasured(f"{os.path.basename(LAB)} is not built")
        if os.geteuid() != 0:
            raise Unmeasured("emulated links need root")
        command = [LAB, "run", name, "--out", self.out.name, "--dunlin", BINARY]
        for system in SYSTEMS[name]:
            command += ["--only", system]
        # The shortest form of the others has nothing to compare with.
        if self.quick and name == "wake":
            command.append("--smoke")
        say(f"  {name}")
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=LAB_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise Unmeasured(f"{name} took longer than {LAB_SECONDS_MAX} s") from None
        file = self.cells(name)
        if not file:
            said = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
            raise Unmeasured(f"{name} gave nothing: {said[-1] if said else 'it said nothing'}")
        return file


SYSTEMS = {
    "kumar-half-open": ["dunlin-quic", "dunlin-tls", "mosquitto-tls"],
    "wake": ["dunlin-quic-0rtt", "mosquitto-tls"],
    "milios-publish": ["dunlin-quic", "dunlin-quic-topics"],
}


def change(ours, theirs):
    return f"{(ours / theirs - 1) * 100:+.0f} %"


def each(parts):
    """Several numbers of a row, some of which may be missing; why stands once."""
    shown, why = [], []
    for part in parts:
        try:
            shown.append(part())
        except Unmeasured as error:
            shown.append("–")
            why.append(str(error))
    if len(why) == len(shown):
        raise Unmeasured(why[0])
    notes.extend(dict.fromkeys(why))
    return " / ".join(shown)


def half_open(lab):
    def beside(system):
        of = lambda one: statistics.median(
            lab.values("kumar-half-open", one, "memory-of-clients", phase="vanished")
        )
        return change(of("dunlin-quic"), of(system))

    return each([lambda: beside("mosquitto-tls"), lambda: beside("dunlin-tls")])


def wake(lab):
    of = lambda system: statistics.median(lab.values("wake", system, "bytes"))
    return change(of("dunlin-quic-0rtt"), of("mosquitto-tls"))


def publish(lab):
    def of(system):
        at = lambda loss: statistics.mean(
            lab.values("milios-publish", system, "delay", loss_percent=loss)
        )
        return change(at("10"), at("0"))

    return each([lambda: of("dunlin-quic"), lambda: of("dunlin-quic-topics")])


def rows(args):
    fleet, lab = Fleet(args), Lab(args)
    load = f"{args.rate:,} messages/s over {args.devices:,} connections, QoS 0 / 1"
    beside = "QUIC beside own TLS, broker CPU"
    return [
        (f"fleet, {load}, in clusters: {beside}", lambda: fleet.ratio("in clusters", "quic", "tls"), "1.2 / 1.2"),
        (f"the same, one by one: {beside}", lambda: fleet.ratio("one by one", "quic", "tls"), "1.5 / 1.3"),
        ("the same, in clusters: own TLS beside mosquitto's", lambda: fleet.ratio("in clusters", "tls", "mosquitto"), "0.5"),
        (f"{args.idle:,} silent connections over QUIC, memory each", lambda: idle(args), "14 KB"),
        ("half-open, memory beyond an idle broker's: QUIC beside mosquitto's TLS / own TLS", lambda: half_open(lab), "−60 % / 0 %"),
        ("wake to PUBACK with a ticket, bytes beside mosquitto's TLS", lambda: wake(lab), "+10 %"),
        ("publish delay, 10 % loss beside none, one stream / per topic", lambda: publish(lab), "+10 % / +5 %"),
    ]


def main():
    args = arguments()
    begun, load = time.monotonic(), os.getloadavg()[0]
    table = rows(args)
    print("| | now | goal |\n|---|---|---|")
    for what, measure, goal in table:
        try:
            now = measure()
        except (RuntimeError, Unmeasured) as error:
            now = f"not measured: {error}"
        print(f"| {what} | {now} | {goal} |", flush=True)
    print(f"\nMeasured on {os.cpu_count()} × {cpu_model()}, Linux {platform.release()};", end=" ")
    print(f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after,", end=" ")
    print(f"{(time.monotonic() - begun) / 60:.0f} minutes. Fleets: medians of {args.repeat} × {args.seconds} s.", end=" ")
    print(f"{version([BINARY, '--version'])}.")
    if args.quick:
        notes.append("shortest form: it shows that the command works, and no figure")
    for note in notes:
        print(f"- {note}")


if __name__ == "__main__":
    main()
