"""The table of `sink.sh`: messages that wait in the durable session of a sink, the sink that
starts and stores them, and the CPU that each process took for it."""

import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path[:0] = [str(SCRIPTS / "sink"), str(SCRIPTS / "interop"), str(SCRIPTS / "conformance")]

from brokers import Dunlin, free_port  # noqa: E402
from databases import Kafka, Postgres  # noqa: E402
from wire import packet, properties, text  # noqa: E402

QUICK = "--quick" in sys.argv
MESSAGES = int(os.environ.get("MESSAGES", 20_000 if QUICK else 400_000))
REPEAT = int(os.environ.get("REPEAT", 1 if QUICK else 3))

# CPU of the sink's process for a message, at most, in microseconds: one core stores 100,000
# a second.
CPU_US_MAX = 10
# Messages a second, at least, in the cases that say so: all processes have the cores of this
# machine together.
RATE_MIN = 100_000

# Of the sink and of the broker's limit for it.
IN_FLIGHT = 20_000
# Messages of a publisher that are not acknowledged: within the broker's Receive Maximum.
WINDOW = 1_000
DEVICES = 1_000
# Of a topic of Kafka.
PARTITIONS = 4
# Longest that anything may take.
SECONDS_MAX = 120
# Between two looks at the sink's metrics: short enough to see where it ends.
LOOK_SECONDS = 0.05
# The size that PostgreSQL has by default.
SETTINGS = {"shared_buffers": "128MB"}

# The binary that is measured, and the one in turn with it.
THIS, BESIDE = "", "beside: "

TICKS = os.sysconf("SC_CLK_TCK")

WIDE = "[limits]\n" + "\n".join(
    (
        f"max_inflight = {IN_FLIGHT}",
        "max_queued_messages = 10000000",
        'max_queued_bytes = "4GiB"',
    )
)
NARROW = WIDE.replace(f"max_inflight = {IN_FLIGHT}\n", "")

JSON_COLUMNS = """
[columns]
id = "payload.id"
device = "parts[1]"
at = { value = "payload.at", unit = "ms" }
celsius = "payload.celsius"
ok = "payload.ok"
"""


class Table:
    """A table of PostgreSQL."""

    def __init__(self, columns, number="id", conflict="refuse"):
        # `number`: expression of SQL for the number of a message.
        self.columns, self.number, self.conflict = columns, number, conflict

    def prepare(self, database):
        database.query(f"DROP TABLE IF EXISTS readings; CREATE TABLE readings {self.columns}; CHECKPOINT")

    def config(self, database):
        return f'[postgres]\nurl = "{database.url}"\ntable = "readings"\non_conflict = "{self.conflict}"\n'

    def count(self, database):
        """Rows, and how many of them are different."""
        found = database.query(f"SELECT count(*), count(DISTINCT {self.number}) FROM readings")
        return map(int, found.split("|"))


class Topic:
    """A topic of Kafka."""

    def __init__(self):
        self.made = 0

    def prepare(self, database):
        self.made += 1
        database.create(f"readings-{self.made}", PARTITIONS)

    def config(self, database):
        return f'[kafka]\nservers = ["{database.server}"]\ntopic = "readings-{self.made}"\n'

    def count(self, database):
        values = [record[3] for record in database.records(f"readings-{self.made}")]
        return len(values), len(set(values))


class Case:
    """What is stored, where, and how much of it."""

    def __init__(self, title, target, config, limits=WIDE, every=1, rate_min=RATE_MIN):
        self.title, self.target, self.config, self.limits = title, target, config, limits
        self.rate_min = rate_min
        # One of so many messages becomes a row.
        self.every = every

    @property
    def database(self):
        return Kafka if isinstance(self.target, Topic) else Postgres


COLUMNS = "(id bigint, device text, at timestamptz, celsius double precision, ok boolean)"
KEYED = COLUMNS.replace("bigint", "bigint PRIMARY KEY")

CASES = {
    "plain": Case(
        "payload, topic and time",
        Table("(payload text, topic text, time timestamptz)", "(payload::json->>'id')::bigint"),
        '[message]\nformat = "text"\n[columns]\npayload = "payload"\ntopic = "topic"\ntime = "time"\n',
    ),
    "json": Case("five columns of JSON", Table(COLUMNS), JSON_COLUMNS),
    "select": Case(
        "five columns, half of the messages selected by CEL",
        Table(COLUMNS),
        "[message]\nwhere = 'payload.ok && payload.celsius > -40.0'\n" + JSON_COLUMNS,
        every=2,
    ),
    "compute": Case(
        "five columns, one of them computed by CEL",
        Table(COLUMNS),
        JSON_COLUMNS.replace('"payload.celsius"', '"(payload.celsius - 32.0) / 1.8"'),
    ),
    "keyed": Case("five columns, a table with a key", Table(KEYED, conflict="nothing"), JSON_COLUMNS),
    "default": Case(
        "five columns, a broker with its default limits", Table(COLUMNS), JSON_COLUMNS, limits=NARROW, rate_min=0
    ),
    "kafka": Case("Kafka: the payload as it came", Topic(), '[message]\nformat = "raw"\n', rate_min=0),
    "kafka-json": Case("Kafka: five columns of JSON", Topic(), JSON_COLUMNS, rate_min=0),
}
NAMES = [word for word in sys.argv[1:] if not word.startswith("--")] or list(CASES)


class Loaded(Dunlin):
    """The broker, with room for what waits."""

    transports = ("tcp",)

    def __init__(self, folder, limits):
        super().__init__(folder)
        self.limits = limits

    def command(self):
        command = super().command()
        config = self.folder / "dunlin.toml"
        config.write_text(f"{config.read_text()}\n[log]\nlevel = \"warn\"\n[sys]\ninterval = \"0s\"\n{self.limits}\n")
        return command


class Sink:
    """A `dunlin sink` of one binary."""

    def __init__(self, folder, binary, broker, database, case):
        self.binary, self.folder = binary, folder
        self.metrics = free_port()
        secret = folder / "secret"
        secret.write_text("wonderland\n")
        self.config = folder / "sink.toml"
        self.config.write_text(
            f'metrics = "127.0.0.1:{self.metrics}"\n'
            f'[broker]\nurl = "mqtt://127.0.0.1:{broker.ports["tcp"]}"\nfilters = ["plant/#"]\n'
            f'user = "alice"\npassword_file = "{secret}"\nin_flight = {IN_FLIGHT}\n'
            f"{case.target.config(database)}{case.config}"
        )

    def __enter__(self):
        with (self.folder / "sink.log").open("ab") as log:
            command = [self.binary, "sink", "--config", str(self.config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        if self.process.wait(SECONDS_MAX) != 0:
            raise RuntimeError(f"the sink ended with {self.process.returncode}:\n{self.log()}")

    def log(self):
        return (self.folder / "sink.log").read_text()[-2000:]

    def metric(self, name):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            if self.process.poll() is not None:
                raise RuntimeError(f"the sink has ended:\n{self.log()}") from None
            return 0.0
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def acknowledged(self):
        return self.metric("dunlin_sink_messages_acknowledged_total")


def until(what, holds):
    end = time.monotonic() + SECONDS_MAX
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not after {SECONDS_MAX} s")
        time.sleep(LOOK_SECONDS)


def cpu(pids):
    """Seconds of CPU that processes have had."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def family(pid):
    """A process and its children."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def message(number):
    """A reading as a device publishes it at QoS 1, without its packet identifier."""
    topic = f"plant/d{number % DEVICES:06}/state"
    ok = "true" if number % 2 == 0 else "false"
    celsius = -20 + number % 6_000 / 100
    payload = f'{{"id":{100_000_000 + number},"at":{1_767_323_045_000 + number},"celsius":{celsius:.2f},"ok":{ok},"unit":"C"}}'
    return text(topic), b"\0" + payload.encode()


def load(port):
    """Publishes all messages; returns when the broker has acknowledged them."""
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as peer:
        head = text("MQTT") + b"\x05\xc2\0\0" + properties() + text("load") + text("alice") + text("wonderland")
        peer.sendall(packet(1, 0, head))
        connack = peer.recv(4096)
        if connack[:1] != b"\x20" or connack[3] != 0:
            raise RuntimeError(f"the publisher is refused: {connack!r}")
        sent = acknowledged = 0
        half = WINDOW // 2
        while acknowledged < MESSAGES * 4:
            if sent < MESSAGES and sent * 4 - acknowledged <= half * 4:
                numbers = range(sent, min(sent + half, MESSAGES))
                readings = ((number % WINDOW + 1, *message(number)) for number in numbers)
                peer.sendall(b"".join(packet(3, 2, topic + pid.to_bytes(2, "big") + rest) for pid, topic, rest in readings))
                sent = numbers.stop
                continue
            if not select.select([peer], [], [], SECONDS_MAX)[0]:
                raise RuntimeError("the broker acknowledges nothing")
            answers = peer.recv(1 << 16)
            # A PUBACK without a reason has four bytes.
            if not answers or len(answers) >= 2 and acknowledged % 4 == 0 and answers[:2] != b"\x40\x02":
                raise RuntimeError(f"the publisher got {answers[:8]!r}")
            acknowledged += len(answers)


def measure(folder, binary, name, case, database):
    """One repetition: figures by name."""
    case.target.prepare(database)
    broker = Loaded(folder, case.limits)
    broker.start()
    try:
        with Sink(folder, binary, broker, database, case) as sink:
            # Its session is there, and messages wait in it from now on.
            until("the sink is there", lambda: sink.metric("dunlin_sink_connections") and sink.metric("dunlin_sink_targets"))
            time.sleep(0.5)
        load(broker.ports["tcp"])
        owners = {"broker": [broker.process.pid], "database": family(database.process.pid)}
        first = {who: cpu(pids) for who, pids in owners.items()} | {"sink": 0.0}
        with Sink(folder, binary, broker, database, case) as sink:
            until("the first rows are there", lambda: sink.acknowledged() > 0)
            begin, before = time.monotonic(), sink.acknowledged()
            until(f"{name}: all messages are stored", lambda: sink.acknowledged() >= MESSAGES)
            end, after = time.monotonic(), sink.acknowledged()
            owners |= {"sink": [sink.process.pid], "database": family(database.process.pid)}
            last = {who: cpu(pids) for who, pids in owners.items()}
            batches = sink.metric("dunlin_sink_batches_total")
            repeated = sink.metric("dunlin_sink_messages_repeated_total")
    finally:
        broker.stop()
    rows, apart = case.target.count(database)
    found = {who: (last[who] - first[who]) * 1e6 / MESSAGES for who in first}
    found |= {"rate": (after - before) / (end - begin), "batch": after / max(batches, 1), "repeated": repeated}
    found |= {"twice": rows - apart, "lost": -(-MESSAGES // case.every) - apart}
    return found


def row(title, results):
    """A line of the table, of medians; the CPU of the sink for a message."""
    median = {key: statistics.median(result[key] for result in results) for key in results[0]}
    twice, lost = (sum(result[key] for result in results) for key in ("twice", "lost"))
    spread = f"{min(it['sink'] for it in results):.2f}-{max(it['sink'] for it in results):.2f}"
    print(
        f"| {title} | {median['rate']:,.0f} | **{median['sink']:.2f}** | {spread} | {1e6 / max(median['sink'], 0.01):,.0f} "
        f"| {median['database']:.2f} | {median['broker']:.2f} | {median['batch']:,.0f} | {twice:.0f} | {lost:.0f} |",
        flush=True,
    )
    return median, twice == 0 and lost == 0


def chosen():
    """The cases, without those whose database is not there."""
    there = {Postgres: Postgres.binaries() is not None, Kafka: Kafka.jars() is not None}
    for name in NAMES:
        if name not in CASES:
            raise SystemExit(f"sink.py: there is no case {name}, but {', '.join(CASES)}")
        if there[CASES[name].database]:
            yield name
        else:
            print(f"sink.py: {name}: skipped: {CASES[name].database.__name__} is not installed", file=sys.stderr)


def compare(name, binaries, database, root):
    """Rows of a case, one of each binary: their medians, and whether all messages are there
    once."""
    case, results = CASES[name], {which: [] for which in binaries}
    for turn in range(REPEAT):
        order = list(binaries.items())
        for which, binary in order if turn % 2 == 0 else reversed(order):
            with tempfile.TemporaryDirectory(dir=root) as folder:
                results[which].append(measure(Path(folder), binary, name, case, database))
    rows = {which: row(which + case.title, results[which]) for which in binaries}
    return {which: median for which, (median, _) in rows.items()}, all(whole for _, whole in rows.values())


def main():
    binaries = {THIS: os.path.abspath(os.environ["DUNLIN"])}
    if os.environ.get("BESIDE"):
        binaries = {BESIDE: os.path.abspath(os.environ["BESIDE"])} | binaries
    names = list(chosen())
    if not names:
        return 1
    good, all_there, ratios, running = True, True, [], {}
    print(f"{MESSAGES:,} messages of {len(packet(3, 2, b'id'.join(message(0))))} bytes, {REPEAT} times; {os.cpu_count()} cores "
          "for all processes. CPU is of one message, in µs.\n")
    print("| case | messages/s | CPU of the sink | range | messages/s of one core | CPU of the database | CPU of the broker "
          "| messages a batch | twice | lost |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-sink-") as root:
        os.chmod(root, 0o755)
        try:
            for name in names:
                kind = CASES[name].database
                if kind not in running:
                    running[kind] = kind(Path(root))
                    if kind is Postgres:
                        running[kind].settings = SETTINGS
                    running[kind].start()
                medians, whole = compare(name, binaries, running[kind], root)
                this = medians[THIS]
                all_there = all_there and whole
                good = good and this["sink"] <= CPU_US_MAX and this["rate"] >= CASES[name].rate_min
                if BESIDE in medians:
                    beside = medians[BESIDE]
                    ratios.append((CASES[name].title, beside["sink"] / this["sink"], this["rate"] / beside["rate"]))
        finally:
            for database in running.values():
                database.stop()
    if ratios:
        print("\n| case | CPU of the sink, beside to this | messages/s, this to beside |\n|---|--:|--:|")
        for title, cost, rate in ratios:
            print(f"| {title} | {cost:.2f} | {rate:.2f} |")
    # Of few messages the figures say nothing.
    return 0 if all_there and (good or QUICK) else 1


if __name__ == "__main__":
    # An end from outside stops what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
