"""What every third-party client is asked to do, and how it answers.

A client program runs all scenarios for one transport and one version and
prints a line for each: `ok NAME`, `not ok NAME: reason`, `skip NAME: reason`.
The programs in Python share `run_all`; the others print the same lines.
"""

import argparse
import sys
import traceback
from collections.abc import Callable

# In the order in which they run. `shared` sends to a group of two; `burst`
# keeps many messages in flight; `large` does not fit into one packet.
NAMES = (
    "qos0",
    "qos1",
    "qos2",
    "wildcard",
    "retained",
    "will",
    "shared",
    "persistent",
    "large",
    "burst",
)

# What a client of AMQP is asked to do. `sasl` enters with and without a password;
# `relay` sends to an address in each
# message; `to-mqtt` and `from-mqtt` change the protocol on the way.
AMQP_NAMES = (
    "settled",
    "unsettled",
    "sasl",
    "small-frames",
    "large",
    "wildcard",
    "relay",
    "properties",
    "expiry",
    "to-mqtt",
    "from-mqtt",
    "outcomes",
    "drain",
    "burst",
    "refused",
    "idle",
    "transaction",
)

# What a client of JMS is asked to do.
JMS_NAMES = (
    "unsettled",
    "sasl",
    "large",
    "wildcard",
    "properties",
    "expiry",
    "priority",
    "to-mqtt",
    "from-mqtt",
    "recover",
    "drain",
    "burst",
    "refused",
    "idle",
    "no-local",
    "selector",
    "durable",
    "shared",
    "queue",
    "plain-queue",
    "delay",
    "browse",
    "temporary-queue",
    "temporary-topic",
    "transaction",
)

# Scenarios of AMQP that fail until the broker has a feature. One that passes is to
# be taken from here.
WAITING: dict[str, str] = {}

# Longest that one expected message or answer may take.
SECONDS_MAX = 30
BURST_MESSAGES = 500
LARGE_BYTES = 200_000
SHARED_MESSAGES = 10


class Skip(Exception):
    """The client cannot do this."""


def arguments() -> argparse.Namespace:
    """The command line that every client program takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--transport", required=True)
    parser.add_argument("--version", choices=("3.1.1", "5", "1.0"), required=True)
    parser.add_argument("--ca", required=True)
    # For the command line programs.
    parser.add_argument("--publisher", default="mosquitto")
    parser.add_argument("--subscriber", default="mosquitto")
    return parser.parse_args()


def run_all(scenarios: dict[str, Callable[[], None]], names: tuple[str, ...] = NAMES) -> None:
    """Runs the scenarios and reports each."""
    for name in names:
        try:
            scenarios[name]()
            line = f"ok {name}"
        except Skip as reason:
            line = f"skip {name}: {reason}"
        except Exception as error:  # noqa: BLE001 - every failure is a result
            place = traceback.extract_tb(error.__traceback__)[-1]
            line = f"not ok {name}: {type(error).__name__} {error} (line {place.lineno})"
        print(line.replace("\n", " "))
        sys.stdout.flush()


def expect(got: object, want: object, what: str) -> None:
    """Fails unless two values are equal."""
    if got != want:
        raise AssertionError(f"{what}: got {str(got)[:120]}, want {str(want)[:120]}")
