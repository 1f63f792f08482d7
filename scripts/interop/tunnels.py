"""`dunlin tunnel` before a broker: a client of TCP that knows nothing of QUIC
reaches it over QUIC."""

import subprocess
import time
from pathlib import Path

from brokers import Broker, Dunlin, free_port

START_SECONDS_MAX = 10
STOP_SECONDS_MAX = 5


class Tunnel:
    """A running tunnel to the QUIC port of a broker."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.port = free_port()
        self.log = folder / "tunnel.log"
        command = [str(Dunlin.binary()), "tunnel"]
        command += ["--listen", f"127.0.0.1:{self.port}", "--cafile", str(broker.ca)]
        command += [f"amqp+quic://localhost:{broker.ports['quic']}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not Broker.listens(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the tunnel does not listen:\n{self.log.read_text()}")
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
