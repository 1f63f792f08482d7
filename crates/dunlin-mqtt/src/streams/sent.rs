//! The streams that a client opened for its messages, from the first byte until
//! nothing of them can still be on its way.

use alloc::vec::Vec;

use dunlin_base::{Instant, QoS, StreamId, Text};
use hashbrown::HashMap;

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// It takes more messages.
    Open,
    /// To be ended when nothing is unacknowledged.
    Last,
    /// Ended by this side.
    Finished,
    /// The server's transport has all of it.
    Delivered,
}

#[derive(Debug)]
struct Stream {
    /// `None` where order does not matter.
    topic: Option<Text>,
    phase: Phase,
    /// Exchanges of QoS 1 and 2 that are not over.
    unacked: u32,
    /// When all its messages, of QoS 0, are of no use any more.
    obsolete_at: Option<Instant>,
    /// When to take it for read without the server saying so.
    confirmed_at: Option<Instant>,
}

/// What the end of a stream by the server means.
pub(super) enum End {
    /// This side had ended it: it has been read.
    Read,
    /// The server does not want it. With the topic; `lost`: with messages that
    /// it has not acknowledged.
    Refused { topic: Option<Text>, lost: bool },
}

/// The streams of one connection.
#[derive(Debug, Default)]
pub(super) struct SentStreams {
    streams: HashMap<StreamId, Stream>,
    /// To be ended by this side.
    to_finish: Vec<StreamId>,
}

impl SentStreams {
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(super) fn contains(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Streams that take no more messages.
    pub(super) fn draining(&self) -> usize {
        let streams = self.streams.values();
        streams.filter(|stream| stream.phase >= Phase::Last).count()
    }

    /// Whether all that went on a stream is acknowledged.
    pub(super) fn is_at_rest(&self, stream: StreamId) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| stream.unacked == 0)
    }

    pub(super) fn opened(
        &mut self,
        stream: StreamId,
        topic: Option<Text>,
        obsolete_at: Option<Instant>,
    ) {
        let entry = Stream {
            topic,
            phase: Phase::Open,
            unacked: 0,
            obsolete_at,
            confirmed_at: None,
        };
        self.streams.insert(stream, entry);
    }

    /// A message was written on a stream.
    pub(super) fn written(&mut self, stream: StreamId, qos: QoS, obsolete_at: Option<Instant>) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.unacked += u32::from(qos != QoS::AtMostOnce);
            // Only as a whole is a stream given up.
            entry.obsolete_at = match (entry.obsolete_at, obsolete_at) {
                (Some(all), Some(this)) => Some(all.max(this)),
                _ => None,
            };
        }
    }

    /// The topic of a stream is free to go elsewhere.
    pub(super) fn take_topic(&mut self, stream: StreamId) -> Option<Text> {
        self.streams.get_mut(&stream)?.topic.take()
    }

    pub(super) fn topic(&self, stream: StreamId) -> Option<&Text> {
        self.streams.get(&stream)?.topic.as_ref()
    }

    /// An exchange is over. Tells whether nothing is unacknowledged on a stream
    /// that the server's transport has.
    pub(super) fn acknowledged(&mut self, stream: StreamId) -> bool {
        let Some(entry) = self.streams.get_mut(&stream) else {
            return false;
        };
        entry.unacked = entry.unacked.saturating_sub(1);
        entry.unacked == 0 && entry.phase == Phase::Delivered
    }

    /// Ends a stream with this batch, or with its last acknowledgement.
    pub(super) fn end_after_last(&mut self, stream: StreamId) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.phase = entry.phase.max(Phase::Last);
        }
    }

    /// All streams.
    pub(super) fn ids(&self) -> Vec<StreamId> {
        self.streams.keys().copied().collect()
    }

    /// Streams that may be given up and still take messages.
    pub(super) fn trains(&self) -> Vec<StreamId> {
        let streams = self.streams.iter();
        streams
            .filter(|(_, stream)| stream.obsolete_at.is_some() && stream.phase == Phase::Open)
            .map(|(id, _)| *id)
            .collect()
    }

    /// Ends the streams that take no more messages; with `at_rest` those only
    /// whose messages are all acknowledged.
    pub(super) fn finish_last(&mut self, at_rest: bool) {
        for (id, stream) in &mut self.streams {
            if stream.phase == Phase::Last && (stream.unacked == 0 || !at_rest) {
                stream.phase = Phase::Finished;
                self.to_finish.push(*id);
            }
        }
    }

    /// A stream whose writing side is to be ended.
    pub(super) fn poll_finish(&mut self) -> Option<StreamId> {
        self.to_finish.pop()
    }

    /// The server's transport has everything of a stream that was ended. Tells
    /// whether nothing is unacknowledged; else it counts as read at
    /// `confirm_by`, and so it does if `waits_for_end`.
    pub(super) fn delivered(
        &mut self,
        stream: StreamId,
        waits_for_end: bool,
        confirm_by: Instant,
    ) -> bool {
        let Some(entry) = self.streams.get_mut(&stream) else {
            return false;
        };
        entry.obsolete_at = None;
        entry.phase = Phase::Delivered;
        if entry.unacked == 0 && !waits_for_end {
            return true;
        }
        entry.confirmed_at.get_or_insert(confirm_by);
        false
    }

    /// The server ended its side of a stream; `reset`: or gave it up. `None`
    /// for a stream that is not here. One that was refused is forgotten.
    pub(super) fn ended(&mut self, stream: StreamId, reset: bool) -> Option<End> {
        let entry = self.streams.get(&stream)?;
        let lost = entry.unacked > 0;
        if entry.phase >= Phase::Finished && !(reset && lost) {
            return Some(End::Read);
        }
        let topic = entry.topic.clone();
        self.forget(stream);
        if !reset {
            self.to_finish.push(stream);
        }
        Some(End::Refused { topic, lost })
    }

    /// Gives up the streams whose messages are of no use any more. They count
    /// as read at `confirm_by`: what is still on its way may arrive before the
    /// server learns of it.
    pub(super) fn take_obsolete(&mut self, now: Instant, confirm_by: Instant) -> Vec<StreamId> {
        let mut given_up = Vec::new();
        for (id, stream) in &mut self.streams {
            if stream.obsolete_at.is_some_and(|at| at <= now) {
                stream.obsolete_at = None;
                stream.phase = stream.phase.max(Phase::Finished);
                stream.confirmed_at = Some(confirm_by);
                given_up.push(*id);
            }
        }
        self.to_finish.retain(|other| !given_up.contains(other));
        given_up
    }

    /// Streams that count as read by now.
    pub(super) fn silent(&self, now: Instant) -> Vec<StreamId> {
        let streams = self.streams.iter();
        streams
            .filter(|(_, stream)| stream.confirmed_at.is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let streams = self.streams.values();
        streams
            .flat_map(|s| s.obsolete_at.into_iter().chain(s.confirmed_at))
            .min()
    }

    /// Nothing of a stream can still be on its way: gives its topic. `None` if
    /// the stream is not here.
    pub(super) fn forget(&mut self, stream: StreamId) -> Option<Option<Text>> {
        let entry = self.streams.remove(&stream)?;
        self.to_finish.retain(|other| *other != stream);
        Some(entry.topic)
    }
}
