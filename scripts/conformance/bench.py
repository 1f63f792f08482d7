"""Where the broker is, clients on demand, and what most cases do with them."""

import socket
import struct

from wire import *


class Skip(Exception):
    """The broker is not set up for the case."""


class Bench:
    """Where the broker is, and clients on demand."""

    def __init__(self, ports: dict[str, int], user: tuple[str, str] | None) -> None:
        self.ports = ports
        self._user = user

    @property
    def user(self) -> tuple[str, str]:
        """Name and password of a user whom the broker knows."""
        if self._user is None:
            raise Skip("the broker knows no user")
        return self._user

    def raw(self, **options) -> Peer:
        return Peer(self.ports["tcp"], **options)

    def client(self, client_id=None, props=(), **options) -> Peer:
        """A connected client; its CONNACK is kept."""
        packet_max = dict(props).get(MAX_PACKET, 0)
        version = options.get("version", 5)
        peer = self.raw(version=version, packet_max=packet_max)
        name = unique() if client_id is None else client_id
        peer.send(connect(name, props=props, **options))
        peer.connack = peer.expect(CONNACK)
        assert peer.connack.reason == 0, f"CONNACK {peer.connack.reason:#04x}"
        return peer

    def subscriber(self, *filters, **options) -> Peer:
        """A connected client with subscriptions."""
        peer = self.client(**options)
        subscribed(peer, *filters)
        return peer


def subscribed(peer: Peer, *filters, props=()) -> Packet:
    """Subscribes; all filters are granted as asked."""
    filters = [f if isinstance(f, tuple) else (f, 0) for f in filters]
    peer.send(subscribe(10, *filters, props=props))
    suback = peer.answer(SUBACK)
    wanted = tuple(options & 3 for _, options in filters)
    assert suback.reasons == wanted, f"granted {suback.reasons}, want {wanted}"
    return suback


def published(peer: Peer, topic: str, payload=b"x", qos=1, pid=1, **options) -> Packet | None:
    """Publishes and waits for the end of the exchange."""
    peer.send(publish(topic, payload, qos=qos, pid=pid, **options))
    if qos == 1:
        return peer.expect(PUBACK)
    if qos == 2:
        received = peer.expect(PUBREC)
        peer.send(ack(PUBREL, pid))
        assert peer.expect(PUBCOMP).pid == pid
        return received
    return None


def keep(seconds=300):
    """Properties of a session that survives its connection."""
    return ((SESSION_EXPIRY, seconds),)


def vanish(peer):
    """Ends a connection without DISCONNECT."""
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()
