"""All clients of a cluster, and what is wrong with what they were promised and got."""

from dataclasses import dataclass, field

from machines import COUNT, Node
from roam import Guest, Probe, Publisher, Roaming, Subscriber

# Numbers of a publisher that are shown.
SHOWN_MAX = 8


@dataclass
class Clients:
    """All clients of the cluster."""

    nodes: list[Node]
    publishers: dict[str, Publisher] = field(default_factory=dict)
    subscribers: list[Subscriber] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)

    def __post_init__(self) -> None:
        for at in range(COUNT):
            self.probes.append(Probe(self.nodes, f"probe-{at}", at, f"d/1/probe-{at}"))
        for at, (qos, letter) in enumerate((q, x) for q in (1, 2) for x in "ab"):
            name = f"w-{qos}-{letter}"
            own, shared = f"d/{qos}/{name}", f"s/{qos}/{name}"
            self._add(Publisher(self.nodes, name, at % COUNT, qos, [own, own, shared]))
        self.retained = Publisher(self.nodes, "w-retained", 0, 1, ["r/x"], retain=True)
        for publisher in (*self.probes, self.retained):
            self._add(publisher)
        for at, qos in enumerate((1, 1, 2, 2)):
            name = f"r-{qos}-{'ab'[at % 2]}"
            self._subscriber(Subscriber, name, at + 1, qos, f"d/{qos}/#")
        for at, name in enumerate(("kept-a", "kept-b")):
            self._subscriber(Subscriber, name, at, 2, "s/#", "kept")
        self._subscriber(Subscriber, "mixed-kept", 1, 1, "s/#", "mixed")
        self._subscriber(Guest, "mixed-guest", 2, 1, "s/#", "mixed")

    def _add(self, publisher: Publisher) -> None:
        self.publishers[publisher.name] = publisher

    def _subscriber(
        self, kind: type, name: str, at: int, qos: int, topics: str, group: str = ""
    ) -> None:
        place = at % COUNT
        self.subscribers.append(kind(self.nodes, name, place, qos, topics, self.publishers, group))

    def all(self) -> list[Roaming]:
        return [*self.subscribers, *self.publishers.values()]

    def subscribe(self) -> None:
        for subscriber in self.subscribers:
            subscriber.start()

    def are_subscribed(self) -> bool:
        return all(subscriber.subscribed.is_set() for subscriber in self.subscribers)

    def publish(self) -> None:
        for publisher in self.publishers.values():
            publisher.start()

    def stop(self) -> None:
        for client in self.all():
            client.stopping.set()

    def acks(self) -> list[tuple[float, float]]:
        """When the messages of probes were sent first, and acknowledged; by the latter."""
        return sorted((ack for it in self.probes for ack in it.acks.copy()), key=lambda it: it[1])

    # What is wrong after a round.

    def missing(self) -> list[str]:
        """What was acknowledged and has not come."""
        wrong = []
        for publisher in self.publishers.values():
            promised = publisher.promised.copy()
            for who, subscribers in self._receivers(publisher):
                has = [it.got.get(publisher.name, {}).copy() for it in subscribers]
                topic = f"{who}/{publisher.qos}/{publisher.name}"
                owed = (number for number in promised if publisher.topic(number) == topic)
                lost = [number for number in owed if not any(number in got for got in has)]
                if lost:
                    shown = lost[:SHOWN_MAX]
                    where = ", ".join(f"{it} by node {promised[it].node}" for it in shown)
                    wrong.append(
                        f"{title(subscribers)} did not get {len(lost)} of {publisher.name} (QoS "
                        f"{publisher.qos}), which were acknowledged: {where}"
                    )
        return wrong

    def _receivers(self, publisher: Publisher) -> list[tuple[str, list[Subscriber]]]:
        """Who is to get what a publisher sends: the topic's beginning, and subscribers of which
        one gets it."""
        alone = [it for it in self.subscribers if not it.group and it.qos == publisher.qos]
        groups = sorted({it.group for it in self.subscribers if it.group})
        members = [[it for it in self.subscribers if it.group == group] for group in groups]
        return [("d", [it]) for it in alone] + [("s", it) for it in members]

    def doubled(self) -> list[str]:
        """What came twice at QoS 2."""
        wrong = []
        for name, publisher in self.publishers.items():
            for who, subscribers in self._receivers(publisher) if publisher.qos == 2 else ():
                if any(it.qos < 2 for it in subscribers):
                    continue
                times: dict[int, int] = {}
                for subscriber in subscribers:
                    for number, (total, *_) in subscriber.got.get(name, {}).copy().items():
                        times[number] = times.get(number, 0) + total
                twice = [number for number, total in times.items() if total > 1]
                if twice:
                    wrong.append(
                        f"{title(subscribers)} got {len(twice)} of {name} twice at QoS 2: "
                        f"{twice[:SHOWN_MAX]}"
                    )
        return wrong

    def wrong(self) -> list[str]:
        """What clients saw."""
        errors = [client.error for client in self.all() if client.error]
        return errors + [sentence for client in self.all() for sentence in client.wrong]


def title(subscribers: list[Subscriber]) -> str:
    """Who is to get a message once."""
    first = subscribers[0]
    return f"group {first.group}" if first.group else f"{first.name} at node {first.node}"
