"""The table of `compare.sh`: cells are measured with `dunlin bench`, brokers in
turn, several times each; medians and their ratios are printed."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from brokers import Dunlin, Mosquitto, Mqttv5, program

QUICK = "--quick" in sys.argv
REPEAT = 1 if QUICK else 3
SECONDS = 1 if QUICK else 4
IDLE = 500 if QUICK else 10_000
HANDSHAKES = 300 if QUICK else 5_000

# Brokers run in directories of their own.
BINARY = os.path.abspath(os.environ["DUNLIN"])
MOSQUITTO = program("MOSQUITTO", "mosquitto", "/usr/sbin", "/usr/local/sbin")
MQTTV5 = program("MQTTV5", "mqttv5", os.path.expanduser("~/.cargo/bin"))

PAIR = ["--pattern", "pair"]
TEN = PAIR + ["--pubs", "10"]
FAN_OUT = ["--pattern", "fan-out", "--subs", "50"]
DURABLE = ["--pattern", "fan-in", "--pubs", "100", "--qos", "1", "--persistent"]

rows, notes = [], []


def say(text):
    print(text, file=sys.stderr, flush=True)


def bench(broker, transport, *options, seconds=SECONDS):
    """One run of the generator; its report."""
    command = [BINARY, "bench", "--url", broker.urls[transport], "--json", "-", "--quiet"]
    command += ["--broker-pid", str(broker.pid), "--warmup", "1", "--duration", str(seconds)]
    if transport in ("tls", "quic"):
        command += ["--ca", broker.ca] if broker.ca else ["--insecure"]
    result = subprocess.run(command + list(options), capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{broker.name} {transport} {options}: {result.stderr.strip()}")
    report = json.loads(result.stdout)
    remark(broker, transport, options, report)
    return report


def remark(broker, transport, options, report):
    """Notes what makes a number worth less."""
    if "messages" not in report:
        return
    where = f"{broker.name} over {transport}, {' '.join(options)}"
    messages, generator = report["messages"], report["generator"]
    if messages and messages["lost"]:
        notes.append(f"{where}: {messages['lost']:,} of {messages['expected']:,} lost")
    for cause, count in report["connections"]["losses"].items():
        notes.append(f"{where}: {count:,} connections ended early: {cause}")
    if messages and messages["refused"]:
        notes.append(f"{where}: {messages['refused']:,} of {messages['offered']:,} refused")
    if generator and generator["busy"] > 0.9:
        notes.append(f"{where}: the generator was the bottleneck")


def medians(cells, value, repeat=REPEAT):
    """Measures cells (broker, transport, options) in turn; one median each."""
    values = [[] for _ in cells]
    for _ in range(repeat):
        for index, (broker, transport, options) in enumerate(cells):
            values[index].append(value(bench(broker, transport, *options)))
            say(f"  {broker.name} {transport} {' '.join(options)}: {values[index][-1]:,.5g}")
    return [statistics.median(v) for v in values]


def per_cpu(report):
    return report["broker"]["delivered_per_cpu_second"]


def p50(report):
    return report["latency"]["p50_us"]


def row(what, mine, other, ratio, target, met):
    verdict = "—" if met is None else ("met" if met else "**missed**")
    rows.append([what, mine, other, ratio, target, verdict])


def against(what, cells, target, text, other=None):
    """A row of deliveries by CPU second, first cell against second."""
    mine, theirs = medians(cells, per_cpu)
    ratio = mine / theirs if theirs else 0.0
    name = other or cells[1][0].name
    show = lambda v: f"{v:,.0f} ({1e6 / v:.2f} µs)" if v else "none"
    met = None if target is None else ratio >= target
    row(what, show(mine), f"{name}: {show(theirs)}", f"{ratio:.2f}", text, met)


def throughput(dunlin, mosquitto):
    for what, options, target in [
        ("1-1", PAIR, 2.5),
        ("10-10", TEN, 4.0),
        ("fan-out 1-50", FAN_OUT, 4.0),
        ("1-1, a write for each message", PAIR + ["--batch", "1"], None),
    ]:
        cells = [(dunlin, "tcp", options), (mosquitto, "tcp", options)]
        text = "informative" if target is None else f"≥ {target:g}"
        against(f"TCP, 64 B, QoS 0, {what}: delivered/CPU s", cells, target, text)


def latency(dunlin, mosquitto):
    options = PAIR + ["--rate", "1000"]
    cells = [(dunlin, "tcp", options), (mosquitto, "tcp", options)]
    # The two are close, and neighbours disturb latency most.
    mine, theirs = medians(cells, p50, repeat=2 * REPEAT - 1)
    text = "≤ mosquitto's"
    ratio = f"{mine / theirs:.2f}"
    what = "TCP, 64 B, 1,000 msg/s: p50"
    row(what, f"{mine:.0f} µs", f"mosquitto: {theirs:.0f} µs", ratio, text, mine <= theirs)


def durable(dunlin):
    for what, options, target in [
        ("64 in flight each", DURABLE, 20_000),
        ("one in flight each", DURABLE + ["--inflight", "1"], None),
    ]:
        value = lambda report: report["messages"]["acknowledged_per_second"]
        (rate,) = medians([(dunlin, "tcp", options)], value)
        text = "informative" if target is None else f"≥ {target:,}/s"
        met = None if target is None else rate >= target
        what = f"QoS 1, fsync, 100 publishers, persistent subscriber, {what}: acknowledged"
        row(what, f"{rate:,.0f}/s", f"disk: {fsyncs():,.0f} fdatasync/s", "", text, met)


def fsyncs():
    """How often the disk under the brokers' data syncs 64 KiB in a second."""
    with tempfile.NamedTemporaryFile() as file:
        block = os.urandom(65536)
        for number in range(64):
            os.pwrite(file.fileno(), block, number * 65536)
        os.fdatasync(file.fileno())
        count, end = 0, time.monotonic() + 1
        while time.monotonic() < end:
            os.pwrite(file.fileno(), block, (count % 64) * 65536)
            os.fdatasync(file.fileno())
            count += 1
        return count


def quic(dunlin):
    for what, options in [("1-1", PAIR), ("10-10", TEN)]:
        cells = [(dunlin, "quic", options), (dunlin, "tls", options)]
        what = f"QUIC beside TLS, 64 B, QoS 0, {what}: delivered/CPU s"
        against(what, cells, 0.8, "≥ 0.8", other="own TLS")


def peer(dunlin):
    what = "QUIC beside mqttv5, 64 B, QoS 0, 1-1: delivered/CPU s"
    if not MQTTV5:
        row(what, "", "skipped: mqttv5 is not installed", "", "≥ 3", None)
        return
    certs = os.path.join(dunlin.dir, "data", "certs")
    cert, key = os.path.join(certs, "server.pem"), os.path.join(certs, "server.key")
    try:
        with Mqttv5(MQTTV5, cert, key) as other:
            cells = [(dunlin, "quic", PAIR), (other, "quic", PAIR)]
            against(what, cells, 3.0, "≥ 3")
    except RuntimeError as error:
        notes.append(str(error))
        row(what, "", "failed, see notes", "", "≥ 3", None)


def handshakes(dunlin):
    """What connecting over QUIC costs the broker, beside mqttv5 where it runs."""
    others, certs = [], os.path.join(dunlin.dir, "data", "certs")
    cert, key = os.path.join(certs, "server.pem"), os.path.join(certs, "server.key")
    if MQTTV5:
        try:
            others.append(Mqttv5(MQTTV5, cert, key))
        except RuntimeError as error:
            notes.append(str(error))
    try:
        for what, options, target in [
            ("stranger", [], 1_000),
            ("resumed", ["--returning"], 2_000),
            ("resumed, CONNECT in 0-RTT", ["--returning", "--early-data"], None),
        ]:
            handshake(what, options, target, [dunlin, *others])
    finally:
        for broker in others:
            broker.stop()


def handshake(what, options, target, brokers):
    """A row; a broker that takes no early data shows none."""
    values = [[] for _ in brokers]
    for _ in range(REPEAT):
        for broker, costs in zip(brokers, values):
            report = bench(broker, "quic", "--handshakes", str(HANDSHAKES), *options)
            if report["failed"]:
                notes.append(f"{broker.name}, {what}: {report['failed']} handshakes failed")
            if "--early-data" not in options or report["early"]:
                costs.append(report["broker_cpu_ms"])
    cells = [statistics.median(costs) if costs else None for costs in values]
    show = lambda ms: f"{ms:.3f} ms ({1e3 / ms:,.0f}/CPU s)" if ms else "none"
    mine, theirs = cells[0], cells[1] if len(cells) > 1 else None
    other = f"{brokers[1].name}: {show(theirs)}" if len(brokers) > 1 else "mqttv5 is not installed"
    ratio = f"{theirs / mine:.2f}" if mine and theirs else ""
    text = f"≥ {target:,}/CPU s" if target else "informative"
    met = None if target is None else bool(mine) and 1e3 / mine >= target
    row(f"QUIC, connect to CONNACK, {what}: broker CPU each", show(mine), other, ratio, text, met)
    say(f"  {what}: {show(mine)}; {other}")


def idle():
    theirs = ""
    with Mosquitto(MOSQUITTO, nodelay=True) as mosquitto:
        report = bench(mosquitto, "tcp", "--idle", str(IDLE), seconds=1)
        theirs = f"mosquitto: {report['broker']['rss_per_connection'] / 1024:.1f} KiB"
    for transport, target in [("tcp", 4), ("tls", 18), ("quic", 22)]:
        with Dunlin(BINARY) as dunlin:
            report = bench(dunlin, transport, "--idle", str(IDLE), seconds=1)
        each = report["broker"]["rss_per_connection"] / 1024
        connected = report["connections"]["ready"]
        if connected < IDLE:
            notes.append(f"idle over {transport}: only {connected:,} connections came about")
        what = f"{IDLE:,} idle connections, {transport}: resident memory each"
        other = theirs if transport == "tcp" else ""
        met = each <= target and connected == IDLE
        row(what, f"{each:.1f} KiB", other, "", f"≤ {target} KB", met)
        say(f"  idle {transport}: {each:.1f} KiB each")


def cpu_model():
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line for line in file if line.startswith("model name")]
        return lines[0].split(":", 1)[1].strip()
    except (OSError, IndexError):
        return platform.machine()


def version(command):
    result = subprocess.run(command, capture_output=True, text=True)
    return (result.stdout or result.stderr).splitlines()[0].strip()


def print_head(started, load):
    print(f"Measured on {os.cpu_count()} × {cpu_model()}, Linux {platform.release()};", end=" ")
    print(f"load average {load:.1f} before the run, {os.getloadavg()[0]:.1f} after it,", end=" ")
    print(f"{(time.monotonic() - started) / 60:.0f} minutes.")
    print(f"Median of {REPEAT} × {SECONDS} s (latency: {2 * REPEAT - 1}), brokers in turn.", end=" ")
    print("Generator: one thread.", end=" ")
    print(f"{version([BINARY, '--version'])}.")


def print_rows():
    print()
    print("| measured | dunlin | beside | ratio | target | verdict |")
    print("|---|---:|---:|---:|---:|---|")
    for cells in rows:
        print("| " + " | ".join(cells) + " |")
    if notes:
        print()
        for note in notes:
            print(f"- {note}")


def print_table(started, load):
    print_head(started, load)
    print("dunlin: one shard, durability fsync. ", end="")
    print(f"{version([MOSQUITTO, '-h'])}: persistence off, max_queued_messages 0,", end=" ")
    print("set_tcp_nodelay false for throughput (its better setting), true for latency and idle.")
    print_rows()


def main():
    if not MOSQUITTO:
        sys.exit("compare.sh: mosquitto is not installed (apt install mosquitto)")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    started, load = time.monotonic(), os.getloadavg()[0]
    with Dunlin(BINARY) as dunlin:
        say("throughput")
        with Mosquitto(MOSQUITTO, nodelay=False) as mosquitto:
            throughput(dunlin, mosquitto)
        say("latency")
        with Mosquitto(MOSQUITTO, nodelay=True) as mosquitto:
            latency(dunlin, mosquitto)
        say("durable")
        durable(dunlin)
        say("QUIC")
        quic(dunlin)
        peer(dunlin)
        say("handshakes")
        handshakes(dunlin)
    say("idle connections")
    idle()
    print_table(started, load)


if __name__ == "__main__":
    main()
