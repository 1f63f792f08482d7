"""mosquitto_pub and mosquitto_sub as clients under the scenarios."""

import queue
import subprocess
import threading
import time
import uuid

from scenarios import (
    BURST_MESSAGES,
    LARGE_BYTES,
    SECONDS_MAX,
    SHARED_MESSAGES,
    arguments,
    expect,
    run_all,
)

ARGS = arguments()
PREFIX = f"interop/mosquitto/{ARGS.transport}/{ARGS.version}/{uuid.uuid4().hex[:8]}"
COMMON = ["-h", ARGS.host, "-p", str(ARGS.port), "-V", "5" if ARGS.version == "5" else "mqttv311"]
if ARGS.transport == "tls":
    COMMON += ["--cafile", ARGS.ca]


def publish(topic, payload, qos, *more):
    source = ["-n"] if payload == b"" else ["-s"]
    command = ["mosquitto_pub", *COMMON, "-t", topic, "-q", str(qos), *source, *more]
    stdin = None if payload == b"" else payload
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=SECONDS_MAX)
    expect(done.returncode, 0, f"mosquitto_pub {done.stderr.decode()}")


class Subscriber:
    """A running mosquitto_sub; messages arrive as (topic, qos, retain, hex)."""

    def __init__(self, topic, qos, *more):
        command = ["stdbuf", "-oL", "mosquitto_sub", *COMMON, "-d", "-t", topic, "-q", str(qos)]
        command += ["-F", "MESSAGE %t %q %r %x", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines = queue.Queue()
        self.messages = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            if text.startswith("MESSAGE "):
                topic, qos, retain, payload = text[8:].split(" ")
                self.messages.put((topic, int(qos), int(retain), bytes.fromhex(payload)))
            else:
                self.lines.put(text)
        self.lines.put("")

    def wait_for(self, words):
        """Waits until the client says so."""
        deadline = time.monotonic() + SECONDS_MAX
        seen = []
        while time.monotonic() < deadline:
            seen.append(self.lines.get(timeout=SECONDS_MAX))
            if words in seen[-1]:
                return self
            if seen[-1] == "":
                break
        raise AssertionError(f"mosquitto_sub never said {words!r}: {' / '.join(seen)}")

    def ready(self):
        return self.wait_for("Subscribed (mid")

    def message(self):
        return self.messages.get(timeout=SECONDS_MAX)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def vanish(self):
        self.process.kill()
        self.process.wait()


def at_qos(qos):
    def scenario():
        topic = f"{PREFIX}/qos{qos}"
        with Subscriber(topic, qos).ready() as subscriber:
            for payload in (b"one", b"", "drei €".encode()):
                publish(topic, payload, qos)
                expect(subscriber.message(), (topic, qos, 0, payload), "message")

    return scenario


def wildcard():
    with Subscriber(f"{PREFIX}/w/+/c/#", 1).ready() as subscriber:
        for tail in ("a/x", "a/c", "b/c/d/e", "c"):
            publish(f"{PREFIX}/w/{tail}", tail.encode(), 1)
        # No order between topics is promised.
        got = sorted([subscriber.message()[3], subscriber.message()[3]])
        expect(got, [b"a/c", b"b/c/d/e"], "matches")
        expect(subscriber.messages.qsize(), 0, "surplus")


def retained():
    topic = f"{PREFIX}/retained"
    publish(topic, b"kept", 1, "-r")
    with Subscriber(topic, 1) as subscriber:
        expect(subscriber.message(), (topic, 1, 1, b"kept"), "retained")
    publish(topic, b"", 1, "-r")
    publish(f"{topic}/end", b"end", 1, "-r")
    with Subscriber(f"{topic}/#", 1) as subscriber:
        expect(subscriber.message()[3], b"end", "cleared")
    publish(f"{topic}/end", b"", 1, "-r")


def will():
    topic = f"{PREFIX}/will"
    with Subscriber(topic, 1).ready() as watcher:
        arguments = ["--will-topic", topic, "--will-qos", "1", "--will-payload"]
        publish(f"{topic}/x", b"x", 0, *arguments, "clean")
        Subscriber(f"{topic}/x", 0, *arguments, "gone").ready().vanish()
        expect(watcher.message()[3], b"gone", "will")


def shared():
    topic = f"{PREFIX}/shared"
    group = f"$share/group/{topic}"
    end = ["-t", f"{topic}/end"]
    with Subscriber(group, 1, *end).ready() as one, Subscriber(group, 1, *end).ready() as two:
        lines = "".join(f"{n}\n" for n in range(SHARED_MESSAGES)).encode()
        publish_lines(topic, lines)
        publish(f"{topic}/end", b"end", 1)
        shares = []
        for member in (one, two):
            share = []
            while (message := member.message())[3] != b"end":
                share.append(int(message[3]))
            shares.append(share)
        expect(sorted(shares[0] + shares[1]), list(range(SHARED_MESSAGES)), "each once")
        expect(all(shares), True, "both take part")


def publish_lines(topic, lines):
    command = ["mosquitto_pub", *COMMON, "-t", topic, "-q", "1", "-l"]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=SECONDS_MAX)
    expect(done.returncode, 0, f"mosquitto_pub {done.stderr.decode()}")


def persistent():
    topic = f"{PREFIX}/persistent"
    session = ["-i", f"mosquitto-keep-{uuid.uuid4().hex[:8]}", "-c"]
    if ARGS.version == "5":
        session += ["-x", "300"]
    with Subscriber(topic, 1, *session).ready():
        pass
    for number in range(3):
        publish(topic, str(number).encode(), 1)
    with Subscriber(topic, 1, *session) as subscriber:
        got = [subscriber.message()[3] for _ in range(3)]
        expect(got, [b"0", b"1", b"2"], "queued")


def large():
    topic = f"{PREFIX}/large"
    payload = bytes(range(256)) * (LARGE_BYTES // 256)
    with Subscriber(topic, 1).ready() as subscriber:
        publish(topic, payload, 1)
        expect(subscriber.message()[3] == payload, True, "payload survives")


def burst():
    topic = f"{PREFIX}/burst"
    with Subscriber(topic, 1).ready() as subscriber:
        publish_lines(topic, "".join(f"{n}\n" for n in range(BURST_MESSAGES)).encode())
        got = [int(subscriber.message()[3]) for _ in range(BURST_MESSAGES)]
        expect(got, list(range(BURST_MESSAGES)), "in order")


if __name__ == "__main__":
    run_all(
        {
            "qos0": at_qos(0),
            "qos1": at_qos(1),
            "qos2": at_qos(2),
            "wildcard": wildcard,
            "retained": retained,
            "will": will,
            "shared": shared,
            "persistent": persistent,
            "large": large,
            "burst": burst,
        }
    )
