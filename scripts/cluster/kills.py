"""Kills of a running cluster: three nodes of Dunlin and three servers of NATS, of which one
after the other is killed, stopped, cut off or halted while messages are on their way.

After each round: nothing that was acknowledged is missing at a subscriber, nothing at QoS 2
came twice, what one publisher sent came in order, at QoS 1 again only where MQTT allows it, a
retained message is the last that was acknowledged, at every node. How long no node
acknowledged anything is measured and not judged.
"""

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fleet import SHOWN_MAX, Clients
from machines import COUNT, LOOK_SECONDS, Cluster, Node, nats_server, run, wait_until
from roam import said, write_journal
from wire import CONNACK, SUBACK, Closed, Peer, connect, subscribe, unique

ROUNDS, ROUNDS_SHORT = 100, 1
# Load before something happens, and after nodes acknowledge again.
BEFORE_SECONDS, AFTER_SECONDS = (0.5, 1.5), 0.5
# The owner of the store stands still for so long: more than its lease (3 s, and a third).
HALT_SECONDS = (5, 30)
# A link is away for so long; one in SHORT_ONE_IN times less than anything notices.
CUT_SECONDS, CUT_SHORT_SECONDS, SHORT_ONE_IN = (5, 20), (0.2, 2), 4
# Longest until a node acknowledges again, all nodes serve, all is acknowledged, all has come:
# much, for busy machines.
WAIT_SECONDS_MAX = 120
# After all has come, for what comes again.
GRACE_SECONDS = 0.4


class Violation(Exception):
    """The cluster does not come back."""


class Test:
    """A cluster and its clients, and what happens to them."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.dice = args, random.Random(args.seed)
        self.cluster = Cluster(folder, args.inside, args.short)
        self.clients = Clients(self.cluster.nodes)
        self.gaps: dict[str, list[float]] = {}
        # When something was done to it last, and for how long no node acknowledged then.
        self.struck = self.gap = 0.0
        # Homes that began to serve, before this round.
        self.homes = 0

    # Parts of a round.

    def tend(self) -> None:
        self.cluster.tend()
        errors = [client.error for client in self.clients.all() if client.error]
        if errors:
            raise Violation("; ".join(errors))

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        if not wait_until(holds, WAIT_SECONDS_MAX, self.tend):
            roles = ", ".join(f"{it.number} {it.role or '-'}" for it in self.cluster.nodes)
            raise Violation(f"after {WAIT_SECONDS_MAX} s: {what}; nodes: {roles}")

    def pass_time(self, seconds: float) -> None:
        wait_until(lambda: False, seconds, self.tend)

    def strike(self, *blows: tuple[Callable, int]) -> None:
        """Something happens, now."""
        for blow, signal_number in blows:
            blow(signal_number)
        self.struck = time.monotonic()

    def home(self) -> Node:
        self.wait(lambda: self.cluster.home() is not None, "there is no home")
        return self.cluster.home()

    def edge(self) -> Node:
        home = self.home()
        return self.dice.choice([node for node in self.cluster.nodes if node is not home])

    def until_acknowledged(self, kind: str, other_than: Node | None = None) -> None:
        """Waits until a publish from after the strike is acknowledged, with a home `other_than`
        the one before; notes for how long no node acknowledged anything."""
        since = self.struck
        if other_than is not None:
            served = {node: len(node.served) for node in self.cluster.nodes}

            def has_other() -> bool:
                others = (node for node in self.cluster.nodes if node is not other_than)
                return any("home" in node.served[served[node] :] for node in others)

            self.wait(has_other, f"no other home after node {other_than.number}")
            since = max(since, time.monotonic() - LOOK_SECONDS)
        acked: list[float] = []

        def is_acked() -> bool:
            acked[:] = [at for first, at in self.clients.acks() if first > since]
            return bool(acked)

        self.wait(is_acked, "nothing is acknowledged any more")
        ends = [at for _, at in self.clients.acks() if self.struck < at <= acked[0]]
        starts = [self.struck, *ends]
        self.gap = max(b - a for a, b in zip(starts, ends))
        self.gaps.setdefault(kind, []).append(self.gap)

    def heal(self) -> None:
        """Waits until every node serves and acknowledges."""
        self.wait(self.cluster.is_whole, "not one home and two edges, and NATS in step")
        since = time.monotonic()

        def each_acked() -> bool:
            return all(any(a > since for a, _ in it.acks.copy()) for it in self.clients.probes)

        self.wait(each_acked, "a node acknowledges nothing")

    # Kinds of rounds. Each says what happened.

    def kill_home(self) -> str:
        home = self.home()
        self.strike((home.signal, signal.SIGKILL))
        return self.lose_home(home, "kill-home")

    def lose_home(self, home: Node, kind: str) -> str:
        home.kill()
        self.until_acknowledged(kind, home)
        self.pass_time(AFTER_SECONDS)
        home.start()
        return f"node {home.number}"

    def kill_edge(self) -> str:
        edge = self.edge()
        self.strike((edge.signal, signal.SIGKILL))
        edge.kill()
        self.until_acknowledged("kill-edge")
        # Some come back before what they had is released.
        self.pass_time(self.dice.uniform(0, 6))
        edge.start()
        return f"node {edge.number}"

    def kill_leader(self) -> str:
        server = self.cluster.leader()
        self.strike((server.signal, signal.SIGKILL))
        server.kill()
        self.until_acknowledged("kill-leader")
        self.pass_time(AFTER_SECONDS)
        server.start()
        return f"server {server.number}"

    def kill_machine(self) -> str:
        home, server = self.home(), self.cluster.leader()
        self.strike((home.signal, signal.SIGKILL), (server.signal, signal.SIGKILL))
        server.kill()
        done = self.lose_home(home, "kill-machine")
        server.start()
        return f"{done} and server {server.number}"

    def halt_home(self) -> str:
        home = self.home()
        self.strike((home.signal, signal.SIGSTOP))
        self.until_acknowledged("halt-home", home)
        until = self.struck + self.dice.uniform(*HALT_SECONDS)
        self.pass_time(until - time.monotonic())
        began = len(home.served)
        home.signal(signal.SIGCONT)
        lasted = time.monotonic() - self.struck
        # What it served is over: only what it begins to serve from here on is seen.
        home.role = ""
        self.wait(lambda: len(home.served) > began, f"node {home.number} serves as before")
        return f"node {home.number} for {lasted:.1f} s"

    def stop_home(self) -> str:
        home = self.home()
        return self.stop(home, "stop-home", home)

    def stop_edge(self) -> str:
        return self.stop(self.edge(), "stop-edge", None)

    def stop(self, node: Node, kind: str, other_than: Node | None) -> str:
        node.wanted = False
        self.strike((node.signal, signal.SIGTERM))
        self.until_acknowledged(kind, other_than)
        code = node.end()
        if code != 0:
            raise Violation(f"node {node.number} ended with {code} after SIGTERM")
        self.pass_time(AFTER_SECONDS)
        node.start()
        return f"node {node.number}"

    def cut_link(self) -> str:
        home = self.home()
        node = self.dice.choice([home, self.edge()])
        is_short = self.dice.randrange(SHORT_ONE_IN) == 0
        bounds = CUT_SHORT_SECONDS if is_short else CUT_SECONDS
        until = time.monotonic() + self.dice.uniform(*bounds)
        node.set_link("down")
        self.struck = time.monotonic()
        of_home = node is home
        kind = f"cut-link of {'the home' if of_home else 'an edge'}"
        if is_short:
            self.pass_time(until - time.monotonic())
            node.set_link("up")
            self.until_acknowledged(f"{kind}, short")
        else:
            self.until_acknowledged(kind, home if of_home else None)
            self.pass_time(until - time.monotonic())
            node.set_link("up")
        lasted = time.monotonic() - self.struck
        return f"node {node.number}, {'the home' if of_home else 'an edge'}, for {lasted:.1f} s"

    # Rounds.

    def round(self, kind: str) -> tuple[str, list[str]]:
        """What happened, and what is wrong after it."""
        for client in self.clients.all():
            client.move(self.dice.randrange(COUNT))
        self.pass_time(self.dice.uniform(*BEFORE_SECONDS))
        happened = KINDS[kind].__get__(self)()
        self.heal()
        publishers = self.clients.publishers.values()
        for publisher in publishers:
            publisher.resting.set()
        self.wait(
            lambda: all(publisher.is_settled() for publisher in publishers),
            "published and not acknowledged",
        )
        since = time.monotonic()
        are_back = lambda: all(client.heard > since for client in self.clients.all())
        self.wait(are_back, "a client does not come back")
        wait_until(lambda: not self.clients.missing(), WAIT_SECONDS_MAX, self.tend)
        self.pass_time(GRACE_SECONDS)
        wrong = self.judge()
        promised = sum(len(publisher.promised) for publisher in publishers)
        for client in (*publishers, *self.clients.subscribers):
            client.forget()
            client.wrong = []
        for publisher in publishers:
            publisher.resting.clear()
        return f"{happened}: {promised} acknowledged", wrong

    def judge(self) -> list[str]:
        clients, cluster = self.clients, self.cluster
        wrong = clients.missing() + clients.doubled() + clients.wrong() + cluster.faults
        cluster.faults = []
        homes = sum(node.served.count("home") for node in cluster.nodes)
        if homes == self.homes:
            unmarked = [it for subscriber in clients.subscribers for it in subscriber.unmarked]
            wrong += [f"{it} came again without DUP" for it in unmarked[:SHOWN_MAX]]
        self.homes = homes
        return wrong + [it for node in cluster.nodes if (it := self.is_retained_wrong(node))]

    def is_retained_wrong(self, node: Node) -> str:
        """What is retained at a node is the last that was acknowledged, or a later one that
        was refused."""
        last, found = self.clients.retained.last, ""

        def is_right() -> bool:
            nonlocal found
            try:
                with Peer(node.port, host=node.host) as peer:
                    peer.send(connect(unique("retained"))).expect(CONNACK)
                    peer.send(subscribe(1, ("r/x", 1))).answer(SUBACK)
                    found = peer.packet(2).payload.decode()
            except (AssertionError, Closed, OSError, TimeoutError) as error:
                found = repr(error)
                return False
            number = int(found.partition(" ")[2] or -1)
            return last <= number < self.clients.retained.next

        if last < 0 or wait_until(is_right, WAIT_SECONDS_MAX, self.tend):
            return ""
        return f"node {node.number} retains {found!r}; {last} was acknowledged last"

    def run(self) -> list[str]:
        """What is wrong."""
        self.cluster.start()
        self.wait(self.cluster.is_whole, "the cluster does not begin")
        self.clients.subscribe()
        self.wait(self.clients.are_subscribed, "a subscriber got no SUBACK")
        self.clients.publish()
        self.heal()
        self.homes = sum(node.served.count("home") for node in self.cluster.nodes)
        plan = []
        for _ in range(self.args.rounds):
            plan += self.dice.sample(self.args.kinds, len(self.args.kinds))
        wrong = []
        for number, kind in enumerate(plan, 1):
            began = time.monotonic()
            head = f"round {number} of {len(plan)}, {kind}"
            try:
                happened, found = self.round(kind)
            except Violation as violation:
                write_journal(self.cluster.folder / f"clients-{number}.log")
                return [*wrong, f"{head}: {violation}", *self.clients.missing()]
            gap = f"no PUBACK for {self.gap:.2f} s"
            took = time.monotonic() - began
            print(f"cluster: {head}: {happened}, {gap}, {took:.0f} s in all", flush=True)
            if found:
                write_journal(self.cluster.folder / f"clients-{number}.log")
            for sentence in found:
                print(f"cluster: {head}: {sentence}", flush=True)
            wrong += [f"{head}: {sentence}" for sentence in found]
            if wrong and not self.args.go_on:
                break
        return wrong

    def report(self) -> None:
        print("cluster: longest time without PUBACK at any node, in seconds")
        print(f"  {'kind':28}{'rounds':>7}{'min':>8}{'median':>8}{'max':>8}")
        for kind, gaps in sorted(self.gaps.items()):
            figures = (min(gaps), statistics.median(gaps), max(gaps))
            print(f"  {kind:28}{len(gaps):>7}" + "".join(f"{it:>8.2f}" for it in figures))
        restarts = self.cluster.restarts
        print(f"cluster: {restarts} nodes ended by themselves and were started again")
        print(f"cluster: nodes said: {dict(sorted(said.items()))}", flush=True)


KINDS = {
    "kill-home": Test.kill_home,
    "kill-edge": Test.kill_edge,
    "kill-leader": Test.kill_leader,
    "kill-machine": Test.kill_machine,
    "halt-home": Test.halt_home,
    "stop-home": Test.stop_home,
    "stop-edge": Test.stop_edge,
    "cut-link": Test.cut_link,
}
# The cheapest.
KINDS_SHORT = ["kill-home", "stop-home", "kill-edge"]
KINDS_HELP = """kinds of rounds:
  kill-home     SIGKILL of the home
  kill-edge     SIGKILL of an edge
  kill-leader   SIGKILL of the NATS server that leads the stream; it is started again
  kill-machine  SIGKILL of the home and of that server together
  halt-home     SIGSTOP of the home for 5 to 30 s, then SIGCONT
  stop-home     SIGTERM of the home
  stop-edge     SIGTERM of an edge
  cut-link      the way of one node to NATS and the others is away for 5 to 20 s, at times for
                less than 2 s; needs namespaces"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=KINDS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=0, help="of each kind; default 100")
    parser.add_argument("--kinds", default="", help="which, with commas; default all")
    parser.add_argument("--short", action="store_true", help="one round of the cheapest kinds")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--go-on", action="store_true", help="also after a round with a violation")
    parser.add_argument("--keep", action="store_true", help="keep logs also without a violation")
    args = parser.parse_args()
    args.rounds = args.rounds or (ROUNDS_SHORT if args.short else ROUNDS)
    args.kinds = args.kinds.split(",") if args.kinds else KINDS_SHORT if args.short else [*KINDS]
    unknown = [kind for kind in args.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"no such kind: {', '.join(unknown)}")
    args.inside = bool(os.environ.get("CLUSTER_INSIDE"))
    return args


def enter_space() -> None:
    """Goes on in a network of its own, where that is allowed."""
    if not all(shutil.which(program) for program in ("unshare", "nsenter", "ip")):
        return
    spaces = ["unshare", "--net"] + ([] if os.getuid() == 0 else ["--user", "--map-root-user"])
    # What is done in it, once, to see whether it can be.
    trial = ["ip", "link", "add", "near", "type", "veth", "peer", "name", "far"]
    if subprocess.run([*spaces, *trial], capture_output=True).returncode:
        return
    os.environ["CLUSTER_INSIDE"] = "1"
    os.execvp("unshare", [*spaces, sys.executable, "-B", *sys.argv])


def main() -> int:
    args = parse()
    if not args.inside:
        enter_space()
    skipped = []
    if nats_server() is None:
        skipped = ["no nats-server 2.15 or later: scripts/setup-test.sh installs it"]
    elif not args.inside and "cut-link" in args.kinds:
        print("cluster: skipped: cut-link: namespaces are not allowed here")
        args.kinds.remove("cut-link")
        skipped = [] if args.kinds else ["no kind is left"]
    if skipped:
        print(f"cluster: skipped: {skipped[0]}\n0 passed, 0 failed, 1 skipped")
        return 0
    if args.inside:
        run(["ip", "link", "set", "lo", "up"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kinds = ", ".join(args.kinds)
    print(f"cluster: {args.rounds} rounds each of {kinds}; seed {args.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="dunlin-cluster-"))
    test, wrong = Test(args, folder), ["it did not come to its end"]
    try:
        wrong = test.run()
    finally:
        test.clients.stop()
        test.cluster.end()
        test.report()
        if wrong or args.keep:
            print(f"cluster: logs of all processes are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for sentence in wrong:
        print(f"cluster: {sentence}")
    print(f"{0 if wrong else 1} passed, {1 if wrong else 0} failed, 0 skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
