"""`kill -9` under load: nothing acknowledged may be lost, and nothing at QoS 2
may arrive twice.

Publishers at QoS 1 and 2 keep their window full; persistent subscribers take
what comes. After a random while the broker is killed and started again on the
same data; clients reconnect and resume by the rules. When all rounds are over
and everything is acknowledged, every promise is compared with what arrived.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))

import amqp  # noqa: E402
from brokers import BROKERS  # noqa: E402
from clients import Publisher, Subscriber, settle  # noqa: E402

ROUNDS, ROUNDS_SHORT = 20, 5
# Of AMQP.
KILLS, KILLS_SHORT = 100, 8
PUBLISHERS_PER_QOS = 3
# Life of the broker in one round.
ROUND_SECONDS = (0.2, 1.2)
SETTLE_SECONDS_MAX = 60


def run(args: argparse.Namespace, folder: Path) -> list[str]:
    """What was wrong."""
    dice = random.Random(args.seed)
    broker = BROKERS[args.broker](folder, shards=args.shards)
    broker.start()
    port = broker.ports["tcp"]
    subscribers = [
        Subscriber(port, f"kill-sub-{qos}-{n}", f"kill/{qos}/#", qos)
        for qos in (1, 2)
        for n in range(2)
    ]
    publishers = [
        Publisher(port, f"kill-pub-{qos}-{n}", f"kill/{qos}/{n}", qos)
        for qos in (1, 2)
        for n in range(PUBLISHERS_PER_QOS)
    ]
    try:
        for subscriber in subscribers:
            subscriber.start().subscribed.wait(10)
        for publisher in publishers:
            publisher.start()
        for _ in range(args.rounds):
            time.sleep(dice.uniform(*ROUND_SECONDS))
            broker.kill()
            broker.start()
        for publisher in publishers:
            publisher.stop()
        settle(subscribers, SETTLE_SECONDS_MAX)
        for subscriber in subscribers:
            subscriber.stop()
    finally:
        broker.stop()
    return compare(publishers, subscribers)


def compare(publishers: list[Publisher], subscribers: list[Subscriber]) -> list[str]:
    wrong = [client.error for client in (*publishers, *subscribers) if client.error]
    for client in (*publishers, *subscribers):
        if client.sessions_lost:
            wrong.append(f"{client.name}: the session was lost {client.sessions_lost} times")
    for subscriber in subscribers:
        promised = {
            f"{p.name} {number}"
            for p in publishers
            if p.qos == subscriber.qos
            for number in p.acknowledged
        }
        lost = promised - subscriber.delivered.keys()
        doubled = [m for m, times in subscriber.delivered.items() if times > 1]
        print(
            f"kill: {subscriber.name}: {len(promised)} acknowledged, {len(lost)} not delivered, "
            f"{len(doubled)} delivered more than once at QoS {subscriber.qos}"
        )
        if not promised:
            wrong.append(f"{subscriber.name}: nothing was acknowledged")
        if lost:
            wrong.append(f"{subscriber.name}: lost {sorted(lost)[:5]} and others")
        if doubled and subscriber.qos == 2:
            wrong.append(f"{subscriber.name}: doubled {sorted(doubled)[:5]} and others")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--broker", choices=BROKERS, default="dunlin")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--amqp", action="store_true", help="AMQP only")
    parser.add_argument("--kills", type=int, default=0, help="kills of AMQP; without, 100 with --amqp, 8 with --short, else none")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    if not args.kills:
        args.kills = KILLS_SHORT if args.short else KILLS if args.amqp else 0
    args.rounds = args.rounds or (ROUNDS_SHORT if args.short else ROUNDS)
    if BROKERS[args.broker].binary() is None:
        print(f"kill: skipped: there is no {args.broker} binary")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    print(f"kill: {args.rounds} rounds, seed {args.seed}, {args.shards} shards", flush=True)
    wrong = []
    if not args.amqp:
        with tempfile.TemporaryDirectory(prefix="kill-") as folder:
            wrong += run(args, Path(folder))
    if args.kills and args.broker == "dunlin":
        with tempfile.TemporaryDirectory(prefix="kill-amqp-") as folder:
            wrong += amqp.run(args, Path(folder))
    for sentence in wrong:
        print(f"kill: {sentence}")
    print(f"{0 if wrong else 1} passed, {1 if wrong else 0} failed, 0 skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
