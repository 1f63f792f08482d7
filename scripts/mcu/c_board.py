"""Runs the C example on a Cortex-M4 under QEMU against the broker: a first wake,
one that resumes with early data after a reset, both with losses on the way, and
a wake with a wrong key. Argument: the image.
"""

import sys
import tempfile
from pathlib import Path

from bench import Broker, Network
from device import GATEWAY, Device, public_key, settings

UP = "c/up"
DOWN = "c/down"
LOSS = 0.05
# What the example may use of the stack, in bytes. It is painted again at each
# wake, so that it is looked at while the device sleeps.
STACK_MAX = 3584
SLEEP_MS = 1000
# The engine's number for a server with another key.
WRONG_KEY = 99


class Example(Device):
    """A device that tells lines of words and a number."""

    def read(self) -> None:
        for line in self.process.stdout:
            name, _, value = line.strip().rpartition(": ")
            if name and value.isdigit():
                self.fresh.put((name, int(value)))
        self.fresh.put(None)


def main() -> None:
    image = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        broker.start()
        network = Network(("127.0.0.1", broker.ports["quic"]), LOSS)
        readings = broker.subscriber(UP)
        server = (GATEWAY, network.port)
        key = public_key(broker.key_file())
        try:
            run(image, broker, settings(server, key, sleep_ms=SLEEP_MS))
            other = key[:1] + key[:0:-1]
            refused(image, settings(server, other, sleep_ms=SLEEP_MS))
            lost = f"{network.lost} of {network.lost + network.passed} datagrams were lost"
        finally:
            readings.end()
            network.end()
            broker.stop()
    if set(readings.payloads) != {"21.5"} or len(readings.payloads) < 2:
        sys.exit(f"c-board: readings {readings.payloads}")
    print(f"c-board: readings: {', '.join(readings.payloads)}; {lost}")


def run(image: str, broker: Broker, page: bytes) -> None:
    """Two wakes; the command of each waits in the session of the device."""
    device = Example(image, page, show=False)
    try:
        wanted = device.wait("subscribed, reason")
        broker.publish(DOWN, "on")
        expect(device, ("command of bytes", 2), ("resumed", 0), ("code", 0))
        stack = device.stack()
        broker.publish(DOWN, "off")
        expect(device, ("connected, session kept", 1), ("command of bytes", 3))
        expect(device, ("resumed", 1), ("early data taken", 1), ("code", 0))
        print(f"c-board: woke, resumed with early data, quality of commands {wanted}")
        print(f"c-board: {device.static} bytes of static memory, {stack} of stack")
        if stack > STACK_MAX:
            sys.exit(f"c-board: more than {STACK_MAX} bytes of stack")
    finally:
        device.end()


def refused(image: str, page: bytes) -> None:
    """A server with another key: refused at each wake."""
    device = Example(image, page, show=False)
    try:
        expect(device, ("code", WRONG_KEY), ("code", WRONG_KEY))
    finally:
        device.end()
    print("c-board: a wrong key is refused, and again")


def expect(device: Example, *notes: tuple[str, int]) -> None:
    for name, value in notes:
        found = device.wait(name)
        if found != value:
            sys.exit(f"c-board: {name}: {found}, not {value}")


if __name__ == "__main__":
    main()
