//! The streams of a connection, and how much waits to leave on them.

use alloc::vec::Vec;

use dunlin_base::{SendBuf, StreamId};

use super::stream::{LinkStream, StreamEnd};

/// Abandoned streams that are remembered: more cannot be under way in one
/// batch of events.
const ABANDONED_MAX: usize = 64;

/// Bytes of unfinished packets on all data streams together, above which one of
/// these streams is read until its packet is whole, and the others wait.
pub const UNFINISHED_BYTES_MAX: usize = 256 * 1024;

/// The control stream and all others.
#[derive(Debug, Default)]
pub struct Streams {
    control: LinkStream,
    data: Vec<(StreamId, LinkStream)>,
    /// The last streams that were abandoned: what still arrives is ignored.
    abandoned: Vec<StreamId>,
    /// Bytes handed to the transport that have not left it, without those that
    /// wait apart. Below zero while one event of two has come.
    unsent: i64,
    /// Some stream takes nothing.
    any_blocked: bool,
    /// The only data stream that is read, until its packet is whole.
    turn: Option<StreamId>,
}

impl Streams {
    /// A stream.
    #[must_use]
    pub fn get(&self, stream: StreamId) -> Option<&LinkStream> {
        if stream == StreamId::CONTROL {
            return Some(&self.control);
        }
        let mut data = self.data.iter();
        data.find(|(id, _)| *id == stream).map(|(_, data)| data)
    }

    /// As [`Streams::get`].
    pub fn get_mut(&mut self, stream: StreamId) -> Option<&mut LinkStream> {
        if stream == StreamId::CONTROL {
            return Some(&mut self.control);
        }
        self.data_mut(stream)
    }

    /// A stream besides control.
    pub fn data_mut(&mut self, stream: StreamId) -> Option<&mut LinkStream> {
        let mut data = self.data.iter_mut();
        data.find(|(id, _)| *id == stream).map(|(_, data)| data)
    }

    /// The buffer of a stream; control stands in for one that is gone or that
    /// only the client may send on.
    pub fn out(&mut self, stream: StreamId) -> &mut SendBuf {
        if stream != StreamId::CONTROL
            && !stream.is_unidirectional()
            && let Some(at) = self.data.iter().position(|(id, _)| *id == stream)
            && let Some((_, data)) = self.data.get_mut(at)
            && data.end != StreamEnd::ByServer
        {
            return &mut data.out;
        }
        &mut self.control.out
    }

    /// The flow of a stream; 0: none.
    #[must_use]
    pub fn flow_of(&self, stream: StreamId) -> u64 {
        self.get(stream).map_or(0, |data| data.flow.id())
    }

    /// Makes room for a stream of the client that has not been seen before;
    /// `false` if it is one too many, or none that the client may open.
    pub fn enter(&mut self, stream: StreamId, streams_max: usize) -> bool {
        if self.get(stream).is_some() {
            return true;
        }
        // Data streams of the client, both dialects; ours are known.
        let opened = self.data.iter();
        let opened = opened.filter(|(id, _)| !id.is_server_initiated());
        if stream.is_server_initiated() || opened.count() >= streams_max {
            return false;
        }
        self.data.push((stream, LinkStream::default()));
        true
    }

    /// Adds a stream that the server opened.
    pub fn open(&mut self, stream: StreamId, data: LinkStream) {
        self.data.push((stream, data));
    }

    /// The oldest stream that the server opened and that is in no use any
    /// more, if there are more than `max` that the server opened: a client
    /// could have any number of them remembered.
    #[must_use]
    pub fn superfluous(&self, max: usize, in_use: impl Fn(StreamId) -> bool) -> Option<StreamId> {
        let all = self.data.iter().map(|(stream, _)| *stream);
        let mut opened = all.filter(|stream| stream.is_server_initiated());
        if opened.clone().count() <= max {
            return None;
        }
        opened.find(|stream| !in_use(*stream))
    }

    /// Forgets a stream.
    pub fn forget(&mut self, stream: StreamId) {
        if let Some(at) = self.data.iter().position(|(id, _)| *id == stream) {
            let (_, data) = self.data.remove(at);
            self.unsent += data.apart as i64;
        }
    }

    /// Notes that a stream was abandoned, and forgets it.
    pub fn abandon(&mut self, stream: StreamId) {
        self.forget(stream);
        if self.abandoned.len() >= ABANDONED_MAX {
            self.abandoned.remove(0);
        }
        self.abandoned.push(stream);
    }

    /// Whether what still arrives on a stream is ignored.
    #[must_use]
    pub fn is_abandoned(&self, stream: StreamId) -> bool {
        self.abandoned.contains(&stream)
    }

    /// Whether the client takes no more of this stream.
    #[must_use]
    pub fn is_blocked(&self, stream: StreamId) -> bool {
        let mut data = self.data.iter();
        data.any(|(id, data)| *id == stream && data.blocked)
    }

    /// Whether there is a stream of which the client takes nothing.
    #[must_use]
    pub const fn is_any_blocked(&self) -> bool {
        self.any_blocked
    }

    /// The client takes no more of a stream, for which `bytes` wait, or takes
    /// it again. All that waits apart is bounded by `limit`, like all that does
    /// not.
    pub fn handle_blocked(&mut self, stream: StreamId, bytes: usize, limit: usize) {
        let others = self.data.iter().filter(|(id, _)| *id != stream);
        let room = limit.saturating_sub(others.map(|(_, data)| data.apart).sum());
        if let Some(data) = self.data_mut(stream) {
            let apart = if bytes <= room { bytes } else { 0 };
            data.blocked = bytes > 0;
            let before = core::mem::replace(&mut data.apart, apart);
            self.unsent += before as i64 - apart as i64;
        }
    }

    /// Finds out again whether a stream is blocked, after one was or is gone.
    pub fn recheck_blocked(&mut self) {
        self.any_blocked = self.data.iter().any(|(_, data)| data.blocked);
    }

    /// Bytes of packets on data streams that have not come whole.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.data.iter().map(|(_, data)| data.framer.held()).sum()
    }

    /// As [`Streams::unfinished`], with the control stream.
    #[must_use]
    pub fn held(&self) -> usize {
        self.control.framer.held() + self.unfinished()
    }

    /// Bytes came, or a stream ended: the only data stream to read from now
    /// on, or `Some(None)` for all of them, if that has changed. Control is
    /// always read: what waits for other streams may depend on it.
    pub fn next_turn(&mut self) -> Option<Option<StreamId>> {
        let unfinished = |stream: &StreamId| self.get(*stream).is_some_and(|s| s.framer.held() > 0);
        if self.turn.as_ref().is_some_and(unfinished) {
            return None;
        }
        let mut next = None;
        if self.unfinished() > UNFINISHED_BYTES_MAX {
            // What is nearest to its end sets most free.
            let longest = self.data.iter().max_by_key(|(_, data)| data.framer.held());
            next = longest.map(|(stream, _)| *stream);
        }
        (core::mem::replace(&mut self.turn, next) != next).then_some(next)
    }

    /// Bytes on their way out: in the transport and not yet given to it.
    #[must_use]
    pub fn backlog(&self) -> usize {
        let data: usize = self.data.iter().map(|(_, data)| data.out.len()).sum();
        let unsent = usize::try_from(self.unsent).unwrap_or(0);
        unsent + self.control.out.len() + data
    }

    /// Bytes were given to the transport besides [`Streams::take_output`].
    pub const fn note_given(&mut self, bytes: usize) {
        self.unsent += bytes as i64;
    }

    /// Bytes left the transport.
    pub const fn handle_sent(&mut self, bytes: usize) {
        self.unsent -= bytes as i64;
    }

    /// What goes out, for the transport.
    pub fn take_output(&mut self) -> Vec<(StreamId, SendBuf)> {
        let mut sends = Vec::new();
        let control = core::iter::once((StreamId::CONTROL, &mut self.control));
        let data = self.data.iter_mut().map(|(stream, data)| (*stream, data));
        for (stream, data) in control.chain(data) {
            if !data.out.is_empty() {
                self.unsent += data.out.len() as i64;
                sends.push((stream, core::mem::take(&mut data.out)));
            }
        }
        sends
    }
}
