"""The table of `compare-amqp.sh`: AMQP 1.0 measured with `dunlin bench`, dunlin
and ActiveMQ Artemis in turn, several times each; medians are printed."""

import os
import resource
import shutil
import subprocess
import tempfile
import time

import compare
from brokers import Artemis, Dunlin
from compare import BINARY, QUICK, medians, notes, row, say

IDLE = 200 if QUICK else 2_000
CONSUMERS = 100 if QUICK else 1_000
# Consumers are compared at a rate at which each message comes alone: at
# saturation ten consumers share writes that a thousand cannot.
RATE = 1_000 if QUICK else 5_000

SETTLED = ["--size", "1024"]
UNSETTLED = SETTLED + ["--qos", "1"]


def cost(report):
    """Microseconds of the broker's CPU a delivery."""
    broker, messages = report["broker"], report["messages"]
    delivered = messages["delivered_per_second"] * report["setup"]["duration_s"]
    return broker["cpu_seconds"] * 1e6 / max(delivered, 1)


def show(value):
    return f"{value:.2f} µs"


def queue(broker, options):
    address = "/queues/bench" if broker.name == "dunlin" else "bench"
    return (broker, "amqp", ["--queue", address, *options])


def queues(dunlin, artemis):
    for what, options, target in [("settled", SETTLED, 3), ("unsettled", UNSETTLED, 6)]:
        cells = [queue(broker, options) for broker in [dunlin, artemis] if broker]
        mine, *theirs = medians(cells, cost)
        other = f"artemis: {show(theirs[0])}" if theirs else "artemis is not there"
        ratio = f"{mine / theirs[0]:.2f}" if theirs else ""
        what = f"queue in memory, 1 KB, {what}: CPU a message"
        row(what, show(mine), other, ratio, f"≤ {target} µs", mine <= target)


def across(dunlin):
    for what, options in [("QoS 0, settled", SETTLED), ("QoS 1, unsettled", UNSETTLED)]:
        cells = [
            (dunlin, "tcp", ["--sub-url", dunlin.urls["amqp"], *options]),
            (dunlin, "tcp", options),
            (dunlin, "amqp", options),
        ]
        mine, mqtt, amqp = medians(cells, cost)
        ratio = mine / max(mqtt, amqp)
        other = f"MQTT {show(mqtt)}, AMQP {show(amqp)}"
        what = f"MQTT to AMQP, topic, 1 KB, {what}: CPU a message"
        row(what, show(mine), other, f"{ratio:.2f}", "≤ 1.5 of the dearer", ratio <= 1.5)


def durable(dunlin):
    """Of many in flight both queues fill up: its senders wait, those of MQTT are refused."""
    amqp = ["--queue", "/queues/durable", "--pubs", "100", "--subs", "1", "--qos", "1"]
    value = lambda report: report["messages"]["acknowledged_per_second"]
    for count in (64, 4):
        few = ["--inflight", str(count)]
        cells = [
            (dunlin, "amqp", [*amqp, "--durable", *few]),
            (dunlin, "tcp", [*compare.DURABLE, *few]),
        ]
        mine, mqtt = medians(cells, value)
        ratio = mine / mqtt
        other = f"MQTT QoS 1: {mqtt:,.0f}/s; disk: {compare.fsyncs():,.0f} fdatasync/s"
        what = f"durable queue, fsync, 100 senders with {count} in flight: accepted"
        row(what, f"{mine:,.0f}/s", other, f"{ratio:.2f}", "≥ 0.5", ratio >= 0.5)


def consumers(dunlin):
    options = ["--pubs", "1", "--qos", "1", "--rate", str(RATE)]
    many, few = [[*options, "--subs", str(count)] for count in (CONSUMERS, 10)]
    mine, ten = medians([queue(dunlin, many), queue(dunlin, few)], cost)
    ratio = mine / ten
    what = f"delivery among {CONSUMERS:,} consumers, {RATE:,} msg/s: CPU a message"
    row(what, show(mine), f"among 10: {show(ten)}", f"{ratio:.2f}", "≤ 2", ratio <= 2)


def idle(start_artemis):
    """Of brokers that have served nothing, so that nothing freed is used again."""
    each = []
    for start in [lambda: Dunlin(BINARY, durability="memory"), start_artemis]:
        if not start:
            continue
        with start() as broker:
            report = compare.bench(broker, "amqp", "--idle", str(IDLE), seconds=1)
        each.append(report["broker"]["private_per_connection"] / 1024)
    other = f"artemis: {each[1]:.1f} KiB" if len(each) > 1 else "artemis is not there"
    what = f"{IDLE:,} idle connections with a receiver: memory each"
    row(what, f"{each[0]:.1f} KiB", other, "", "≤ 12 KB", each[0] <= 12e3 / 1024)


def build_artemis(work):
    """Its jars and the program that embeds it; `None` where Java is not there."""
    if not (shutil.which("java") and shutil.which("javac") and shutil.which("mvn")):
        notes.append("artemis is left out: java and mvn are not there")
        return None
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "artemis")
    shutil.copy(os.path.join(here, "pom.xml"), work)
    jars = os.path.join(work, "lib")
    quietly = ["mvn", "-q", "-B", "-f", os.path.join(work, "pom.xml")]
    subprocess.run(
        [*quietly, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], check=True
    )
    classes = os.path.join(work, "classes")
    source = os.path.join(here, "Embedded.java")
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", classes, source], check=True)
    return f"{classes}:{jars}/*"


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    started, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="dunlin-artemis-") as work:
        path = build_artemis(work)
        start_artemis = (lambda: Artemis(path)) if path else None
        say("queue in memory")
        artemis = start_artemis() if start_artemis else None
        try:
            with Dunlin(BINARY, durability="memory") as dunlin:
                queues(dunlin, artemis)
                if artemis:
                    artemis.stop()
                    artemis = None
                say("MQTT to AMQP")
                across(dunlin)
                say("consumers")
                consumers(dunlin)
        finally:
            if artemis:
                artemis.stop()
        say("durable")
        with Dunlin(BINARY) as dunlin:
            durable(dunlin)
        say("idle connections")
        idle(start_artemis)
    compare.print_head(started, load)
    print("dunlin: one shard. Artemis 2.44.0: embedded, without persistence.")
    compare.print_rows()


if __name__ == "__main__":
    main()
