"""Runs a broker for another processor under QEMU, with clients of this machine.
See arm64-test.sh."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Longest that the emulated broker may take to start, and a client to end.
START_SECONDS_MAX = 120
CLIENT_SECONDS_MAX = 90
# The machine that an ELF file is for.
EM_AARCH64 = 183
CONFIG = """
data_dir = "data"
[log]
level = "warn"
[[listener]]
transport = "quic"
address = "127.0.0.1:0"
[[listener]]
transport = "tls"
address = "127.0.0.1:0"
[[listener]]
transport = "tcp"
address = "127.0.0.1:0"
"""
SCHEMES = {"quic": "quic", "tls": "mqtts", "tcp": "mqtt"}


class Broker:
    """A broker under emulation, in a folder, at ports that the system chose."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.command, self.folder = command, folder

    def __enter__(self) -> "Broker":
        log = self.folder / "log"
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [*self.command, "broker", "--config", "dunlin.toml"],
                cwd=self.folder, stdout=output, stderr=subprocess.STDOUT,
            )
        try:
            self.urls = self.listening(log)
        except BaseException:
            self.process.kill()
            raise
        return self

    def listening(self, log: Path) -> dict[str, str]:
        deadline = time.monotonic() + START_SECONDS_MAX
        while "try it, in two" not in (text := log.read_text()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"arm64: the broker did not start:\n{text}")
            time.sleep(0.05)
        found = {}
        for line in text.splitlines():
            words = line.split()
            if words[:1] == ["listening"] and words[1] in SCHEMES:
                port = words[2].rpartition(":")[2]
                found[words[1]] = f"{SCHEMES[words[1]]}://localhost:{port}"
        if found.keys() != SCHEMES.keys():
            raise SystemExit(f"arm64: it does not listen at all of {list(SCHEMES)}:\n{text}")
        return found

    def __exit__(self, failed: object, *_: object) -> None:
        self.process.terminate()
        try:
            code = self.process.wait(START_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if failed or code:
            print((self.folder / "log").read_text(), file=sys.stderr)
        if code and not failed:
            raise SystemExit(f"arm64: the broker ended with {code}")


def main() -> int:
    dunlin, emulator, libraries, *programs = sys.argv[1:]
    for program in programs:
        check(dunlin, [emulator, "-L", libraries, program], Path(program))
    print(f"{len(programs)} passed, 0 failed")
    return 0


def check(dunlin: str, emulated: list[str], program: Path) -> None:
    machine = int.from_bytes(program.read_bytes()[18:20], "little")
    expect(machine == EM_AARCH64, f"{program}: the machine of its ELF header", machine)
    version = run(Path.cwd(), [*emulated, "--version"])
    commands = run(Path.cwd(), [*emulated, "--help"])
    clients = [dunlin]
    if any(line.split()[:1] == ["pub"] for line in commands.splitlines()):
        clients.append("")
    with tempfile.TemporaryDirectory(prefix="dunlin-arm64-") as name:
        folder = Path(name)
        (folder / "dunlin.toml").write_text(CONFIG)
        with Broker(emulated, folder) as broker:
            for client in clients:
                for transport, url in broker.urls.items():
                    exchange(folder, [client] if client else emulated, url, transport)
        with Broker(emulated, folder) as broker:
            for transport, url in broker.urls.items():
                kept = run(folder, [dunlin, "sub", *to(url), "-t", f"kept/{transport}", "-C", "1"])
                expect(kept == f"over {transport}\n", f"retained after a restart, {transport}", kept)
    clients = "clients of both" if len(clients) == 2 else "this machine's clients"
    print(f"arm64: {program}: {version.strip()}, {program.stat().st_size} bytes: {clients}: ok")


def exchange(folder: Path, client: list[str], url: str, transport: str) -> None:
    """One message that is kept for the restart, and queued ones for a session that is away."""
    message = f"over {transport}"
    name = f"reader-{transport}-{len(client)}"
    session = ["sub", *to(url), "-i", name, "-c", "-q", "1", "-t", f"queued/{transport}"]
    run(folder, [*client, *session, "-E"])
    run(folder, [*client, "pub", *to(url), "-t", f"kept/{transport}", "-m", message, "-r", "-q", "1"])
    got = run(folder, [*client, "sub", *to(url), "-t", f"kept/{transport}", "-C", "1"])
    expect(got == f"{message}\n", f"message over {transport}", got)
    large = "x" * 100_000
    run(folder, [*client, "pub", *to(url), "-t", f"queued/{transport}", "-m", large, "-q", "2"])
    got = run(folder, [*client, *session, "-C", "1"])
    expect(got == f"{large}\n", f"queued message over {transport}", got[:100])


def to(url: str) -> list[str]:
    return ["--url", url, *([] if url.startswith("mqtt:") else ["--ca", "data/certs/ca.pem"])]


def run(folder: Path, command: list[str]) -> str:
    done = subprocess.run(
        command, cwd=folder, text=True, capture_output=True, timeout=CLIENT_SECONDS_MAX
    )
    if done.returncode:
        raise SystemExit(f"arm64: {command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(holds: bool, what: str, found: object) -> None:
    if not holds:
        raise SystemExit(f"arm64: {what}: found {found!r}")


if __name__ == "__main__":
    sys.exit(main())
