//! Delivery streams of one connection: what waits for them. Which stream a
//! message goes to is planned by [`crate::streams::delivery`].

use alloc::vec::Vec;

use crate::streams::delivery::DeliveryPlanner;
pub use crate::streams::delivery::{Action, Place};
use dunlin_base::{SendBuf, StreamId};

/// A lane got its stream, or none.
#[derive(Debug)]
pub struct Opened {
    /// What waited for it.
    pub held: SendBuf,
    /// Priority of its stream.
    pub level: u8,
    /// Its number among the streams of the server.
    pub number: u64,
}

/// The delivery streams of one connection.
#[derive(Debug)]
pub struct Lanes {
    planner: DeliveryPlanner,
    /// What waits for the stream of each lane.
    held: Vec<SendBuf>,
    displaced: SendBuf,
    /// What the transport has to do, in order.
    pub actions: Vec<Action>,
}

impl Lanes {
    /// No stream yet, and at most `max`.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            planner: DeliveryPlanner::new(max),
            held: Vec::new(),
            displaced: SendBuf::new(),
            actions: Vec::new(),
        }
    }

    /// Bytes that wait for streams.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.iter().map(SendBuf::len).sum()
    }

    /// Whether the broker opened this stream for deliveries.
    #[must_use]
    pub fn knows(&self, stream: StreamId) -> bool {
        self.planner.knows(stream)
    }

    /// The stream of a topic that has one.
    #[must_use]
    pub fn stream_of(&self, topic: &str) -> Option<StreamId> {
        self.planner.stream_of(topic)
    }

    /// What waits for the stream of a lane.
    pub fn held(&mut self, lane: usize) -> Option<&mut SendBuf> {
        if self.held.len() <= lane {
            self.held.resize_with(lane + 1, SendBuf::new);
        }
        self.held.get_mut(lane)
    }

    /// The way of the next message of a topic.
    pub fn place(&mut self, topic: &str, level: u8) -> Place {
        let place = self.planner.place(topic, level);
        self.actions.append(&mut self.planner.take_actions());
        place
    }

    /// The client ended its side of a stream: ours ends too, and the lane gets
    /// a new one when it is needed.
    pub fn finished(&mut self, stream: StreamId) {
        self.planner.finished(stream);
        self.actions.append(&mut self.planner.take_actions());
    }

    /// Everything sent on a stream has arrived.
    pub fn delivered(&mut self, stream: StreamId) {
        if let Some(lane) = self.planner.delivered(stream)
            && self.held.get(lane).is_some_and(|held| !held.is_empty())
        {
            self.planner.wake(lane);
            self.actions.append(&mut self.planner.take_actions());
        }
    }

    /// The client does not take a stream: its topics go to control.
    pub fn refused(&mut self, stream: StreamId) {
        if let Some(lane) = self.planner.refused(stream) {
            self.displace(lane);
        }
    }

    /// What was held for streams that there will not be: it belongs to
    /// control, before anything else.
    pub fn take_displaced(&mut self) -> Option<SendBuf> {
        (!self.displaced.is_empty()).then(|| core::mem::take(&mut self.displaced))
    }

    /// Answer to the oldest [`Action::Open`]. Without a stream the lane is
    /// control, and what it held belongs there.
    pub fn opened(&mut self, stream: Option<StreamId>) -> Option<Opened> {
        let opened = self.planner.opened(stream)?;
        if stream.is_none() {
            self.displace(opened.lane);
        }
        let held = self.held.get_mut(opened.lane);
        Some(Opened {
            held: held.map(core::mem::take).unwrap_or_default(),
            level: opened.level,
            number: opened.number,
        })
    }

    /// The client allows more streams.
    pub fn available(&mut self) {
        self.planner.available();
    }

    fn displace(&mut self, lane: usize) {
        if let Some(held) = self.held.get_mut(lane) {
            self.displaced.append(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_refused_stream_belongs_to_control() {
        let mut lanes = Lanes::new(4);
        let stream = StreamId(1);
        assert_eq!(lanes.place("a", 0), Place::Held(0));
        assert_eq!(lanes.actions, [Action::Open]);
        assert!(lanes.opened(Some(stream)).is_some());
        lanes.finished(stream);
        let Place::Held(lane) = lanes.place("a", 0) else {
            panic!("held until what was sent has arrived");
        };
        let held = lanes.held(lane).expect("a lane");
        held.put_slice(b"x");
        assert_eq!(lanes.held_bytes(), 1);
        lanes.refused(stream);
        assert_eq!(lanes.place("a", 0), Place::Control);
        let displaced = lanes.take_displaced();
        assert_eq!(displaced.map(|buf| buf.len()), Some(1));
        assert!(lanes.take_displaced().is_none());
    }

    #[test]
    fn what_waits_for_a_drained_stream_goes_on_the_next() {
        let mut lanes = Lanes::new(4);
        lanes.place("a", 0);
        assert!(lanes.opened(Some(StreamId(1))).is_some());
        lanes.finished(StreamId(1));
        assert_eq!(lanes.place("a", 0), Place::Held(0));
        lanes.held(0).expect("a lane").put_slice(b"x");
        lanes.actions.clear();
        lanes.delivered(StreamId(1));
        assert_eq!(lanes.actions, [Action::Open]);
        let opened = lanes.opened(Some(StreamId(5))).expect("a lane");
        assert_eq!(opened.held.len(), 1);
        assert_eq!(lanes.held_bytes(), 0);
    }
}
