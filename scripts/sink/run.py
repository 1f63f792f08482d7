"""`dunlin sink` with real databases: nothing acknowledged may be lost, and with a key
nothing may be there twice, also when one of them is killed."""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(SCRIPTS / "interop"), str(SCRIPTS / "kill")]

from brokers import Dunlin, free_port, make_certificates  # noqa: E402
from clients import Publisher  # noqa: E402
from databases import Kafka, Nats, Postgres, Web, certificates  # noqa: E402

ROUNDS, ROUNDS_SHORT = 60, 4
ROUND_SECONDS = (0.2, 1.0)
# Longest that what is under way may take to arrive.
SETTLE_SECONDS_MAX = 60


class Kept(Dunlin):
    transports = ("tcp",)


class Sink:
    """A running `dunlin sink`."""

    def __init__(self, folder: Path, broker: Dunlin, text: str) -> None:
        self.folder, self.log = folder, folder / "sink.log"
        self.metrics_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.config = folder / "sink.toml"
        self.config.write_text(
            f'metrics = "127.0.0.1:{self.metrics_port}"\n'
            'retry = { min = "50ms", max = "500ms", timeout = "10s" }\n'
            f"{text}\n"
        )

    def start(self) -> "Sink":
        with self.log.open("ab") as log:
            command = [str(Dunlin.binary()), "sink", "--config", str(self.config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Stops its threads, and waits until they have."""
        self.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/stat")
        until("it is paused", lambda: state.read_text().rpartition(")")[2].split()[0] == "T", pause=0.001)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Asks it to stop; its exit code."""
        self.process.terminate()
        return self.process.wait(30)

    def metric(self, name: str) -> float:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5
            ) as answer:
                text = answer.read().decode()
        except OSError:
            return -1
        lines = [line for line in text.splitlines() if line.startswith(name)]
        return sum(float(line.split()[-1]) for line in lines)


def until(
    what: str, holds: Callable[[], bool], seconds: float = SETTLE_SECONDS_MAX, pause: float = 0.05
) -> None:
    """Waits for something that must come."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not after {seconds:.0f} s")
        time.sleep(pause)


def expect(got: object, wanted: object, what: str) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: {got!r} instead of {wanted!r}")


def publish(broker: Dunlin, topic: str, *payloads: str | bytes) -> None:
    """At QoS 1, in order."""
    for payload in payloads:
        command = [str(Dunlin.binary()), "pub", "-p", str(broker.ports["tcp"]), "-t", topic]
        command += ["-u", "alice", "-P", "wonderland", "-q", "1", "-s"]
        data = payload.encode() if isinstance(payload, str) else payload
        subprocess.run(command, input=data, check=True, timeout=30)


class Lines:
    """Publishes lines at QoS 1, in order, over one connection."""

    def __init__(self, broker: Dunlin, topic: str) -> None:
        command = [str(Dunlin.binary()), "pub", "-p", str(broker.ports["tcp"]), "-t", topic]
        command += ["-u", "alice", "-P", "wonderland", "-q", "1", "-l"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def send(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        # About as fast as it is stored.
        time.sleep(0.002)

    def stop(self) -> None:
        """When the broker has all of them."""
        self.process.stdin.close()
        expect(self.process.wait(60), 0, "the end of the publisher")


class Skipped(Exception):
    """What a case needs is not there."""


def source(broker: Dunlin, filters: str, more: str = "") -> str:
    (broker.folder / "secret").write_text("wonderland\n")
    return (
        f'broker = {{ url = "mqtt://127.0.0.1:{broker.ports["tcp"]}", filters = ["{filters}"], '
        f'user = "alice", password_file = "{broker.folder / "secret"}"{more} }}'
    )


class Bench:
    """A broker in a folder, and what else was started."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.folder = folder
        # One for all cases, each with tables of its own.
        self.postgres = postgres
        self.broker = Kept(folder, shards=2)
        self.broker.start()
        self.started: list[object] = []

    def database(self, kind: type) -> object:
        if kind is Postgres:
            if not self.postgres.alive():
                self.postgres.start()
            return self.postgres
        database = kind(self.folder)
        self.started.append(database)
        return database

    def sink(self, text: str) -> Sink:
        sink = Sink(self.folder, self.broker, text)
        self.started.append(sink)
        return sink

    def close(self) -> None:
        for thing in reversed(self.started):
            process = getattr(thing, "process", None)
            if process is None or process.poll() is not None:
                if isinstance(thing, Web):
                    thing.stop()
                continue
            thing.stop()
        self.broker.stop()


def subscribed(bench: Bench, sink: Sink) -> None:
    """Waits until the sink's session has its subscription: what is published before it
    goes nowhere."""
    until("the sink is connected", lambda: sink.metric("dunlin_sink_connections") >= 1)
    command = [str(Dunlin.binary()), "ctl", "--socket", str(bench.folder / "data/control.sock")]

    def there() -> bool:
        done = subprocess.run(
            [*command, "--json", "subscriptions", "sink"], capture_output=True, text=True
        )
        return "$share/" in done.stdout

    until("the sink is subscribed", there)


def sessions(bench: Bench) -> str:
    """What waits at the broker, for a sentence."""
    command = [str(Dunlin.binary()), "ctl", "--socket", str(bench.folder / "data/control.sock")]
    done = subprocess.run([*command, "session", "show", "sink"], capture_output=True, text=True)
    return " ".join(done.stdout.split())


def ranges(keys: list[str]) -> str:
    """Numbers of each publisher, as the ranges that they make."""
    found: list[list[object]] = []
    for name, number in sorted((key.split()[0], int(key.split()[1])) for key in keys):
        if found and found[-1][0] == name and found[-1][2] == number - 1:
            found[-1][2] = number
        else:
            found.append([name, number, number])
    return ", ".join(f"{name} {first}-{last}" for name, first, last in found[:8])


def kills(bench: Bench, args: argparse.Namespace) -> str:
    """Rounds of `kill -9` of sink, database and broker, with a database that is away at
    the beginning."""
    dice = random.Random(args.seed)
    database = bench.database(Postgres)
    database.query("CREATE TABLE readings (key text PRIMARY KEY, topic text, at timestamptz)")
    database.stop()
    sink = bench.sink(
        source(bench.broker, "kill/#", ", in_flight = 500")
        + '\nmessage = { format = "text" }\n'
        "batch = { messages = 100, time = '20ms' }\n"
        "columns = { key = 'payload', topic = 'topic', at = 'time' }\n"
        f"postgres = {{ url = '{database.url}', table = 'readings', on_conflict = 'nothing' }}"
    ).start()
    subscribed(bench, sink)
    publishers = [
        Publisher(bench.broker.ports["tcp"], f"p{n}", f"kill/{n}", 1 + n % 2) for n in range(3)
    ]
    for publisher in publishers:
        publisher.start()
    time.sleep(dice.uniform(*ROUND_SECONDS))
    database.start()
    all_victims = {"sink": sink, "database": database, "broker": bench.broker}
    victims = [all_victims[name] for name in args.victims.split(",")]
    for number in range(args.rounds):
        time.sleep(dice.uniform(*ROUND_SECONDS))
        victim = victims[number] if number < len(victims) else dice.choice(victims)
        victim.kill()
        if dice.random() < 0.3:
            time.sleep(dice.uniform(*ROUND_SECONDS))
        victim.start()
    for publisher in publishers:
        publisher.stop()
        expect(publisher.error, "", publisher.name)
        expect(publisher.sessions_lost, 0, f"sessions of {publisher.name} lost")
    promised = {f"{p.name} {n}" for p in publishers for n in p.acknowledged}

    def stored() -> set[str]:
        return set(database.query("SELECT key FROM readings").splitlines())

    try:
        until("everything is stored", lambda: promised <= stored())
    except AssertionError as error:
        missing = sorted(promised - stored())
        waits = f"{sink.metric('dunlin_sink_held_messages')} held, {sessions(bench)}"
        raise AssertionError(f"{error}; {len(missing)} of {len(promised)}: {ranges(missing)}; {waits}") from None
    until("nothing is held", lambda: sink.metric("dunlin_sink_held_messages") == 0)
    expect(sink.stop(), 0, "the end of the sink")
    rows = int(database.query("SELECT count(*) FROM readings"))
    sent = sum(publisher.next for publisher in publishers)
    expect(rows <= sent, True, f"{rows} rows of {sent} messages")
    return f"{args.rounds} kills, {len(promised)} acknowledged, {rows} rows, 0 lost, 0 twice"


def without_a_key(bench: Bench, _: argparse.Namespace) -> str:
    """Without a key, what a killed sink held is there at most twice."""
    in_flight = 50
    database = bench.database(Postgres)
    database.query("CREATE TABLE plain (key text)")
    sink = bench.sink(
        source(bench.broker, "plain/#", f", in_flight = {in_flight}")
        + '\nmessage = { format = "text" }\ncolumns = { key = "payload" }\n'
        f"batch = {{ time = '5ms' }}\npostgres = {{ url = '{database.url}', table = 'plain' }}"
    ).start()
    subscribed(bench, sink)
    publisher = Publisher(bench.broker.ports["tcp"], "p", "plain/x", 1)
    publisher.start()
    kills = 3
    for _ in range(kills):
        before = sink.metric("dunlin_sink_rows_total")
        until("rows come", lambda: sink.metric("dunlin_sink_rows_total") > max(before, 0) + 50)
        sink.kill()
        sink.start()
    publisher.stop()
    promised = {f"p {n}" for n in publisher.acknowledged}
    until(
        "everything is stored",
        lambda: promised <= set(database.query("SELECT key FROM plain").splitlines()),
    )
    until("nothing is held", lambda: sink.metric("dunlin_sink_held_messages") == 0)
    doubled = database.query("SELECT count(*) - count(DISTINCT key) FROM plain")
    expect(int(doubled) <= kills * in_flight, True, f"{doubled} rows twice")
    return f"{len(promised)} acknowledged, {doubled} twice after {kills} kills, allowed {kills * in_flight}"


def refusals(bench: Bench, _: argparse.Namespace) -> str:
    """Rows that sink or database refuse go to a topic; the others are stored, and a
    database that does not let the sink write is waited for."""
    database = bench.database(Postgres)
    database.query(
        "CREATE TABLE checked (device text, v double precision CHECK (v < 1000),"
        " n smallint, at timestamptz, doc jsonb);"
        "CREATE ROLE other LOGIN; REVOKE ALL ON checked FROM other"
    )
    url = database.url.replace("user=sink", "user=other")
    sink = bench.sink(
        source(bench.broker, "in/+/v")
        + '\nrefused = { topic = "refused/rows" }\n'
        '[message]\nwhere = "has(payload.v)"\n[columns]\ndevice = "parts[1]"\nv = "payload.v"\n'
        "n = 'payload.n'\nat = { value = 'payload.ts', unit = 'ms' }\ndoc = 'payload'\n"
        f"[postgres]\nurl = '{url}'\ntable = 'checked'"
    ).start()
    subscribed(bench, sink)
    command = [str(Dunlin.binary()), "sub", "-p", str(bench.broker.ports["tcp"])]
    command += ["-u", "alice", "-P", "wonderland", "-t", "refused/rows", "-q", "1", "-C", "4"]
    command += ["-W", "60", "-F", "%p", "-d"]
    listener = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in listener.stdout:
        if "Subscribed" in line:
            break
    good = ['{"v":1.5,"n":7,"ts":1500}', '{"v":2}', '{"other":1}', '{"v":3,"x":{"y":[1]}}']
    bad = ['{"v":', '{"v":"warm"}', '{"v":5000}', '{"v":1,"n":70000}']
    for one, other in zip(good, bad):
        publish(bench.broker, "in/d1/v", one, other)
    # Nothing is lost, and nothing goes to the topic, because the role may not write.
    until("attempts fail", lambda: sink.metric("dunlin_sink_retries_total") >= 2)
    expect(sink.metric("dunlin_sink_messages_refused_total"), 0.0, "refused for the role's sake")
    database.query("GRANT ALL ON checked TO other")
    until("all are done", lambda: sink.metric("dunlin_sink_messages_acknowledged_total") == 8)
    out = [line.strip() for line in listener.stdout.read().splitlines()]
    listener.wait(60)
    got = sorted(line for line in out if line in bad)
    expect(got, sorted(bad), "refused")
    rows = database.query("SELECT device, v, n, extract(epoch FROM at), doc FROM checked ORDER BY v")
    want = 'd1|1.5|7|1.500000|{"n": 7, "v": 1.5, "ts": 1500}\nd1|2|||{"v": 2}\n'
    want += 'd1|3|||{"v": 3, "x": {"y": [1]}}'
    expect(rows, want, "rows")
    causes = {
        cause: sink.metric(f'dunlin_sink_messages_refused_total{{sink="sink",cause="{cause}"}}')
        for cause in ("decode", "value", "target")
    }
    expect(causes, {"decode": 1.0, "value": 2.0, "target": 1.0}, "causes")
    # Another table under the same name: the sink writes what it has now.
    database.query("DROP TABLE checked; CREATE TABLE checked (device text, v numeric, n int, at date, doc json)")
    database.query("GRANT ALL ON checked TO other")
    database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'other'")
    publish(bench.broker, "in/d2/v", '{"v":9.25,"ts":86400000}')
    until("the new table has it", lambda: database.query("SELECT v, at FROM checked") == "9.25|1970-01-02")
    expect(sink.stop(), 0, "the end of the sink")
    return "4 refused, 4 stored, a role without rights and a new table waited for"


def deferred(bench: Bench, _: argparse.Namespace) -> str:
    """Rows that a deferred foreign key refuses, which the database checks at the commit, go to
    a file; the others are stored, with either answer to a key that is there."""
    database = bench.database(Postgres)
    database.query("CREATE TABLE known (device text PRIMARY KEY); INSERT INTO known VALUES ('good')")
    for policy in ("refuse", "nothing"):
        table, refused = f"deferred_{policy}", bench.folder / f"{policy}.ndjson"
        database.query(
            f"CREATE TABLE {table} (n int PRIMARY KEY,"
            " device text REFERENCES known DEFERRABLE INITIALLY DEFERRED)"
        )
        sink = bench.sink(
            source(bench.broker, f"deferred/{policy}/#")
            + f"\nrefused = {{ file = '{refused}' }}\nbatch = {{ messages = 50, time = '200ms' }}\n"
            "columns = { n = 'payload.n', device = 'payload.device' }\n"
            f"postgres = {{ url = '{database.url}', table = '{table}', on_conflict = '{policy}' }}"
        ).start()
        subscribed(bench, sink)
        sent = 200
        bad = {n for n in range(sent) if n % 40 == 7}
        publisher = Lines(bench.broker, f"deferred/{policy}/x")
        for n in range(sent):
            publisher.send(json.dumps({"n": n, "device": "bad" if n in bad else "good"}))
        publisher.stop()
        until("all are done", lambda: sink.metric("dunlin_sink_messages_acknowledged_total") == sent)
        expect(sink.stop(), 0, "the end of the sink")
        stored = {int(n) for n in database.query(f"SELECT n FROM {table}").splitlines()}
        lines = refused.read_text().splitlines() if refused.exists() else []
        aside = sorted(json.loads(json.loads(line)["payload"])["n"] for line in lines)
        lost = set(range(sent)) - stored - set(aside)
        expect(len(lost), 0, f"{policy}: lost of {sent}")
        expect((aside, stored & bad), (sorted(bad), set()), f"{policy}: refused")
    return f"{len(bad)} refused at the commit, {sent - len(bad)} stored, 0 lost, with either policy"


def in_flight(bench: Bench, _: argparse.Namespace) -> str:
    """A broker that has fewer messages in flight than a batch: once its limit is known, a
    batch that holds all of them does not wait for `batch.time`."""
    limit, sent, batch_seconds, seconds_max = 50, 1000, 2, 20
    bench.broker.stop()
    bench.broker.prepared += ["--set", f"limits.max_inflight={limit}"]
    bench.broker.start()
    database = bench.database(Postgres)
    database.query("CREATE TABLE narrow (key text)")
    sink = bench.sink(
        source(bench.broker, "narrow/#")
        + f"\nbatch = {{ time = '{batch_seconds}s' }}\n"
        'message = { format = "text" }\ncolumns = { key = "payload" }\n'
        f"postgres = {{ url = '{database.url}', table = 'narrow' }}"
    ).start()
    subscribed(bench, sink)
    expect(sink.stop(), 0, "the end of the sink")
    command = [str(Dunlin.binary()), "pub", "-p", str(bench.broker.ports["tcp"]), "-t", "narrow/x"]
    command += ["-u", "alice", "-P", "wonderland", "-q", "1", "-l"]
    subprocess.run(command, input="".join(f"{n}\n" for n in range(sent)), text=True, check=True, timeout=60)
    sink.start()
    began = time.monotonic()
    rows = "SELECT count(*), count(DISTINCT key) FROM narrow"
    until("all are stored", lambda: database.query(rows) == f"{sent}|{sent}", seconds_max)
    took = time.monotonic() - began
    expect(sink.stop(), 0, "the end of the sink")
    without = sent // limit * batch_seconds
    return f"{sent} messages, {limit} at a time, in {took:.1f} s; {without} s if each batch waited"


def no_place(bench: Bench, _: argparse.Namespace) -> str:
    """Without a place for refused messages the sink ends, and keeps them at the broker."""
    web = bench.database(lambda _: Web())
    text = source(bench.broker, "n/#") + f"\nhttp = {{ url = '{web.url}' }}"
    sink = bench.sink(text).start()
    subscribed(bench, sink)
    publish(bench.broker, "n/x", "no json")
    until("it ends", lambda: sink.process.poll() is not None)
    expect(sink.process.returncode, 1, "exit code")
    expect("refused.topic" in sink.log.read_text(), True, "advice in the log")
    sink.config.write_text(sink.config.read_text() + '\nrefused = { file = "refused.ndjson" }\n')
    sink.start()
    refused = bench.folder / "refused.ndjson"
    until("it is set aside", lambda: refused.exists() and refused.read_text().endswith("\n"))
    line = json.loads(refused.read_text())
    expect((line["topic"], line["cause"], line["payload"]), ("n/x", "decode", "no json"), "line")
    until("it is done", lambda: sink.metric("dunlin_sink_held_messages") == 0)
    expect(sink.stop(), 0, "the end of the sink")
    return "the sink ended, and went on with a file"


def web_targets(bench: Bench, _: argparse.Namespace) -> str:
    """A server that answers as HTTP servers, InfluxDB and ClickHouse do."""
    (bench.folder / "token").write_text("t0k3n\n")
    columns = '[columns]\nd = "parts[1]"\nv = "payload.v"\ntime = { value = "payload.ts", unit = "s" }\n'
    object_ = '{"d":"d1","time":"1970-01-01T00:00:05Z","v":1}'
    cases = [
        ("http = { url = 'URL/rows', token_file = 'FOLDER/token' }", "/rows", f"{object_}\n"),
        ("http = { url = 'URL/rows', body = 'json' }", "/rows", f"[{object_}]"),
        (
            "clickhouse = { url = 'URL', table = 'db.t', user = 'u', password_file = 'FOLDER/token' }",
            "/?query=INSERT%20INTO%20%60db%60.%60t%60%20FORMAT%20JSONEachRow",
            f"{object_}\n",
        ),
        (
            "influxdb = { url = 'URL', org = 'o', bucket = 'b', measurement = 'm', tags = ['d'],"
            " token_file = 'FOLDER/token' }",
            "/api/v2/write?org=o&bucket=b&precision=ns",
            "m,d=d1 v=1i 5000000000\n",
        ),
    ]
    for number, (target, path, body) in enumerate(cases):
        web = bench.database(lambda _: Web())
        target = target.replace("URL", web.url).replace("FOLDER", str(bench.folder))
        name = f"web{number}"
        text = f"name = '{name}'\nrefused = {{ file = '{name}.ndjson' }}\n"
        text += f"{source(bench.broker, f'{name}/#')}\n{target}\n{columns}"
        answers = iter([(503, "later"), (401, "who"), (0, "")])

        def answer(body: bytes) -> tuple[int, str]:
            return (400, "bad row") if b"13" in body else next(answers, (204, ""))

        web.answer = answer
        sink = bench.sink(text).start()
        until("it is there", lambda: sink.metric("dunlin_sink_targets") == 1)
        until("it is connected", lambda: sink.metric("dunlin_sink_connections") == 1)
        # Published again until it arrives: the subscription may come a little later.
        end = time.monotonic() + SETTLE_SECONDS_MAX
        while not web.requests and time.monotonic() < end:
            publish(bench.broker, f"{name}/d1", '{"v":1,"ts":5}')
            time.sleep(0.1)
        until("it is stored", lambda: bool(web.stored))
        got_path, headers, _ = web.requests[-1]
        expect(got_path.startswith(path), True, f"path {got_path}")
        if "token_file" in target:
            expect(headers["authorization"].split()[1], "t0k3n", "token")
        first = web.stored[0].decode()
        expect(body in first or first.startswith(body[:-1]), True, f"body {first!r}")
        expect(sink.metric("dunlin_sink_retries_total") >= 3, True, "retries")
        count = len(web.stored)
        # One bad row among good ones.
        publish(bench.broker, f"{name}/d1", '{"v":2,"ts":5}', '{"v":13,"ts":5}', '{"v":3,"ts":5}')
        refused = bench.folder / f"{name}.ndjson"
        until("it is refused", lambda: refused.exists() and "bad row" in refused.read_text())
        until("nothing is held", lambda: sink.metric("dunlin_sink_held_messages") == 0)
        expect(len(refused.read_text().splitlines()), 1, "refused")
        after = b"".join(web.stored[count:])
        expect(b"13" not in after and after.count(b"d1") == 2, True, f"others {after!r}")
        expect(sink.stop(), 0, "the end of the sink")
    return "HTTP lines and list, ClickHouse, InfluxDB"


def jetstream(bench: Bench, args: argparse.Namespace) -> str:
    """Kills of sink and NATS server; the stream knows keys, so nothing is there twice."""
    dice = random.Random(args.seed)
    server = bench.database(Nats)
    server.start()
    stream = {"name": "S", "subjects": ["mqtt.>"], "storage": "file", "duplicate_window": 600 * 10**9}
    server.ask("$JS.API.STREAM.CREATE.S", stream)
    sink = bench.sink(
        source(bench.broker, "js/#", ", in_flight = 300")
        + '\nmessage = { format = "text" }\nbatch = { messages = 100, time = "20ms" }\n'
        f"nats = {{ url = '{server.url}', key = 'payload' }}"
    ).start()
    subscribed(bench, sink)
    publisher = Publisher(bench.broker.ports["tcp"], "p", "js/a", 1)
    publisher.start()
    for number in range(max(2, args.rounds // 3)):
        time.sleep(dice.uniform(*ROUND_SECONDS))
        victim = (sink, server)[number % 2]
        victim.kill()
        victim.start()
    publisher.stop()
    promised = {f"p {n}".encode() for n in publisher.acknowledged}

    def last() -> int:
        return server.ask("$JS.API.STREAM.INFO.S", {})["state"]["last_seq"]

    until("everything is stored", lambda: last() >= len(promised))
    until("nothing is held", lambda: sink.metric("dunlin_sink_held_messages") == 0)
    expect(sink.stop(), 0, "the end of the sink")
    found = server.messages("S", last())
    expect(len(promised - set(found)), 0, "lost")
    expect(len(found) - len(set(found)), 0, "twice")
    return f"{len(promised)} acknowledged, {len(found)} in the stream, 0 lost, 0 twice"


def kafka(bench: Bench, args: argparse.Namespace) -> str:
    """Kills of sink and Kafka: nothing is lost, what is of one key is in one partition in
    its order, and a killed server makes nothing be there twice."""
    in_flight = 300
    dice = random.Random(args.seed)
    server = bench.database(Kafka)
    server.start()
    server.create("readings", 4)
    sink = bench.sink(
        source(bench.broker, "k/#", f", in_flight = {in_flight}")
        + '\nmessage = { format = "text" }\nbatch = { messages = 100, time = "20ms" }\n'
        f"kafka = {{ servers = ['{server.server}'], topic = 'readings' }}"
    ).start()
    subscribed(bench, sink)
    publishers = [Lines(bench.broker, f"k/{number}") for number in range(3)]
    stopping, sent = threading.Event(), 0

    def feed() -> None:
        nonlocal sent
        while not stopping.is_set():
            for number, publisher in enumerate(publishers):
                publisher.send(f"p{number} {sent}")
            sent += 1

    feeder = threading.Thread(target=feed)
    feeder.start()
    kills = max(2, args.rounds // 4)
    for number in range(kills):
        time.sleep(dice.uniform(*ROUND_SECONDS))
        before = max(sink.metric("dunlin_sink_rows_total"), 0)
        until("rows come", lambda: sink.metric("dunlin_sink_rows_total") > before)
        victim = (server, sink)[number % 2]
        victim.kill()
        victim.start()
    stopping.set()
    feeder.join()
    for publisher in publishers:
        publisher.stop()
    promised = {f"p{publisher} {number}" for publisher in range(3) for number in range(sent)}
    until("nothing is held", lambda: sink.metric("dunlin_sink_held_messages") == 0)
    time.sleep(0.5)
    until("nothing is held", lambda: sink.metric("dunlin_sink_held_messages") == 0)
    expect(sink.stop(), 0, "the end of the sink")
    found = server.records("readings")
    expect(len(promised - {record[3] for record in found}), 0, "lost")
    homes: dict[str, set[str]] = {}
    following: dict[str, int] = {}
    for partition, key, topic, value in found:
        expect(topic, key, "the header")
        homes.setdefault(key, set()).add(partition)
        number, after = int(value.split()[1]), following.get(key, 0)
        # What is there a second time comes after a kill, from somewhere before.
        expect(number <= after, True, f"{number} of {key} instead of {after}")
        following[key] = max(after, number + 1)
    expect(max(map(len, homes.values())), 1, "partitions of a key")
    twice = len(found) - len({record[3] for record in found})
    allowed = kills // 2 * in_flight
    expect(twice <= allowed, True, f"{twice} twice after {kills // 2} kills of the sink")
    return (
        f"{kills} kills, {len(promised)} acknowledged, 0 lost, in order, "
        f"{twice} twice after {kills // 2} kills of the sink, allowed {allowed}"
    )


def encrypted_kafka(bench: Bench, _: argparse.Namespace) -> str:
    """TLS and users: a password, a name and an authority that are wrong are refused; then
    SCRAM and PLAIN store, and a record that is too long for the topic is set aside."""
    server = Kafka(bench.folder)
    server.encrypted = True
    bench.started.append(server)
    server.start()
    server.create("small", 2, "max.message.bytes=2000")
    made, other = certificates(bench.folder), bench.folder / "other"
    make_certificates(other)
    (bench.folder / "right").write_text(f"{server.password}\n")
    (bench.folder / "wrong").write_text("looking-glass\n")
    text = source(bench.broker, "t/#") + "\nmessage = { format = 'raw' }\nrefused = { file = 'refused.ndjson' }\n"

    def attempt(user: str, password: str = "right", ca: Path = made, topic: str = "small", host: str = "localhost") -> Sink:
        return bench.sink(
            f"{text}kafka = {{ servers = ['{host}:{server.port}'], topic = '{topic}', user = '{user}', "
            f"password_file = '{bench.folder / password}', scram = {'true' if user == 'scram' else 'false'}, "
            f"tls = {{ ca = '{ca / 'ca.pem'}' }} }}"
        ).start()

    for user, other_than_right, why in (
        ("scram", {"ca": other}, "BadSignature"),
        ("scram", {"host": "127.0.0.2"}, "Connection refused"),
        ("scram", {"password": "wrong"}, "SASL_AUTHENTICATION_FAILED"),
        ("plain", {"password": "wrong"}, "SASL_AUTHENTICATION_FAILED"),
        ("scram", {"topic": "none"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        sink = attempt(user, **other_than_right)
        until("attempts fail", lambda: sink.metric("dunlin_sink_retries_total") >= 2)
        expect(sink.metric("dunlin_sink_targets"), 0.0, "targets")
        sink.stop()
        expect(why in sink.log.read_text(), True, f"{why!r} in {sink.log.read_text()[-400:]}")
    payloads = []
    for user in ("scram", "plain"):
        sink = attempt(user)
        subscribed(bench, sink)
        payloads.append(f"sealed by {user}")
        publish(bench.broker, "t/x", payloads[-1])
        until("it is stored", lambda: sink.metric("dunlin_sink_rows_total") >= 1)
        if user == "plain":
            publish(bench.broker, "t/x", "a" * 3000, "after")
            payloads.append("after")
            refused = bench.folder / "refused.ndjson"
            until("it is set aside", lambda: refused.exists() and "MESSAGE_TOO_LARGE" in refused.read_text())
            until("the next is stored", lambda: sink.metric("dunlin_sink_rows_total") >= 2)
        expect(sink.stop(), 0, "the end of the sink")
    found = server.records("small")
    expect([record[1:] for record in found], [["t/x", "t/x", payload] for payload in payloads], "records")
    return "SCRAM, PLAIN, its own authority; wrong ones refused, and a record that is too long"


def encrypted_postgres(bench: Bench, _: argparse.Namespace) -> str:
    """TLS to PostgreSQL with an authority of its own: a name that the certificate does not
    have, and an authority that did not sign it, are refused."""
    database = Postgres(bench.folder)
    database.encrypted = True
    os.chmod(bench.folder, 0o755)
    bench.started.append(database)
    database.start()
    database.query("CREATE TABLE t (payload text)")
    made = certificates(bench.folder)
    other = bench.folder / "other"
    make_certificates(other)
    text = source(bench.broker, "t/#") + "\nmessage = { format = 'text' }\ncolumns = { payload = 'payload' }\n"
    # The address of all is the same.
    at = f"hostaddr=127.0.0.1 port={database.port} user=sink dbname=postgres"

    def attempt(host: str, ca: Path) -> Sink:
        sink = bench.sink(
            f"{text}postgres = {{ url = 'host={host} {at} sslmode=require', table = 't', "
            f"tls = {{ ca = '{ca}' }} }}"
        )
        return sink.start()

    for host, ca, why in (
        ("db.example", made / "ca.pem", "not valid for name"),
        ("localhost", other / "ca.pem", "BadSignature"),
    ):
        sink = attempt(host, ca)
        until("attempts fail", lambda: sink.metric("dunlin_sink_retries_total") >= 2)
        expect(sink.metric("dunlin_sink_targets"), 0.0, f"targets of {host}")
        sink.stop()
        expect(why in sink.log.read_text(), True, f"{why!r} in {sink.log.read_text()[-400:]}")
    sink = attempt("localhost", made / "ca.pem")
    subscribed(bench, sink)
    publish(bench.broker, "t/x", "sealed")
    until("it is stored", lambda: database.query("SELECT payload FROM t") == "sealed")
    cipher = "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity USING (pid) WHERE application_name = 'dunlin-sink'"
    expect(database.query(cipher), "t", "the connection of the sink is encrypted")
    expect(sink.stop(), 0, "the end of the sink")
    return "its own authority; a wrong name and another authority refused"


def encrypted_nats(bench: Bench, _: argparse.Namespace) -> str:
    """TLS to NATS, the same way."""
    server = Nats(bench.folder)
    server.encrypted = True
    bench.started.append(server)
    server.start()
    server.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["mqtt.>"], "storage": "file"})
    made = certificates(bench.folder)
    text = source(bench.broker, "t/#") + "\nmessage = { format = 'raw' }\n"
    other = bench.folder / "other"
    make_certificates(other)
    for host, ca, why in (
        ("127.0.0.2", made / "ca.pem", "not valid for name"),
        ("127.0.0.1", other / "ca.pem", "BadSignature"),
        ("127.0.0.1", made / "ca.pem", None),
    ):
        if server.host != host:
            server.stop()
            server.host = host
            server.start()
        sink = bench.sink(
            f"{text}nats = {{ url = 'tls://{host}:{server.port}', tls = {{ ca = '{ca}' }} }}"
        ).start()
        if why is None:
            subscribed(bench, sink)
            publish(bench.broker, "t/x", "sealed")
            until("it is stored", lambda: server.ask("$JS.API.STREAM.INFO.S", {})["state"]["last_seq"] == 1)
            expect(server.messages("S", 1), [b"sealed"], "the stream")
            expect(sink.stop(), 0, "the end of the sink")
        else:
            until("attempts fail", lambda: sink.metric("dunlin_sink_retries_total") >= 2)
            expect(sink.metric("dunlin_sink_targets"), 0.0, f"targets of {host}")
            sink.stop()
            expect(why in sink.log.read_text(), True, f"{why!r} in {sink.log.read_text()[-400:]}")
    return "its own authority; a wrong name and another authority refused"


def full_disk(bench: Bench, _: argparse.Namespace) -> str:
    """A table on a disk that is full: the sink waits and tries again, and loses nothing."""
    folder = bench.folder / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True) if os.geteuid() == 0 else None
    if mounted is None or mounted.returncode != 0:
        raise Skipped("a small disk needs root, and the right to mount")
    try:
        database = bench.database(Postgres)
        user, group = database.account["user"], database.account["group"]
        os.chmod(bench.folder, 0o755)
        os.chown(folder, user, group)
        database.query(f"CREATE TABLESPACE small LOCATION '{folder}'")
        database.query("CREATE TABLE wide (key text, filler text) TABLESPACE small")
        database.query("ALTER TABLE wide ALTER filler SET STORAGE PLAIN")
        dice = random.Random(7)
        sink = bench.sink(
            source(bench.broker, "full/#", ", in_flight = 40")
            + "\nbatch = { messages = 10, time = '20ms' }\nrefused = { file = 'refused.ndjson' }\n"
            "columns = { key = 'payload.k', filler = 'payload.f' }\n"
            f"postgres = {{ url = '{database.url}', table = 'wide' }}"
        ).start()
        subscribed(bench, sink)
        publisher = Lines(bench.broker, "full/x")
        sent = 0
        while "No space left on device" not in sink.log.read_text():
            filler = dice.randbytes(3_500).hex()
            publisher.send(json.dumps({"k": str(sent), "f": filler}))
            sent += 1
            expect(sent < 5_000, True, "the disk is full")
        until("attempts fail", lambda: sink.metric("dunlin_sink_retries_total") >= 3)
        for _ in range(50):
            publisher.send(json.dumps({"k": str(sent), "f": "after"}))
            sent += 1
        publisher.stop()
        expect(sink.metric("dunlin_sink_messages_refused_total"), 0.0, "refused")
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        rows = "SELECT count(DISTINCT key), count(*) FROM wide"
        until("all are stored", lambda: database.query(rows) == f"{sent}|{sent}")
        until("nothing is held", lambda: sink.metric("dunlin_sink_held_messages") == 0)
        retries = int(sink.metric("dunlin_sink_retries_total"))
        expect(sink.metric("dunlin_sink_messages_refused_total"), 0.0, "refused")
        expect(sink.stop(), 0, "the end of the sink")
        database.query("DROP TABLE wide")
        database.query("DROP TABLESPACE small")
        return f"{sent} messages, {retries} attempts on a full disk, 0 lost, 0 twice"
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True)


def poison(bench: Bench, _: argparse.Namespace) -> str:
    """A message during which the sink ends twice is set aside, and the next is stored."""
    web = bench.database(lambda _: Web())
    state = bench.folder / "sink.state"
    sink = bench.sink(
        f"state = '{state}'\nrefused = {{ file = 'refused.ndjson' }}\n{source(bench.broker, 'p/#')}\n"
        "[columns]\n"
        + "".join(f"v{n} = 'payload.l.map(x, payload.l.map(y, x + y)).size()'\n" for n in range(4))
        + "[http]\n"
        f"url = '{web.url}'"
    ).start()
    subscribed(bench, sink)
    # Near the most work that is allowed.
    slow = json.dumps({"l": list(range(200))})
    first_worker = 64 * 24

    def works() -> bool:
        return state.exists() and any(state.read_bytes()[first_worker : first_worker + 16])

    ends, starts = 0, 1
    while ends < 2:
        if ends == 0:
            publish(bench.broker, "p/x", slow)
        stored = len(web.stored)
        seen = lambda: works() or len(web.stored) > stored  # noqa: E731
        until("it works on the message, or has done so", seen, pause=0.002)
        # What is stopped does not end its work before it is killed.
        sink.pause()
        ends = ends + 1 if works() else 0
        if not ends:
            sink.resume()
            continue
        sink.kill()
        sink.start()
        starts += 1
        # What was found in the file has been taken over.
        served = "the target of the sink is there"
        until("it is back", lambda: sink.log.read_text().count(served) == starts)
    publish(bench.broker, "p/x", '{"l":[1,2]}')
    refused = bench.folder / "refused.ndjson"
    until("it is set aside", lambda: refused.exists() and refused.read_text().endswith("\n"))
    line = json.loads(refused.read_text())
    expect((line["cause"], line["payload"] == slow), ("fault", True), "line")
    other = b'{"v0":2,"v1":2,"v2":2,"v3":2}\n'
    until("the other is stored", lambda: web.stored[-1:] == [other])
    until("nothing is held", lambda: sink.metric("dunlin_sink_held_messages") == 0)
    expect(sink.metric('dunlin_sink_messages_refused_total{sink="sink",cause="fault"}'), 1.0, "refused")
    expect(sink.stop(), 0, "the end of the sink")
    return "the sink was killed twice during a message, which is refused"


def check(bench: Bench, _: argparse.Namespace) -> str:
    """`--check` shows rows and refusals, and takes nothing from the group."""
    database = bench.database(Postgres)
    database.query("CREATE TABLE c (v int, topic text)")
    publishing = [str(Dunlin.binary()), "pub", "-p", str(bench.broker.ports["tcp"]), "-r"]
    publishing += ["-u", "alice", "-P", "wonderland", "-q", "1", "-t"]
    for topic, payload in (("c/1", '{"v":7}'), ("c/2", '{"v":"x"}')):
        subprocess.run([*publishing, topic, "-m", payload], check=True)
    text = source(bench.broker, "c/#") + "\ncolumns = { v = 'payload.v', topic = 'topic' }\n"
    text += f"postgres = {{ url = '{database.url}', table = 'c' }}"
    sink = bench.sink(text)
    command = [str(Dunlin.binary()), "sink", "--config", str(sink.config), "--check", "--count", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    expect(done.returncode, 1, f"exit code: {done.stderr}")
    for part in ('{"topic":"c/1","v":7}', 'refused: value: v: "x" is not integer', "2 messages seen, 1 refused"):
        expect(part in done.stdout, True, f"{part} in {done.stdout}")
    expect(database.query("SELECT count(*) FROM c"), "0", "rows")
    sink.config.write_text(sink.config.read_text().replace("table = 'c'", "table = 'none'"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    expect("does not exist" in done.stderr, True, done.stderr)
    return "rows, a refusal and a table that is missing"


# What each needs beside the broker.
CASES = {
    "kills": (kills, Postgres.binaries),
    "without-a-key": (without_a_key, Postgres.binaries),
    "refusals": (refusals, Postgres.binaries),
    "deferred": (deferred, Postgres.binaries),
    "in-flight": (in_flight, Postgres.binaries),
    "check": (check, Postgres.binaries),
    "no-place": (no_place, lambda: True),
    "poison": (poison, lambda: True),
    "full-disk": (full_disk, Postgres.binaries),
    "postgres-tls": (encrypted_postgres, Postgres.binaries),
    "nats-tls": (encrypted_nats, Nats.binary),
    "http": (web_targets, lambda: True),
    "jetstream": (jetstream, Nats.binary),
    "kafka": (kafka, Kafka.jars),
    "kafka-tls": (encrypted_kafka, Kafka.jars),
}


def run_all(args: argparse.Namespace, postgres: Postgres, counts: dict[str, int]) -> None:
    for name, (case, needed) in CASES.items():
        if args.only and name not in args.only:
            continue
        if not needed():
            counts["skipped"] += 1
            print(f"sink: {name}: skipped: the database is not installed", flush=True)
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sink-") as folder:
            bench = Bench(Path(folder), postgres)
            try:
                outcome = case(bench, args)
                counts["passed"] += 1
                print(f"sink: {name}: {outcome} ({time.monotonic() - began:.1f} s)", flush=True)
            except Skipped as why:
                counts["skipped"] += 1
                print(f"sink: {name}: skipped: {why}", flush=True)
            except (AssertionError, RuntimeError, OSError, subprocess.SubprocessError) as error:
                counts["failed"] += 1
                print(f"sink: {name}: FAILED: {error}", flush=True)
                for log in (bench.folder / "sink.log", bench.broker.log):
                    tail = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
                    print(*(f"  {log.name}: {line}" for line in tail), sep="\n", flush=True)
            finally:
                bench.close()

def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--victims", default="sink,database,broker", help="who is killed")
    parser.add_argument("--only", choices=CASES, action="append")
    args = parser.parse_args()
    args.rounds = args.rounds or (ROUNDS_SHORT if args.short else ROUNDS)
    if Dunlin.binary() is None:
        print("sink: skipped: there is no dunlin binary")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    print(f"sink: {args.rounds} rounds, seed {args.seed}", flush=True)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory(prefix="sink-") as folder:
        os.chmod(folder, 0o755)
        postgres = Postgres(Path(folder))
        try:
            run_all(args, postgres, counts)
        finally:
            postgres.stop()
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
