"""The command line program of `mqttv5-cli` under the features. What was
published is retained, so that a subscriber that comes later needs no word that
it is ready.
"""

import os
import subprocess
import uuid

import features
from scenarios import Skip, expect

ARGS = features.arguments()
PREFIX = f"interop/mqttv5/{uuid.uuid4().hex[:8]}"
PROGRAM_SECONDS_MAX = 30
FEATURE_SECONDS_MAX = 60.0
MESSAGES = 4


def mqttv5(verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    url = f"quics://{ARGS.host}:{ARGS.port}"
    command = [os.environ["MQTTV5"], verb, "--url", url, "--ca-cert", ARGS.ca]
    command += ["--non-interactive", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS_MAX)
    expect(done.returncode, 0, f"{verb}: {done.stderr[-200:]}")
    return done


def publish(topic: str, payload: str, qos: int, *more: str) -> str:
    """Publishes, retained; what it logs."""
    arguments = ["-t", topic, "-m", payload, "-q", str(qos), "--retain", *more]
    done = mqttv5("pub", *arguments)
    return done.stdout + done.stderr


def there_and_back(name: str, *more: str) -> None:
    """Messages of each QoS to topics of their own, and what a subscriber gets."""
    for qos in (0, 1, 2):
        sent = [f"{name}-{qos}-{number}" for number in range(MESSAGES)]
        for number, payload in enumerate(sent):
            publish(f"{PREFIX}/{name}/{qos}/{number}", payload, qos, *more)
        got = mqttv5(
            "sub", "-t", f"{PREFIX}/{name}/{qos}/+", "-q", str(qos), "-n", str(MESSAGES), *more
        )
        lines = sorted(line for line in got.stdout.splitlines() if line in sent)
        expect(lines, sent, "messages")


async def single() -> None:
    there_and_back("single")


async def per_topic() -> None:
    there_and_back("per-topic", "--quic-stream-strategy", "per-topic")
    there_and_back("per-subscription", "--quic-stream-strategy", "per-subscription")


async def per_publish() -> None:
    there_and_back("per-publish", "--quic-stream-strategy", "per-publish")


async def flow_headers() -> None:
    for strategy in ("control-only", "per-topic", "per-publish"):
        there_and_back(
            f"flow/{strategy}", "--quic-stream-strategy", strategy, "--quic-flow-headers"
        )


async def datagrams() -> None:
    log = publish(f"{PREFIX}/datagram", "by datagram", 0, "--quic-datagrams", "--debug")
    if "via QUIC datagram" not in log:
        raise Skip("it does not say that it sent a datagram")
    got = mqttv5("sub", "-t", f"{PREFIX}/datagram", "-n", "1", "--quic-datagrams")
    expect("by datagram" in got.stdout.splitlines(), True, "message")


if __name__ == "__main__":
    features.run(
        ARGS,
        {
            "single": single,
            "per-topic": per_topic,
            "per-publish": per_publish,
            "flow-headers": flow_headers,
            "datagrams": datagrams,
            "retry": single,
        },
        FEATURE_SECONDS_MAX,
    )
