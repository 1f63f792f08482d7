//! Which stream a message goes on: decisions only, no transport and no
//! message. Keeps the order of each topic: a topic changes its stream only
//! when nothing of it can still be on its way on the one before.
//!
//! A topic that the table does not know goes on a new stream, or on control
//! (the first stream) when there is no room; it then stays there, because
//! nothing tells when its messages of QoS 0 have arrived.

use core::time::Duration;
use std::collections::HashMap;

use dunlin_base::{Instant, QoS, StreamId, Text};

use crate::streams::{Priority, StreamOptions, StreamPolicy};

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

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The first stream.
    Control,
    /// This stream.
    Stream(StreamId),
    /// A new stream: then [`Routes::opened`] or [`Routes::not_opened`].
    Open,
    /// Nowhere yet; [`Routes::poll_released`] tells when to ask again.
    Wait,
}

/// What the end of a stream means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// This side had ended it, or it is not known.
    Expected,
    /// The server wants no such streams; `lost`: with messages that it has
    /// not acknowledged.
    Refused { lost: bool },
}

/// A topic in the table.
struct Topic {
    place: Place,
    last_used: Instant,
    /// Messages of it wait for [`Routes::poll_released`].
    waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Control: `unacked` messages of QoS 1 and 2; `pinned`: for good.
    Control { unacked: u32, pinned: bool },
    /// A stream that takes more messages.
    Open(StreamId),
    /// Its messages on this stream must arrive first.
    Behind(StreamId),
}

/// A stream that this side opened.
struct Stream {
    /// `None` where order does not matter.
    topic: Option<Text>,
    /// Exchanges of QoS 1 and 2 that are not over.
    unacked: u32,
    /// To be ended when nothing is unacknowledged.
    last: bool,
    /// Ended by this side.
    finished: bool,
    /// The server's transport has all of it.
    delivered: bool,
    /// When all its messages, of QoS 0, are of no use any more.
    obsolete_at: Option<Instant>,
    /// When to take it for read without the server saying so.
    confirmed_at: Option<Instant>,
}

/// The table of one connection.
pub(super) struct Routes {
    policy: StreamPolicy,
    bidirectional: bool,
    topics_max: usize,
    /// New streams may be opened.
    usable: bool,
    /// How many the server takes at a time, as far as it said.
    limit: usize,
    topics: HashMap<Text, Topic>,
    streams: HashMap<StreamId, Stream>,
    on_control: usize,
    /// Topics that wait for any stream to end, or for credit.
    starving: Vec<Text>,
    /// Until when they wait for credit.
    credit_by: Option<Instant>,
    /// No credit came in that time.
    no_credit: bool,
    to_finish: Vec<StreamId>,
    released: Vec<Text>,
}

impl Routes {
    pub(super) fn new(options: &StreamOptions) -> Self {
        use crate::streams::StreamDialect::Bidirectional;
        Self {
            policy: options.policy,
            bidirectional: options.dialect == Bidirectional,
            topics_max: usize::from(options.topics_max),
            usable: false,
            limit: usize::MAX,
            topics: HashMap::new(),
            streams: HashMap::new(),
            on_control: 0,
            starving: Vec::new(),
            credit_by: None,
            no_credit: false,
            to_finish: Vec::new(),
            released: Vec::new(),
        }
    }

    /// A connection begins, or ends: nothing of an earlier one counts. `limit`:
    /// how many streams the server takes at a time, if it said so.
    pub(super) fn start(&mut self, usable: bool, limit: Option<usize>) {
        self.usable = usable && self.policy != StreamPolicy::Single && limit != Some(0);
        self.limit = limit.unwrap_or(usize::MAX);
        self.topics = HashMap::new();
        self.streams = HashMap::new();
        self.on_control = 0;
        self.starving = Vec::new();
        (self.credit_by, self.no_credit) = (None, false);
        self.to_finish = Vec::new();
        self.released = Vec::new();
    }

    /// Whether the server may not have read everything yet.
    pub(super) fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Ends all streams with what was written on them.
    pub(super) fn end_all(&mut self) {
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        for stream in streams {
            self.end_after_last(stream);
        }
    }

    /// Whether this stream is in the table.
    pub(super) fn knows(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Whether anything but control is or was used on this connection.
    pub(super) fn is_active(&self) -> bool {
        self.usable || !self.streams.is_empty()
    }

    pub(super) fn bidirectional(&self) -> bool {
        self.bidirectional
    }

    /// No new streams on this connection.
    pub(super) fn close(&mut self) {
        self.usable = false;
        let starving = core::mem::take(&mut self.starving);
        self.released.extend(starving);
    }

    /// Where the next message of a topic goes.
    pub(super) fn way(&mut self, topic: &Text, priority: Priority, now: Instant) -> Way {
        if !self.is_active() {
            return Way::Control;
        }
        if self.policy == StreamPolicy::PerPublishUnordered {
            return self.way_alone(topic);
        }
        if let Some(known) = self.topics.get_mut(topic.as_bytes()) {
            known.last_used = now;
            return match known.place {
                Place::Control { .. } => Way::Control,
                Place::Open(stream) => Way::Stream(stream),
                Place::Behind(_) => {
                    known.waits = true;
                    Way::Wait
                }
            };
        }
        if !self.usable {
            return Way::Control;
        }
        match self.policy {
            StreamPolicy::PerPublish => self.way_alone(topic),
            // One topic gains nothing by a stream of its own.
            StreamPolicy::Auto if self.topics.is_empty() && priority == Priority::NORMAL => {
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
        let draining = self.draining();
        let has_room = self.streams.len() < self.limit;
        if has_room && self.streams.len() - draining < self.topics_max {
            return Way::Open;
        }
        let victim = self.victim(now).filter(|_| draining < DRAINING_MAX);
        if let Some(victim) = victim {
            self.end_after_last(victim);
            if has_room {
                return Way::Open;
            }
        }
        if !has_room && self.draining() > 0 {
            self.starve(topic);
            return Way::Wait;
        }
        self.pin(topic, now);
        Way::Control
    }

    fn draining(&self) -> usize {
        self.streams.values().filter(|stream| stream.last).count()
    }

    /// The stream of the topic that was used least recently, if it is at rest.
    fn victim(&self, now: Instant) -> Option<StreamId> {
        let open = self.topics.values().filter_map(|topic| match topic.place {
            Place::Open(stream) if topic.last_used + KEEP_MIN <= now => {
                Some((topic.last_used, stream))
            }
            _ => None,
        });
        open.filter(|(_, stream)| self.streams.get(stream).is_some_and(|s| s.unacked == 0))
            .min()
            .map(|(_, stream)| stream)
    }

    /// A stream was opened for a message of this topic. `obsolete_at`: all
    /// that is written on it now may be given up then.
    pub(super) fn opened(
        &mut self,
        topic: &Text,
        stream: StreamId,
        obsolete_at: Option<Instant>,
        now: Instant,
    ) {
        let alone = matches!(
            self.policy,
            StreamPolicy::PerPublish | StreamPolicy::PerPublishUnordered
        );
        let ordered = self.policy != StreamPolicy::PerPublishUnordered;
        self.streams.insert(
            stream,
            Stream {
                topic: ordered.then(|| topic.clone()),
                unacked: 0,
                last: false,
                finished: false,
                delivered: false,
                obsolete_at,
                confirmed_at: None,
            },
        );
        if !ordered {
            return self.end_after_last(stream);
        }
        let place = match alone {
            true => Place::Behind(stream),
            false => Place::Open(stream),
        };
        let entry = Topic {
            place,
            last_used: now,
            waits: false,
        };
        self.topics.insert(topic.clone(), entry);
        if alone {
            self.end_after_last(stream);
        }
    }

    /// The server allows no more streams now: the message waits for one to
    /// end, or goes on control.
    pub(super) fn not_opened(&mut self, topic: &Text, now: Instant) -> Way {
        let alone = matches!(
            self.policy,
            StreamPolicy::PerPublish | StreamPolicy::PerPublishUnordered
        );
        if self.streams.is_empty() {
            self.close();
            return Way::Control;
        }
        if !(self.no_credit || self.credit_by.is_some()) {
            self.credit_by = Some(now + CREDIT_WAIT);
        }
        if self.credit_by.is_none() && !alone && self.draining() == 0 {
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
    pub(super) fn more_credit(&mut self) {
        (self.credit_by, self.no_credit) = (None, false);
        self.more_streams();
    }

    fn more_streams(&mut self) {
        let starving = core::mem::take(&mut self.starving);
        self.released.extend(starving);
    }

    /// A message was written on a stream, or on control.
    pub(super) fn written(
        &mut self,
        topic: &Text,
        stream: StreamId,
        qos: QoS,
        obsolete_at: Option<Instant>,
    ) {
        if stream != StreamId::CONTROL {
            if let Some(entry) = self.streams.get_mut(&stream) {
                entry.unacked += u32::from(qos != QoS::AtMostOnce);
                // Only as a whole is a stream given up.
                entry.obsolete_at = match (entry.obsolete_at, obsolete_at) {
                    (Some(all), Some(this)) => Some(all.max(this)),
                    _ => None,
                };
            }
            return;
        }
        if !self.is_active() {
            return;
        }
        if let Some(Topic {
            place: Place::Control { unacked, pinned },
            ..
        }) = self.topics.get_mut(topic.as_bytes())
        {
            match qos {
                QoS::AtMostOnce => *pinned = true,
                _ => *unacked += 1,
            }
        }
    }

    /// A message of an earlier connection was written on control again.
    pub(super) fn resumed(&mut self, topic: &Text, now: Instant) {
        if !self.usable {
            return;
        }
        if !self.topics.contains_key(topic.as_bytes()) {
            self.on_control += 1;
            let place = Place::Control {
                unacked: 0,
                pinned: false,
            };
            let entry = Topic {
                place,
                last_used: now,
                waits: false,
            };
            self.topics.insert(topic.clone(), entry);
        }
        self.written(topic, StreamId::CONTROL, QoS::AtLeastOnce, None);
    }

    /// The server has a message of QoS 1 or 2: what follows of its topic
    /// cannot overtake it.
    pub(super) fn arrived(&mut self, stream: StreamId) {
        if self.policy != StreamPolicy::PerPublish {
            return;
        }
        let entry = self.streams.get_mut(&stream);
        if let Some(topic) = entry.and_then(|entry| entry.topic.take()) {
            self.forget_topic(&topic);
        }
    }

    /// The exchange of a message of QoS 1 or 2 is over.
    pub(super) fn acknowledged(&mut self, topic: &Text, stream: StreamId) {
        if stream != StreamId::CONTROL {
            self.arrived(stream);
            if let Some(entry) = self.streams.get_mut(&stream) {
                entry.unacked = entry.unacked.saturating_sub(1);
                if entry.unacked == 0 && entry.delivered && !self.bidirectional {
                    self.confirm(stream);
                }
            }
            return;
        }
        let Some(entry) = self.topics.get_mut(topic.as_bytes()) else {
            return;
        };
        if let Place::Control { unacked, pinned } = &mut entry.place {
            *unacked = unacked.saturating_sub(1);
            if *unacked == 0 && !*pinned {
                self.on_control = self.on_control.saturating_sub(1);
                self.forget_topic(topic);
            }
        }
    }

    /// Everything that can be written now has been. What is written on a
    /// stream that may be given up goes with a stream of its own, so that it
    /// is known when it has arrived.
    pub(super) fn end_of_batch(&mut self) {
        if self.streams.is_empty() {
            return;
        }
        let trains: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.obsolete_at.is_some() && !stream.last)
            .map(|(id, _)| *id)
            .collect();
        for stream in trains {
            self.end_after_last(stream);
        }
        for (id, stream) in &mut self.streams {
            // Its own stream is where a server of the bidirectional kind
            // looks for PUBREL.
            let done = stream.unacked == 0 || !self.bidirectional;
            if stream.last && !stream.finished && done {
                stream.finished = true;
                self.to_finish.push(*id);
            }
        }
    }

    /// A stream whose writing side is to be ended.
    pub(super) fn poll_finish(&mut self) -> Option<StreamId> {
        self.to_finish.pop()
    }

    /// A topic whose messages need not wait any more.
    pub(super) fn poll_released(&mut self) -> Option<Text> {
        self.released.pop()
    }

    /// The server's transport has everything of a stream that was ended.
    pub(super) fn delivered(&mut self, stream: StreamId, now: Instant) {
        let Some(entry) = self.streams.get_mut(&stream) else {
            return;
        };
        entry.obsolete_at = None;
        entry.delivered = true;
        if self.bidirectional {
            // The server ends its side when it has read ours.
            entry.confirmed_at.get_or_insert(now + CONFIRM_MAX);
        } else if entry.unacked == 0 {
            self.confirm(stream);
        } else {
            entry.confirmed_at.get_or_insert(now + CONFIRM_MAX);
        }
    }

    /// The server ended its side of a stream; `reset`: or gave it up.
    pub(super) fn ended(&mut self, stream: StreamId, reset: bool) -> Ended {
        let Some(entry) = self.streams.get(&stream) else {
            return Ended::Expected;
        };
        let (finished, lost) = (entry.finished, entry.unacked > 0);
        if finished && !reset {
            self.confirm(stream);
            return Ended::Expected;
        }
        if finished && !lost {
            self.confirm(stream);
            return Ended::Expected;
        }
        let topic = entry.topic.clone();
        self.streams.remove(&stream);
        self.to_finish.retain(|other| *other != stream);
        if !reset {
            self.to_finish.push(stream);
        }
        if let Some(topic) = topic {
            self.forget_topic(&topic);
        }
        self.close();
        Ended::Refused { lost }
    }

    /// Streams whose messages are of no use any more: to be given up.
    pub(super) fn take_obsolete(&mut self, now: Instant) -> Vec<StreamId> {
        let mut given_up = Vec::new();
        for (id, stream) in &mut self.streams {
            if stream.obsolete_at.is_some_and(|at| at <= now) {
                stream.obsolete_at = None;
                stream.last = true;
                stream.finished = true;
                // What is still on its way may arrive before the server
                // learns of it.
                stream.confirmed_at = Some(now + CONFIRM_MAX);
                given_up.push(*id);
            }
        }
        for id in &given_up {
            self.to_finish.retain(|other| other != id);
            let topic = self.streams.get(id).and_then(|s| s.topic.as_ref());
            if let Some(entry) = topic.and_then(|t| self.topics.get_mut(t.as_bytes())) {
                entry.place = Place::Behind(*id);
            }
        }
        given_up
    }

    /// When to call [`Routes::handle_timeout`] and [`Routes::take_obsolete`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        let streams = self.streams.values();
        streams
            .flat_map(|s| s.obsolete_at.into_iter().chain(s.confirmed_at))
            .chain(self.credit_by)
            .min()
    }

    /// Time has passed: streams that the server was silent about count as
    /// read.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.credit_by.is_some_and(|at| at <= now) {
            (self.credit_by, self.no_credit) = (None, true);
            self.more_streams();
        }
        let silent: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.confirmed_at.is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for stream in silent {
            self.confirm(stream);
        }
    }

    /// Ends a stream with this batch, or with its last acknowledgement.
    fn end_after_last(&mut self, stream: StreamId) {
        let Some(entry) = self.streams.get_mut(&stream) else {
            return;
        };
        entry.last = true;
        if let Some(known) = entry
            .topic
            .as_ref()
            .and_then(|topic| self.topics.get_mut(topic.as_bytes()))
            && known.place == Place::Open(stream)
        {
            known.place = Place::Behind(stream);
        }
    }

    /// Nothing of a stream can still be on its way.
    fn confirm(&mut self, stream: StreamId) {
        let Some(entry) = self.streams.remove(&stream) else {
            return;
        };
        self.to_finish.retain(|other| *other != stream);
        if let Some(topic) = entry.topic {
            self.forget_topic(&topic);
        }
        self.more_streams();
    }

    fn forget_topic(&mut self, topic: &Text) {
        if let Some(entry) = self.topics.remove(topic.as_bytes())
            && entry.waits
        {
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
        if self.on_control >= CONTROL_TOPICS_MAX {
            // No longer known which topics are there: all new ones are.
            return self.close();
        }
        self.on_control += 1;
        let place = Place::Control {
            unacked: 0,
            pinned: true,
        };
        let entry = Topic {
            place,
            last_used: now,
            waits: false,
        };
        self.topics.insert(topic.clone(), entry);
    }
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
