//! Which of the streams that a broker opened a message goes to.
//!
//! A topic stays on its lane, so that its messages stay in order; every topic
//! gets a lane of its own as long as there are some left, then topics share.
//! A lane that got no stream is the control stream. Topics that are not worth
//! an entry any more are forgotten only when everything sent on their lane has
//! arrived: its stream is ended, and what comes meanwhile is held until then.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use dunlin_base::{StreamId, Text};

use super::topics::Topics;

/// Topics with an entry, for each lane. Further topics share lanes by hash.
pub const TOPICS_PER_LANE: usize = 8;

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
    used: u64,
    /// When it last took a message of a topic without an entry; 0: never.
    overflow: u64,
    level: u8,
}

impl Lane {
    const fn new(way: Way, level: u8) -> Self {
        Self {
            way,
            used: 0,
            overflow: 0,
            level,
        }
    }
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The control stream.
    Control,
    /// A stream that is open.
    Stream(StreamId),
    /// A lane whose stream is not there yet: the message waits for it.
    Held(usize),
}

/// What is to be done on the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a stream; [`DeliveryPlanner::opened`] takes it.
    Open,
    /// End a stream.
    Finish(StreamId),
    /// Raise its priority.
    Prioritise(StreamId, u8),
}

/// A lane got its stream, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The lane.
    pub lane: usize,
    /// Priority of its messages.
    pub level: u8,
    /// Number of its stream among those asked for, from 1.
    pub number: u64,
}

/// The delivery streams of one connection.
#[derive(Debug)]
pub struct DeliveryPlanner {
    max: usize,
    lanes: Vec<Lane>,
    /// The lanes of topics.
    topics: Topics<usize, u64>,
    /// Lanes that wait for a stream, in the order in which they asked.
    asked: VecDeque<usize>,
    /// The client allows no more streams for now.
    exhausted: bool,
    tick: u64,
    answered: u64,
    actions: Vec<Action>,
}

impl DeliveryPlanner {
    /// A plan for at most `max` streams.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            lanes: Vec::new(),
            topics: Topics::default(),
            asked: VecDeque::new(),
            exhausted: false,
            tick: 0,
            answered: 0,
            actions: Vec::new(),
        }
    }

    /// What is to be done since the last call, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        core::mem::take(&mut self.actions)
    }

    /// Whether the broker opened this stream for deliveries.
    #[must_use]
    pub fn knows(&self, stream: StreamId) -> bool {
        self.lane_of(stream).is_some()
    }

    /// The stream of a topic that has one.
    #[must_use]
    pub fn stream_of(&self, topic: &str) -> Option<StreamId> {
        let lane = *self.topics.get(topic)?;
        match self.lanes.get(lane)?.way {
            Way::Open(stream) => Some(stream),
            _ => None,
        }
    }

    /// The way of the next message of a topic.
    pub fn place(&mut self, topic: &str, level: u8) -> Place {
        self.tick += 1;
        let at = match self.topics.use_now(topic, self.tick) {
            Some(lane) => *lane,
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
            self.lanes.push(Lane::new(Way::Idle, level));
            return self.keep(topic, self.lanes.len() - 1);
        }
        if self.lanes.is_empty() {
            // The client allowed not even one.
            self.lanes.push(Lane::new(Way::Control, level));
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
        self.topics.insert(Text::from(topic), lane, self.tick);
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
    pub fn finished(&mut self, stream: StreamId) {
        let since = self.tick + 1;
        if let Some(at) = self.lane_of(stream)
            && let Some(lane) = self.lanes.get_mut(at)
            && lane.way == Way::Open(stream)
        {
            lane.way = Way::Draining { stream, since };
            self.actions.push(Action::Finish(stream));
        }
    }

    /// Everything sent on a stream has arrived: gives its lane. If messages
    /// wait there, [`DeliveryPlanner::wake`] follows.
    pub fn delivered(&mut self, stream: StreamId) -> Option<usize> {
        let at = self.lane_of(stream)?;
        let lane = self.lanes.get_mut(at)?;
        let Way::Draining { since, .. } = lane.way else {
            return None;
        };
        lane.way = Way::Idle;
        if lane.overflow < since {
            lane.overflow = 0;
        }
        self.topics
            .retain(|lane, used| *lane != at || used >= since);
        Some(at)
    }

    /// Messages wait for the stream of a lane, which is asked for if there is
    /// none.
    pub fn wake(&mut self, lane: usize) {
        self.enter(lane);
    }

    /// The client does not take a stream: its topics go to control. Gives the
    /// lane: what waits there belongs to control now.
    pub fn refused(&mut self, stream: StreamId) -> Option<usize> {
        let at = self.lane_of(stream)?;
        self.lanes.get_mut(at)?.way = Way::Control;
        Some(at)
    }

    /// Answer to the oldest [`Action::Open`]. Without a stream the lane is
    /// control, and what waits there belongs there.
    pub fn opened(&mut self, stream: Option<StreamId>) -> Option<Opened> {
        let at = self.asked.pop_front()?;
        self.answered += 1;
        self.exhausted |= stream.is_none();
        let lane = self.lanes.get_mut(at)?;
        lane.way = stream.map_or(Way::Control, Way::Open);
        Some(Opened {
            lane: at,
            level: lane.level,
            number: self.answered,
        })
    }

    /// The client allows more streams.
    pub fn available(&mut self) {
        self.exhausted = false;
    }

    fn lane_of(&self, stream: StreamId) -> Option<usize> {
        self.lanes.iter().position(|lane| match lane.way {
            Way::Open(id) | Way::Draining { stream: id, .. } => id == stream,
            _ => false,
        })
    }
}

/// FNV-1a: a client that makes topics collide gets fewer lanes, no other does.
fn hash(topic: &str) -> usize {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    topic.bytes().fold(0xcbf2_9ce4_8422_2325, step) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams as a client would grant them, and what is done on them.
    struct World {
        lanes: DeliveryPlanner,
        next: u64,
        credit: usize,
        finished: Vec<StreamId>,
    }

    impl World {
        fn new(max: usize, credit: usize) -> Self {
            Self {
                lanes: DeliveryPlanner::new(max),
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
            for action in self.lanes.take_actions() {
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
        // The fourth shares with the one that was used least lately.
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
                assert!(world.lanes.delivered(stream).is_some());
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
        assert_eq!(world.lanes.refused(stream), Some(lane));
        assert_eq!(world.place("a"), Place::Control);
    }

    #[test]
    fn what_waits_for_a_drained_stream_asks_for_another() {
        let mut world = World::new(4, 10);
        let Place::Stream(stream) = world.place("a") else {
            panic!("a stream");
        };
        world.lanes.finished(stream);
        assert_eq!(world.lanes.place("a", 0), Place::Held(0));
        assert_eq!(world.lanes.delivered(stream), Some(0));
        world.lanes.wake(0);
        world.act();
        assert_eq!(world.place("a"), Place::Stream(StreamId(5)));
    }
}
