"""What the data directories in data/ hold: made by make.py with the program of a version,
looked for by run.py with the present one.
"""

import json
import subprocess
import tempfile
import time
from pathlib import Path

# Longest that a program may take.
SECONDS_MAX = 60
CONFIG = """
data_dir = "data"
[log]
level = "warn"
[topics]
max_delayed_messages = 10
[[queue]]
name = "orders"
[[listener]]
transport = "tcp"
address = "127.0.0.1:0"
"""
PAYLOADS = ["one", "two", "three"]


class Broker:
    """A broker in a folder, on a port that the system chose."""

    config = "dunlin.toml"

    def __init__(self, dunlin: str, folder: Path) -> None:
        self.dunlin, self.folder = dunlin, folder
        (folder / "dunlin.toml").write_text(CONFIG)

    def __enter__(self) -> "Broker":
        log = self.folder / "log"
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [self.dunlin, "broker", "--config", "dunlin.toml"],
                cwd=self.folder, stdout=output, stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + SECONDS_MAX
        while "try it, in two" not in (text := log.read_text()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the broker did not start:\n{text}")
            time.sleep(0.02)
        listening = next(line for line in text.splitlines() if "listening  tcp" in line)
        self.port = listening.split()[2].rpartition(":")[2]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(SECONDS_MAX)

    def run(self, *arguments: str, given: str | None = None) -> str:
        done = subprocess.run(
            [self.dunlin, *arguments], cwd=self.folder, input=given, text=True,
            capture_output=True, timeout=SECONDS_MAX,
        )
        if done.returncode:
            raise SystemExit(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def mqtt(self, command: str, *arguments: str, given: str | None = None) -> str:
        return self.run(command, "-h", "127.0.0.1", "-p", self.port, *arguments, given=given)

    def ctl(self, *arguments: str) -> list[dict]:
        text = self.run("ctl", "-c", self.config, "--json", *arguments)
        return [json.loads(line) for line in text.splitlines()]


def fill(broker: Broker) -> None:
    """What outlives a broker."""
    broker.mqtt("sub", "-i", "keeper", "-c", "-q", "2", "-t", "plant/#", "-t", "other/+", "-E")
    broker.mqtt("sub", "-i", "worker", "-c", "-q", "1", "-t", "$share/workers/jobs/#", "-E")
    broker.mqtt("sub", "-i", "old", "-V", "mqttv311", "-c", "-q", "1", "-t", "plant/alarm", "-E")
    broker.mqtt("pub", "-t", "plant/mode", "-m", "auto", "-q", "1", "-r")
    broker.mqtt("pub", "-t", "plant/alarm", "-q", "2", "-l", given="\n".join(PAYLOADS) + "\n")
    broker.mqtt(
        "pub", "-t", "plant/note", "-q", "1", "-m", "é",
        "-D", "publish", "user-property", "k", "v", "-D", "publish", "content-type", "text/plain",
    )
    broker.mqtt("pub", "-t", "jobs/1", "-q", "1", "-l", given="\n".join(PAYLOADS) + "\n")
    url = f"amqp://127.0.0.1:{broker.port}"
    broker.run("send", "--url", url, "-t", "/queues/orders", "--durable", "-m", "order 7")
    broker.run("ctl", "-c", broker.config, "ban", "--client", "thief", "--why", "was a thief")


def look(broker: Broker) -> None:
    """All of it is there."""
    sessions = {it["client_id"]: it for it in broker.ctl("sessions")}
    for name in ("keeper", "worker", "old"):
        expect(name in sessions, f"session {name}", sessions)
    filters = {it["filter"] for it in broker.ctl("subscriptions", "keeper")}
    expect(filters == {"plant/#", "other/+"}, "subscriptions", filters)
    banned = broker.ctl("bans")
    expect("thief" in json.dumps(banned), "bans", banned)
    retained = broker.mqtt("sub", "-t", "plant/mode", "-C", "1", "-W", "30")
    expect(retained == "auto\n", "retained message", retained)
    # Five that waited, and the retained one for subscribing again, which comes before those
    # of QoS 2 if their second packets take longer.
    text = broker.mqtt(
        "sub", "-i", "keeper", "-c", "-q", "2", "-t", "plant/#", "-C", "6", "-W", "30",
        "-F", "%t %q %p %P",
    )
    alarms = [line.split()[2] for line in text.splitlines() if line.startswith("plant/alarm 2 ")]
    expect(alarms == PAYLOADS, "queued messages, in order", text)
    notes = [line for line in text.splitlines() if line.startswith("plant/note")]
    expect(len(notes) == 1 and "é" in notes[0] and "k:v" in notes[0], "properties", text)
    old = broker.mqtt(
        "sub", "-i", "old", "-V", "mqttv311", "-c", "-q", "1", "-t", "plant/alarm", "-C", "3",
        "-W", "30",
    )
    expect(old.split() == PAYLOADS, "queue of a session of 3.1.1", old)
    jobs = broker.mqtt(
        "sub", "-i", "worker", "-c", "-q", "1", "-t", "$share/workers/jobs/#", "-C", "3",
        "-W", "30",
    )
    expect(jobs.split() == PAYLOADS, "queue of a shared subscription", jobs)
    url = f"amqp://127.0.0.1:{broker.port}"
    order = broker.run("receive", "--url", url, "-t", "/queues/orders", "-C", "1", "-W", "30")
    expect(order.strip() == "order 7", "queue of AMQP", order)


def expect(holds: bool, what: str, found: object) -> None:
    if not holds:
        raise SystemExit(f"upgrade: {what}: found {found}")


def folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="dunlin-upgrade-")
