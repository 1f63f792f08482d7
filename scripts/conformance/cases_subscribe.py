"""SUBSCRIBE, UNSUBSCRIBE and shared subscriptions."""

import struct

from bench import *
from wire import *


# mqtt5#[MQTT-3.8.4-1] type=test
# mqtt5#[MQTT-3.8.4-2] type=test
# mqtt5#[MQTT-3.8.4-5] type=test
# mqtt5#[MQTT-3.8.4-6] type=test
# mqtt5#[MQTT-3.8.4-7] type=test
# mqtt5#[MQTT-3.9.3-1] type=test
# mqtt5#[MQTT-3.9.3-2] type=test
# mqtt5#[MQTT-2.2.1-6] type=test
def case_one_suback_answers_every_filter_in_order(bench):
    topic = unique("s/")
    with bench.client() as peer, bench.client() as other:
        peer.send(subscribe(65535, *((f"{topic}/{n}", n % 3) for n in range(7))))
        suback = peer.expect(SUBACK)
        assert suback.pid == 65535, suback
        assert suback.reasons == tuple(n % 3 for n in range(7)), suback
        for number in range(7):
            published(other, f"{topic}/{number}", qos=2)
            message = peer.expect(PUBLISH)
            assert (message.topic, message.qos) == (f"{topic}/{number}", number % 3), message
            peer.acknowledge(message)


# mqtt5#[MQTT-3.8.4-8] type=test
# mqtt5#[MQTT-4.8.2-3] type=test
def case_qos_of_a_delivery_is_the_lower_one(bench):
    topic = unique("s/")
    for prefix in ("", "$share/group/"):
        for granted in (0, 1, 2):
            with bench.subscriber((prefix + topic, granted)) as peer, bench.client() as other:
                for qos in (0, 1, 2):
                    published(other, topic, qos=qos)
                    message = peer.expect(PUBLISH)
                    assert message.qos == min(qos, granted), (prefix, granted, message)
                    peer.acknowledge(message)


# mqtt5#[MQTT-3.8.4-3] type=test
def case_an_identical_filter_replaces_the_subscription(bench):
    topic = unique("s/")
    with bench.client() as peer, bench.client() as other:
        subscribed(peer, (topic, 2), props=((SUBSCRIPTION_ID, 1),))
        subscribed(peer, (topic, 1), props=((SUBSCRIPTION_ID, 2),))
        subscribed(peer, ("end/" + topic, 0))
        published(other, topic, qos=2)
        published(other, "end/" + topic)
        got = peer.until("end/" + topic)
        assert [(m.qos, m.all(SUBSCRIPTION_ID)) for m in got] == [(1, [2])], got


# mqtt5#[MQTT-3.8.3-3] type=test
def case_no_local_leaves_out_the_publisher(bench):
    topic = unique("s/")
    with bench.client() as peer, bench.client() as other:
        subscribed(peer, (topic, 4), ("end/" + topic, 0))
        peer.send(publish(topic, b"mine"))
        published(other, topic, b"theirs")
        peer.send(publish("end/" + topic))
        assert [m.payload for m in peer.until("end/" + topic)] == [b"theirs"]


# mqtt5#[MQTT-3.8.3-1] type=test
# mqtt5#[MQTT-3.8.3-2] type=test
# mqtt5#[MQTT-3.8.3-4] type=test
# mqtt5#[MQTT-3.8.3-5] type=test
# mqtt5#[MQTT-3.10.3-1] type=test
# mqtt5#[MQTT-3.10.3-2] type=test
def case_malformed_subscriptions_close_the_connection(bench):
    head = struct.pack(">H", 1) + properties()
    for bad in (
        subscribe(1),
        unsubscribe(1),
        subscribe(1, ("a", 0x40)),
        subscribe(1, ("a", 3)),
        subscribe(1, ("a", 0x30)),
        subscribe(1, ("$share/g/a", 4)),
        subscribe(0, ("a", 0)),
        packet(SUBSCRIBE, 2, head + binary(b"\xff") + b"\0"),
        packet(UNSUBSCRIBE, 2, head + binary(b"\xff")),
        packet(SUBSCRIBE, 2, head + b"\0"),
    ):
        with bench.client() as peer:
            peer.send(bad).closes_with(0x81, 0x82)


# mqtt5#[MQTT-4.7.1-1] type=test
# mqtt5#[MQTT-4.7.1-2] type=test
# mqtt5#[MQTT-4.8.2-1] type=test
# mqtt5#[MQTT-4.8.2-2] type=test
def case_bad_filters_are_refused(bench):
    # Either the filter (0x8F) or the connection is refused.
    bad_filters = (
        "a/#/b",
        "a#",
        "a+/b",
        "+a",
        "",
        "$share/",
        "$share//a",
        "$share/g",
        "$share/g+/a",
    )
    for bad in bad_filters:
        with bench.client() as peer:
            got = peer.send(subscribe(1, (bad, 0))).packet()
            refused = got.kind == SUBACK and got.reasons == (0x8F,)
            closed = got.kind == DISCONNECT and got.reason in (0x81, 0x82, 0x8F)
            assert refused or closed, (bad, got)


# mqtt5#[MQTT-3.10.4-1] type=test
# mqtt5#[MQTT-3.10.4-2] type=test
# mqtt5#[MQTT-3.10.4-4] type=test
# mqtt5#[MQTT-3.10.4-5] type=test
# mqtt5#[MQTT-3.10.4-6] type=test
# mqtt5#[MQTT-3.11.3-1] type=test
# mqtt5#[MQTT-3.11.3-2] type=test
def case_unsubscribe_removes_exactly_its_filters(bench):
    topic = unique("u/")
    with bench.client() as peer, bench.client() as other:
        subscribed(
            peer, (f"{topic}/a", 0), (f"{topic}/b", 0), (f"{topic}/+", 0), ("end/" + topic, 0)
        )
        peer.send(unsubscribe(513, f"{topic}/a", f"{topic}/A", f"{topic}/+", f"{topic}/#"))
        unsuback = peer.expect(UNSUBACK)
        assert (unsuback.pid, unsuback.reasons) == (513, (0, 0x11, 0, 0x11)), unsuback
        for name in ("a", "b", "c"):
            published(other, f"{topic}/{name}")
        published(other, "end/" + topic)
        assert [m.topic for m in peer.until("end/" + topic)] == [f"{topic}/b"]


# mqtt5#[MQTT-3.10.4-3] type=test
def case_deliveries_begun_before_unsubscribe_are_completed(bench):
    topic = unique("u/")
    with bench.client() as peer, bench.client() as other:
        subscribed(peer, (topic, 2))
        published(other, topic, qos=2)
        message = peer.expect(PUBLISH)
        peer.send(unsubscribe(1, topic)).expect(UNSUBACK)
        peer.acknowledge(message)


# mqtt5#[MQTT-4.8.2-4] type=test
def case_a_delivery_begun_in_a_group_is_completed_after_a_return(bench):
    topic, name = unique("g/"), unique()
    with bench.client(name, clean=False, props=keep()) as peer, bench.client() as other:
        subscribed(peer, (f"$share/g/{topic}", 2))
        published(other, topic, b"begun", qos=2)
        message = peer.expect(PUBLISH)
        peer.send(ack(PUBREC, message.pid)).expect(PUBREL)
    with bench.client(name, clean=False, props=keep()) as peer:
        assert peer.expect(PUBREL).pid == message.pid
        peer.send(ack(PUBCOMP, message.pid))


# mqtt5#[MQTT-4.8.2-6] type=test
def case_a_message_refused_in_a_group_goes_to_no_other(bench):
    topic = unique("g/")
    end = "end/" + topic
    with bench.client() as one, bench.client() as two, bench.client() as other:
        for peer in (one, two):
            subscribed(peer, (f"$share/g/{topic}", 1), (end, 0))
        for number in range(4):
            published(other, topic, b"%d" % number)
        published(other, end)
        got = []
        for peer in (one, two):
            while (message := peer.expect(PUBLISH)).topic != end:
                got.append(message.payload)
                peer.send(ack(PUBACK, message.pid, 0x97))
        assert sorted(got) == [b"0", b"1", b"2", b"3"], got
        # Nothing was given to the other member.
        published(other, end)
        for peer in (one, two):
            assert peer.until(end) == []
