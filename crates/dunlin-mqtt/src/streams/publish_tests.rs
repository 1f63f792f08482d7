//! The decisions of [`super::PublishPlanner`], and a random walk that checks
//! what always holds: order within a topic, bounds, no topic waits for ever.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::ToString;

use super::*;

fn text(topic: &str) -> Text {
    Text::from(topic)
}

fn at(millis: u64) -> Instant {
    Instant::from_micros(millis * 1000)
}

fn stream(n: u64) -> StreamId {
    StreamId(4 * n)
}

fn planner(policy: StreamPolicy, topics_max: usize) -> PublishPlanner {
    let mut planner = PublishPlanner::new(PublishOptions {
        policy,
        dialect: StreamDialect::Bidirectional,
        topics_max,
    });
    planner.start(true, None);
    planner
}

/// Asks for a way, opens the stream if asked to, and writes a message.
fn send(planner: &mut PublishPlanner, topic: &str, qos: QoS, next: u64, now: Instant) -> Way {
    let topic = text(topic);
    let way = match planner.way(&topic, false, now) {
        Way::Open => {
            planner.opened(&topic, stream(next), None, now);
            Way::Stream(stream(next))
        }
        way => way,
    };
    match way {
        Way::Stream(id) => planner.written(&topic, id, qos, None),
        Way::Control => planner.written(&topic, StreamId::CONTROL, qos, None),
        _ => {}
    }
    planner.end_of_batch();
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
        let mut planner = planner(policy, 4);
        planner.start(usable, None);
        for topic in ["a", "b", "a"] {
            assert_eq!(
                planner.way(&text(topic), false, at(0)),
                Way::Control,
                "{policy:?}"
            );
        }
        assert!(!planner.is_active());
    }
}

#[test]
fn each_topic_keeps_its_stream() {
    let mut planner = planner(StreamPolicy::PerTopic, 4);
    assert_eq!(
        send(&mut planner, "a", Q0, 1, at(0)),
        Way::Stream(stream(1))
    );
    assert_eq!(
        send(&mut planner, "b", Q1, 2, at(0)),
        Way::Stream(stream(2))
    );
    assert_eq!(
        send(&mut planner, "a", Q2, 3, at(0)),
        Way::Stream(stream(1))
    );
    assert_eq!(planner.poll_finish(), None);
}

#[test]
fn auto_leaves_the_first_topic_on_control() {
    let mut planner = planner(StreamPolicy::Auto, 4);
    assert_eq!(send(&mut planner, "a", Q0, 1, at(0)), Way::Control);
    assert_eq!(
        send(&mut planner, "b", Q0, 1, at(0)),
        Way::Stream(stream(1))
    );
    assert_eq!(send(&mut planner, "a", Q0, 2, at(9000)), Way::Control);
}

#[test]
fn a_resting_topic_gives_its_stream_to_a_new_one() {
    let mut planner = planner(StreamPolicy::PerTopic, 2);
    send(&mut planner, "a", Q0, 1, at(0));
    send(&mut planner, "b", Q1, 2, at(1));
    // `b` is not acknowledged, `a` is at rest for long enough.
    assert_eq!(
        send(&mut planner, "c", Q0, 3, at(1500)),
        Way::Stream(stream(3))
    );
    assert_eq!(planner.poll_finish(), Some(stream(1)));
    // `a` must not overtake what is still on the old stream.
    assert_eq!(send(&mut planner, "a", Q0, 4, at(3000)), Way::Wait);
    assert_eq!(planner.poll_released(), None);
    planner.delivered(stream(1), at(3000));
    assert_eq!(planner.poll_released(), None);
    assert_eq!(planner.ended(stream(1), false), Ended::Expected);
    assert_eq!(planner.poll_released(), Some(text("a")));
    assert_eq!(
        send(&mut planner, "a", Q0, 4, at(3001)),
        Way::Stream(stream(4)),
        "in place of `c`"
    );
}

#[test]
fn more_busy_topics_than_streams_share_control() {
    let mut planner = planner(StreamPolicy::PerTopic, 1);
    send(&mut planner, "a", Q0, 1, at(0));
    assert_eq!(send(&mut planner, "b", Q0, 2, at(10)), Way::Control);
    // For good: nothing tells when a message of QoS 0 has arrived there.
    assert_eq!(send(&mut planner, "b", Q0, 2, at(9000)), Way::Control);
    for n in 0..2 * CONTROL_TOPICS_MAX {
        assert_eq!(
            send(&mut planner, &format!("t{n}"), Q0, 2, at(20)),
            Way::Control
        );
    }
    assert!(planner.topics.len() <= CONTROL_TOPICS_MAX + 1);
}

#[test]
fn a_silent_server_does_not_hold_up_a_topic_for_ever() {
    let mut planner = planner(StreamPolicy::PerPublish, 1);
    send(&mut planner, "a", Q0, 1, at(0));
    assert_eq!(planner.poll_finish(), Some(stream(1)));
    assert_eq!(send(&mut planner, "a", Q0, 2, at(0)), Way::Wait);
    planner.delivered(stream(1), at(100));
    assert_eq!(planner.deadline(), Some(at(100) + CONFIRM_MAX));
    planner.handle_timeout(at(100) + CONFIRM_MAX);
    assert_eq!(planner.poll_released(), Some(text("a")));
    assert_eq!(planner.deadline(), None);
}

#[test]
fn per_publish_waits_within_a_topic_only() {
    let mut planner = planner(StreamPolicy::PerPublish, 1);
    assert_eq!(
        send(&mut planner, "a", Q1, 1, at(0)),
        Way::Stream(stream(1))
    );
    assert_eq!(
        send(&mut planner, "b", Q2, 2, at(0)),
        Way::Stream(stream(2))
    );
    assert_eq!(send(&mut planner, "a", Q1, 3, at(0)), Way::Wait);
    assert_eq!(send(&mut planner, "b", Q2, 3, at(0)), Way::Wait);
    // Streams end with the exchange, topics are free when it is safe.
    assert_eq!(planner.poll_finish(), None);
    planner.arrived(stream(2));
    assert_eq!(planner.poll_released(), Some(text("b")));
    assert_eq!(
        send(&mut planner, "b", Q0, 3, at(1)),
        Way::Stream(stream(3))
    );
    planner.acknowledged(&text("a"), stream(1));
    assert_eq!(planner.poll_released(), Some(text("a")));
    planner.end_of_batch();
    let mut finished = [planner.poll_finish(), planner.poll_finish()];
    finished.sort_unstable();
    assert_eq!(finished, [Some(stream(1)), Some(stream(3))]);
    planner.acknowledged(&text("b"), stream(2));
    planner.end_of_batch();
    assert_eq!(planner.poll_finish(), Some(stream(2)));
}

#[test]
fn unordered_messages_wait_for_streams_only() {
    let mut planner = planner(StreamPolicy::PerPublishUnordered, 1);
    for n in 1..=PUBLISH_STREAMS_MAX as u64 {
        let way = send(&mut planner, "a", Q0, n, at(0));
        assert_eq!(way, Way::Stream(stream(n)));
    }
    assert_eq!(send(&mut planner, "a", Q0, 99, at(0)), Way::Wait);
    assert_eq!(planner.ended(stream(5), false), Ended::Expected);
    assert_eq!(planner.poll_released(), Some(text("a")));
    let way = send(&mut planner, "a", Q0, 99, at(0));
    assert_eq!(way, Way::Stream(stream(99)));
}

#[test]
fn messages_that_may_be_given_up_go_in_trains() {
    let mut planner = planner(StreamPolicy::PerTopic, 4);
    let a = text("a");
    assert_eq!(planner.way(&a, false, at(0)), Way::Open);
    planner.opened(&a, stream(1), Some(at(500)), at(0));
    planner.written(&a, stream(1), Q0, Some(at(500)));
    assert_eq!(planner.way(&a, false, at(0)), Way::Stream(stream(1)));
    planner.written(&a, stream(1), Q0, Some(at(510)));
    planner.end_of_batch();
    assert_eq!(planner.poll_finish(), Some(stream(1)));
    assert_eq!(planner.way(&a, false, at(10)), Way::Wait);
    // Not before the youngest is too old.
    assert_eq!(planner.take_obsolete(at(505)), []);
    assert_eq!(planner.deadline(), Some(at(510)));
    assert_eq!(planner.take_obsolete(at(510)), [stream(1)]);
    assert_eq!(planner.poll_released(), None);
    // The server's answer to the reset.
    assert_eq!(planner.ended(stream(1), true), Ended::Expected);
    assert_eq!(planner.poll_released(), Some(a.clone()));
    assert_eq!(planner.way(&a, false, at(600)), Way::Open);
}

#[test]
fn what_has_arrived_is_not_given_up() {
    let mut planner = planner(StreamPolicy::PerPublish, 4);
    let a = text("a");
    assert_eq!(planner.way(&a, false, at(0)), Way::Open);
    planner.opened(&a, stream(1), Some(at(500)), at(0));
    planner.written(&a, stream(1), Q0, Some(at(500)));
    planner.end_of_batch();
    planner.delivered(stream(1), at(499));
    assert_eq!(planner.take_obsolete(at(500)), []);
}

#[test]
fn a_refusal_ends_the_use_of_streams() {
    let mut planner = planner(StreamPolicy::PerTopic, 4);
    send(&mut planner, "a", Q0, 1, at(0));
    send(&mut planner, "b", Q1, 2, at(0));
    assert_eq!(
        planner.ended(stream(1), true),
        Ended::Refused { lost: false }
    );
    assert_eq!(send(&mut planner, "a", Q0, 3, at(1)), Way::Control);
    assert_eq!(send(&mut planner, "c", Q0, 3, at(1)), Way::Control);
    assert_eq!(
        planner.ended(stream(2), true),
        Ended::Refused { lost: true }
    );
    assert_eq!(planner.ended(stream(7), true), Ended::Expected);
}

#[test]
fn a_server_without_credit_gets_everything_on_control() {
    for policy in [StreamPolicy::PerTopic, StreamPolicy::PerPublish] {
        let mut planner = planner(policy, 4);
        assert_eq!(planner.way(&text("a"), false, at(0)), Way::Open);
        assert_eq!(planner.not_opened(&text("a"), at(0)), Way::Control);
        assert!(!planner.usable);
        assert_eq!(planner.way(&text("a"), false, at(0)), Way::Control);
    }
}

#[test]
fn a_server_with_less_credit_than_topics_gets_the_rest_on_control() {
    let mut planner = planner(StreamPolicy::PerTopic, 4);
    send(&mut planner, "a", Q0, 1, at(0));
    let b = text("b");
    assert_eq!(planner.way(&b, false, at(1)), Way::Open);
    // Some allow more when they see streams in use.
    assert_eq!(planner.not_opened(&b, at(1)), Way::Wait);
    assert_eq!(planner.deadline(), Some(at(1) + CREDIT_WAIT));
    planner.more_credit();
    assert_eq!(planner.poll_released(), Some(b.clone()));
    assert_eq!(planner.way(&b, false, at(2)), Way::Open);
    assert_eq!(planner.not_opened(&b, at(2)), Way::Wait);
    planner.handle_timeout(at(2) + CREDIT_WAIT);
    assert_eq!(planner.poll_released(), Some(b.clone()));
    assert_eq!(planner.way(&b, false, at(300)), Way::Open);
    assert_eq!(planner.not_opened(&b, at(300)), Way::Control);
    // Later a resting topic makes room.
    let c = text("c");
    assert_eq!(planner.way(&c, false, at(2000)), Way::Open);
    assert_eq!(planner.not_opened(&c, at(2000)), Way::Wait);
    planner.end_of_batch();
    assert_eq!(planner.poll_finish(), Some(stream(1)));
    planner.ended(stream(1), false);
    assert_eq!(planner.poll_released(), Some(c.clone()));
    assert_eq!(planner.way(&c, false, at(2001)), Way::Open);
}

#[test]
fn resumed_messages_hold_their_topic_on_control() {
    let mut planner = planner(StreamPolicy::PerTopic, 4);
    planner.resumed(&text("a"), at(0));
    planner.resumed(&text("a"), at(0));
    assert_eq!(send(&mut planner, "a", Q1, 1, at(0)), Way::Control);
    for _ in 0..3 {
        assert_eq!(planner.way(&text("a"), false, at(1)), Way::Control);
        planner.acknowledged(&text("a"), StreamId::CONTROL);
    }
    assert_eq!(planner.way(&text("a"), false, at(1)), Way::Open);
}

#[test]
fn a_server_is_not_asked_for_more_streams_than_it_said() {
    let mut planner = planner(StreamPolicy::PerTopic, 8);
    planner.start(true, Some(2));
    send(&mut planner, "a", Q0, 1, at(0));
    send(&mut planner, "b", Q0, 2, at(1));
    assert_eq!(send(&mut planner, "c", Q0, 3, at(2)), Way::Control);
    // `a` rests, but its stream counts until the server has read it.
    assert_eq!(send(&mut planner, "d", Q0, 3, at(5000)), Way::Wait);
    assert_eq!(planner.poll_finish(), Some(stream(1)));
    planner.ended(stream(1), false);
    assert_eq!(planner.poll_released(), Some(text("d")));
    let way = send(&mut planner, "d", Q0, 3, at(5000));
    assert_eq!(way, Way::Stream(stream(3)));
    planner.start(true, Some(0));
    assert!(!planner.usable);
}

/// Topic, number and QoS of a message.
type Sent = (usize, u64, QoS);

/// A server that reads its streams in any order but each stream from its
/// beginning, and a client that follows [`PublishPlanner`].
struct Walk {
    random: u64,
    planner: PublishPlanner,
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
        let mut way = self.planner.way(&name, false, self.now);
        if way == Way::Open {
            way = if self.wire.len() < self.credit {
                self.next_stream += 1;
                let id = stream(self.next_stream);
                self.planner.opened(&name, id, None, self.now);
                self.wire.insert(id, VecDeque::new());
                Way::Stream(id)
            } else {
                self.planner.not_opened(&name, self.now)
            };
        }
        let id = match way {
            Way::Control => StreamId::CONTROL,
            Way::Stream(id) => id,
            Way::Wait | Way::Open => return false,
        };
        let qos = [Q0, Q1, Q2][(n % 3) as usize];
        self.planner.written(&name, id, qos, None);
        self.wire
            .entry(id)
            .or_default()
            .push_back(Some((topic, n, qos)));
        true
    }

    fn turn(&mut self) {
        self.planner.end_of_batch();
        while let Some(id) = self.planner.poll_finish() {
            self.wire.entry(id).or_default().push_back(None);
        }
        while let Some(name) = self.planner.poll_released() {
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
                true => self.planner.acknowledged(&name, id),
                false => self.planner.arrived(id),
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
                self.planner.delivered(id, self.now);
                assert_eq!(self.planner.ended(id, false), Ended::Expected);
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
        let options = PublishOptions {
            policy,
            dialect: StreamDialect::Bidirectional,
            topics_max: 1 + (seed % 5) as usize,
        };
        let mut walk = Walk {
            random: seed,
            planner: PublishPlanner::new(options),
            wire: BTreeMap::new(),
            parked: BTreeMap::new(),
            next_stream: 0,
            credit: (seed % 7) as usize,
            acks: VecDeque::new(),
            received: BTreeMap::new(),
            now: at(0),
        };
        let limit = [None, Some(2), Some(7)][(seed / 3 % 3) as usize];
        walk.planner.start(true, limit);
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
            assert!(limit.is_none_or(|limit| walk.planner.streams.len() <= limit));
            assert!(walk.planner.streams.len() <= 5 + DRAINING_MAX + PUBLISH_STREAMS_MAX);
        }
        for _ in 0..200_000 {
            walk.deliver();
            walk.turn();
            walk.now += Duration::from_millis(1);
            walk.planner.handle_timeout(walk.now);
            let is_idle = walk.wire.values().all(VecDeque::is_empty) && walk.acks.is_empty();
            if is_idle && walk.parked.is_empty() {
                break;
            }
        }
        assert_eq!(walk.received, last, "seed {seed}: something never went");
    }
}
