"""Runs the static dunlin-tiny against the broker: by name and by address, with a
new connection and with early data, and where it must fail; and tells how much
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


def expect(what: str, command: list[str], status: int, output: str) -> None:
    done = subprocess.run(
        command, timeout=SECONDS, check=False, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != status or output not in done.stdout:
        sys.exit(f"tiny-size: {what}: status {done.returncode}:\n{done.stdout}")
    print(f"tiny-size: {what}: as it must be")


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
    with tempfile.TemporaryDirectory() as name, Broker(Path(name)) as broker:
        ticket = Path(name) / "ticket"
        heard = broker.client("sub", "-t", "tiny/up", "-q", "1", "-C", "4", "-W", str(SECONDS))
        # A kept message tells that the listener has subscribed.
        kept = broker.client("pub", "-t", "tiny/up", "-m", "ready", "-q", "1", "-r")
        subprocess.run(kept, check=True, timeout=SECONDS)
        listener = subprocess.Popen(heard, stdout=subprocess.PIPE, text=True)
        lines = [listener.stdout.readline()]

        def publish(server: str, key: str, payload: str) -> list[str]:
            return [program, f"{server}:{broker.quic}", key, "tiny/up", payload, str(ticket)]

        first = publish("localhost", broker.point, "1")
        expect("first connection, by name", first, 0, "resumed: false, early data: false")
        if ticket.stat().st_mode & 0o777 != 0o600:
            sys.exit("tiny-size: others can read the ticket")
        second = publish("localhost", broker.point, "2")
        expect("early data", second, 0, "resumed: true, early data: true")
        # The ticket is the name's.
        third = publish("127.0.0.1", broker.point, "3")
        expect("by address", third, 0, "resumed: false, early data: false")
        rest, _ = listener.communicate(timeout=SECONDS)
        lines += rest.splitlines(keepends=True)
        if lines != ["ready\n", "1\n", "2\n", "3\n"]:
            sys.exit(f"tiny-size: the broker heard {lines}")
        ticket.unlink()
        expect("wrong key", publish("localhost", OTHER, "4"), 1, "dunlin-tiny: error ")
        expect("no such name", publish("none.invalid", broker.point, "4"), 2, "usage: ")
        expect("no arguments", [program], 2, "usage: ")
        full = publish("localhost", broker.point, "5")[:-1] + ["/dev/full"]
        expect("no room for the ticket", full, 1, "os error 28")
        memory(program, broker)


main()
