//! Delivery streams: which of the streams that the broker opened a message
//! goes to. Knows no bytes and no transport.
//!
//! A topic stays on its lane, so that its messages stay in order; every topic
//! gets a lane of its own as long as there are some left, then topics share.
//! A lane that got no stream is the control stream. Topics that are not worth
//! an entry any more are forgotten only when everything sent on their lane has
//! arrived: its stream is ended, and what comes meanwhile is held until then.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use dunlin_base::{SendBuf, StreamId, Text};
use hashbrown::HashMap;

/// Topics with an entry, for each lane. Further topics share lanes by hash.
pub(crate) const TOPICS_PER_LANE: usize = 8;

/// Where the messages of a lane go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// No stream, and none asked for.
    Idle,
    /// A stream was asked for.
    Asked,
    /// This stream.
    Open(StreamId),
    /// This stream was ended and what it carried has not all arrived; entries
    /// not used since `since` may go then.
    Draining { stream: StreamId, since: u64 },
    /// The control stream, as long as the connection lives.
    Control,
}

#[derive(Debug)]
struct Lane {
    way: Way,
    /// What waits for the stream.
    held: SendBuf,
    used: u64,
    /// When it last took a message of a topic without an entry; 0: never.
    overflow: u64,
    level: u8,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    lane: usize,
    used: u64,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The control stream.
    Control,
    /// A stream that is open.
    Stream(StreamId),
    /// A lane whose stream is not there yet.
    Held(usize),
}

/// What is to be done on the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Open a stream; [`Lanes::opened`] takes it.
    Open,
    /// End a stream.
    Finish(StreamId),
    /// Raise its priority.
    Prioritise(StreamId, u8),
}

/// A lane got its stream, or none.
#[derive(Debug)]
pub(crate) struct Opened {
    /// What waited for it.
    pub(crate) held: SendBuf,
    pub(crate) level: u8,
    /// Flow identifier.
    pub(crate) flow: u64,
}

/// The delivery streams of one connection.
#[derive(Debug)]
pub(crate) struct Lanes {
    max: usize,
    lanes: Vec<Lane>,
    topics: HashMap<Text, Entry>,
    /// Lanes that wait for a stream, in the order in which they asked.
    asked: VecDeque<usize>,
    /// The client allows no more streams for now.
    exhausted: bool,
    tick: u64,
    flows: u64,
    displaced: SendBuf,
    pub(crate) actions: Vec<Action>,
}

impl Lanes {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            lanes: Vec::new(),
            topics: HashMap::new(),
            asked: VecDeque::new(),
            exhausted: false,
            tick: 0,
            flows: 0,
            displaced: SendBuf::new(),
            actions: Vec::new(),
        }
    }

    /// Bytes that wait for streams.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.held.len()).sum()
    }

    /// Whether the broker opened this stream for deliveries.
    pub(crate) fn knows(&self, stream: StreamId) -> bool {
        self.lane_of(stream).is_some()
    }

    /// The stream of a topic that has one.
    pub(crate) fn stream_of(&self, topic: &str) -> Option<StreamId> {
        let entry = self.topics.get(topic.as_bytes())?;
        match self.lanes.get(entry.lane)?.way {
            Way::Open(stream) => Some(stream),
            _ => None,
        }
    }

    pub(crate) fn held(&mut self, lane: usize) -> Option<&mut SendBuf> {
        self.lanes.get_mut(lane).map(|lane| &mut lane.held)
    }

    /// The way of the next message of a topic.
    pub(crate) fn place(&mut self, topic: &str, level: u8) -> Place {
        self.tick += 1;
        let at = match self.topics.get_mut(topic.as_bytes()) {
            Some(entry) => {
                entry.used = self.tick;
                entry.lane
            }
            None => self.choose(topic, level),
        };
        self.enter(at)
    }

    /// A lane for a topic without an entry.
    fn choose(&mut self, topic: &str, level: u8) -> usize {
        let roomy = self.topics.len() < self.max * TOPICS_PER_LANE;
        // Lanes that topics go to by hash must stay as they are.
        let may_grow = !self.exhausted && self.lanes.iter().all(|lane| lane.overflow == 0);
        if roomy && may_grow && self.lanes.len() < self.max {
            self.lanes.push(Lane {
                way: Way::Idle,
                held: SendBuf::new(),
                used: 0,
                overflow: 0,
                level,
            });
            return self.keep(topic, self.lanes.len() - 1);
        }
        if self.lanes.is_empty() {
            // The client allowed not even one.
            self.lanes.push(Lane {
                way: Way::Control,
                held: SendBuf::new(),
                used: 0,
                overflow: 0,
                level,
            });
        }
        let by_hash = hash(topic) % self.lanes.len();
        if self
            .lanes
            .get(by_hash)
            .is_some_and(|lane| lane.overflow > 0)
        {
            // It may have been there before.
            self.raise(by_hash, level);
            if roomy {
                return self.keep(topic, by_hash);
            }
            self.overflow(by_hash);
            self.renew();
            return by_hash;
        }
        if roomy {
            let at = self.least_used(level);
            self.raise(at, level);
            return self.keep(topic, at);
        }
        self.raise(by_hash, level);
        self.overflow(by_hash);
        self.renew();
        by_hash
    }

    fn keep(&mut self, topic: &str, lane: usize) -> usize {
        let used = self.tick;
        self.topics.insert(Text::from(topic), Entry { lane, used });
        lane
    }

    fn overflow(&mut self, lane: usize) {
        let tick = self.tick;
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.overflow = tick;
        }
    }

    /// The lane that was used least lately, of the same level if there is one.
    fn least_used(&self, level: u8) -> usize {
        let lanes = self.lanes.iter().enumerate();
        let lanes = lanes.filter(|(_, lane)| lane.way != Way::Control || self.lanes.len() == 1);
        lanes
            .min_by_key(|(_, lane)| (lane.level != level, lane.used))
            .map_or(0, |(at, _)| at)
    }

    fn raise(&mut self, at: usize, level: u8) {
        if let Some(lane) = self.lanes.get_mut(at)
            && lane.level < level
        {
            lane.level = level;
            if let Way::Open(stream) = lane.way {
                self.actions.push(Action::Prioritise(stream, level));
            }
        }
    }

    fn enter(&mut self, at: usize) -> Place {
        let tick = self.tick;
        let Some(lane) = self.lanes.get_mut(at) else {
            return Place::Control;
        };
        lane.used = tick;
        match lane.way {
            Way::Control => Place::Control,
            Way::Open(stream) => Place::Stream(stream),
            Way::Asked | Way::Draining { .. } => Place::Held(at),
            Way::Idle => {
                lane.way = Way::Asked;
                self.asked.push_back(at);
                self.actions.push(Action::Open);
                Place::Held(at)
            }
        }
    }

    /// No room for more topics: ends the stream of the lane that was used
    /// least lately, so that its topics can be forgotten.
    fn renew(&mut self) {
        let draining = |lane: &Lane| matches!(lane.way, Way::Draining { .. });
        if self.lanes.iter().any(draining) {
            return;
        }
        let since = self.tick;
        let open = self.lanes.iter_mut();
        let open = open.filter(|lane| matches!(lane.way, Way::Open(_)));
        if let Some(lane) = open.min_by_key(|lane| lane.used)
            && let Way::Open(stream) = lane.way
        {
            lane.way = Way::Draining { stream, since };
            self.actions.push(Action::Finish(stream));
        }
    }

    /// The client ended its side of a stream: ours ends too, and the lane gets
    /// a new one when it is needed.
    pub(crate) fn finished(&mut self, stream: StreamId) {
        let since = self.tick + 1;
        if let Some(at) = self.lane_of(stream)
            && let Some(lane) = self.lanes.get_mut(at)
            && lane.way == Way::Open(stream)
        {
            lane.way = Way::Draining { stream, since };
            self.actions.push(Action::Finish(stream));
        }
    }

    /// Everything sent on a stream has arrived.
    pub(crate) fn delivered(&mut self, stream: StreamId) {
        let Some(at) = self.lane_of(stream) else {
            return;
        };
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let Way::Draining { since, .. } = lane.way else {
            return;
        };
        lane.way = Way::Idle;
        if lane.overflow < since {
            lane.overflow = 0;
        }
        let waits = !lane.held.is_empty();
        self.topics
            .retain(|_, entry| entry.lane != at || entry.used >= since);
        if waits {
            self.enter(at);
        }
    }

    /// The client does not take a stream: its topics go to control.
    pub(crate) fn refused(&mut self, stream: StreamId) {
        if let Some(at) = self.lane_of(stream)
            && let Some(lane) = self.lanes.get_mut(at)
        {
            lane.way = Way::Control;
            self.displaced.append(&mut lane.held);
        }
    }

    /// What was held for streams that there will not be: it belongs to
    /// control, before anything else.
    pub(crate) fn take_displaced(&mut self) -> Option<SendBuf> {
        (!self.displaced.is_empty()).then(|| core::mem::take(&mut self.displaced))
    }

    /// Answer to the oldest [`Action::Open`]. Without a stream the lane is
    /// control, and what it held belongs there.
    pub(crate) fn opened(&mut self, stream: Option<StreamId>) -> Option<Opened> {
        let at = self.asked.pop_front()?;
        self.flows += 1;
        let lane = self.lanes.get_mut(at)?;
        lane.way = match stream {
            Some(stream) => Way::Open(stream),
            None => Way::Control,
        };
        if stream.is_none() {
            self.exhausted = true;
            self.displaced.append(&mut lane.held);
        }
        Some(Opened {
            held: core::mem::take(&mut lane.held),
            level: lane.level,
            flow: self.flows << 1 | 1,
        })
    }

    /// The client allows more streams.
    pub(crate) fn available(&mut self) {
        self.exhausted = false;
    }

    fn lane_of(&self, stream: StreamId) -> Option<usize> {
        self.lanes.iter().position(|lane| match lane.way {
            Way::Open(id) | Way::Draining { stream: id, .. } => id == stream,
            _ => false,
        })
    }
}

/// FNV-1a: whoever makes topics collide gets fewer lanes, nobody else.
fn hash(topic: &str) -> usize {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    topic.bytes().fold(0xcbf2_9ce4_8422_2325, step) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams as a client would grant them, and what is done on them.
    struct World {
        lanes: Lanes,
        next: u64,
        credit: usize,
        finished: Vec<StreamId>,
    }

    impl World {
        fn new(max: usize, credit: usize) -> Self {
            Self {
                lanes: Lanes::new(max),
                next: 1,
                credit,
                finished: Vec::new(),
            }
        }

        fn place(&mut self, topic: &str) -> Place {
            let place = self.lanes.place(topic, 0);
            let act = self.lanes.actions.len();
            self.act();
            // What asked for a stream has it now.
            if act > 0 && matches!(place, Place::Held(_)) {
                return self.lanes.place(topic, 0);
            }
            place
        }

        fn act(&mut self) {
            for action in core::mem::take(&mut self.lanes.actions) {
                match action {
                    Action::Open if self.credit > 0 => {
                        self.credit -= 1;
                        let stream = StreamId(self.next);
                        self.next += 4;
                        assert!(self.lanes.opened(Some(stream)).is_some());
                    }
                    Action::Open => assert!(self.lanes.opened(None).is_some()),
                    Action::Finish(stream) => self.finished.push(stream),
                    Action::Prioritise(..) => {}
                }
            }
        }
    }

    #[test]
    fn topics_get_streams_of_their_own_and_stay_there() {
        let mut world = World::new(3, 10);
        let a = world.place("a");
        let b = world.place("b");
        assert_eq!(
            (a, b),
            (Place::Stream(StreamId(1)), Place::Stream(StreamId(5)))
        );
        let c = world.place("c");
        assert_ne!(c, a);
        // The fourth shares with whoever was used least lately.
        assert_eq!(world.place("d"), a);
        for _ in 0..3 {
            assert_eq!(world.place("b"), b);
            assert_eq!(world.place("d"), a);
        }
    }

    #[test]
    fn without_credit_topics_stay_on_control_and_later_ones_need_not() {
        let mut world = World::new(4, 1);
        let a = world.place("a");
        assert_eq!(world.place("b"), Place::Control);
        // No use to ask again: it shares.
        assert_eq!(world.place("c"), a);
        assert_eq!(world.next, 5);
        world.credit = 1;
        world.lanes.available();
        assert_eq!(world.place("d"), Place::Stream(StreamId(5)));
        assert_eq!(world.place("b"), Place::Control);
        assert_eq!(world.place("c"), a);
    }

    #[test]
    fn no_credit_at_all_is_control() {
        let mut world = World::new(4, 0);
        for topic in ["a", "b", "a", "c"] {
            assert_eq!(world.place(topic), Place::Control);
        }
    }

    #[test]
    fn many_topics_keep_their_order_through_forgetting() {
        const TOPICS: usize = 200;
        let mut world = World::new(4, usize::MAX);
        // The last place of each topic, and whether that has arrived.
        let mut last: Vec<Option<Place>> = alloc::vec![None; TOPICS];
        let mut random = 1u64;
        for round in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let t = (random >> 33) as usize % TOPICS;
            let place = world.place(&alloc::format!("topic/{t}"));
            if let Some(before) = last[t] {
                let same = before == place || matches!(place, Place::Held(_));
                assert!(
                    same,
                    "round {round}: topic {t} went from {before:?} to {place:?}"
                );
            }
            last[t] = Some(place);
            assert!(world.lanes.topics.len() <= 4 * TOPICS_PER_LANE);
            if round % 50 == 49
                && let Some(stream) = world.finished.pop()
            {
                // It arrived: its topics are free to go elsewhere.
                for place in last.iter_mut().flatten() {
                    if *place == Place::Stream(stream) {
                        *place = Place::Held(0);
                    }
                }
                for place in &mut last {
                    if matches!(place, Some(Place::Held(_))) {
                        *place = None;
                    }
                }
                world.lanes.delivered(stream);
                world.act();
            }
        }
        assert!(world.next > 100, "streams were renewed");
    }

    #[test]
    fn a_refused_stream_is_control_from_then_on() {
        let mut world = World::new(4, 10);
        let Place::Stream(stream) = world.place("a") else {
            panic!("a stream");
        };
        world.lanes.finished(stream);
        let Place::Held(lane) = world.lanes.place("a", 0) else {
            panic!("held until what was sent has arrived");
        };
        let held = world.lanes.held(lane).expect("a lane");
        held.put_slice(b"x");
        world.lanes.refused(stream);
        assert_eq!(world.place("a"), Place::Control);
        let displaced = world.lanes.take_displaced();
        assert_eq!(displaced.map(|buf| buf.len()), Some(1));
        assert!(world.lanes.take_displaced().is_none());
    }
}
