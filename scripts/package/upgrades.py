"""Upgrades the service of a booted machine from one package to the next, under a client that
stays, one that publishes, and sessions whose clients are away. See service.py.
"""

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "upgrade"))

import state  # noqa: E402

if TYPE_CHECKING:
    from service import Machine

# What an administrator adds; what `state` asks for is in it.
CHANGE = """
# changed by the administrator
[[queue]]
name = "orders"
"""
# Messages that are published while an upgrade goes on, and the time between two.
COUNT = 150
BETWEEN_SECONDS = 0.1
# Longest from the last message until the client that stayed has all.
SECONDS_MAX = 60


class Service(state.Broker):
    """The broker of the machine, with the machine's own dunlin."""

    config = "/etc/dunlin/dunlin.toml"

    def __init__(self, machine: "Machine") -> None:
        self.machine, self.port = machine, "1883"

    def run(self, *arguments: str, given: str | None = None) -> str:
        return self.shell(shlex.join(["dunlin", *arguments]), given or "")

    def shell(self, command: str, given: str = "") -> str:
        """What a command says, without its errors and warnings."""
        script = f"( {command}\n) 2>/tmp/said || {{ cat /tmp/said; false; }}"
        done = self.machine.inside(f"set -euo pipefail\n{script}", given)
        if done.returncode:
            raise SystemExit(f"{command}: {done.returncode}\n{done.stdout}")
        return done.stdout

    def in_background(self, command: str, output: str) -> None:
        self.shell(f"setsid bash -c {shlex.quote(command)} >{output} 2>{output}.errors </dev/null &")

    def property(self, name: str) -> str:
        return self.shell(f"systemctl show --value --property={name} dunlin").strip()

    def version(self) -> str:
        return self.shell("dpkg-query --show --showformat='${Version}' dunlin")

    def configuration(self) -> str:
        return self.shell(f"cat {self.config}")


def walk(machine: "Machine", packages: list[str]) -> None:
    """Installs the first package, and each of the others over the one before it."""
    service = Service(machine)
    first, *later = packages
    service.shell(f"apt-get install -y -qq {first}")
    service.shell(f"cat >>{service.config}", CHANGE)
    service.shell("systemctl restart dunlin")
    state.fill(service)
    watch = "dunlin sub -i watcher -c -q 1 -t watched/#"
    service.shell(f"{watch} -E")
    service.in_background(f"{watch} -F '%t %p'", "/srv/watched")
    offered = offers(service, first)
    for number, package in enumerate(later):
        upgrade(service, package, f"watched/{number}")
        beside = "dunlin.toml.dpkg-dist" in service.shell("ls /etc/dunlin").split()
        changed = offers(service, package) != offered
        state.expect(beside == changed, "the new version's own configuration, if it changed", beside)
        offered = offers(service, package)
    state.look(service)
    restarts = service.property("NRestarts")
    state.expect(restarts == "0", "restarts after a failure", restarts)


def offers(service: Service, package: str) -> str:
    """The configuration that a package has."""
    return service.shell(f"dpkg-deb --fsys-tarfile {package} | tar -xO .{service.config}")


def upgrade(service: Service, package: str, topic: str) -> None:
    before, process, kept = service.version(), service.property("MainPID"), service.configuration()
    # At a steady pace, so that some come before, some after, some while no broker is there.
    numbers = f"for it in $(seq {COUNT}); do echo $it; sleep {BETWEEN_SECONDS}; done"
    service.in_background(f"({numbers}) | dunlin pub -t {topic} -q 1 -l", "/srv/published")
    service.shell("sleep 2")
    # Where both the administrator and the new version have changed the file, apt would ask.
    service.shell(f"apt-get -o Dpkg::Options::=--force-confold install -y -qq {package}")
    expected = service.shell(f"dpkg-deb --field {package} Version").strip()
    after = service.version()
    state.expect(after == expected, f"version of {package}", after)
    newer = service.shell(f"dpkg --compare-versions {after} gt {before} && echo yes").strip()
    state.expect(newer == "yes", f"a higher version than {before}", after)
    state.expect(service.configuration() == kept, "configuration", service.configuration())
    active = service.property("ActiveState")
    state.expect(active == "active", "service", active)
    new = service.property("MainPID")
    state.expect(new not in (process, "0"), "a process of the new version", new)
    # That of a file that is gone is said to be "deleted".
    runs = service.shell(f"readlink /proc/{new}/exe").strip()
    state.expect(runs == "/usr/bin/dunlin", "the program that runs", runs)
    until(service, topic)
    print(f"package: upgrade from {before} to {after}: ok", flush=True)


def until(service: Service, topic: str) -> None:
    """The client that stayed has all that was published; what was sent again may be there twice."""
    wanted = [f"{topic} {it}" for it in range(1, COUNT + 1)]
    deadline = time.monotonic() + COUNT * BETWEEN_SECONDS + SECONDS_MAX
    while True:
        got = set(service.shell("cat /srv/watched").splitlines())
        if got.issuperset(wanted):
            return
        if time.monotonic() > deadline:
            said = service.shell("cat /srv/watched.errors /srv/published.errors")
            missing = [it for it in wanted if it not in got]
            raise SystemExit(f"the subscriber has not {missing}:\n{said}")
        time.sleep(0.5)
