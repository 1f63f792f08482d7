"""Command line programs as clients under the scenarios: mosquitto_pub and
mosquitto_sub, and `dunlin pub` and `dunlin sub`, which take the same flags.
Publisher and subscriber may be different programs on different transports.
"""

import contextlib
import os
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
PREFIX = f"interop/cli/{ARGS.transport}/{ARGS.version}/{uuid.uuid4().hex[:8]}"
SCHEMES = {"quic": "quic", "tcp": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss"}


def program(name, verb):
    """The beginning of a command line: `verb` is `pub` or `sub`."""
    version = ["-V", "5" if ARGS.version == "5" else "mqttv311"]
    if name == "mosquitto":
        # Where it cannot speak the transport, it takes the other way.
        its_own = ARGS.transport in ("tcp", "tls")
        port = str(ARGS.port) if its_own else os.environ["INTEROP_TCP_PORT"]
        command = [f"mosquitto_{verb}", "-h", ARGS.host, "-p", port, *version]
        return command + (["--cafile", ARGS.ca] if ARGS.transport == "tls" else [])
    url = f"{SCHEMES[ARGS.transport]}://{ARGS.host}:{ARGS.port}"
    ca = ["--ca", ARGS.ca] if ARGS.transport in ("quic", "tls", "wss") else []
    return [os.environ["DUNLIN"], verb, "--url", url, *ca, *version]


def publish(topic, payload, qos, *more):
    source = ["-n"] if payload == b"" else ["-s"]
    run(["-t", topic, "-q", str(qos), *source, *more], payload or None)


def publish_lines(topic, lines):
    run(["-t", topic, "-q", "1", "-l"], lines)


def run(arguments, stdin):
    command = [*program(ARGS.publisher, "pub"), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=SECONDS_MAX)
    expect(done.returncode, 0, f"{ARGS.publisher} pub: {done.stderr.decode()[-200:]}")


class Subscriber:
    """A running subscriber; messages arrive as (topic, qos, retain, payload)."""

    def __init__(self, topic, qos, *more, marker=""):
        command = ["stdbuf", "-oL", *program(ARGS.subscriber, "sub"), "-q", str(qos)]
        command += ["-t", topic, *(["-t", marker] if marker else [])]
        command += ["-F", "%t %q %r %x", *more]
        self.marker = marker
        self.messages = queue.Queue()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        threading.Thread(target=self._read, daemon=True).start()

    @classmethod
    def ready(cls, topic, qos, *more):
        """One that has subscribed: a retained message of a second filter, which
        travels in the same SUBSCRIBE, says so."""
        marker = f"{PREFIX}/ready/{uuid.uuid4().hex[:8]}"
        publish(marker, b"ready", 0, "-r")
        self = cls(topic, qos, *more, marker=marker)
        expect(self.message()[0], marker, "first message")
        publish(marker, b"", 0, "-r")
        return self

    def _read(self):
        for line in self.process.stdout:
            topic, qos, retain, *payload = line.decode(errors="replace").rstrip("\n").split(" ")
            payload = bytes.fromhex("".join(payload))
            # The end of the marker is no news.
            if topic != self.marker or payload:
                self.messages.put((topic, int(qos), int(retain), payload))

    def message(self):
        try:
            return self.messages.get(timeout=SECONDS_MAX)
        except queue.Empty:
            self.process.kill()
            errors = self.process.stderr.read().decode(errors="replace")[-200:]
            raise AssertionError(f"no message in {SECONDS_MAX} s; {errors}") from None

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
        with Subscriber.ready(topic, qos) as subscriber:
            for payload in (b"one", b"", "drei €".encode()):
                publish(topic, payload, qos)
                expect(subscriber.message(), (topic, qos, 0, payload), "message")

    return scenario


def wildcard():
    with Subscriber.ready(f"{PREFIX}/w/+/c/#", 1) as subscriber:
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
    with Subscriber.ready(topic, 1) as watcher:
        # Over QUIC the broker notices by the keep alive only.
        programs = (ARGS.publisher, ARGS.subscriber)
        keep_alive = "5" if "mosquitto" in programs else "2"
        arguments = ["-k", keep_alive, "--will-topic", topic, "--will-qos", "1", "--will-payload"]
        publish(f"{topic}/x", b"x", 0, *arguments, "clean")
        Subscriber.ready(f"{topic}/x", 0, *arguments, "gone").vanish()
        expect(watcher.message()[3], b"gone", "will")


def shared():
    topic = f"{PREFIX}/shared"
    group = f"$share/group/{topic}"
    end = ["-t", f"{topic}/end"]
    with Subscriber.ready(group, 1, *end) as one, Subscriber.ready(group, 1, *end) as two:
        lines = "".join(f"{n}\n" for n in range(SHARED_MESSAGES)).encode()
        publish_lines(topic, lines)
        publish(f"{topic}/end", b"end", 1)
        shares = []
        for member in (one, two):
            share = []
            while (message := member.message())[3] != b"end":
                share.append(int(message[3]))
            shares.append(share)
        # No order between topics is promised: some may come after the end.
        deadline = time.monotonic() + SECONDS_MAX
        while sum(map(len, shares)) < SHARED_MESSAGES and time.monotonic() < deadline:
            for member, share in zip((one, two), shares, strict=True):
                with contextlib.suppress(queue.Empty):
                    share.append(int(member.messages.get(timeout=0.05)[3]))
        expect(sorted(shares[0] + shares[1]), list(range(SHARED_MESSAGES)), "each once")
        expect(all(shares), True, "both take part")


def persistent():
    topic = f"{PREFIX}/persistent"
    session = ["-i", f"mosquitto-keep-{uuid.uuid4().hex[:8]}", "-c"]
    if ARGS.version == "5":
        session += ["-x", "300"]
    with Subscriber.ready(topic, 1, *session):
        pass
    for number in range(3):
        publish(topic, str(number).encode(), 1)
    with Subscriber(topic, 1, *session) as subscriber:
        got = [subscriber.message()[3] for _ in range(3)]
        expect(got, [b"0", b"1", b"2"], "queued")


def large():
    topic = f"{PREFIX}/large"
    payload = bytes(range(256)) * (LARGE_BYTES // 256)
    with Subscriber.ready(topic, 1) as subscriber:
        publish(topic, payload, 1)
        expect(subscriber.message()[3] == payload, True, "payload survives")


def burst():
    topic = f"{PREFIX}/burst"
    with Subscriber.ready(topic, 1) as subscriber:
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
