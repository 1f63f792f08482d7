"""Runs the firmware under QEMU against a broker started for it, and tells what
happens: a device that wakes, connects verified, reports, takes a command,
sleeps, and resumes with early data."""

import sys
import tempfile
from pathlib import Path

from bench import Broker, Network
from device import GATEWAY, Device, public_key, settings

TOPIC_UP = "mcu/1/up"
TOPIC_DOWN = "mcu/1/down"


def main(image):
    print("firmware: the board has no source of entropy: the seed of this device is from the")
    print("firmware: host, in its settings, and they decrypt everything.")
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        broker.start()
        network = Network(("127.0.0.1", broker.ports["quic"]))
        readings = broker.subscriber(TOPIC_UP)
        page = settings(
            (GATEWAY, network.port), public_key(broker.key_file()), wakes=4, sleep_ms=2000
        )
        device = Device(image, page)
        try:
            device.wait("sleep")
            print(f"host: sends a command to {TOPIC_DOWN}; it waits for the device")
            broker.publish(TOPIC_DOWN, "L1")
            device.wait("command")
            device.wait("sleep")
            print(f"host: {device.stack()} bytes of stack were used")
            print("host: presses the reset button; the ticket is in flash")
            device.reset()
            device.wait("published")
            device.wait("sleep")
        finally:
            device.end()
            readings.end()
            network.end()
            broker.stop()
        print(f"host: readings that arrived at {TOPIC_UP}: {', '.join(readings.payloads)}")
        sent, received = network.bytes["out"], network.bytes["in"]
        print(f"host: {network.passed} datagrams, {sent} bytes from and {received} to the device")


if __name__ == "__main__":
    main(sys.argv[1])
