"""Boots a root in a container, runs in it what a page of the book says, and upgrades there
from one package to the next. See service.sh.

    python3 -B scripts/package/service.py ROOT PAGE PACKAGE NEXT...      (packages: paths in the root)
"""

import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book"))

import blocks  # noqa: E402
import run as book  # noqa: E402
import upgrades  # noqa: E402

# Longest until systemd has started all that is to start.
BOOT_SECONDS_MAX = 120
# Longest that one block may take: apt unpacks, services start.
SECONDS_MAX = 180
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}


def main() -> int:
    root, page, packages = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    found = blocks.of_page(page)
    machine = Machine(root)
    try:
        if why := machine.boot():
            print(f"SKIPPED: package/service.sh: {why}")
            return 0
        for block in found:
            try:
                machine.do(block)
            except book.Failure as failure:
                print(f"package/service.sh: {page.name}:{block.line}: {failure}")
                machine.show_log()
                return 1
        print(f"package: {len(found)} blocks of {page.name}: ok", flush=True)
        try:
            upgrades.walk(machine, packages)
        except (book.Failure, SystemExit) as failure:
            print(f"package/service.sh: upgrade: {failure}")
            machine.show_log()
            return 1
    finally:
        machine.end()
    return 0


class Machine(book.Session):
    """A root with systemd as its first process, in namespaces of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output = self.input = ""
        self.log = root / "console"
        hosts = root / "etc/hosts"
        hosts.write_text(book.HOSTS)

    def boot(self) -> str:
        """Why it does not boot, or nothing."""
        with self.log.open("w") as log:
            self.container = subprocess.Popen(
                [
                    "systemd-nspawn",
                    "--quiet",
                    "--boot",
                    f"--directory={self.root}",
                    f"--machine=dunlin-{self.root.name.rpartition('.')[2]}",
                    "--register=no",
                    "--keep-unit",
                    "--private-network",
                    "--console=pipe",
                    # The container does not end when this program's terminal does.
                    "--kill-signal=SIGRTMIN+3",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + BOOT_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.container.poll() is not None:
                return f"systemd-nspawn does not boot here: {self.log.read_text().strip()}"
            state = self.inside("systemctl is-system-running 2>&1").stdout.strip()
            if state in ("running", "degraded"):
                self.inside("ip address add 192.0.2.10/24 dev lo")
                return ""
            time.sleep(0.2)
        return f"systemd is {state!r} after {BOOT_SECONDS_MAX} s"

    def leader(self) -> str:
        """The first process of the container."""
        task = f"/proc/{self.container.pid}/task/{self.container.pid}/children"
        children = Path(task).read_text().split()
        return children[0] if children else ""

    def inside(self, script: str, given: str = "") -> subprocess.CompletedProcess:
        leader = self.leader()
        spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]
        enter = ["nsenter", f"--target={leader}", *spaces] if leader else ["false"]
        return subprocess.run(
            [*enter, "bash", "-c", f"cd /root\n{script}"],
            env=ENVIRONMENT,
            input=given,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
        )

    def do(self, block: blocks.Block) -> None:
        match block.kind:
            case "file":
                path = self.root / block.argument.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            case "start" | "stop" | "wait":
                raise book.Failure(f"{block.kind!r} is not for a page with services")
            case _:
                super().do(block)

    def run(self, commands: str, fails: bool) -> None:
        given, self.input = self.input, ""
        try:
            done = self.inside(f"set -euo pipefail\n{commands}", given)
        except subprocess.TimeoutExpired as late:
            raise book.Failure(f"not done after {SECONDS_MAX} s: {late.output}") from late
        self.output = done.stdout
        if (done.returncode != 0) != fails:
            raise book.Failure(f"exit code {done.returncode}:\n{self.output}")

    def show_log(self) -> None:
        log = self.inside("systemctl --no-pager --failed; journalctl --no-pager -n 60 -u dunlin")
        print(log.stdout)

    def end(self) -> None:
        if self.container.poll() is not None:
            return
        self.container.terminate()
        try:
            self.container.wait(timeout=BOOT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.container.kill()


if __name__ == "__main__":
    sys.exit(main())
