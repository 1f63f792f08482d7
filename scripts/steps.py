"""Runs steps of `make test`, and says how long each takes: of the clock, and of processors.

    python3 -B scripts/steps.py [--beside STEP] [--at-once N] STEPS...

STEPS are commands of the shell, one a line, or several where a line ends in `&&`. They run one after another and show what they
say. With --at-once they run N at once, for those that mostly wait: what a step says is kept,
and shown when it ends, below its name and times. STEP runs beside them all, and is kept. The
first step that fails ends the others, and is the last that is shown. Steps that run at once
get different ports (scripts/ports.py).
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import IO

from ports import LANES

# How long a step that is to end may take, before it is killed.
END_SECONDS_MAX = 20


@dataclass
class Step:
    """A step that runs."""

    command: str
    # Which range of ports is its own.
    lane: int
    # What it says; None where that is shown at once.
    output: IO[bytes] | None
    process: subprocess.Popen
    began: float

    def signal(self, number: int) -> None:
        """To all its processes."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def show(self, verdict: str) -> None:
        print(f"step: {verdict}: {self.command}", flush=True)
        if self.output is not None:
            self.output.seek(0)
            sys.stdout.buffer.write(self.output.read())
            sys.stdout.flush()


class Steps:
    """Steps that run."""

    def __init__(self) -> None:
        self.running: list[Step] = []

    def begin(self, command: str, keep: bool) -> Step:
        print(f"step: begins: {command}", flush=True)
        lane = min(set(range(LANES)) - {step.lane for step in self.running})
        output = tempfile.TemporaryFile() if keep else None
        process = subprocess.Popen(
            ["bash", "-c", command],
            env=dict(os.environ, PORTS_LANE=str(lane)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output and subprocess.STDOUT,
            start_new_session=True,
        )
        self.running.append(Step(command, lane, output, process, time.monotonic()))
        return self.running[-1]

    def end_one(self) -> bool:
        """Waits until a step ends, and shows it; whether it succeeded."""
        pid, status, used = os.wait4(-1, 0)
        step = next(step for step in self.running if step.process.pid == pid)
        self.running.remove(step)
        code = os.waitstatus_to_exitcode(status)
        seconds, computed = time.monotonic() - step.began, used.ru_utime + used.ru_stime
        if code:
            self.end_all("ended, another failed")
        failed = f"FAILED with {code} after " if code else ""
        step.show(f"{failed}{seconds:.1f} s, {computed:.1f} s of processors")
        return code == 0

    def end_all(self, why: str) -> None:
        for step in self.running:
            step.signal(signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS_MAX
        for step in self.running:
            try:
                step.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            # And what it left behind.
            step.signal(signal.SIGKILL)
            step.show(why)
        self.running.clear()

    def run(self, commands: list[str], at_once: int, keep: bool, beside: str | None) -> bool:
        """Whether all succeed."""
        waiting = commands.copy()
        other = self.begin(beside, keep=True) if beside else None
        while waiting or self.running:
            while waiting and sum(step is not other for step in self.running) < at_once:
                self.begin(waiting.pop(0), keep)
            if not self.end_one():
                return False
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--beside", metavar="STEP")
    parser.add_argument("--at-once", type=int, choices=range(1, LANES), metavar="N")
    parser.add_argument("steps", nargs="+")
    args = parser.parse_args()
    lines = "\n".join(args.steps).replace("&&\n", "&& ").splitlines()
    commands = [line.strip() for line in lines if line.strip()]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    steps = Steps()
    try:
        keep = args.at_once is not None
        succeed = steps.run(commands, args.at_once or 1, keep, args.beside)
        return 0 if succeed else 1
    finally:
        steps.end_all("ended")


if __name__ == "__main__":
    sys.exit(main())
