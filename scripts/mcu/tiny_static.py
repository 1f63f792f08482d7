"""Runs the static dunlin-tiny against the broker: messages in both directions,
early data, keys of all kinds, users, and where it must fail; and tells how much
memory it takes. Argument: the program.
"""

import selectors
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from peers import Broker

SECONDS = 30
# Another point of the curve: that of the generator.
OTHER = (
    "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
    "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
)
# Of the program.
FAILED, WRONG, TIMED_OUT = 1, 2, 27


class Tiny:
    """The program with a broker."""

    def __init__(self, program: str, broker: Broker) -> None:
        self.program = program
        self.broker = broker
        self.server = f"localhost:{broker.quic}"

    def command(self, *words: str, to: str = "", key: str = "", options: str = "") -> list[str]:
        return [self.program, *options.split(), to or self.server, key or self.broker.point, *words]

    def expect(self, what: str, command: list[str], status: int = 0, out: str = "published; ",
               err: str = "", given: str | None = None) -> None:
        done = subprocess.run(
            command, timeout=SECONDS, check=False, text=True, capture_output=True, input=given,
        )
        found = out in done.stdout and err in done.stderr and bool(err) == bool(done.stderr)
        if done.returncode != status or not found:
            sys.exit(f"tiny-size: {what}: status {done.returncode}:\n{done.stdout}{done.stderr}")
        print(f"tiny-size: {what}: as it must be")

    def fails(self, what: str, command: list[str], err: str, status: int = FAILED) -> None:
        self.expect(what, command, status, "", f"dunlin-tiny: {err}")

    def hear(self, what: str, command: list[str], *lines: str) -> None:
        """It prints these lines."""
        out = "".join(f"{line}\n" for line in lines)
        done = subprocess.run(command, timeout=SECONDS, check=False, text=True, capture_output=True)
        if (done.returncode, done.stdout) != (0, out):
            sys.exit(f"tiny-size: {what}: status {done.returncode}:\n{done.stdout}{done.stderr}")
        print(f"tiny-size: {what}: as it must be")


class Listener:
    """The broker's own subscriber, from when it has its subscription on."""

    def __init__(self, broker: Broker, topic: str, count: int) -> None:
        options = ("-q", "2", "-C", str(count + 1), "-W", str(SECONDS))
        # A kept message tells that the listener has subscribed.
        kept = broker.client("pub", "-t", topic, "-m", "ready", "-q", "1", "-r")
        subprocess.run(kept, check=True, timeout=SECONDS)
        heard = broker.client("sub", "-t", topic, *options)
        self.process = subprocess.Popen(heard, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def expect(self, *lines: str) -> None:
        heard, _ = self.process.communicate(timeout=SECONDS)
        if heard != "".join(f"{line}\n" for line in lines):
            sys.exit(f"tiny-size: the broker heard {heard}")


def tickets(tiny: Tiny, folder: Path) -> None:
    ticket = folder / "ticket"
    listener = Listener(tiny.broker, "tiny/up", 3)

    def publish(payload: str, to: str = "") -> list[str]:
        return tiny.command("tiny/up", payload, str(ticket), to=to)

    tiny.expect("first connection, by name", publish("1"), 0, "resumed: false, early data: false")
    if ticket.stat().st_mode & 0o777 != 0o600:
        sys.exit("tiny-size: others can read the ticket")
    tiny.expect("early data", publish("2"), 0, "resumed: true, early data: true")
    # The ticket is the name's.
    address = f"127.0.0.1:{tiny.broker.quic}"
    tiny.expect("by address", publish("3", address), 0, "resumed: false, early data: false")
    listener.expect("1", "2", "3")
    full = tiny.command("tiny/up", "4", "/dev/full")
    err = "dunlin-tiny: file for the ticket: No space left on device (os error 28)\n"
    tiny.expect("no room for the ticket", full, FAILED, "published; ", err)


def keys(tiny: Tiny, folder: Path) -> None:
    pem = str(tiny.broker.pem)
    public = folder / "public.pem"
    make = ["openssl", "x509", "-in", pem, "-noout", "-pubkey", "-out", str(public)]
    subprocess.run(make, check=True)
    words = ("tiny/up", "1")
    tiny.expect("certificate", tiny.command(*words, key=pem))
    tiny.expect("public key", tiny.command(*words, key=str(public)))
    # It signed its own certificate.
    tiny.expect("authority", tiny.command(*words, key=pem, options="--ca"))
    address = f"127.0.0.1:{tiny.broker.quic}"
    tiny.expect("authority, address", tiny.command(*words, to=address, key=pem, options="--ca"))
    err = "error 101: the certificate was not signed by the authority\n"
    tiny.fails("another authority", tiny.command(*words, key=OTHER, options="--ca"), err)
    err = "error 99: the server's key is not among the pinned ones\n"
    tiny.fails("wrong key", tiny.command(*words, key=OTHER), err)
    tiny.fails("no key", tiny.command(*words, key="none.pem"), "KEY is neither ", WRONG)


def messages(tiny: Tiny) -> None:
    listener = Listener(tiny.broker, "tiny/qos", 5)
    for qos in "012":
        command = tiny.command("tiny/qos", f"qos {qos}", options=f"-q {qos}")
        tiny.expect(f"QoS {qos}", command)
    tiny.expect("standard input", tiny.command("tiny/qos", "-"), given="from\na pipe")
    long = "x" * 16_300
    tiny.expect("16 KB", tiny.command("tiny/qos", "-"), given=long)
    listener.expect("qos 0", "qos 1", "qos 2", "from\na pipe", long)
    too_long = tiny.command("tiny/qos", "-")
    err = "dunlin-tiny: standard input: File too large (os error 27)\n"
    tiny.expect("more than 16 KB", too_long, FAILED, "", err, given="x" * 16_384)
    err = "error 166: the packet is longer than the send buffer, or than the broker takes\n"
    tiny.expect("16 KB and a topic", tiny.command("tiny/qos", "-"), FAILED, "",
                f"dunlin-tiny: {err}", given="x" * 16_380)


def subscriptions(tiny: Tiny, folder: Path) -> None:
    tiny.expect("retain", tiny.command("tiny/kept/a", "-5", options="--retain"))
    one = tiny.command(options="--subscribe tiny/kept/+ --count 1")
    tiny.hear("a kept message", one, "-5")
    verbose = tiny.command(str(folder / "down"), options="--subscribe=tiny/kept/+ -v -C 1 -q 2")
    tiny.hear("with its topic", verbose, "tiny/kept/a -5")
    tiny.hear("in early data", verbose, "tiny/kept/a -5")
    timed = tiny.command(options="--subscribe tiny/kept/a -W 1 -k 1")
    tiny.expect("a time", timed, TIMED_OUT, "-5\n", "dunlin-tiny: timed out\n")
    # Several, with pings in between.
    listen = tiny.command(options=f"--subscribe tiny/kept/a -C 4 -k 1 -W {SECONDS}")
    process = subprocess.Popen(listen, stdout=subprocess.PIPE, text=True)
    heard = [process.stdout.readline()]
    try:
        process.wait(4)
        sys.exit("tiny-size: it did not stay")
    except subprocess.TimeoutExpired:
        pass
    for payload in "123":
        tiny.expect("publish meanwhile", tiny.command("tiny/kept/a", payload))
    rest, _ = process.communicate(timeout=SECONDS)
    heard += rest.splitlines(keepends=True)
    if (process.returncode, heard) != (0, ["-5\n", "1\n", "2\n", "3\n"]):
        sys.exit(f"tiny-size: it printed {heard}, status {process.returncode}")
    print("tiny-size: messages over a while: as it must be")
    tiny.fails("no room for output", ["sh", "-c", 'exec "$@" >/dev/full', "sh", *one],
               "standard output: No space left on device (os error 28)\n")
    tiny.expect("closed output", ["sh", "-c", 'exec "$@" >&- <&-', "sh", *one], 0, "")


def users(tiny: Tiny, folder: Path) -> None:
    words = ("tiny/up", "1")
    file = folder / "password"
    file.write_text("secret\nsomething else\n")
    tiny.expect("password", tiny.command(*words, options="-u gate -P secret -i gate-1"))
    tiny.expect("file with it", tiny.command(*words, options=f"-u gate --pw-file {file}"))
    err = "error 162: the broker refused the connection: "
    wrong = tiny.command(*words, options="--username=gate --pw=guess")
    tiny.fails("wrong password", wrong, err)
    err = "error 162: the broker refused the message: not authorized (reason 0x87)\n"
    tiny.fails("topic of others", tiny.command("other", "1", options="-u gate -P secret"), err)
    err = "error 162: the broker refused the subscription: not authorized (reason 0x87)\n"
    command = tiny.command(options="-u gate -P secret --subscribe other")
    tiny.fails("filter of others", command, err)


def words(tiny: Tiny) -> None:
    tiny.expect("help", [tiny.program, "--help"], 0, "usage: dunlin-tiny ")
    tiny.expect("version", [tiny.program, "--version"], 0, "dunlin-tiny ")
    tiny.expect("no arguments", [tiny.program], WRONG, "", "usage: dunlin-tiny ")
    unknown = tiny.command("a", "b", options="--what")
    tiny.fails("unknown option", unknown, "unknown option: --what\nusage: ", WRONG)
    none = tiny.command("a", "b", to="none.invalid:1")
    tiny.fails("no such name", none, "HOST:PORT has no address: none.invalid:1\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        away = f"localhost:{silent.getsockname()[1]}"
        tiny.fails("a time for silence", tiny.command("a", "b", to=away, options="-W 1"),
                   "timed out\n", TIMED_OUT)
    refused = tiny.command("a", "b", to=away)
    tiny.fails("no server", refused, "cannot connect: Connection refused (os error 111)\n")


def memory(program: str, broker: Broker) -> None:
    """Most memory at any time, read while the program waits for the next
    datagram: all go through here.
    """
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as front,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as back,
        selectors.DefaultSelector() as selector,
    ):
        front.bind(("127.0.0.1", 0))
        back.connect(("127.0.0.1", broker.quic))
        for end in (front, back):
            selector.register(end, selectors.EVENT_READ)
        address = f"127.0.0.1:{front.getsockname()[1]}"
        command = [program, address, broker.point, "tiny/memory", "1"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        lines: list[str] = []
        while process.poll() is None:
            for key, _ in selector.select(0.1):
                if key.fileobj is front:
                    datagram, device = front.recvfrom(2000)
                    back.send(datagram)
                    continue
                pages = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                lines += [line for line in pages.splitlines() if line.startswith("Rss:")]
                front.sendto(back.recv(2000), device)
        if process.returncode != 0 or not lines:
            sys.exit(f"tiny-size: memory: status {process.returncode}")
    most = max(int(line.split()[1]) for line in lines)
    print(f"tiny-size: memory, pages of the program included: {most} kB")


def main() -> None:
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Broker(folder / "open") as broker:
            tiny = Tiny(program, broker)
            words(tiny)
            tickets(tiny, folder)
            keys(tiny, folder)
            messages(tiny)
            subscriptions(tiny, folder)
            memory(program, broker)
        passwords, rules = folder / "passwords", folder / "rules"
        make = [broker.binary, "passwd", "-b", str(passwords), "gate", "secret"]
        subprocess.run(make, check=True, capture_output=True)
        rules.write_text("user gate\ntopic readwrite tiny/#\n")
        auth = f'[auth]\npassword_file = "{passwords}"\nacl_file = "{rules}"\n'
        with Broker(folder / "guarded", auth) as broker:
            users(Tiny(program, broker), folder)


main()
