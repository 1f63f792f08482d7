"""Enhanced authentication with SCRAM-SHA-256 (RFC 5802, RFC 7677)."""

import base64
import hashlib
import hmac

from bench import *
from wire import *

METHOD = "SCRAM-SHA-256"


class Scram:
    """The client's side of one exchange."""

    def __init__(self, user: str, password: str) -> None:
        self.password = password.encode()
        self.nonce = unique("nonce")
        self.first_bare = f"n={user},r={self.nonce}"

    def first(self) -> bytes:
        return f"n,,{self.first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        assert fields["r"].startswith(self.nonce), fields
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self.first_bare},{server_first.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        self.server_signature = hmac.digest(server_key, message, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        assert server_final == b"v=" + base64.b64encode(self.server_signature), server_final


def authentication(data: bytes, method: str = METHOD):
    return ((AUTH_METHOD, method), (AUTH_DATA, data))


def auth(reason: int, data: bytes, method: str = METHOD) -> bytes:
    return packet(AUTH, 0, bytes([reason]) + properties(*authentication(data, method)))


def challenged(bench, scram: Scram) -> tuple[Peer, Packet]:
    """A client that has sent its first message and got the challenge. It takes
    no packet above 256 bytes."""
    peer = bench.raw(packet_max=256)
    props = (*authentication(scram.first()), (MAX_PACKET, 256))
    peer.send(connect(unique(), props=props))
    challenge = peer.expect(AUTH)
    assert challenge.reason == 0x18 and challenge.one(AUTH_METHOD) == METHOD, challenge
    return peer, challenge


def authenticated(bench) -> Peer:
    scram = Scram(*bench.user)
    peer, challenge = challenged(bench, scram)
    connack = peer.send(auth(0x18, scram.final(challenge.one(AUTH_DATA)))).expect(CONNACK)
    assert connack.reason == 0 and connack.one(AUTH_METHOD) == METHOD, connack
    scram.check(connack.one(AUTH_DATA))
    return peer


# mqtt5#[MQTT-4.12.0-2] type=test
# mqtt5#[MQTT-4.12.0-5] type=test
# mqtt5#[MQTT-3.15.2-1] type=test
# mqtt5#[MQTT-3.15.2-2] type=test
# mqtt5#[MQTT-3.15.2-3] type=test
def case_scram_authenticates_both_sides_again_and_again(bench):
    with authenticated(bench) as peer:
        for _ in range(2):
            scram = Scram(*bench.user)
            challenge = peer.send(auth(0x19, scram.first())).expect(AUTH)
            assert challenge.reason == 0x18, challenge
            end = peer.send(auth(0x18, scram.final(challenge.one(AUTH_DATA)))).expect(AUTH)
            assert end.reason == 0 and end.one(AUTH_METHOD) == METHOD, end
            scram.check(end.one(AUTH_DATA))
        peer.send(PING).expect(PINGRESP)


# mqtt5#[MQTT-4.12.0-4] type=test
# mqtt5#[MQTT-3.1.4-2] type=test
def case_a_wrong_proof_is_refused(bench):
    scram = Scram(bench.user[0], "guessed")
    peer, challenge = challenged(bench, scram)
    with peer:
        got = peer.send(auth(0x18, scram.final(challenge.one(AUTH_DATA)))).rest()
        assert [(p.kind, p.reason) for p in got] == [(CONNACK, 0x87)], got


# mqtt5#[MQTT-3.1.2-30] type=test
def case_nothing_but_auth_comes_before_connack(bench):
    topic = unique("t/")
    with bench.subscriber(topic, "end/" + topic) as watcher, bench.client() as other:
        peer, _ = challenged(bench, Scram(*bench.user))
        with peer:
            got = peer.send(publish(topic, b"early")).rest()
            assert all(p.reason >= 0x80 for p in got), got
        published(other, "end/" + topic)
        assert watcher.until("end/" + topic) == []


# mqtt5#[MQTT-4.12.1-2] type=test
def case_a_failed_reauthentication_ends_the_connection(bench):
    with authenticated(bench) as peer:
        scram = Scram(bench.user[0], "guessed")
        challenge = peer.send(auth(0x19, scram.first())).expect(AUTH)
        peer.send(auth(0x18, scram.final(challenge.one(AUTH_DATA)))).closes_with(0x87)


# mqtt5#[MQTT-4.12.1-1] type=test
def case_reauthentication_keeps_to_the_method(bench):
    with authenticated(bench) as peer:
        peer.send(auth(0x19, b"x", method="other")).closes_with(0x82, 0x8C)
