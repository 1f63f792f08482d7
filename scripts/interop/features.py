"""What QUIC offers besides bytes in order, how a client answers for it, and the
settings of the broker that it takes. Knows no client.

A client program is started once for each setting, with `--setting NAME`, and
prints a line for each of its features: `ok NAME`, `not ok NAME: reason`,
`skip NAME: reason`. Its last line is `end`: a feature without a line is not
tried with this client. It may ask for the broker to be started again: it prints
`restart` (the broker is asked to stop) or `kill` (it is not asked), and goes on
when it has read a line.
"""

import argparse
import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable

from scenarios import Skip

# Name of the feature, setting of the broker, what is tried.
FEATURES = (
    ("single", "plain", "QoS 0, 1, 2 there and back on the control stream"),
    ("data-streams", "plain", "bidirectional data streams without header, EMQX's way"),
    ("early-streams", "plain", "data streams that are filled before CONNECT is answered"),
    ("uni-streams", "plain", "PUBLISH on unidirectional streams, acknowledged on control"),
    ("per-topic", "plain", "a stream for each topic"),
    ("per-publish", "plain", "a stream for each message"),
    ("flow-headers", "plain", "ALPN `MQTT-next` and flow headers"),
    ("server-streams", "plain", "deliveries on streams that the broker opens"),
    ("datagrams", "plain", "QoS 0 in datagrams, both ways"),
    ("ciphers", "plain", "AES-128-GCM, AES-256-GCM and ChaCha20-Poly1305"),
    ("version", "plain", "version negotiation from an unknown version"),
    ("key-update", "plain", "three key updates under traffic"),
    ("rebind", "plain", "the port of the client changes under the connection"),
    ("migrate", "plain", "the client moves to another socket with a new connection id"),
    ("0rtt", "plain", "CONNECT and PUBLISH in early data, effective before the handshake"),
    ("0rtt-once", "plain", "a ticket that was used is refused; nothing is lost or doubled"),
    ("0rtt-replay", "plain", "the first flight sent again from elsewhere has no effect"),
    ("bad-connect", "plain", "CONNECT, DISCONNECT or AUTH on a data stream is refused"),
    ("bad-packet", "plain", "a malformed packet ends its data stream only"),
    ("bad-order", "plain", "SUBSCRIBE before CONNECT on control ends the connection"),
    ("bad-half", "plain", "a data stream that ends inside a flow header"),
    ("bad-flow", "plain", "flow headers with ids of another kind or owner"),
    ("retry", "retry", "the address is validated by Retry"),
    ("token", "retry", "a token of NEW_TOKEN saves the Retry"),
    ("reset", "restart", "stateless reset after the broker was killed"),
    ("0rtt-restart", "restart", "a ticket outlives a restart of the broker"),
)
SETTINGS = ("plain", "retry", "restart")


def names(setting: str) -> list[str]:
    """The features that are tried with one setting of the broker."""
    return [name for name, its, _ in FEATURES if its == setting]


def ask(word: str) -> None:
    """Asks the runner for something and waits until it is done."""
    print(word, flush=True)
    if not sys.stdin.readline():
        raise Skip(f"no answer to `{word}`")


def arguments() -> argparse.Namespace:
    """The command line that every client program takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--setting", choices=SETTINGS, required=True)
    parser.add_argument("--only", metavar="FEATURE")
    return parser.parse_args()


def run(
    args: argparse.Namespace, scenarios: dict[str, Callable[[], Awaitable[None]]], seconds: float
) -> None:
    """Runs what the setting asks for; each may take that many seconds."""
    for name in names(args.setting):
        if name not in scenarios or args.only not in (None, name):
            continue
        try:
            asyncio.run(asyncio.wait_for(scenarios[name](), seconds))
            line = f"ok {name}"
        except Skip as reason:
            line = f"skip {name}: {reason}"
        except Exception as error:  # noqa: BLE001 - every failure is a result
            frames = [f for f in traceback.extract_tb(error.__traceback__) if "client_" in f.filename]
            place = f" (line {frames[-1].lineno})" if frames else ""
            line = f"not ok {name}: {type(error).__name__} {error}{place}"
        print(line.replace("\n", " "), flush=True)
    print("end", flush=True)
