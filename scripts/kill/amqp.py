"""Exactly once under `kill -9`, for AMQP: clients, connections and the broker are
killed while messages go from a sender to a queue, from there in transactions to
another one, and from that to receivers.

Senders and receivers settle second on links that are resumed. One that is killed begins
again as another process of the same container; a receiver is given the tags that it has
got and has not said to be settled. Every message that a sender heard to be accepted must
arrive once, and none twice.
"""

import os
import random
import socket
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import builds
from brokers import BROKERS

IN, OUT = "/queues/kill-in", "/queues/kill-out"
# Between two kills.
PAUSE_SECONDS = (0.05, 0.6)
# It is over when all that was accepted has arrived, and then nothing more for so long;
# or when nothing has arrived for longer than clients wait before they connect again.
END_SECONDS, QUIET_SECONDS = 1, 30
FINISH_SECONDS_MAX = 60


class Proxy:
    """A port of which the connections can be cut."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.open: list[socket.socket] = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
                server.settimeout(None)
            except OSError:
                if self.listener.fileno() < 0:
                    return
                client.close()
                continue
            with self.lock:
                self.open += [client, server]
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        self._end(source, sink)

    @staticmethod
    def _end(*sockets: socket.socket) -> None:
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def cut(self) -> None:
        with self.lock:
            cut, self.open = self.open, []
        self._end(*cut)

    def stop(self) -> None:
        self.listener.close()
        self.cut()


class Client:
    """One process of examples/links.rs, and what it says."""

    def __init__(self, program: Path, proxy: Proxy, what: str, name: str, *rest: str) -> None:
        self.command = [str(program), what, f"amqp://127.0.0.1:{proxy.port}", name, *rest]
        self.proxy, self.what, self.name = proxy, what, name
        self.lines: list[str] = []
        self.reader = threading.Thread()
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        pipe = subprocess.PIPE
        command = self.command + self.unsettled()
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self.reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout:
            if line.endswith("\n"):
                self.lines.append(line.strip())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.start()

    def finish(self) -> str:
        """Lets it end what it has begun; what is wrong with that."""
        self.process.stdin.close()
        try:
            status = self.process.wait(FINISH_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return f"{self.name}: not finished after {FINISH_SECONDS_MAX} s"
        self.reader.join()
        return f"{self.name}: status {status}" if status else ""

    def said(self, word: str) -> list[str]:
        """Payloads of the lines with this word."""
        return [line.split()[-1] for line in list(self.lines) if line.startswith(word)]

    def unsettled(self) -> list[str]:
        """Tags of what a receiver has got and not said to be settled."""
        tags: dict[str, None] = {}
        for word, *rest in (line.split() for line in self.lines):
            if word == "got":
                tags[rest[0]] = None
            elif word in ("settled", "forgotten"):
                tags.pop(rest[0], None)
        return list(tags)


def program() -> tuple[Path, str]:
    named = os.environ.get("DUNLIN_LINKS")
    if named:
        return Path(named).resolve(), ""
    return builds.example("dunlin-amqp-client", "links")


def run(args, folder: Path) -> list[str]:
    """What was wrong."""
    links, missing = program()
    if missing:
        # It is a program of this repository: that it is not there is no reason to pass.
        return [f"amqp: {missing}"]
    dice = random.Random(args.seed)
    broker = BROKERS["dunlin"](folder, shards=args.shards)
    broker.start()
    clients: list[Client] = []
    kills: Counter[str] = Counter()

    def client(what: str, name: str, *rest: str) -> Client:
        new = Client(links, Proxy(broker.ports["tcp"]), what, name, *rest)
        clients.append(new)
        return new

    try:
        receivers = [client("receive", f"receiver-{n}", OUT) for n in range(2)]
        movers = [client("move", f"mover-{n}", IN, OUT) for n in range(2)]
        senders = [client("send", f"sender-{n}", IN) for n in range(2)]
        while sum(kills.values()) < args.kills:
            time.sleep(dice.uniform(*PAUSE_SECONDS))
            what = dice.choice(("broker", "connection", "client"))
            kills[what] += 1
            if what == "broker":
                broker.kill()
                broker.start()
            elif what == "connection":
                dice.choice(clients).proxy.cut()
            else:
                dice.choice(clients).kill()
        wrong = [sender.finish() for sender in senders]
        settle(senders, receivers)
        wrong += [one.finish() for one in movers + receivers]
    finally:
        for one in clients:
            one.process.kill()
            one.proxy.stop()
        broker.stop()
    print(f"kill: amqp: {dict(kills)}")
    return [one for one in wrong if one] + compare(senders, receivers)


def settle(senders: list[Client], receivers: list[Client]) -> None:
    """Waits until everything has arrived and nothing follows, or nothing arrives."""
    before, since, missing = -1, time.monotonic(), True
    while time.monotonic() - since < (QUIET_SECONDS if missing else END_SECONDS):
        now = sum(len(receiver.lines) for receiver in receivers)
        if now != before:
            before, since = now, time.monotonic()
            missing = bool(payloads(senders, "accepted ") - payloads(receivers, "got "))
        time.sleep(0.05)


def payloads(clients: list[Client], word: str) -> set[str]:
    return {payload for client in clients for payload in client.said(word)}


def compare(senders: list[Client], receivers: list[Client]) -> list[str]:
    accepted = [payload for sender in senders for payload in sender.said("accepted ")]
    got = Counter(payload for receiver in receivers for payload in receiver.said("got "))
    lost = [payload for payload in accepted if payload not in got]
    doubled = [payload for payload, times in got.items() if times > 1]
    print(
        f"kill: amqp: {len(accepted)} accepted, {sum(got.values())} arrived, "
        f"{len(lost)} lost, {len(doubled)} doubled"
    )
    wrong = [] if accepted else ["amqp: nothing was accepted"]
    if lost:
        wrong.append(f"amqp: lost {lost[:5]} and others")
    if doubled:
        wrong.append(f"amqp: doubled {doubled[:5]} and others")
    return wrong
