"""Runs what pages of the book say. See run.sh and blocks.py."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import blocks

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "docs/book/src"
# Longest that a command may take, or a program until it says what is waited for.
SECONDS_MAX = 60
# What a broker says when it is there.
LISTENS = "dunlin sub "
# Machines of the pages; all of them are this one.
HOSTS = "127.0.0.1 localhost\n::1 localhost\n192.0.2.10 broker.example other.example\n"


class Failure(Exception):
    """Something on a page is not so."""


def main() -> int:
    if os.environ.get("BOOK_INSIDE"):
        return run_page(Path(sys.argv[1]))
    dunlin, spaces, names = sys.argv[1], sys.argv[2].split(), sys.argv[3:]
    pages = [BOOK / name for name in names] or every_page()
    failed = skipped = 0
    for page in pages:
        began = time.monotonic()
        environment = dict(os.environ, BOOK_INSIDE=dunlin)
        command = ["unshare", *spaces, sys.executable, "-B", __file__, str(page)]
        code = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL).returncode
        skipped += code == 3
        failed += code not in (0, 3)
        verdict = {0: "ok", 3: "skipped"}.get(code, "FAILED")
        print(f"book: {page.name}: {verdict} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"{len(pages) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def every_page() -> list[Path]:
    """Those by task must have commands, or links to them; others may. A page for a machine
    is not run here."""
    pages = sorted(page for page in BOOK.glob("*.md") if not blocks.is_of_machine(page))
    return [page for page in pages if page.name.startswith("operate") or blocks.has_some(page)]


def run_page(page: Path) -> int:
    """In namespaces of its own."""
    found = blocks.of_page(page)
    wants = re.search(r"<!-- needs (.*?) -->", page.read_text())
    for program in wants[1].split() if wants else []:
        if not shutil.which(program):
            print(f"book: {page.name}: skipped: no {program}")
            return 3
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", "192.0.2.10/24", "dev", "lo"], check=True)
    with tempfile.TemporaryDirectory(prefix="dunlin-book-") as folder:
        session = Session(Path(folder), os.environ["BOOK_INSIDE"])
        try:
            for block in found:
                try:
                    session.do(block)
                except Failure as failure:
                    print(f"book: {page.name}:{block.line}: {failure}")
                    session.show_logs()
                    return 1
            return 0
        finally:
            session.end()
            # The folder cannot go while something is mounted there.
            subprocess.run(f"umount {folder}/here/* 2>/dev/null", shell=True)


class Session:
    """A folder, and the programs that were started in it."""

    def __init__(self, folder: Path, dunlin: str) -> None:
        self.folder = folder / "here"
        self.folder.mkdir()
        self.logs = folder / "logs"
        self.logs.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        (programs / "dunlin").symlink_to(dunlin)
        hosts = folder / "hosts"
        hosts.write_text(HOSTS)
        subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
        path = f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin"
        # What the developer has in the environment is not in the book.
        mine = {key: value for key, value in os.environ.items() if not key.startswith("DUNLIN")}
        self.environment = dict(mine, PATH=path, HOME=str(folder), REPOSITORY=str(ROOT))
        self.running: list[tuple[subprocess.Popen, Path]] = []
        self.output = ""
        self.input = ""

    def do(self, block: blocks.Block) -> None:
        match block.kind:
            case "file":
                path = self.folder / block.argument
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            case "run" | "fails":
                self.run(block.text, fails=block.kind == "fails")
            case "start":
                self.start(block.text)
            case "stop":
                self.end()
            case "wait":
                self.wait_for(*self.running[-1], block.argument)
            case "input":
                self.input = block.argument + "\n"
            case "shows":
                self.shows(block.text)

    def run(self, commands: str, fails: bool) -> None:
        script = f"set -euo pipefail\n{commands}"
        given, self.input = self.input, ""
        try:
            done = subprocess.run(
                ["bash", "-c", script],
                cwd=self.folder,
                env=self.environment,
                input=given,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SECONDS_MAX,
            )
        except subprocess.TimeoutExpired as late:
            raise Failure(f"not done after {SECONDS_MAX} s: {late.output}") from late
        self.output = done.stdout
        if (done.returncode != 0) != fails:
            raise Failure(f"exit code {done.returncode}:\n{self.output}")

    def start(self, commands: str) -> None:
        log = self.logs / str(len(list(self.logs.iterdir())))
        with log.open("w") as output:
            program = subprocess.Popen(
                ["bash", "-c", f"exec {commands.strip()}"],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.running.append((program, log))
        if "dunlin broker" in commands:
            self.wait_for(program, log, LISTENS)

    def wait_for(self, program: subprocess.Popen, log: Path, text: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while text not in log.read_text():
            if program.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"a program did not say {text!r}:\n{log.read_text()}")
            time.sleep(0.02)

    def shows(self, text: str) -> None:
        """Each line of `text` is a line of the output, in order."""
        lines = iter(self.output.splitlines())
        for want in text.splitlines():
            parts = [re.escape(part.strip()) for part in re.split("…", want)]
            # Columns may be wider where names are longer.
            pattern = re.compile(re.sub(r"(\\ )+", r"\\s+", ".*".join(parts)))
            if want.strip("… ") and not any(pattern.search(line) for line in lines):
                raise Failure(f"{want!r} is not in:\n{self.output}")

    def show_logs(self) -> None:
        for _, log in self.running:
            print("".join(log.read_text().splitlines(keepends=True)[-30:]))

    def end(self) -> None:
        for program, _ in self.running:
            if program.poll() is None:
                program.send_signal(signal.SIGTERM)
        for program, log in self.running:
            try:
                program.wait(timeout=SECONDS_MAX)
            except subprocess.TimeoutExpired:
                program.kill()
                raise Failure(f"a program does not stop:\n{log.read_text()}") from None
        self.running.clear()


if __name__ == "__main__":
    sys.exit(main())
