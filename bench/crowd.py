"""Memory after a crowd of connections has gone: how much of it goes back to the
system within ten seconds, and how long a client that stays waits meanwhile. Some of
the crowd stay, spread over the memory of those that leave."""

import argparse
import contextlib
import os
import platform
import socket
import statistics
import subprocess
import threading
import time

from brokers import Dunlin

BINARY = os.path.abspath(os.environ["DUNLIN"])
AFTER = 10
HOLD = 8
CONNECT = b"\x10\x12\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x05crowd"


def arguments():
    parser = argparse.ArgumentParser(prog="compare.sh --crowd", allow_abbrev=False)
    parser.add_argument("--crowd", type=int, nargs="?", const=10_000, metavar="N")
    parser.add_argument("--transport", default="quic", choices=["tcp", "tls", "quic"])
    parser.add_argument("--stay", type=int, default=5, metavar="PERCENT")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    args.crowd = 1_000 if args.quick else args.crowd
    return args


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Queued:
    """How long the broker's shards and the thread that asks waited for a processor:
    what other programs cost on a machine that is not quiet."""

    def __init__(self, pid):
        own = f"/proc/{os.getpid()}/task/{threading.get_native_id()}/schedstat"
        self.files = [open(own, "rb", buffering=0)]
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/comm") as file:
                is_shard = file.read().startswith("shard")
            if is_shard:
                self.files.append(open(f"/proc/{pid}/task/{task}/schedstat", "rb", buffering=0))

    def milliseconds(self):
        return sum(int(os.pread(file.fileno(), 64, 0).split()[1]) for file in self.files) / 1e6


class Innocent(threading.Thread):
    """A client that asks for a sign of life a thousand times a second."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.pid = broker.pid
        host, port = broker.urls["tcp"].split("//")[1].rsplit(":", 1)
        self.peer = socket.create_connection((host, int(port)), 30)
        self.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer.sendall(CONNECT)
        assert self.peer.recv(512)[0] == 0x20
        self.waits, self.ends = [], False

    def run(self):
        queued = Queued(self.pid)
        while not self.ends:
            before, begun = queued.milliseconds(), time.monotonic()
            self.peer.sendall(b"\xc0\x00")
            assert self.peer.recv(16)[0] == 0xD0
            waited = (time.monotonic() - begun) * 1e3
            self.waits.append((begun, waited, max(waited - queued.milliseconds() + before, 0)))
            time.sleep(0.001)

    def longest(self, begin, end):
        """The longest waits in ms, and the longest without what was waited for a
        processor."""
        waits = [it[1:] for it in self.waits if begin <= it[0] < end]
        return [sorted(column, reverse=True)[:5] for column in zip(*waits)] or [[], []]


@contextlib.contextmanager
def connections(broker, transport, count, seconds):
    """So many silent connections, which leave after these seconds."""
    command = [BINARY, "bench", "--url", broker.urls[transport], "--idle", str(count)]
    command += ["--duration", str(seconds), "--quiet", "--json", "-"]
    command += ["--ca", broker.ca] if transport in ("tls", "quic") else []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def held(broker):
    """Connections, as the metrics count them."""
    host, port = broker.metrics.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as peer:
        peer.sendall(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        answer = b"".join(iter(lambda: peer.recv(65536), b"")).decode()
    lines = [line for line in answer.splitlines() if line.startswith("dunlin_connections{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def until(broker, count, seconds=300):
    """Waits until there are so many connections; `count` says whether."""
    end = time.monotonic() + seconds
    while not count(held(broker)):
        if time.monotonic() > end:
            raise RuntimeError(f"{held(broker):.0f} connections after {seconds} s")
        time.sleep(0.1)


def run(args):
    stay = args.crowd * args.stay // 100
    with Dunlin(BINARY) as broker:
        innocent = Innocent(broker)
        innocent.start()
        time.sleep(1)
        empty, quiet = resident(broker.pid), time.monotonic()
        with connections(broker, args.transport, stay, 600):
            with connections(broker, args.transport, args.crowd - stay, HOLD):
                until(broker, lambda held: held > args.crowd)
                time.sleep(HOLD / 4)
                full = resident(broker.pid)
                until(broker, lambda held: held < args.crowd)
                begun = time.monotonic()
                until(broker, lambda held: held <= stay + 1)
                gone = time.monotonic()
            time.sleep(AFTER)
            after = resident(broker.pid)
            end = time.monotonic()
            innocent.ends = True
            innocent.join()
    each = (full - empty) / args.crowd
    needed = empty + each * stay
    back = (full - after) / max(full - needed, 1)
    mib = lambda size: f"{size / (1 << 20):.1f} MiB"
    shown = lambda waits: ", ".join(f"{ms:.2f}" for ms in waits) or "none"
    spans = ("before", quiet - 1, quiet), ("while they left", begun, gone), ("after that", gone, end)
    print(f"{args.crowd:,} connections over {args.transport}, of which {stay:,} stay, {each / 1024:.1f} KiB each:")
    print(f"- resident: {mib(empty)} before, {mib(full)} with all, {mib(after)} {AFTER} s after they left")
    print(f"  ({back:.0%} of what those that left had)")
    print(f"- all had left {gone - begun:.2f} s after the first")
    print("- longest waits of a client, ms (in brackets: without waiting for a processor):")
    for name, first, last in spans:
        wall, own = map(shown, innocent.longest(first, last))
        print(f"  {name}: {wall} ({own})")
    median = statistics.median(it[1] for it in innocent.waits)
    print(f"  ({median:.2f} in the median; load {os.getloadavg()[0]:.1f}, Linux {platform.release()})")


if __name__ == "__main__":
    run(arguments())
