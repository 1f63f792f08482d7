//! The decisions of [`super::Routes`], and a random walk that checks what
//! always holds: order within a topic, bounds, nobody waits for ever.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::streams::StreamDialect;

fn text(topic: &str) -> Text {
    Text::from(topic)
}

fn at(millis: u64) -> Instant {
    Instant::from_micros(millis * 1000)
}

fn stream(n: u64) -> StreamId {
    StreamId(4 * n)
}

fn routes(policy: StreamPolicy, topics_max: u16) -> Routes {
    let options = StreamOptions {
        policy,
        topics_max,
        ..StreamOptions::default()
    };
    let mut routes = Routes::new(&options);
    routes.start(true, None);
    routes
}

/// Asks for a way, opens the stream if asked to, and writes a message.
fn send(routes: &mut Routes, topic: &str, qos: QoS, next: u64, now: Instant) -> Way {
    let topic = text(topic);
    let way = match routes.way(&topic, Priority::NORMAL, now) {
        Way::Open => {
            routes.opened(&topic, stream(next), None, now);
            Way::Stream(stream(next))
        }
        way => way,
    };
    match way {
        Way::Stream(id) => routes.written(&topic, id, qos, None),
        Way::Control => routes.written(&topic, StreamId::CONTROL, qos, None),
        _ => {}
    }
    routes.end_of_batch();
    way
}

const Q0: QoS = QoS::AtMostOnce;
const Q1: QoS = QoS::AtLeastOnce;
const Q2: QoS = QoS::ExactlyOnce;

#[test]
fn single_and_servers_without_streams_use_control() {
    for (policy, usable) in [
        (StreamPolicy::Single, true),
        (StreamPolicy::PerTopic, false),
        (StreamPolicy::Auto, false),
        (StreamPolicy::PerPublish, false),
        (StreamPolicy::PerPublishUnordered, false),
    ] {
        let mut routes = routes(policy, 4);
        routes.start(usable, None);
        for topic in ["a", "b", "a"] {
            assert_eq!(
                routes.way(&text(topic), Priority::NORMAL, at(0)),
                Way::Control,
                "{policy:?}"
            );
        }
        assert!(!routes.is_active());
    }
}

#[test]
fn each_topic_keeps_its_stream() {
    let mut routes = routes(StreamPolicy::PerTopic, 4);
    assert_eq!(send(&mut routes, "a", Q0, 1, at(0)), Way::Stream(stream(1)));
    assert_eq!(send(&mut routes, "b", Q1, 2, at(0)), Way::Stream(stream(2)));
    assert_eq!(send(&mut routes, "a", Q2, 3, at(0)), Way::Stream(stream(1)));
    assert_eq!(routes.poll_finish(), None);
}

#[test]
fn auto_leaves_the_first_topic_on_control() {
    let mut routes = routes(StreamPolicy::Auto, 4);
    assert_eq!(send(&mut routes, "a", Q0, 1, at(0)), Way::Control);
    assert_eq!(send(&mut routes, "b", Q0, 1, at(0)), Way::Stream(stream(1)));
    assert_eq!(send(&mut routes, "a", Q0, 2, at(9000)), Way::Control);
}

#[test]
fn a_resting_topic_gives_its_stream_to_a_new_one() {
    let mut routes = routes(StreamPolicy::PerTopic, 2);
    send(&mut routes, "a", Q0, 1, at(0));
    send(&mut routes, "b", Q1, 2, at(1));
    // `b` is not acknowledged, `a` is at rest for long enough.
    assert_eq!(
        send(&mut routes, "c", Q0, 3, at(1500)),
        Way::Stream(stream(3))
    );
    assert_eq!(routes.poll_finish(), Some(stream(1)));
    // `a` must not overtake what is still on the old stream.
    assert_eq!(send(&mut routes, "a", Q0, 4, at(3000)), Way::Wait);
    assert_eq!(routes.poll_released(), None);
    routes.delivered(stream(1), at(3000));
    assert_eq!(routes.poll_released(), None);
    assert_eq!(routes.ended(stream(1), false), Ended::Expected);
    assert_eq!(routes.poll_released(), Some(text("a")));
    assert_eq!(
        send(&mut routes, "a", Q0, 4, at(3001)),
        Way::Stream(stream(4)),
        "in place of `c`"
    );
}

#[test]
fn more_busy_topics_than_streams_share_control() {
    let mut routes = routes(StreamPolicy::PerTopic, 1);
    send(&mut routes, "a", Q0, 1, at(0));
    assert_eq!(send(&mut routes, "b", Q0, 2, at(10)), Way::Control);
    // For good: nothing tells when a message of QoS 0 has arrived there.
    assert_eq!(send(&mut routes, "b", Q0, 2, at(9000)), Way::Control);
    for n in 0..2 * CONTROL_TOPICS_MAX {
        assert_eq!(
            send(&mut routes, &format!("t{n}"), Q0, 2, at(20)),
            Way::Control
        );
    }
    assert!(routes.topics.len() <= CONTROL_TOPICS_MAX + 1);
}

#[test]
fn a_silent_server_does_not_hold_up_a_topic_for_ever() {
    let mut routes = routes(StreamPolicy::PerPublish, 1);
    send(&mut routes, "a", Q0, 1, at(0));
    assert_eq!(routes.poll_finish(), Some(stream(1)));
    assert_eq!(send(&mut routes, "a", Q0, 2, at(0)), Way::Wait);
    routes.delivered(stream(1), at(100));
    assert_eq!(routes.deadline(), Some(at(100) + CONFIRM_MAX));
    routes.handle_timeout(at(100) + CONFIRM_MAX);
    assert_eq!(routes.poll_released(), Some(text("a")));
    assert_eq!(routes.deadline(), None);
}

#[test]
fn per_publish_waits_within_a_topic_only() {
    let mut routes = routes(StreamPolicy::PerPublish, 1);
    assert_eq!(send(&mut routes, "a", Q1, 1, at(0)), Way::Stream(stream(1)));
    assert_eq!(send(&mut routes, "b", Q2, 2, at(0)), Way::Stream(stream(2)));
    assert_eq!(send(&mut routes, "a", Q1, 3, at(0)), Way::Wait);
    assert_eq!(send(&mut routes, "b", Q2, 3, at(0)), Way::Wait);
    // Streams end with the exchange, topics are free when it is safe.
    assert_eq!(routes.poll_finish(), None);
    routes.arrived(stream(2));
    assert_eq!(routes.poll_released(), Some(text("b")));
    assert_eq!(send(&mut routes, "b", Q0, 3, at(1)), Way::Stream(stream(3)));
    routes.acknowledged(&text("a"), stream(1));
    assert_eq!(routes.poll_released(), Some(text("a")));
    routes.end_of_batch();
    let mut finished = [routes.poll_finish(), routes.poll_finish()];
    finished.sort_unstable();
    assert_eq!(finished, [Some(stream(1)), Some(stream(3))]);
    routes.acknowledged(&text("b"), stream(2));
    routes.end_of_batch();
    assert_eq!(routes.poll_finish(), Some(stream(2)));
}

#[test]
fn unordered_messages_wait_for_streams_only() {
    let mut routes = routes(StreamPolicy::PerPublishUnordered, 1);
    for n in 1..=PUBLISH_STREAMS_MAX as u64 {
        let way = send(&mut routes, "a", Q0, n, at(0));
        assert_eq!(way, Way::Stream(stream(n)));
    }
    assert_eq!(send(&mut routes, "a", Q0, 99, at(0)), Way::Wait);
    assert_eq!(routes.ended(stream(5), false), Ended::Expected);
    assert_eq!(routes.poll_released(), Some(text("a")));
    let way = send(&mut routes, "a", Q0, 99, at(0));
    assert_eq!(way, Way::Stream(stream(99)));
}

#[test]
fn messages_that_may_be_given_up_go_in_trains() {
    let mut routes = routes(StreamPolicy::PerTopic, 4);
    let a = text("a");
    assert_eq!(routes.way(&a, Priority::NORMAL, at(0)), Way::Open);
    routes.opened(&a, stream(1), Some(at(500)), at(0));
    routes.written(&a, stream(1), Q0, Some(at(500)));
    assert_eq!(
        routes.way(&a, Priority::NORMAL, at(0)),
        Way::Stream(stream(1))
    );
    routes.written(&a, stream(1), Q0, Some(at(510)));
    routes.end_of_batch();
    assert_eq!(routes.poll_finish(), Some(stream(1)));
    assert_eq!(routes.way(&a, Priority::NORMAL, at(10)), Way::Wait);
    // Not before the youngest is too old.
    assert_eq!(routes.take_obsolete(at(505)), []);
    assert_eq!(routes.deadline(), Some(at(510)));
    assert_eq!(routes.take_obsolete(at(510)), [stream(1)]);
    assert_eq!(routes.poll_released(), None);
    // The server's answer to the reset.
    assert_eq!(routes.ended(stream(1), true), Ended::Expected);
    assert_eq!(routes.poll_released(), Some(a.clone()));
    assert_eq!(routes.way(&a, Priority::NORMAL, at(600)), Way::Open);
}

#[test]
fn what_has_arrived_is_not_given_up() {
    let mut routes = routes(StreamPolicy::PerPublish, 4);
    let a = text("a");
    assert_eq!(routes.way(&a, Priority::NORMAL, at(0)), Way::Open);
    routes.opened(&a, stream(1), Some(at(500)), at(0));
    routes.written(&a, stream(1), Q0, Some(at(500)));
    routes.end_of_batch();
    routes.delivered(stream(1), at(499));
    assert_eq!(routes.take_obsolete(at(500)), []);
}

#[test]
fn a_refusal_ends_the_use_of_streams() {
    let mut routes = routes(StreamPolicy::PerTopic, 4);
    send(&mut routes, "a", Q0, 1, at(0));
    send(&mut routes, "b", Q1, 2, at(0));
    assert_eq!(
        routes.ended(stream(1), true),
        Ended::Refused { lost: false }
    );
    assert_eq!(send(&mut routes, "a", Q0, 3, at(1)), Way::Control);
    assert_eq!(send(&mut routes, "c", Q0, 3, at(1)), Way::Control);
    assert_eq!(routes.ended(stream(2), true), Ended::Refused { lost: true });
    assert_eq!(routes.ended(stream(7), true), Ended::Expected);
}

#[test]
fn a_server_without_credit_gets_everything_on_control() {
    for policy in [StreamPolicy::PerTopic, StreamPolicy::PerPublish] {
        let mut routes = routes(policy, 4);
        assert_eq!(routes.way(&text("a"), Priority::NORMAL, at(0)), Way::Open);
        assert_eq!(routes.not_opened(&text("a"), at(0)), Way::Control);
        assert!(!routes.usable);
        assert_eq!(
            routes.way(&text("a"), Priority::NORMAL, at(0)),
            Way::Control
        );
    }
}

#[test]
fn a_server_with_less_credit_than_topics_gets_the_rest_on_control() {
    let mut routes = routes(StreamPolicy::PerTopic, 4);
    send(&mut routes, "a", Q0, 1, at(0));
    let b = text("b");
    assert_eq!(routes.way(&b, Priority::NORMAL, at(1)), Way::Open);
    // Some allow more when they see streams in use.
    assert_eq!(routes.not_opened(&b, at(1)), Way::Wait);
    assert_eq!(routes.deadline(), Some(at(1) + CREDIT_WAIT));
    routes.more_credit();
    assert_eq!(routes.poll_released(), Some(b.clone()));
    assert_eq!(routes.way(&b, Priority::NORMAL, at(2)), Way::Open);
    assert_eq!(routes.not_opened(&b, at(2)), Way::Wait);
    routes.handle_timeout(at(2) + CREDIT_WAIT);
    assert_eq!(routes.poll_released(), Some(b.clone()));
    assert_eq!(routes.way(&b, Priority::NORMAL, at(300)), Way::Open);
    assert_eq!(routes.not_opened(&b, at(300)), Way::Control);
    // Later a resting topic makes room.
    let c = text("c");
    assert_eq!(routes.way(&c, Priority::NORMAL, at(2000)), Way::Open);
    assert_eq!(routes.not_opened(&c, at(2000)), Way::Wait);
    routes.end_of_batch();
    assert_eq!(routes.poll_finish(), Some(stream(1)));
    routes.ended(stream(1), false);
    assert_eq!(routes.poll_released(), Some(c.clone()));
    assert_eq!(routes.way(&c, Priority::NORMAL, at(2001)), Way::Open);
}

#[test]
fn resumed_messages_hold_their_topic_on_control() {
    let mut routes = routes(StreamPolicy::PerTopic, 4);
    routes.resumed(&text("a"), at(0));
    routes.resumed(&text("a"), at(0));
    assert_eq!(send(&mut routes, "a", Q1, 1, at(0)), Way::Control);
    for _ in 0..3 {
        assert_eq!(
            routes.way(&text("a"), Priority::NORMAL, at(1)),
            Way::Control
        );
        routes.acknowledged(&text("a"), StreamId::CONTROL);
    }
    assert_eq!(routes.way(&text("a"), Priority::NORMAL, at(1)), Way::Open);
}

#[test]
fn a_server_is_not_asked_for_more_streams_than_it_said() {
    let mut routes = routes(StreamPolicy::PerTopic, 8);
    routes.start(true, Some(2));
    send(&mut routes, "a", Q0, 1, at(0));
    send(&mut routes, "b", Q0, 2, at(1));
    assert_eq!(send(&mut routes, "c", Q0, 3, at(2)), Way::Control);
    // `a` rests, but its stream counts until the server has read it.
    assert_eq!(send(&mut routes, "d", Q0, 3, at(5000)), Way::Wait);
    assert_eq!(routes.poll_finish(), Some(stream(1)));
    routes.ended(stream(1), false);
    assert_eq!(routes.poll_released(), Some(text("d")));
    let way = send(&mut routes, "d", Q0, 3, at(5000));
    assert_eq!(way, Way::Stream(stream(3)));
    routes.start(true, Some(0));
    assert!(!routes.usable);
}

/// Topic, number and QoS of a message.
type Sent = (usize, u64, QoS);

/// A server that reads its streams in any order but each stream from its
/// beginning, and a client that follows [`Routes`].
struct Walk {
    random: u64,
    routes: Routes,
    /// Bytes on their way, by stream: topic and number, then the end.
    wire: BTreeMap<StreamId, VecDeque<Option<Sent>>>,
    parked: BTreeMap<usize, VecDeque<u64>>,
    next_stream: u64,
    credit: usize,
    /// Acknowledgements on their way back.
    acks: VecDeque<(usize, StreamId, bool)>,
    received: BTreeMap<usize, u64>,
    now: Instant,
}

impl Walk {
    fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % below
    }

    fn send(&mut self, topic: usize, n: u64) {
        if let Some(parked) = self.parked.get_mut(&topic) {
            return parked.push_back(n);
        }
        if !self.try_send(topic, n) {
            self.parked.entry(topic).or_default().push_back(n);
        }
    }

    fn try_send(&mut self, topic: usize, n: u64) -> bool {
        let name = text(&topic.to_string());
        let mut way = self.routes.way(&name, Priority::NORMAL, self.now);
        if way == Way::Open {
            way = if self.wire.len() < self.credit {
                self.next_stream += 1;
                let id = stream(self.next_stream);
                self.routes.opened(&name, id, None, self.now);
                self.wire.insert(id, VecDeque::new());
                Way::Stream(id)
            } else {
                self.routes.not_opened(&name, self.now)
            };
        }
        let id = match way {
            Way::Control => StreamId::CONTROL,
            Way::Stream(id) => id,
            Way::Wait | Way::Open => return false,
        };
        let qos = [Q0, Q1, Q2][(n % 3) as usize];
        self.routes.written(&name, id, qos, None);
        self.wire
            .entry(id)
            .or_default()
            .push_back(Some((topic, n, qos)));
        true
    }

    fn turn(&mut self) {
        self.routes.end_of_batch();
        while let Some(id) = self.routes.poll_finish() {
            self.wire.entry(id).or_default().push_back(None);
        }
        while let Some(name) = self.routes.poll_released() {
            let topic: usize = name.parse().expect("a number");
            let mut parked = self.parked.remove(&topic).unwrap_or_default();
            while let Some(n) = parked.pop_front() {
                if !self.try_send(topic, n) {
                    parked.push_front(n);
                    self.parked.insert(topic, parked);
                    break;
                }
            }
        }
    }

    /// The server reads a little of some stream, or an answer arrives.
    fn deliver(&mut self) {
        if self.random(2) == 0
            && let Some((topic, id, last)) = self.acks.pop_front()
        {
            let name = text(&topic.to_string());
            match last {
                true => self.routes.acknowledged(&name, id),
                false => self.routes.arrived(id),
            }
            return;
        }
        let ids: Vec<StreamId> = self.wire.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.random(ids.len() as u64) as usize];
        match self.wire.get_mut(&id).and_then(VecDeque::pop_front) {
            Some(Some((topic, n, qos))) => {
                let before = self.received.insert(topic, n);
                assert!(
                    before.is_none_or(|b| b < n),
                    "{topic}: {n} after {before:?}"
                );
                if qos == Q2 {
                    self.acks.push_back((topic, id, false));
                }
                if qos != Q0 {
                    self.acks.push_back((topic, id, true));
                }
            }
            Some(None) => {
                self.wire.remove(&id);
                self.routes.delivered(id, self.now);
                assert_eq!(self.routes.ended(id, false), Ended::Expected);
            }
            None => {}
        }
    }
}

#[test]
fn order_within_a_topic_holds_on_every_walk() {
    for seed in 0..60_u64 {
        let policy = [
            StreamPolicy::PerTopic,
            StreamPolicy::PerPublish,
            StreamPolicy::Auto,
        ][(seed % 3) as usize];
        let options = StreamOptions {
            policy,
            dialect: StreamDialect::Bidirectional,
            topics_max: 1 + (seed % 5) as u16,
            ..StreamOptions::default()
        };
        let mut walk = Walk {
            random: seed,
            routes: Routes::new(&options),
            wire: BTreeMap::new(),
            parked: BTreeMap::new(),
            next_stream: 0,
            credit: (seed % 7) as usize,
            acks: VecDeque::new(),
            received: BTreeMap::new(),
            now: at(0),
        };
        let limit = [None, Some(2), Some(7)][(seed / 3 % 3) as usize];
        walk.routes.start(true, limit);
        let mut last = BTreeMap::new();
        for n in 1..2000 {
            let topic = walk.random(12) as usize;
            walk.send(topic, n);
            last.insert(topic, n);
            walk.turn();
            for _ in 0..walk.random(4) {
                walk.deliver();
                walk.turn();
            }
            let wait = walk.random(400);
            walk.now += Duration::from_millis(wait);
            assert!(limit.is_none_or(|limit| walk.routes.streams.len() <= limit));
            assert!(walk.routes.streams.len() <= 5 + DRAINING_MAX + PUBLISH_STREAMS_MAX);
        }
        for _ in 0..200_000 {
            walk.deliver();
            walk.turn();
            walk.now += Duration::from_millis(1);
            walk.routes.handle_timeout(walk.now);
            let is_idle = walk.wire.values().all(VecDeque::is_empty) && walk.acks.is_empty();
            if is_idle && walk.parked.is_empty() {
                break;
            }
        }
        assert_eq!(walk.received, last, "seed {seed}: something never went");
    }
}
