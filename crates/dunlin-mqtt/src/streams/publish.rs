//! Which stream a client's message goes on. Keeps the order of each topic: a
//! topic changes its stream only when nothing of it can still be on its way on
//! the one before.
//!
//! A topic that the table does not know goes on a new stream, or on control
//! (the first stream) when there is no room; it then stays there, because
//! nothing tells when its messages of QoS 0 have arrived.

use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{Instant, QoS, StreamId, Text};

use super::sent::{End, SentStreams};
use super::topics::Topics;
use super::{StreamDialect, StreamPolicy};

/// A topic keeps its stream at least this long, so that more topics than
/// streams do not take turns.
const KEEP_MIN: Duration = Duration::from_secs(1);

/// Longest wait for a server to say that it has read a stream to its end,
/// after its transport has it, or after the stream was given up.
const CONFIRM_MAX: Duration = Duration::from_secs(1);

/// How long to wait for a server that allows no more streams now: many allow
/// more of them once some are in use.
const CREDIT_WAIT: Duration = Duration::from_millis(200);

/// Streams that may wait for the server to read them to their end, besides
/// those in use.
const DRAINING_MAX: usize = 32;

/// Streams with one message each at a time.
const PUBLISH_STREAMS_MAX: usize = 64;

/// Topics remembered as being on control; beyond, all new ones are.
const CONTROL_TOPICS_MAX: usize = 1024;

/// What a client chose.
#[derive(Clone, Copy, Debug)]
pub struct PublishOptions {
    /// How messages are spread.
    pub policy: StreamPolicy,
    /// Kind of the streams.
    pub dialect: StreamDialect,
    /// Streams that topics may have at a time.
    pub topics_max: usize,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The first stream.
    Control,
    /// This stream.
    Stream(StreamId),
    /// A new stream: then [`PublishPlanner::opened`] or
    /// [`PublishPlanner::not_opened`].
    Open,
    /// It has to wait; [`PublishPlanner::poll_released`] tells when to ask
    /// again.
    Wait,
}

/// What the end of a stream means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// This side had ended it, or it is not known.
    Expected,
    /// The server wants no such streams.
    Refused {
        /// With messages that it has not acknowledged.
        lost: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Control: `unacked` messages of QoS 1 and 2; `pinned`: for good.
    Control { unacked: u32, pinned: bool },
    /// A stream that takes more messages.
    Open(StreamId),
    /// Its messages on this stream must arrive first; `waits`: others of it
    /// wait for [`PublishPlanner::poll_released`].
    Behind { stream: StreamId, waits: bool },
}

/// What is known of the server's stream limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Credit {
    /// Nothing says that there is none.
    #[default]
    Open,
    /// None was left; more may come until then.
    Awaited { until: Instant },
    /// None came in that time.
    Exhausted,
}

/// The plan of one connection.
#[derive(Debug)]
pub struct PublishPlanner {
    options: PublishOptions,
    /// New streams may be opened.
    usable: bool,
    /// How many the server takes at a time, as far as it said.
    limit: usize,
    topics: Topics<Place, Instant>,
    streams: SentStreams,
    topics_on_control: usize,
    credit: Credit,
    /// Topics that wait for any stream to end, or for credit.
    starving: Vec<Text>,
    released: Vec<Text>,
}

impl PublishPlanner {
    /// A plan for no connection.
    #[must_use]
    pub fn new(options: PublishOptions) -> Self {
        Self {
            options,
            usable: false,
            limit: usize::MAX,
            topics: Topics::default(),
            streams: SentStreams::default(),
            topics_on_control: 0,
            credit: Credit::Open,
            starving: Vec::new(),
            released: Vec::new(),
        }
    }

    /// A connection begins, or ends: nothing of an earlier one counts. `limit`:
    /// how many streams the server takes at a time, if it said so.
    pub fn start(&mut self, usable: bool, limit: Option<usize>) {
        let policy = self.options.policy;
        *self = Self {
            usable: usable && policy != StreamPolicy::Single && limit != Some(0),
            limit: limit.unwrap_or(usize::MAX),
            ..Self::new(self.options)
        };
    }

    /// Whether the server may not have read everything yet.
    #[must_use]
    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Ends all streams with what was written on them.
    pub fn end_all(&mut self) {
        for stream in self.streams.ids() {
            self.end_after_last(stream);
        }
    }

    /// Whether this stream is in the table.
    #[must_use]
    pub fn knows(&self, stream: StreamId) -> bool {
        self.streams.contains(stream)
    }

    /// Whether anything but control is or was used on this connection.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.usable || self.has_streams()
    }

    /// Kind of the streams to open.
    #[must_use]
    pub fn bidirectional(&self) -> bool {
        self.options.dialect == StreamDialect::Bidirectional
    }

    /// The server wants no further streams, or has no room for topics.
    fn close(&mut self) {
        self.usable = false;
        self.more_streams();
    }

    /// The way of the next message of a topic. A topic that is `preferred` to
    /// others gains by a stream of its own even if it is the only one.
    pub fn way(&mut self, topic: &Text, preferred: bool, now: Instant) -> Way {
        if !self.is_active() {
            return Way::Control;
        }
        let policy = self.options.policy;
        if policy == StreamPolicy::PerPublishUnordered {
            return self.way_alone(topic);
        }
        if let Some(place) = self.topics.use_now(topic, now) {
            return match place {
                Place::Control { .. } => Way::Control,
                Place::Open(stream) => Way::Stream(*stream),
                Place::Behind { waits, .. } => {
                    *waits = true;
                    Way::Wait
                }
            };
        }
        if !self.usable {
            return Way::Control;
        }
        match policy {
            StreamPolicy::PerPublish => self.way_alone(topic),
            // One topic gains nothing by a stream of its own.
            StreamPolicy::Auto if self.topics.is_empty() && !preferred => {
                self.pin(topic, now);
                Way::Control
            }
            _ => self.way_of_new_topic(topic, now),
        }
    }

    fn way_alone(&mut self, topic: &Text) -> Way {
        if !self.usable {
            Way::Control
        } else if self.streams.len() < PUBLISH_STREAMS_MAX.min(self.limit) {
            Way::Open
        } else {
            self.starve(topic);
            Way::Wait
        }
    }

    fn way_of_new_topic(&mut self, topic: &Text, now: Instant) -> Way {
        let draining = self.streams.draining();
        let has_room = self.streams.len() < self.limit;
        if has_room && self.streams.len() - draining < self.options.topics_max {
            return Way::Open;
        }
        let victim = self.victim(now).filter(|_| draining < DRAINING_MAX);
        if let Some(victim) = victim {
            self.end_after_last(victim);
            if has_room {
                return Way::Open;
            }
        }
        if !has_room && self.streams.draining() > 0 {
            self.starve(topic);
            return Way::Wait;
        }
        self.pin(topic, now);
        Way::Control
    }

    /// The stream of the topic that was used least recently, if it is at rest.
    fn victim(&self, now: Instant) -> Option<StreamId> {
        let has_rested = |used: Instant| used + KEEP_MIN <= now;
        self.topics.least_recent(has_rested, |place| match place {
            Place::Open(stream) if self.streams.is_at_rest(*stream) => Some(*stream),
            _ => None,
        })
    }

    /// A stream was opened for a message of this topic. `obsolete_at`: all
    /// that is written on it now may be given up then.
    pub fn opened(
        &mut self,
        topic: &Text,
        stream: StreamId,
        obsolete_at: Option<Instant>,
        now: Instant,
    ) {
        let policy = self.options.policy;
        let is_ordered = policy != StreamPolicy::PerPublishUnordered;
        let of_topic = is_ordered.then(|| topic.clone());
        self.streams.opened(stream, of_topic, obsolete_at);
        if is_ordered {
            self.topics.insert(topic.clone(), Place::Open(stream), now);
        }
        if policy.is_per_publish() {
            self.end_after_last(stream);
        }
    }

    /// The server allows no more streams now: the message waits for one to
    /// end, or goes on control.
    pub fn not_opened(&mut self, topic: &Text, now: Instant) -> Way {
        if self.streams.is_empty() {
            self.close();
            return Way::Control;
        }
        if self.credit == Credit::Open {
            let until = now + CREDIT_WAIT;
            self.credit = Credit::Awaited { until };
        }
        let alone = self.options.policy.is_per_publish();
        if self.credit == Credit::Exhausted && !alone && self.streams.draining() == 0 {
            let Some(victim) = self.victim(now) else {
                self.pin(topic, now);
                return Way::Control;
            };
            self.end_after_last(victim);
        }
        self.starve(topic);
        Way::Wait
    }

    /// The server allows more streams.
    pub fn more_credit(&mut self) {
        self.credit = Credit::Open;
        self.more_streams();
    }

    fn more_streams(&mut self) {
        let starving = core::mem::take(&mut self.starving);
        self.released.extend(starving);
    }

    /// A message was written on a stream, or on control.
    pub fn written(
        &mut self,
        topic: &Text,
        stream: StreamId,
        qos: QoS,
        obsolete_at: Option<Instant>,
    ) {
        if stream != StreamId::CONTROL {
            return self.streams.written(stream, qos, obsolete_at);
        }
        if !self.is_active() {
            return;
        }
        if let Some(Place::Control { unacked, pinned }) = self.topics.get_mut(topic) {
            match qos {
                QoS::AtMostOnce => *pinned = true,
                _ => *unacked += 1,
            }
        }
    }

    /// A message of an earlier connection was written on control again.
    pub fn resumed(&mut self, topic: &Text, now: Instant) {
        if !self.usable {
            return;
        }
        if self.topics.get(topic).is_none() {
            self.put_on_control(topic, false, now);
        }
        self.written(topic, StreamId::CONTROL, QoS::AtLeastOnce, None);
    }

    /// The server has a message of QoS 1 or 2: what follows of its topic
    /// cannot overtake it.
    pub fn arrived(&mut self, stream: StreamId) {
        if self.options.policy == StreamPolicy::PerPublish
            && let Some(topic) = self.streams.take_topic(stream)
        {
            self.forget_topic(&topic);
        }
    }

    /// The exchange of a message of QoS 1 or 2 is over.
    pub fn acknowledged(&mut self, topic: &Text, stream: StreamId) {
        if stream != StreamId::CONTROL {
            self.arrived(stream);
            if self.streams.acknowledged(stream) && !self.bidirectional() {
                self.confirm(stream);
            }
            return;
        }
        if let Some(Place::Control { unacked, pinned }) = self.topics.get_mut(topic) {
            *unacked = unacked.saturating_sub(1);
            if *unacked == 0 && !*pinned {
                self.topics_on_control = self.topics_on_control.saturating_sub(1);
                self.forget_topic(topic);
            }
        }
    }

    /// Everything that can be written now has been. What is written on a
    /// stream that may be given up goes with a stream of its own, so that it
    /// is known when it has arrived.
    pub fn end_of_batch(&mut self) {
        if self.streams.is_empty() {
            return;
        }
        for stream in self.streams.trains() {
            self.end_after_last(stream);
        }
        // Its own stream is where a server of the bidirectional kind looks
        // for PUBREL.
        self.streams.finish_last(self.bidirectional());
    }

    /// A stream whose writing side is to be ended.
    pub fn poll_finish(&mut self) -> Option<StreamId> {
        self.streams.poll_finish()
    }

    /// A topic whose messages need not wait any more.
    pub fn poll_released(&mut self) -> Option<Text> {
        self.released.pop()
    }

    /// The server's transport has everything of a stream that was ended.
    pub fn delivered(&mut self, stream: StreamId, now: Instant) {
        // The server ends its side of a bidirectional stream when it has read
        // ours.
        let waits_for_end = self.bidirectional();
        let confirm_by = now + CONFIRM_MAX;
        if self.streams.delivered(stream, waits_for_end, confirm_by) {
            self.confirm(stream);
        }
    }

    /// The server ended its side of a stream; `reset`: or gave it up.
    pub fn ended(&mut self, stream: StreamId, reset: bool) -> Ended {
        match self.streams.ended(stream, reset) {
            None => Ended::Expected,
            Some(End::Read) => {
                self.confirm(stream);
                Ended::Expected
            }
            Some(End::Refused { topic, lost }) => {
                if let Some(topic) = topic {
                    self.forget_topic(&topic);
                }
                self.close();
                Ended::Refused { lost }
            }
        }
    }

    /// Streams whose messages are of no use any more: to be given up.
    pub fn take_obsolete(&mut self, now: Instant) -> Vec<StreamId> {
        let given_up = self.streams.take_obsolete(now, now + CONFIRM_MAX);
        for stream in &given_up {
            self.put_behind(*stream);
        }
        given_up
    }

    /// When to call [`PublishPlanner::handle_timeout`] and
    /// [`PublishPlanner::take_obsolete`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let credit = match self.credit {
            Credit::Awaited { until } => Some(until),
            Credit::Open | Credit::Exhausted => None,
        };
        self.streams.deadline().into_iter().chain(credit).min()
    }

    /// Time has passed: streams that the server was silent about count as
    /// read.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Credit::Awaited { until } = self.credit
            && until <= now
        {
            self.credit = Credit::Exhausted;
            self.more_streams();
        }
        for stream in self.streams.silent(now) {
            self.confirm(stream);
        }
    }

    /// Ends a stream with this batch, or with its last acknowledgement.
    fn end_after_last(&mut self, stream: StreamId) {
        self.streams.end_after_last(stream);
        self.put_behind(stream);
    }

    /// What comes of the topic of a stream waits until the stream is read.
    fn put_behind(&mut self, stream: StreamId) {
        let topic = self.streams.topic(stream);
        if let Some(place) = topic.and_then(|topic| self.topics.get_mut(topic))
            && *place == Place::Open(stream)
        {
            let waits = false;
            *place = Place::Behind { stream, waits };
        }
    }

    /// Nothing of a stream can still be on its way.
    fn confirm(&mut self, stream: StreamId) {
        let Some(topic) = self.streams.forget(stream) else {
            return;
        };
        if let Some(topic) = topic {
            self.forget_topic(&topic);
        }
        self.more_streams();
    }

    fn forget_topic(&mut self, topic: &Text) {
        if let Some(Place::Behind { waits: true, .. }) = self.topics.remove(topic) {
            self.released.push(topic.clone());
        }
    }

    fn starve(&mut self, topic: &Text) {
        if !self.starving.contains(topic) {
            self.starving.push(topic.clone());
        }
    }

    /// Keeps a topic on control.
    fn pin(&mut self, topic: &Text, now: Instant) {
        if self.topics_on_control >= CONTROL_TOPICS_MAX {
            // No longer known which topics are there: all new ones are.
            return self.close();
        }
        self.put_on_control(topic, true, now);
    }

    fn put_on_control(&mut self, topic: &Text, pinned: bool, now: Instant) {
        self.topics_on_control += 1;
        let unacked = 0;
        let place = Place::Control { unacked, pinned };
        self.topics.insert(topic.clone(), place, now);
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
