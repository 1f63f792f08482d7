"""Redelivery, the end of a connection, and WebSocket."""

from bench import *
from wire import *


# mqtt5#[MQTT-3.12.4-1] type=test
def case_pings_are_answered(bench):
    with bench.client() as peer:
        for _ in range(3):
            peer.send(PING).expect(PINGRESP)


# mqtt5#[MQTT-4.4.0-1] type=test
# mqtt5#[MQTT-3.3.1-1] type=test
# mqtt5#[MQTT-4.3.3-6] type=test
def case_unacknowledged_packets_are_sent_again(bench):
    topic, name = unique("d/"), unique()
    with bench.client(name, clean=False, props=keep()) as peer, bench.client() as other:
        subscribed(peer, (topic, 2))
        published(other, topic, b"released", qos=2)
        released = peer.expect(PUBLISH)
        peer.send(ack(PUBREC, released.pid)).expect(PUBREL)
        published(other, topic, b"one", qos=1)
        published(other, topic, b"two", qos=2)
        before = [peer.expect(PUBLISH) for _ in range(2)]
        assert not any(m.dup for m in before)
    with bench.client(name, clean=False, props=keep()) as peer:
        got = [peer.packet() for _ in range(3)]
        assert [p.pid for p in got if p.kind == PUBREL] == [released.pid], got
        after = [p for p in got if p.kind == PUBLISH]
        assert all(m.dup for m in after), after
        assert [(m.pid, m.payload) for m in after] == [(m.pid, m.payload) for m in before], after


# mqtt5#[MQTT-4.3.3-10] type=test
# mqtt5#[MQTT-4.3.3-8] type=test
# mqtt5#[MQTT-4.3.3-11] type=test
# mqtt5#[MQTT-4.3.3-12] type=test
def case_qos_2_arrives_once_also_over_two_connections(bench):
    topic, name = unique("d/"), unique()
    with bench.subscriber((topic, 0), ("end/" + topic, 0)) as watcher:
        with bench.client(name, clean=False, props=keep()) as peer:
            peer.send(publish(topic, b"once", qos=2, pid=5)).expect(PUBREC)
            peer.send(publish(topic, b"once", qos=2, pid=5, dup=True)).expect(PUBREC)
        with bench.client(name, clean=False, props=keep()) as peer:
            peer.send(publish(topic, b"once", qos=2, pid=5, dup=True)).expect(PUBREC)
            peer.send(ack(PUBREL, 5)).expect(PUBCOMP)
            published(peer, topic, b"new", qos=2, pid=5)
            published(peer, "end/" + topic, pid=6)
        assert [m.payload for m in watcher.until("end/" + topic)] == [b"once", b"new"]


# mqtt5#[MQTT-3.14.4-1] type=test
# mqtt5#[MQTT-3.14.4-2] type=test
# mqtt5#[MQTT-4.13.1-1] type=test
def case_an_error_ends_with_one_disconnect(bench):
    topic = unique("x/")
    with bench.client() as peer, bench.client() as other:
        subscribed(peer, (topic, 0))
        peer.send(publish("bad/#"), PING, subscribe(3, ("more", 0)))
        other.send(publish(topic))
        got = peer.rest()
        ends = [index for index, p in enumerate(got) if p.kind == DISCONNECT]
        assert ends == [len(got) - 1], got
        assert not any(p.kind in (PINGRESP, SUBACK) for p in got), got


# mqtt5#[MQTT-4.2-1] type=test
def case_a_byte_at_a_time_is_enough(bench):
    topic = unique("x/")
    with bench.raw() as peer:
        stream = connect(unique()) + subscribe(1, (topic, 0)) + publish(topic, b"x") + PING
        for at in range(len(stream)):
            peer.send(stream[at : at + 1])
        kinds = [peer.packet().kind for _ in range(4)]
        # A message may come before the SUBACK (section 3.8.4).
        assert kinds[0] == CONNACK, kinds
        assert sorted(kinds[1:]) == [PUBLISH, SUBACK, PINGRESP], kinds


# mqtt5#[MQTT-6.0.0-4] type=test
def case_websocket_selects_the_subprotocol(bench):
    with WebSocket(bench.ports["ws"]) as peer:
        assert peer.headers.get("sec-websocket-protocol") == "mqtt", peer.headers


# mqtt5#[MQTT-6.0.0-2] type=test
def case_packets_need_not_fit_websocket_frames(bench):
    topic = unique("x/")
    with WebSocket(bench.ports["ws"]) as peer:
        first = connect(unique())
        for at in range(len(first)):
            peer.frame(2, first[at : at + 1])
        peer.expect(CONNACK)
        second = subscribe(1, (topic, 0)) + publish(topic, b"x" * 300) + PING
        peer.frame(2, second[:7], final=False).frame(0, second[7:], final=True)
        kinds = [peer.packet().kind for _ in range(3)]
        assert sorted(kinds) == [PUBLISH, SUBACK, PINGRESP], kinds


# mqtt5#[MQTT-6.0.0-1] type=test
def case_websocket_text_frames_close_the_connection(bench):
    with WebSocket(bench.ports["ws"]) as peer:
        peer.send(connect(unique())).expect(CONNACK)
        got = peer.frame(1, PING).rest()
        assert not any(p.kind == PINGRESP for p in got), got
