"""Runs `dunlin send` and `dunlin receive`, and what else the client library does, against
servers of AMQP by others."""

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import builds
import results
from brokers import ROOT, Dunlin, free_port, make_certificates

# Longest that all cases of the driver may take together.
RUN_SECONDS_MAX = 300
# Longest that one command may take, and that Artemis may take to start.
COMMAND_SECONDS_MAX = 60

# The user that Artemis knows where it knows one.
USER, PASSWORD = "ann", "secret"

# How a command ends that the server does not let in.
REFUSED = 1


def driver(dunlin: Path, only: str) -> list[tuple[str, str, str]]:
    """Name, mark and reason of each case against the driver's server."""
    classpath, missing = builds.java()
    if missing:
        return [("driver", "skip", missing)]
    command = ["java", *builds.JAVA_FLAGS, "-cp", classpath, "own.Main", str(dunlin), only]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the driver ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found = []
    for line in done.stdout.splitlines():
        if line.startswith("ok "):
            found.append((line.removeprefix("ok "), "ok", ""))
        elif line.startswith("not ok "):
            name, _, reason = line.removeprefix("not ok ").partition(": ")
            found.append((name, "FAIL", reason))
    return found


class Artemis:
    """A running Artemis without persistence; with a folder for its certificate it has TLS,
    and lets one user in."""

    def __init__(self, classpath: str, folder: Path | None = None) -> None:
        port = free_port()
        self.url = f"amqp://127.0.0.1:{port}"
        self.ca: Path | None = None
        command = ["java", "-Xmx512m", "-cp", classpath, "Embedded", str(port)]
        if folder:
            make_certificates(folder)
            self.ca = folder / "ca.pem"
            self.url = f"amqps://{USER}:{PASSWORD}@localhost:{port}"
            store = folder / "server.p12"
            export = ["openssl", "pkcs12", "-export", "-passout", "pass:artemis"]
            export += ["-in", "server.pem", "-inkey", "server.key", "-out", str(store)]
            subprocess.run(export, cwd=folder, check=True, capture_output=True)
            command += [str(store), USER, PASSWORD]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + COMMAND_SECONDS_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    self.stop()
                    raise RuntimeError("Artemis does not listen") from None
                time.sleep(0.1)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Session:
    """Commands of the client against one server, on a queue of a case's own."""

    def __init__(self, dunlin: Path, url: str, queue: str, ca: Path | None = None) -> None:
        self.dunlin, self.url, self.queue, self.ca = dunlin, url, queue, ca

    def peer(self, what: str) -> None:
        """What the command line does not have."""
        program, missing = builds.example("dunlin-amqp-client", "peer")
        if missing:
            raise AssertionError(missing)
        self.execute([str(program), what, self.url, self.queue, *([str(self.ca)] if self.ca else [])])

    def run(self, what: str, *options: str, given: str = "", code: int = 0) -> str:
        command = [str(self.dunlin), what, "--url", self.url, "-t", self.queue]
        command += ["--cafile", str(self.ca)] if self.ca else []
        return self.execute([*command, *options], given, code)

    @staticmethod
    def execute(command: list[str], given: str = "", code: int = 0) -> str:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        if done.returncode != code:
            raise AssertionError(f"{command[1:]} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def send(self, *options: str, given: str = "") -> None:
        self.run("send", *options, given=given)

    def receive(self, *options: str) -> str:
        return self.run("receive", *options)


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"found {str(found)[:200]!r}, wanted {str(wanted)[:200]!r}")


def unsettled(s: Session) -> None:
    s.send("-m", "hello")
    expect(s.receive("-C", "1"), "hello\n")
    expect(s.receive("--drain"), "")


def settled(s: Session) -> None:
    s.send("-m", "hello", "--settled", "-C", "3")
    expect(s.receive("-C", "3", "--settled"), "hello\n" * 3)


def many(s: Session) -> None:
    lines = "".join(f"{number}\n" for number in range(2000))
    s.send("-l", "-M", "500", given=lines)
    expect(s.receive("-C", "2000", "--credit", "100"), lines)
    expect(s.receive("--drain"), "")


def large(s: Session) -> None:
    text = "0123456789" * 80_000
    s.send("-s", given=text)
    expect(s.receive("-C", "1"), text + "\n")


def fields(s: Session) -> None:
    options = ["--subject", "about", "--message-id", "7", "--content-type", "text/plain"]
    s.send("-m", "x", "--durable", "--priority", "7", "--property", "colour=blue", *options)
    expect(s.receive("-C", "1", "-F", "%s %m %c %p"), "about 7 text/plain x\n")


def released(s: Session) -> None:
    s.send("-m", "x")
    expect(s.receive("-C", "1", "--release"), "x\n")
    expect(s.receive("-C", "1"), "x\n")


def browsed(s: Session) -> None:
    s.send("-m", "x")
    expect(s.receive("-C", "1", "--browse"), "x\n")
    expect(s.receive("-C", "1"), "x\n")


def selected(s: Session) -> None:
    s.send("-m", "red", "--property", "colour=red")
    s.send("-m", "blue", "--property", "colour=blue")
    expect(s.receive("-C", "1", "--selector", "colour = 'blue'"), "blue\n")
    expect(s.receive("-C", "1"), "red\n")


def shared(s: Session) -> None:
    """What one consumer leaves, another has."""
    s.send("-l", given="".join(f"{number}\n" for number in range(10)))
    first = s.receive("-C", "4", "--credit", "1").split()
    rest = s.receive("-C", "6").split()
    expect(sorted(first + rest, key=int), [str(number) for number in range(10)])


def described(s: Session) -> None:
    s.send("-m", "x", "--reply-to", "back")
    expect(json.loads(s.receive("-C", "1", "--json"))["payload"], "x")


def durable(s: Session) -> None:
    """A subscription has what was sent while its receiver was away, until it is ended."""
    receiver = ("-i", f"client-{s.queue}", "--subscription", "sub", "--capability", "topic")
    s.receive(*receiver, "--drain")
    s.send("-l", "--capability", "topic", given="one\ntwo\n")
    expect(s.receive(*receiver, "-C", "2"), "one\ntwo\n")
    s.send("-m", "three", "--capability", "topic")
    expect(s.receive(*receiver, "-C", "1", "--unsubscribe"), "three\n")
    s.send("-m", "four", "--capability", "topic")
    expect(s.receive(*receiver, "--drain", "--unsubscribe"), "")


def transaction(s: Session) -> None:
    s.peer("transaction")


def dynamic(s: Session) -> None:
    s.peer("dynamic")


def refused(s: Session) -> None:
    """A wrong password lets nothing in."""
    wrong = Session(s.dunlin, s.url.replace(PASSWORD, "wrong"), s.queue, s.ca)
    wrong.run("send", "-m", "x", code=REFUSED)
    expect(s.receive("--drain"), "")


SCENARIOS = (
    unsettled,
    settled,
    many,
    large,
    fields,
    released,
    browsed,
    selected,
    shared,
    described,
    durable,
    transaction,
    dynamic,
)


def build_artemis(folder: Path) -> tuple[str, str]:
    """The class path of bench/artemis, or why there is none."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            return "", f"{program} is not installed"
    source = ROOT / "bench/artemis"
    jars = ROOT / "target/interop-java/artemis"
    if not any(jars.glob("artemis-server-*.jar")):
        shutil.copy(source / "pom.xml", folder)
        command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return "", "Artemis cannot be fetched"
    classes = folder / "classes"
    command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes)]
    subprocess.run([*command, str(source / "Embedded.java")], check=True)
    return f"{classes}:{jars}/*", ""


def artemis(dunlin: Path, only: str) -> list[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory(prefix="artemis-") as folder:
        classpath, missing = build_artemis(Path(folder))
        if missing:
            return [("artemis", "skip", missing)]
        plain = scenarios(dunlin, "artemis", Artemis(classpath), only)
        secure = Artemis(classpath, Path(folder) / "certificates")
        return plain + scenarios(dunlin, "artemis-tls", secure, only)


def scenarios(dunlin: Path, title: str, server: Artemis, only: str) -> list[tuple[str, str, str]]:
    found = []
    try:
        for scenario in (*SCENARIOS, refused) if server.ca else SCENARIOS:
            name = f"{title} {scenario.__name__}"
            if only not in name:
                continue
            try:
                queue = f"interop.{scenario.__name__}"
                scenario(Session(dunlin, server.url, queue, server.ca))
                found.append((name, "ok", ""))
            except (AssertionError, subprocess.TimeoutExpired) as error:
                found.append((name, "FAIL", str(error)))
    finally:
        server.stop()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artemis", action="store_true", help="also ActiveMQ Artemis")
    parser.add_argument("--only", default="", metavar="PART_OF_NAME")
    args = parser.parse_args()
    dunlin = Dunlin.binary()
    if dunlin is None:
        print("amqp-client: skipped: there is no dunlin binary")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    start = time.monotonic()
    found = driver(dunlin, args.only)
    if args.artemis:
        found += artemis(dunlin, args.only)
    for name, mark, reason in found:
        if mark == "skip":
            print(f"amqp-client: skipped: {name}: {reason}")
    count = Counter(mark for _, mark, _ in found)
    print(f"amqp-client: {len(found)} cases, {time.monotonic() - start:.1f} s")
    return results.conclude(count, [f"{name}: {why}" for name, mark, why in found if mark == "FAIL"])


if __name__ == "__main__":
    sys.exit(main())
