"""PUBLISH: retained messages, properties, aliases, quotas, order."""

import time

from bench import *
from wire import *


# mqtt5#[MQTT-3.3.1-5] type=test
# mqtt5#[MQTT-3.3.1-6] type=test
# mqtt5#[MQTT-3.3.1-7] type=test
# mqtt5#[MQTT-3.3.1-8] type=test
def case_retained_messages_are_kept_replaced_and_removed(bench):
    topic = unique("r/")

    def seen():
        with bench.subscriber((topic, 0), ("end/" + topic, 0)) as peer:
            published(other, "end/" + topic)
            return [(m.payload, m.retain) for m in peer.until("end/" + topic)]

    with bench.client() as other:
        published(other, topic, b"plain")
        assert seen() == []
        published(other, topic, b"one", retain=True)
        assert seen() == [(b"one", True)]
        published(other, topic, b"two", retain=True)
        published(other, topic, b"plain")
        assert seen() == [(b"two", True)]
        with bench.subscriber((topic, 0)) as live:
            live.expect(PUBLISH)
            published(other, topic, b"", retain=True)
            assert live.expect(PUBLISH).payload == b""
        assert seen() == []


# mqtt5#[MQTT-3.3.1-5] type=test
def case_no_subscriber_falls_between_live_and_retained(bench):
    # Who subscribes after a client has seen a message gets it as retained,
    # acknowledged or not yet.
    for _ in range(10):
        topic = unique("r/")
        with bench.subscriber((topic, 1)) as watcher, bench.client() as other:
            other.send(publish(topic, b"state", qos=1, retain=True))
            watcher.expect(PUBLISH)
            with bench.subscriber((topic, 0)) as late:
                message = late.expect(PUBLISH)
                assert message.retain and message.payload == b"state", message


# mqtt5#[MQTT-3.3.1-9] type=test
# mqtt5#[MQTT-3.3.1-10] type=test
# mqtt5#[MQTT-3.3.1-11] type=test
# mqtt5#[MQTT-3.8.4-4] type=test
def case_retain_handling_decides_what_a_subscription_gets(bench):
    topic = unique("r/")
    end = "end/" + topic
    with bench.client() as other, bench.client() as peer:
        published(other, topic, b"kept", retain=True)

        def got(handling):
            subscribed(peer, (topic, handling << 4), (end, 0))
            published(other, end)
            return len(peer.until(end))

        assert [got(1), got(1), got(2), got(0), got(0)] == [1, 0, 0, 1, 1]
        published(other, topic, b"", retain=True)


# mqtt5#[MQTT-3.3.1-12] type=test
# mqtt5#[MQTT-3.3.1-13] type=test
def case_retain_as_published_keeps_the_flag(bench):
    topic = unique("r/")
    with bench.subscriber((topic, 0)) as plain, bench.subscriber((topic, 8)) as exact:
        with bench.client() as other:
            published(other, topic, b"a", retain=True)
            published(other, topic, b"b")
            published(other, topic, b"", retain=True)
        assert [plain.expect(PUBLISH).retain for _ in range(3)] == [False] * 3
        assert [exact.expect(PUBLISH).retain for _ in range(3)] == [True, False, True]


# mqtt5#[MQTT-3.3.2-3] type=test
# mqtt5#[MQTT-4.7.3-4] type=test
# mqtt5#[MQTT-4.7.2-1] type=test
def case_topics_match_exactly(bench):
    base = unique("T")
    filters = {
        "upper": f"{base}/A",
        "plus": f"{base}/+/c",
        "hash": f"{base}/#",
        "slash": f"{base}//A",
    }
    expected = {
        f"{base}/A": {"upper", "hash"},
        f"{base}/a": {"hash"},
        f"{base}//A": {"slash", "hash"},
        f"{base}/b/c": {"plus", "hash"},
        # The letter A with ring, composed and decomposed, stays two topics.
        f"{base}/\u00c5/c": {"plus", "hash"},
        f"{base}/A\u030a/c": {"plus", "hash"},
        base: {"hash"},
    }
    end = (f"end/{base}", 0)
    peers = {name: bench.subscriber((text_, 0), end) for name, text_ in filters.items()}
    everything = bench.subscriber(("#", 0), ("+/" + base, 0))
    with bench.client() as other:
        for topic in expected:
            published(other, topic)
        published(other, f"$private/{base}")
        published(other, f"end/{base}")
    for name, peer in peers.items():
        got = [m.topic for m in peer.until(f"end/{base}")]
        assert got == [t for t, names in expected.items() if name in names], (name, got)
        peer.socket.close()
    seen = [m.topic for m in everything.until(f"end/{base}") if base in m.topic]
    assert not any(t.startswith("$") for t in seen) and f"{base}//A" in seen, seen
    everything.socket.close()


# mqtt5#[MQTT-3.3.2-4] type=test
# mqtt5#[MQTT-3.3.2-15] type=test
# mqtt5#[MQTT-3.3.2-16] type=test
# mqtt5#[MQTT-3.3.2-17] type=test
# mqtt5#[MQTT-3.3.2-18] type=test
# mqtt5#[MQTT-3.3.2-20] type=test
def case_properties_arrive_unaltered(bench):
    topic = unique("p/")
    users = [("z", "1"), ("a", ""), ("z", "1"), ("", "é")]
    props = (
        (PAYLOAD_FORMAT, 1),
        (CONTENT_TYPE, "text/ü"),
        (RESPONSE_TOPIC, "answer/here"),
        (CORRELATION, bytes(range(256))),
        *((USER, pair) for pair in users),
    )
    peers = [bench.subscriber((topic, qos)) for qos in (0, 1, 2)]
    with bench.client() as other:
        published(other, topic, "grün".encode(), qos=2, props=props)
    for peer in peers:
        message = peer.expect(PUBLISH)
        assert message.all(USER) == users, message
        assert sorted(p for p in message.props if p[0] != USER) == sorted(props[:4]), message
        peer.socket.close()


# mqtt5#[MQTT-3.3.2-5] type=test
# mqtt5#[MQTT-3.3.2-6] type=test
def case_messages_expire_and_count_down(bench):
    topic, name = unique("e/"), unique()
    with bench.client(name, clean=False, props=keep()) as peer:
        subscribed(peer, (topic, 1))
    with bench.client() as other:
        published(other, topic, b"short", props=((MESSAGE_EXPIRY, 1),))
        published(other, topic, b"long", props=((MESSAGE_EXPIRY, 100),))
    time.sleep(2.2)
    with bench.client(name, clean=False, props=keep()) as peer:
        message = peer.expect(PUBLISH)
        assert message.payload == b"long", message
        assert 90 <= message.one(MESSAGE_EXPIRY) <= 98, message


# mqtt5#[MQTT-4.3.3-7] type=test
def case_a_sent_qos_2_message_does_not_expire(bench):
    topic, name = unique("e/"), unique()
    with bench.client(name, clean=False, props=keep()) as peer, bench.client() as other:
        subscribed(peer, (topic, 2))
        published(other, topic, b"begun", qos=2, props=((MESSAGE_EXPIRY, 1),))
        first = peer.expect(PUBLISH)
    time.sleep(1.6)
    with bench.client(name, clean=False, props=keep()) as peer:
        again = peer.expect(PUBLISH)
        assert again.dup and (again.pid, again.payload) == (first.pid, b"begun"), again
        peer.acknowledge(again)


# mqtt5#[MQTT-3.3.2-12] type=test
# mqtt5#[MQTT-3.3.2-7] type=test
# mqtt5#[MQTT-3.3.2-9] type=test
def case_topic_aliases_are_accepted_up_to_the_maximum(bench):
    topic = unique("a/")
    with bench.subscriber((f"{topic}/#", 0)) as watcher:
        with bench.client() as peer:
            maximum = peer.connack.one(ALIAS_MAX) or 0
            assert maximum > 0
            for alias in (1, maximum):
                peer.send(publish(f"{topic}/{alias}", b"1", props=((ALIAS, alias),)))
                peer.send(publish("", b"2", props=((ALIAS, alias),)))
            got = [watcher.expect(PUBLISH) for _ in range(4)]
            want = [f"{topic}/1"] * 2 + [f"{topic}/{maximum}"] * 2
            assert [m.topic for m in got] == want, got
            assert all(m.one(ALIAS) is None for m in got)
            peer.send(publish(topic, props=((ALIAS, maximum + 1),))).closes_with(0x94)
        with bench.client() as again:
            again.send(publish("", b"x", props=((ALIAS, 1),))).closes_with(0x82, 0x94)


# mqtt5#[MQTT-3.3.2-8] type=test
def case_topic_alias_zero_is_refused(bench):
    with bench.client() as peer:
        peer.send(publish(unique(), props=((ALIAS, 0),))).closes_with(0x94, 0x82)


# mqtt5#[MQTT-3.1.2-26] type=test
# mqtt5#[MQTT-3.1.2-27] type=test
# mqtt5#[MQTT-3.3.2-11] type=test
def case_aliases_of_the_server_stay_below_the_clients_maximum(bench):
    topic = unique("a/")
    with bench.client(props=((ALIAS_MAX, 2),)) as some, bench.client() as none:
        for peer in (some, none):
            subscribed(peer, (f"{topic}/+", 0))
        wanted = [f"{topic}/{n % 4}" for n in range(12)]
        with bench.client() as other:
            other.send(*(publish(name) for name in wanted))
        known = {}
        for want in wanted:
            message = some.expect(PUBLISH)
            alias = message.one(ALIAS)
            assert alias in (None, 1, 2), message
            if alias and message.topic:
                known[alias] = message.topic
            assert (message.topic or known[alias]) == want, (message, want)
            message = none.expect(PUBLISH)
            assert message.topic == want and message.one(ALIAS) is None, message


# mqtt5#[MQTT-3.3.4-2] type=test
# mqtt5#[MQTT-3.3.4-3] type=test
# mqtt5#[MQTT-3.3.4-4] type=test
# mqtt5#[MQTT-3.3.4-5] type=test
def case_overlapping_subscriptions_carry_their_identifiers(bench):
    topic = unique("o/")
    with bench.client() as peer, bench.client() as other:
        subscribed(peer, (f"{topic}/#", 1), props=((SUBSCRIPTION_ID, 7),))
        subscribed(peer, (f"{topic}/+", 2), props=((SUBSCRIPTION_ID, 268435455),))
        subscribed(peer, (f"{topic}/a", 0))
        subscribed(peer, ("end/" + topic, 0))
        published(other, f"{topic}/a", qos=2)
        published(other, "end/" + topic)
        got = peer.until("end/" + topic)
        identifiers = sorted(i for m in got for i in m.all(SUBSCRIPTION_ID))
        assert identifiers == [7, 268435455], got
        # One copy with the highest QoS, or one for each subscription.
        assert max(m.qos for m in got) == 2, got
        assert len(got) in (1, 3), got


# mqtt5#[MQTT-3.3.4-9] type=test
# mqtt5#[MQTT-3.3.4-10] type=test
# mqtt5#[MQTT-4.9.0-2] type=test
# mqtt5#[MQTT-4.9.0-3] type=test
def case_a_full_quota_holds_back_only_publishes(bench):
    topic = unique("q/")
    with bench.client(props=((RECEIVE_MAX, 2),)) as peer, bench.client() as other:
        subscribed(peer, (topic, 1))
        for number in range(5):
            published(other, topic, bytes([number]))
        first = [peer.expect(PUBLISH) for _ in range(2)]
        # Answers pass; no third message does.
        peer.send(PING).expect(PINGRESP)
        subscribed(peer, ("other/" + topic, 0))
        for number in range(2, 5):
            peer.send(ack(PUBACK, first.pop(0).pid))
            first.append(peer.expect(PUBLISH))
            assert first[-1].payload == bytes([number])
            peer.send(PING).expect(PINGRESP)


# mqtt5#[MQTT-4.6.0-5] type=test
# mqtt5#[MQTT-4.6.0-6] type=test
def case_order_is_kept_at_every_qos(bench):
    topic = unique("o/")
    for qos in (0, 1, 2):
        with bench.subscriber((topic, qos)) as peer, bench.client() as other:
            if qos < 2:
                burst = (publish(topic, b"%d" % n, qos=qos, pid=n + 1) for n in range(100))
                other.send(*burst)
            else:
                # A server may wait for PUBREL before it forwards.
                for number in range(100):
                    published(other, topic, b"%d" % number, qos=2)
            got = []
            while len(got) < 100:
                message = peer.packet()
                if message.kind == PUBLISH:
                    got.append(int(message.payload))
                    if qos:
                        peer.send(ack(PUBACK if qos == 1 else PUBREC, message.pid))
                elif message.kind == PUBREL:
                    peer.send(ack(PUBCOMP, message.pid))
            assert got == list(range(100)), got


# mqtt5#[MQTT-4.7.0-1] type=test
# mqtt5#[MQTT-3.3.2-2] type=test
# mqtt5#[MQTT-3.3.2-14] type=test
# mqtt5#[MQTT-4.7.3-1] type=test
# mqtt5#[MQTT-4.7.3-2] type=test
# mqtt5#[MQTT-1.5.4-1] type=test
# mqtt5#[MQTT-1.5.4-2] type=test
def case_bad_topic_names_are_refused(bench):
    surrogate = packet(PUBLISH, 0, binary(b"a\xed\xa0\x80") + properties())
    for bad in (
        publish("a/+"),
        publish("a/#"),
        publish(""),
        publish("a\0b"),
        publish("a", props=((RESPONSE_TOPIC, "b/+"),)),
        surrogate,
    ):
        with bench.client() as peer:
            peer.send(bad).closes_with(0x81, 0x82, 0x90)


# mqtt5#[MQTT-4.7.3-3] type=test
def case_the_longest_topic_arrives(bench):
    topic = unique("long/")
    topic += "é" * ((65535 - len(topic)) // 2)
    with bench.subscriber((topic, 1)) as peer, bench.client() as other:
        published(other, topic, b"x")
        assert peer.expect(PUBLISH).topic == topic


# mqtt5#[MQTT-3.3.1-4] type=test
# mqtt5#[MQTT-2.1.3-1] type=test
# mqtt5#[MQTT-3.8.1-1] type=test
# mqtt5#[MQTT-3.10.1-1] type=test
# mqtt5#[MQTT-3.6.1-1] type=test
# mqtt5#[MQTT-3.14.1-1] type=test
# mqtt5#[MQTT-3.15.1-1] type=test
def case_reserved_bits_are_malformed(bench):
    for bad in (
        packet(PUBLISH, 6, publish("a", qos=1)[2:]),
        packet(SUBSCRIBE, 0, subscribe(1, ("a", 0))[2:]),
        packet(UNSUBSCRIBE, 3, unsubscribe(1, "a")[2:]),
        packet(PUBREL, 0, ack(PUBREL, 1)[2:]),
        packet(PINGREQ, 1, b""),
        packet(DISCONNECT, 1, b"\0"),
        packet(AUTH, 1, b"\0"),
        packet(0, 0, b""),
    ):
        with bench.client() as peer:
            peer.send(bad).closes_with(0x81, 0x82)


# mqtt5#[MQTT-1.5.5-1] type=test
def case_a_variable_byte_integer_has_four_bytes_at_most(bench):
    with bench.client() as peer:
        peer.send(b"\x30\xff\xff\xff\xff\x01").closes_with(0x81)


# mqtt5#[MQTT-3.3.4-6] type=test
def case_clients_do_not_send_subscription_identifiers(bench):
    with bench.client() as peer:
        peer.send(publish("a", props=((SUBSCRIPTION_ID, 1),))).closes_with(0x82)


# mqtt5#[MQTT-3.3.4-7] type=test
def case_more_than_the_receive_maximum_is_refused(bench):
    with bench.client() as peer:
        maximum = peer.connack.one(RECEIVE_MAX) or 65535
        assert maximum >= 1000
        # At QoS 2, the quota is used until PUBREL, which never comes.
        peer.send(*(publish("q/x", qos=2, pid=n + 1) for n in range(min(maximum + 1, 65535))))
        if maximum < 65535:
            got = [p for p in peer.rest() if p.kind == DISCONNECT]
            assert [p.reason for p in got] == [0x93], got
