"""Wills."""

import time

from bench import *
from wire import *


# mqtt5#[MQTT-3.1.2-7] type=test
# mqtt5#[MQTT-3.1.2-8] type=test
# mqtt5#[MQTT-3.1.2-14] type=test
# mqtt5#[MQTT-3.1.3-10] type=test
def case_a_will_is_published_with_its_properties(bench):
    topic = unique("w/")
    user = [("b", "1"), ("a", "2"), ("b", "3")]
    props = ((CONTENT_TYPE, "t"), (CORRELATION, b"c"), *((USER, pair) for pair in user))
    with bench.subscriber((topic, 1 | 8)) as watcher:
        vanish(bench.client(will=Will(topic, b"gone", qos=1, properties=props)))
        message = watcher.expect(PUBLISH)
        assert (message.payload, message.qos, message.retain) == (b"gone", 1, False), message
        assert message.all(USER) == user and message.one(CONTENT_TYPE) == "t", message
        with bench.subscriber((topic, 0), ("end/" + topic, 0)) as late, bench.client() as other:
            published(other, "end/" + topic)
            assert late.until("end/" + topic) == []


# mqtt5#[MQTT-3.1.2-15] type=test
def case_a_retained_will_is_retained(bench):
    topic = unique("w/")
    with bench.subscriber((topic, 1)) as watcher:
        vanish(bench.client(will=Will(topic, b"gone", qos=1, retain=True)))
        watcher.expect(PUBLISH)
        with bench.subscriber((topic, 0)) as late:
            message = late.expect(PUBLISH)
            assert message.retain and message.payload == b"gone", message


# mqtt5#[MQTT-3.1.2-10] type=test
# mqtt5#[MQTT-3.14.4-3] type=test
def case_a_normal_disconnect_removes_the_will(bench):
    topic = unique("w/")
    with bench.subscriber((topic, 1), ("end/" + topic, 1)) as watcher:
        bench.client(will=Will(topic, b"never")).send(disconnect()).rest()
        bench.client(will=Will(topic, b"wanted")).send(disconnect(4)).rest()
        assert watcher.expect(PUBLISH).payload == b"wanted"
        with bench.client() as other:
            published(other, "end/" + topic)
        assert watcher.until("end/" + topic) == []


# mqtt5#[MQTT-3.1.3-9] type=test
# mqtt5#[MQTT-3.1.2-8] type=test
def case_a_delayed_will_is_cancelled_by_a_return(bench):
    topic = unique("w/")
    name = unique()
    delayed = Will(topic, b"late", properties=((WILL_DELAY, 1),))
    with bench.subscriber((topic, 0), ("end/" + topic, 0)) as watcher, bench.client() as other:
        vanish(bench.client(name, clean=False, props=keep(), will=delayed))
        with bench.client(name, clean=False, props=keep()) as back:
            time.sleep(2)
            published(other, "end/" + topic)
            assert watcher.until("end/" + topic) == []
            back.send(disconnect()).rest()
        start = time.monotonic()
        vanish(bench.client(name, clean=False, props=keep(), will=delayed))
        assert watcher.expect(PUBLISH).payload == b"late"
        seconds = time.monotonic() - start
        assert seconds >= 0.9, f"published after {seconds:.2f} s"
