"""What the firmware must do under QEMU against the broker, in good and in bad
networks. Each scenario has its own broker, network and device."""

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bench import Broker, Network
from device import GATEWAY, NO_ADDRESS, Device, public_key, settings
from lan import Lan
from peers import identity

UP = "mcu/1/up"
DOWN = "mcu/1/down"
RESUMED = 1 << 31
EARLY = 1 << 30
# The engine's numbers for a server that closes the connection, and for one with
# another key.
CLOSED_BY_PEER = 2
WRONG_KEY = 99
# The device's for a next hop or an address that no server gives.
NO_WAY = 0xFFFF
SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


class World:
    """A broker, a network, a subscriber and a device."""

    def __init__(
        self, image, folder, show, loss=0.0, key=None, lease=None, client_ca=None, **changes
    ):
        self.broker = Broker(folder)
        self.broker.client_ca = client_ca
        self.broker.start()
        self.network = Network(("127.0.0.1", self.broker.ports["quic"]), loss)
        self.readings = self.broker.subscriber(UP)
        key = key or public_key(self.broker.key_file())
        page = settings((GATEWAY, self.network.port), key, **changes)
        self.lan = Lan(lease) if lease else None
        self.device = Device(image, page, self.lan and self.lan.nic(), show=show)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.device.end()
        if self.lan:
            self.lan.end()
        self.readings.end()
        self.network.end()
        self.broker.stop()

    def noted(self, name):
        return [value for _, note, value in self.device.notes if note == name]

    def arrived(self, last):
        """Waits for the readings up to this one. None may be missing; one whose
        acknowledgement was lost may come twice."""
        end = time.monotonic() + 10
        want = [str(number) for number in range(1, last + 1)]
        while sorted(set(self.readings.payloads), key=int) != want:
            check(time.monotonic() < end, f"readings {self.readings.payloads}, not 1 to {last}")
            time.sleep(0.05)


def check(truth, text):
    if not truth:
        raise AssertionError(text)


@scenario
def report(world):
    """connects verified, publishes, takes a command, sleeps, resumes with early data"""
    with world(sleep_ms=500, wakes=0) as w:
        check(w.device.wait("connected") & RESUMED == 0, "resumed without a ticket")
        w.device.wait("published")
        w.device.wait("sleep")
        w.broker.publish(DOWN, "L1")
        check(w.device.wait("connect") > 0, "no ticket was kept")
        connected = w.device.wait("connected")
        check(connected & RESUMED, "the session was not resumed")
        check(connected & EARLY, "early data was not taken")
        check(w.device.wait("command") == ord("L"), "another command")
        w.device.wait("sleep")
        w.arrived(2)
        check(w.noted("early")[:2] == [0, 1], "nothing was sent early")
        check(not w.noted("failed"), "a wake failed")
        return f"{w.device.stack()} bytes of stack"


@scenario
def reset(world):
    """after a reset, resumes with the ticket in flash, and draws other random bytes"""
    with world(sleep_ms=60_000, wakes=0) as w:
        w.device.wait("sleep")
        before = list(w.network.ids)
        w.device.reset()
        check(w.device.wait("boot") == 1, "the state of the generator was lost")
        connected = w.device.wait("connected")
        check(connected & EARLY, "early data was not taken")
        w.device.wait("published")
        # The count begins again: the first reading comes twice.
        w.arrived(1)
        check(w.network.ids[len(before)] not in before, "the same random bytes as before")
        return ""


@scenario
def restart(world):
    """resumes with early data after the broker was killed and started again"""
    with world(sleep_ms=1500, wakes=0) as w:
        w.device.wait("sleep")
        w.readings.end()
        w.broker.kill()
        w.broker.start()
        w.readings = w.broker.subscriber(UP)
        connected = w.device.wait("connected")
        check(connected & EARLY, "early data was not taken")
        check(w.device.wait("published") == 2, "another reading")
        check(not w.noted("failed"), "a wake failed")
        return ""


@scenario
def restart_connected(world):
    """delivers what it could not while the broker was restarted under the connection"""
    with world(sleep_ms=500, wakes=0, readings=20, gap_ms=200) as w:
        w.device.wait("published")
        w.device.wait("published")
        w.broker.kill()
        w.device.wait("reading")
        w.broker.start()
        w.device.wait("failed")
        w.device.wait("connected")
        again = w.device.wait("reading")
        check(w.device.wait("published") == again, "another reading")
        failed = w.noted("failed")
        return f"gave up {len(failed)} time, code {failed[0]}, then reconnected"


@scenario
def rebind(world):
    """stays connected while a NAT on the way forgets it, twice"""
    with world(sleep_ms=60_000, wakes=0, readings=8, gap_ms=300) as w:
        for _ in range(2):
            w.device.wait("published")
            w.network.rebind()
        w.device.wait("sleep")
        w.arrived(8)
        check(len(w.noted("connect")) == 1, "connected again")
        check(not w.noted("failed"), "a wake failed")
        return f"{w.network.rebound} addresses forgotten"


@scenario
def move(world):
    """goes on from another address, there and back, on command"""
    with world(sleep_ms=60_000, wakes=0, readings=10, gap_ms=300) as w:
        w.device.wait("subscribed")
        for _ in range(2):
            w.device.wait("published")
            w.broker.publish(DOWN, "M")
            check(w.device.wait("moved") == 1, "the server allowed no migration")
        w.device.wait("sleep")
        w.arrived(10)
        check(len(w.noted("connect")) == 1, "connected again")
        check(not w.noted("failed"), "a wake failed")
        return f"{len(w.network.outside)} addresses seen"


@scenario
def key_update(world):
    """takes new keys on command"""
    with world(sleep_ms=60_000, wakes=0, readings=6, gap_ms=300) as w:
        w.device.wait("subscribed")
        w.device.wait("published")
        w.broker.publish(DOWN, "U")
        w.device.wait("command")
        w.device.wait("sleep")
        w.arrived(6)
        check(not w.noted("failed"), "a wake failed")
        return ""


@scenario
def loss(world):
    """delivers all readings of 20 wakes at 5 % loss in both directions"""
    with world(loss=0.05, sleep_ms=200, wakes=20) as w:
        for _ in range(20):
            w.device.wait("published", 120)
        w.arrived(20)
        early = sum(1 for value in w.noted("connected") if value & EARLY)
        lost = w.network.lost
        check(lost > 0, "nothing was lost")
        failed = len(w.noted("failed"))
        return f"{lost} of {lost + w.network.passed} datagrams lost, {early} early, {failed} failed"


@scenario
def wrong_key(world):
    """refuses a server with another key, each time, and lives on"""
    other = bytes.fromhex(
        "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
        "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
    )
    with world(sleep_ms=200, wakes=0, key=other) as w:
        for _ in range(2):
            failed = w.device.wait("failed")
            check(failed == WRONG_KEY, f"failed with {failed}, not {WRONG_KEY}")
        check(not w.noted("connected") and not w.readings.payloads, "something was said")
        return ""


@scenario
def impostor(world):
    """refuses a server that has taken the broker's place, and delivers when that is back"""
    with world(sleep_ms=1000, wakes=0) as w, tempfile.TemporaryDirectory() as folder:
        other = Broker(Path(folder))
        other.start()
        # Between two connections.
        w.device.wait("sleep")
        w.network.server = ("127.0.0.1", other.ports["quic"])
        w.network.rebind()
        try:
            for _ in range(2):
                failed = w.device.wait("failed")
                check(failed == WRONG_KEY, f"failed with {failed}, not {WRONG_KEY}")
        finally:
            other.stop()
        w.network.server = ("127.0.0.1", w.broker.ports["quic"])
        w.network.rebind()
        check(w.device.wait("connected", 120) & RESUMED == 0, "the ticket was kept")
        w.arrived(w.device.wait("published"))
        return f"refused {len(w.noted('failed'))} times"


@scenario
def broker_away(world):
    """sleeps longer while there is no broker, and delivers when there is one"""
    with world(sleep_ms=100, wakes=0) as w:
        w.device.wait("sleep")
        w.broker.stop()
        w.device.wait("failed")
        w.broker.start()
        w.device.wait("connected", 120)
        check(w.device.wait("published") == 2, "another reading")
        sleeps = w.noted("sleep")
        check(sleeps[1] > sleeps[0], "slept no longer after a failure")
        return f"slept {sleeps[0]} ms, after a failure {sleeps[1]} ms"


@scenario
def dhcp(world):
    """asks for an address, keeps it through sleep, renews it, and takes another when it must"""
    first, second = ("10.0.2.30", 6), ("10.0.2.31", 60)
    nowhere = dict.fromkeys(("ip", "other", "mask", "gateway"), NO_ADDRESS)
    with world(lease=first, sleep_ms=300, wakes=0, listen_ms=100, **nowhere) as w:
        said = w.lan.said
        w.device.wait("sleep")
        connected = w.device.wait("connected")
        check(connected & EARLY, "early data was not taken")
        check(said == ["discover", "request"], f"the server heard {said}")
        # Half of the lease goes by.
        while len(said) < 3:
            w.device.wait("published")
        check(said[2] == "request", f"the server heard {said}")
        check(w.lan.seen == [first[0]], f"datagrams from {w.lan.seen}")
        # A lease that is refused ends a wake; the next one asks. On a slow machine the
        # lease may be over before.
        w.lan.lease = second
        while w.lan.seen[-1] != second[0]:
            w.arrived(w.device.wait("published"))
        check(set(w.noted("failed")) <= {NO_WAY}, "failed for another reason")
        check("discover" in said[3:], f"the server heard {said}")
        return f"addresses {', '.join(w.lan.seen)}"


@scenario
def certificate(world):
    """shows the broker who it is, and keeps a ticket beside its certificate"""
    with tempfile.TemporaryDirectory() as folder:
        authority, *own = identity(Path(folder) / "ours")
        with world(client_ca=authority, identity=own, sleep_ms=500, wakes=0) as w:
            check(w.device.wait("connected") & RESUMED == 0, "resumed without a ticket")
            w.device.wait("published")
            connected = w.device.wait("connected")
            check(connected & EARLY, "early data was not taken")
            w.arrived(w.device.wait("published"))
            check(not w.noted("failed"), "a wake failed")
            return f"{len(own[0])} bytes, {w.device.stack()} bytes of stack"


@scenario
def foreign_certificate(world):
    """is refused with a certificate of another authority, each time, and lives on"""
    with tempfile.TemporaryDirectory() as folder:
        authority, *_ = identity(Path(folder) / "ours")
        _, *own = identity(Path(folder) / "theirs")
        with world(client_ca=authority, identity=own, sleep_ms=200, wakes=0) as w:
            for _ in range(2):
                failed = w.device.wait("failed")
                check(failed == CLOSED_BY_PEER, f"failed with {failed}, not {CLOSED_BY_PEER}")
            check(not w.readings.payloads, "something was taken")
            return ""


# Those that need no more time than a build.
QUICK = ("report", "dhcp", "certificate")
# Those for images with a feature.
FEATURES = {
    "dhcp": "smoltcp",
    "certificate": "client_certificate",
    "foreign_certificate": "client_certificate",
}


def run(name, image, show):
    if show:
        print(f"{name}:")
    with tempfile.TemporaryDirectory() as folder:

        def world(**changes):
            return World(image, Path(folder), show, **changes)

        began = time.monotonic()
        try:
            text = SCENARIOS[name](world)
            result = "passed"
        except Exception as error:  # noqa: BLE001
            if not isinstance(error, (AssertionError, TimeoutError, EOFError)):
                traceback.print_exc()
            text = f"{type(error).__name__}: {error}"
            result = "failed"
        seconds = time.monotonic() - began
    what = SCENARIOS[name].__doc__
    print(f"{result}  {seconds:5.1f} s  {name}: {what}{'; ' + text if text else ''}", flush=True)
    return result == "passed"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image")
    parser.add_argument("--quick", action="store_true", help="the shortest only")
    parser.add_argument("--smoltcp", action="store_true", help="the image has smoltcp")
    parser.add_argument(
        "--client-certificate", action="store_true", help="the image shows a certificate"
    )
    parser.add_argument("--only", help="one scenario, by name")
    parser.add_argument("--show", action="store_true", help="also what the device tells")
    arguments = parser.parse_args()
    names = QUICK if arguments.quick else SCENARIOS
    names = [
        name for name in names if name not in FEATURES or getattr(arguments, FEATURES[name])
    ]
    names = [arguments.only] if arguments.only else names
    passed = sum(run(name, os.path.abspath(arguments.image), arguments.show) for name in names)
    print(f"{passed} passed, {len(names) - passed} failed, 0 skipped")
    sys.exit(passed != len(names))


if __name__ == "__main__":
    main()
