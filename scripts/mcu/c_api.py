"""Runs the C example against the broker: a first connection, one that resumes
with early data, and one with a wrong key; then, if they are named, the one with a
will, and the first with a certificate. Arguments: the example, the one with a will,
and the one that shows certificates.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from peers import Broker, identity

SECONDS = 30


def run(
    example: str, broker: Broker, key: str, reading: str, ticket: Path, *more: Path
) -> tuple[int, str]:
    command = [example, "localhost", str(broker.quic), key, reading, str(ticket), *map(str, more)]
    done = subprocess.run(command, timeout=SECONDS, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def expect(what: str, output: str, *lines: str) -> None:
    for line in lines:
        if line not in output.splitlines():
            sys.exit(f"c-api: {what}: {line!r} is missing in:\n{output}")
    print(f"c-api: {what}: as it must be")


def main() -> None:
    example = sys.argv[1]
    with tempfile.TemporaryDirectory() as name, Broker(Path(name)) as broker:
        ticket = Path(name) / "ticket"
        heard = broker.client("sub", "-t", "c/up", "-q", "1", "-C", "2", "-W", str(SECONDS))
        listener = subprocess.Popen(heard, stdout=subprocess.PIPE, text=True)
        # Kept for the first connection; the second gets one of its own, which
        # waits in its session.
        publish = broker.client("pub", "-t", "c/down", "-m", "on", "-q", "1", "-r")
        subprocess.run(publish, check=True, timeout=SECONDS)
        code, output = run(example, broker, broker.point, "21.5", ticket)
        expect("first connection", output, "resumed: 0", "code: 0", "command of bytes: 2")
        publish = broker.client("pub", "-t", "c/down", "-m", "off", "-q", "1")
        subprocess.run(publish, check=True, timeout=SECONDS)
        second, output = run(example, broker, broker.point, "22.0", ticket)
        lines = ["connected, session kept: 1", "command of bytes: 3", "resumed: 1"]
        expect("resumption", output, *lines, "early data taken: 1", "code: 0")
        heard, _ = listener.communicate(timeout=SECONDS)
        expect("readings", heard, "21.5", "22.0")
        # Another point of the curve: that of the generator.
        other = (
            "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
            "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
        )
        third, output = run(example, broker, other, "23.0", Path(name) / "none")
        text = "error 99: the server's key is not among the pinned ones"
        expect("wrong key", output, "code: 99", text)
        if (code, second, third) != (0, 0, 1):
            sys.exit(f"c-api: status {(code, second, third)}")
        if len(sys.argv) > 2:
            words(sys.argv[2], broker, Path(name) / "none")
    if len(sys.argv) > 3:
        certificates(sys.argv[1], sys.argv[3])


def certificates(without: str, example: str) -> None:
    """A broker that asks for certificates: it takes those of its authority. A library
    without the feature says that it shows none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority, certificate, key = identity(folder / "ours")
        _, *theirs = identity(folder / "theirs")
        files = [folder / part for part in ("certificate", "key", "other", "other-key")]
        for file, part in zip(files, (certificate, key, *theirs), strict=True):
            file.write_bytes(part)
        own, other, ticket = files[:2], files[2:], folder / "ticket"
        short = folder / "short"
        short.write_bytes(key[:31])
        with Broker(folder / "broker", clients=authority) as broker:
            publish = broker.client("pub", "-t", "c/down", "-m", "on", "-q", "1", "-r")
            subprocess.run(publish, check=True, timeout=SECONDS)
            _, output = run(example, broker, broker.point, "1", ticket, *own)
            expect("certificate", output, "resumed: 0", "code: 0")
            publish = broker.client("pub", "-t", "c/down", "-m", "off", "-q", "1")
            subprocess.run(publish, check=True, timeout=SECONDS)
            _, output = run(example, broker, broker.point, "2", ticket, *own)
            expect("certificate and ticket", output, "resumed: 1", "code: 0")
            none = folder / "none"
            _, output = run(example, broker, broker.point, "3", none, *other)
            expect("certificate of another authority", output, "code: 2")
            _, output = run(example, broker, broker.point, "4", none)
            expect("no certificate", output, "code: 2")
            _, output = run(example, broker, broker.point, "5", none, own[0], other[1])
            expect("another key", output, "code: 2")
            _, output = run(example, broker, broker.point, "6", none, own[0], short)
            expect("a key that is too short", output, "code: 194")
            _, output = run(example, broker, broker.point, "7", none, own[1], own[1])
            expect("a certificate that is none", output, "code: 84")
            _, output = run(without, broker, broker.point, "8", none, *own)
            expect("library without them", output, "code: 198")


def words(example: str, broker: Broker, ticket: Path) -> None:
    """The broker's own client hears what the example says, and its will."""
    # A kept message tells when the listener has subscribed.
    publish = broker.client("pub", "-t", "c/gone", "-m", "ready", "-q", "1", "-r")
    subprocess.run(publish, check=True, timeout=SECONDS)
    heard = broker.client("sub", "-t", "c/words/#", "-t", "c/gone", "-q", "1", "-C", "4")
    listener = subprocess.Popen([*heard, "-W", str(SECONDS)], stdout=subprocess.PIPE, text=True)
    if (line := listener.stdout.readline()) != "ready\n":
        sys.exit(f"c-api: {line!r} instead of the kept message")
    code, output = run(example, broker, broker.point, "", ticket)
    lines = ["message of bytes: 3", "message of bytes: 5", "unsubscribed: 0", "unsubscribed: 17"]
    expect("alias and end of a subscription", output, *lines, "code: 0")
    heard, _ = listener.communicate(timeout=SECONDS)
    expect("words and will", heard, "one", "three", "lost")
    if code != 0:
        sys.exit(f"c-api: status {code}")


main()
