"""CONNECT, CONNACK, sessions, and the size of packets."""

import time

from bench import *
from wire import *


# mqtt5#[MQTT-3.1.0-1] type=test
def case_first_packet_must_be_connect(bench):
    with bench.raw() as peer:
        got = peer.send(publish(unique(), b"x")).rest()
        assert all(p.kind == DISCONNECT for p in got), got


# mqtt5#[MQTT-3.1.0-2] type=test
def case_second_connect_is_a_protocol_error(bench):
    with bench.client() as peer:
        peer.send(connect(unique())).closes_with(0x82)


# mqtt5#[MQTT-3.1.2-1] type=test
def case_wrong_protocol_name_is_refused(bench):
    with bench.raw() as peer:
        body = text("MQTX") + bytes([5, 2, 0, 60, 0]) + text("x")
        got = peer.send(packet(CONNECT, 0, body)).rest()
        assert all(p.kind == CONNACK and p.reason == 0x84 for p in got), got


# mqtt5#[MQTT-3.1.2-2] type=test
# mqtt5#[MQTT-3.2.2-7] type=test
# mqtt5#[MQTT-3.2.2-6] type=test
def case_unknown_version_is_refused(bench):
    with bench.raw() as peer:
        # An answer in the form of any version is right; what counts is the end.
        peer.send(connect(unique(), version=6))
        peer.version = 5
        got = peer.rest()
        assert all(p.kind == CONNACK and p.reason in (0x84, 1) for p in got), got
        assert not any(p.session_present for p in got)


# mqtt5#[MQTT-3.1.2-3] type=test
# mqtt5#[MQTT-3.1.4-1] type=test
def case_malformed_connects_close_the_connection(bench):
    reserved_flag = connect(unique(), flags=1)
    will_qos_without_will = connect(unique(), flags=1 << 3)
    will_qos_3 = connect(unique(), will=Will("t", b"", qos=3))
    cut = connect(unique())[:-3]
    cut = cut[:1] + bytes([cut[1] - 3]) + cut[2:]
    surplus = packet(CONNECT, 0, connect("x")[2:] + b"surplus")
    for bad in (reserved_flag, will_qos_without_will, will_qos_3, cut, surplus):
        with bench.raw() as peer:
            got = peer.send(bad).rest()
            assert all(p.kind in (CONNACK, DISCONNECT) and p.reason >= 0x80 for p in got), got


# mqtt5#[MQTT-3.1.4-5] type=test
# mqtt5#[MQTT-3.2.0-1] type=test
# mqtt5#[MQTT-3.2.0-2] type=test
# mqtt5#[MQTT-3.2.2-2] type=test
def case_one_connack_comes_first(bench):
    name = unique()
    with bench.client(name, clean=False, props=keep()) as peer:
        subscribed(peer, (name, 1))
    with bench.client() as other:
        published(other, name)
    with bench.raw() as peer:
        peer.send(connect(name, clean=False, props=keep()), PING)
        kinds = [peer.packet().kind for _ in range(3)]
        assert kinds[0] == CONNACK and kinds.count(CONNACK) == 1, kinds
        assert sorted(kinds) == [CONNACK, PUBLISH, PINGRESP], kinds


# mqtt5#[MQTT-3.1.2-4] type=test
# mqtt5#[MQTT-3.1.2-5] type=test
# mqtt5#[MQTT-3.1.2-6] type=test
# mqtt5#[MQTT-3.1.2-23] type=test
# mqtt5#[MQTT-3.1.3-2] type=test
# mqtt5#[MQTT-3.1.4-4] type=test
# mqtt5#[MQTT-3.2.2-3] type=test
# mqtt5#[MQTT-4.5.0-1] type=test
def case_sessions_are_resumed_and_discarded(bench):
    name, topic = unique(), unique("t/")
    with bench.client(name, clean=False, props=keep()) as peer:
        assert not peer.connack.session_present
        subscribed(peer, (topic, 1))
        peer.send(disconnect())
    with bench.client() as other:
        published(other, topic, b"missed")
        with bench.client(name, clean=False, props=keep()) as peer:
            assert peer.connack.session_present
            message = peer.expect(PUBLISH)
            assert message.payload == b"missed", message
            peer.acknowledge(message)
        with bench.client(name, clean=True, props=keep()) as peer:
            assert not peer.connack.session_present
            published(other, topic, b"to no one")
            subscribed(peer, ("end/" + topic, 0))
            published(other, "end/" + topic)
            assert peer.until("end/" + topic) == []


# mqtt5#[MQTT-4.1.0-2] type=test
def case_sessions_end_when_their_interval_has_passed(bench):
    gone, kept = unique(), unique()
    bench.client(gone, clean=False, props=keep(1)).send(disconnect()).rest()
    bench.client(kept, clean=False, props=keep(60)).send(disconnect()).rest()
    time.sleep(2.5)
    with bench.client(gone, clean=False) as peer:
        assert not peer.connack.session_present
    with bench.client(kept, clean=False) as peer:
        assert peer.connack.session_present


# mqtt5#[MQTT-4.1.0-1] type=test
def case_a_disconnect_can_shorten_the_session(bench):
    name = unique()
    with bench.client(name, clean=False, props=keep()) as peer:
        peer.send(disconnect(props=keep(0))).rest()
    with bench.client(name, clean=False) as peer:
        assert not peer.connack.session_present


# mqtt5#[MQTT-3.1.3-5] type=test
def case_plain_client_identifiers_are_allowed(bench):
    for name in ("a" + unique("")[:5], "Z9" * 11 + "b", "0123456789abcdefABCDEFG"):
        with bench.client(name) as peer:
            assert peer.connack.one(ASSIGNED_ID) is None


# mqtt5#[MQTT-3.1.3-6] type=test
# mqtt5#[MQTT-3.1.3-7] type=test
# mqtt5#[MQTT-3.2.2-16] type=test
def case_identifiers_are_assigned_and_usable(bench):
    with bench.client("", props=keep()) as one, bench.client("") as two:
        names = [peer.connack.one(ASSIGNED_ID) for peer in (one, two)]
        assert all(names) and names[0] != names[1], names
        one.send(disconnect()).rest()
    with bench.client(names[0], clean=False) as again:
        assert again.connack.session_present


# mqtt5#[MQTT-3.1.3-8] type=test
def case_a_refused_client_identifier_ends_the_connection(bench):
    # MQTT 5.0 leaves no identifier to refuse; 3.1.1 does: an empty one for a
    # session that is to be kept.
    with bench.raw(version=4) as peer:
        got = peer.send(connect("", clean=False, version=4)).rest()
        assert [(p.kind, p.reason) for p in got] == [(CONNACK, 2)], got


# mqtt5#[MQTT-3.1.4-3] type=test
# mqtt5#[MQTT-3.14.2-2] type=test
def case_a_second_connection_takes_the_session_over(bench):
    name = unique()
    with bench.client(name) as old, bench.client(name) as new:
        got = old.rest()
        assert [(p.kind, p.reason) for p in got] == [(DISCONNECT, 0x8E)], got
        assert got[0].one(SESSION_EXPIRY) is None
        new.send(PING).expect(PINGRESP)


# mqtt5#[MQTT-3.1.4-6] type=test
# mqtt5#[MQTT-4.12.0-1] type=test
# mqtt5#[MQTT-3.1.4-2] type=test
def case_nothing_after_a_refused_connect_is_processed(bench):
    topic = unique("t/")
    with bench.subscriber(topic, "end/" + topic) as watcher, bench.raw() as peer:
        refused = connect(unique(), props=((AUTH_METHOD, "no such method"),))
        got = peer.send(refused, publish(topic, b"forbidden")).rest()
        assert [p.kind for p in got] in ([CONNACK], []), got
        assert all(p.reason in (0x8C, 0x87) and not p.session_present for p in got), got
        with bench.client() as other:
            published(other, "end/" + topic)
        assert watcher.until("end/" + topic) == []


# mqtt5#[MQTT-4.12.0-6] type=test
# mqtt5#[MQTT-4.12.0-7] type=test
def case_auth_without_a_method_is_a_protocol_error(bench):
    with bench.client() as peer:
        assert peer.connack.one(AUTH_METHOD) is None
        again = bytes([0x19]) + properties((AUTH_METHOD, "x"))
        peer.send(packet(AUTH, 0, again)).closes_with(0x82, 0x8C)


# mqtt5#[MQTT-3.1.2-22] type=test
# mqtt5#[MQTT-3.2.2-22] type=test
def case_silence_ends_a_connection_after_its_keep_alive(bench):
    with bench.client(keep_alive=1) as peer, bench.client(keep_alive=0) as patient:
        assert peer.connack.one(SERVER_KEEP_ALIVE) is None
        start = time.monotonic()
        got = peer.rest()
        seconds = time.monotonic() - start
        assert all(p.reason == 0x8D for p in got), got
        assert 1.4 <= seconds <= 5, f"closed after {seconds:.2f} s"
        patient.send(PING).expect(PINGRESP)


# mqtt5#[MQTT-3.1.2-28] type=test
def case_response_information_is_not_sent_unasked(bench):
    for props in ((), ((REQUEST_RESPONSE, 0),)):
        with bench.client(props=props) as peer:
            assert peer.connack.one(RESPONSE_INFO) is None


# mqtt5#[MQTT-3.1.2-29] type=test
def case_problem_information_is_not_sent_unasked(bench):
    with bench.client(props=((REQUEST_PROBLEM, 0),)) as peer:
        peer.send(
            subscribe(1, (unique(), 2)),
            unsubscribe(2, unique()),
            publish(unique(), b"x", qos=1, pid=3),
            publish(unique(), b"x", qos=2, pid=4),
            ack(PUBREL, 999),
        )
        for _ in range(5):
            got = peer.packet()
            assert not got.all(REASON_STRING) and not got.all(USER), got


# mqtt5#[MQTT-3.1.2-24] type=test
# mqtt5#[MQTT-3.1.2-25] type=test
def case_messages_that_are_too_large_are_left_out(bench):
    topic = unique("t/")
    name = unique()
    with bench.client(name, props=((MAX_PACKET, 100),)) as peer, bench.client() as other:
        subscribed(peer, (topic, 2))
        for qos in (0, 1, 2):
            published(other, topic, b"L" * 200, qos=qos)
            published(other, topic, b"small", qos=qos)
        for qos in (0, 1, 2):
            message = peer.expect(PUBLISH)
            assert (message.payload, message.qos) == (b"small", qos), message
            peer.acknowledge(message)


# mqtt5#[MQTT-3.2.2-19] type=test
# mqtt5#[MQTT-3.2.2-20] type=test
# mqtt5#[MQTT-3.4.2-2] type=test
# mqtt5#[MQTT-3.4.2-3] type=test
# mqtt5#[MQTT-3.5.2-2] type=test
# mqtt5#[MQTT-3.5.2-3] type=test
# mqtt5#[MQTT-3.6.2-2] type=test
# mqtt5#[MQTT-3.6.2-3] type=test
# mqtt5#[MQTT-3.7.2-2] type=test
# mqtt5#[MQTT-3.7.2-3] type=test
# mqtt5#[MQTT-3.9.2-1] type=test
# mqtt5#[MQTT-3.9.2-2] type=test
# mqtt5#[MQTT-3.11.2-1] type=test
# mqtt5#[MQTT-3.11.2-2] type=test
# mqtt5#[MQTT-3.14.2-3] type=test
# mqtt5#[MQTT-3.14.2-4] type=test
def case_answers_stay_below_a_small_maximum_packet_size(bench):
    # The peer holds every packet to the maximum that it announced. Each answer
    # has a reason that invites a Reason String.
    topic = "a/b"
    with bench.client(props=((MAX_PACKET, 40),)) as peer:
        peer.send(unsubscribe(1, unique()))
        assert peer.expect(UNSUBACK).reasons == (0x11,)
        subscribed(peer, (topic, 2))
        peer.send(publish(topic, b"x", qos=1, pid=2)).send(publish(topic, b"y", qos=2, pid=3))
        seen = set()
        while not {PUBACK, PUBREC, PUBLISH} <= seen:
            seen.add(peer.packet().kind)
        peer.send(ack(PUBREL, 777), ack(PUBREC, 888))
        while not {PUBCOMP, PUBREL} <= seen:
            seen.add(peer.packet().kind)
        peer.send(publish("wild/#", b"x"))
        got = [p for p in peer.rest() if p.kind == DISCONNECT]
        assert len(got) == 1 and got[0].reason >= 0x80, got
