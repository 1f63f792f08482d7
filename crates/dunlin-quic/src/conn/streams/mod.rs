//! The streams of one connection: which of them this side sends on, what waits
//! because a stream does not take it, what has not been read. Which of several
//! waiting streams is next is in [`isolate`], what early data needs in
//! [`flight`].

mod flight;
mod isolate;

use bytes::Bytes;
use dunlin_base::transport::CloseCause;
use dunlin_base::{SendBuf, StreamId};
use quinn_proto::{Connection, Dir, Side, StreamId as QuicStreamId, VarInt, WriteError};

use flight::Flight;
use isolate::Turn;

use crate::backlog::Backlog;
use crate::limits::QuicLimits;
use crate::qlog::ConnLog;
use crate::{Counters, allowance, session};

/// Streams that a peer may open at once, to begin with: what clients of EMQX
/// expect, control included. quinn-proto keeps an entry for each.
pub(crate) const BIDI_STREAMS_FIRST: u32 = 10;
pub(crate) const UNI_STREAMS_FIRST: u32 = 3;

/// Waiting bytes of a stream at which its owner learns that the peer takes no
/// more of it.
const BLOCKED_BYTES_MIN: usize = 16 << 10;

/// Bytes that left, by stream.
pub(super) type Left = Vec<(StreamId, usize)>;

/// The state of all streams of one connection. Each list holds at most the
/// streams that both sides' limits allow at a time.
#[derive(Debug)]
pub(super) struct Streams {
    /// This side is the server.
    accepted: bool,
    /// The client has opened a bidirectional stream, the first of which is control.
    opened_control: bool,
    /// Bytes of different streams leave in different packets.
    isolated: bool,
    /// Some stream takes bytes again.
    writable: bool,
    /// Streams that the peer may have open, bidirectional and unidirectional.
    granted: [u32; 2],
    /// Kinds of streams of which the peer allowed no more when one was wanted.
    refused: [bool; 2],
    /// Streams that this side may send on and has not ended.
    sending: Vec<QuicStreamId>,
    /// Streams that this side has ended and the peer has not fully
    /// acknowledged.
    ending: Vec<QuicStreamId>,
    /// Bytes that streams did not take.
    backlogs: Vec<StreamBacklog>,
    /// Streams that the peer takes no more of, or takes again.
    blocked_news: Vec<(StreamId, usize)>,
    /// Streams that were not read to their end, for want of budget or because
    /// reading is paused.
    unread: Vec<QuicStreamId>,
    /// What was counted for [`StreamsMut::count_open`].
    open: u64,
    /// Which streams are read; `None`: all.
    only: Option<Only>,
    /// Streams that are not read, and whether there is something to read.
    paused: Vec<(QuicStreamId, bool)>,
    turn: Turn,
    /// Dialled: what was sent before the handshake, until its end.
    flight: Option<Box<Flight>>,
}

/// Control and one other stream are read.
#[derive(Debug)]
struct Only {
    stream: QuicStreamId,
    /// Those with something to read that are not.
    waiting: Vec<QuicStreamId>,
}

#[derive(Debug)]
struct StreamBacklog {
    id: QuicStreamId,
    bytes: Backlog,
    /// The first of them, whose room was given back before.
    announced: usize,
    /// End the stream after them.
    finish: bool,
    /// The owner knows that the peer takes nothing more on this stream.
    blocked: bool,
}

impl StreamBacklog {
    const fn new(id: QuicStreamId, bytes: Backlog) -> Self {
        Self {
            id,
            bytes,
            announced: 0,
            finish: false,
            blocked: false,
        }
    }

    fn of(id: QuicStreamId, data: &mut SendBuf, skip: usize) -> Self {
        let mut bytes = Backlog::default();
        bytes.put(data, skip);
        Self::new(id, bytes)
    }
}

impl Streams {
    pub(super) fn new(accepted: bool, limits: &QuicLimits) -> Self {
        Self {
            accepted,
            opened_control: false,
            isolated: false,
            writable: false,
            granted: [
                limits.bidi_streams.min(BIDI_STREAMS_FIRST),
                limits.uni_streams.min(UNI_STREAMS_FIRST),
            ],
            refused: [false; 2],
            sending: Vec::new(),
            ending: Vec::new(),
            backlogs: Vec::new(),
            blocked_news: Vec::new(),
            unread: Vec::new(),
            open: 0,
            only: None,
            paused: Vec::new(),
            turn: Turn::default(),
            flight: None,
        }
    }

    /// Whether what is sent is early data, of which the peer may take none.
    pub(super) const fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Streams that this side may still send on.
    pub(super) const fn sending(&self) -> usize {
        self.sending.len()
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.backlogs.iter().map(|b| b.bytes.len()).sum()
    }

    pub(super) const fn has_backlog(&self) -> bool {
        !self.backlogs.is_empty()
    }

    /// Whether the peer has all of what this side has ended.
    pub(super) const fn has_arrived(&self) -> bool {
        self.ending.is_empty() && self.backlogs.is_empty()
    }

    pub(super) const fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    pub(super) fn take_unread(&mut self) -> Vec<QuicStreamId> {
        core::mem::take(&mut self.unread)
    }

    pub(super) fn note_unread(&mut self, id: QuicStreamId) {
        if !self.unread.contains(&id) {
            self.unread.push(id);
        }
    }

    /// Whether a stream with something to read has to wait.
    pub(super) fn waits(&mut self, id: QuicStreamId) -> bool {
        if let Some((_, unread)) = self.paused.iter_mut().find(|(p, _)| *p == id) {
            *unread = true;
            return true;
        }
        let control = QuicStreamId::new(Side::Client, Dir::Bi, 0);
        let others = self.only.as_mut();
        let Some(only) = others.filter(|only| id != only.stream && id != control) else {
            return false;
        };
        if !only.waiting.contains(&id) {
            only.waiting.push(id);
        }
        true
    }

    /// All streams are read again.
    pub(super) fn read_all(&mut self) {
        for (id, unread) in core::mem::take(&mut self.paused) {
            if unread {
                self.note_unread(id);
            }
        }
        self.read_others();
    }

    /// No stream is read alone; whether one waited.
    fn read_others(&mut self) -> bool {
        let waiting = self.only.take().map_or_else(Vec::new, |only| only.waiting);
        for id in &waiting {
            self.note_unread(*id);
        }
        !waiting.is_empty()
    }

    pub(super) const fn set_writable(&mut self) {
        self.writable = true;
    }

    /// A stream that this side ended has arrived.
    pub(super) fn delivered(&mut self, id: QuicStreamId) {
        self.ending.retain(|e| *e != id);
    }

    /// Whether one of this kind was wanted and refused since the last call.
    pub(super) fn was_refused(&mut self, dir: Dir) -> bool {
        let refused = self.refused.get_mut(dir as usize);
        refused.is_some_and(core::mem::take)
    }

    pub(super) fn take_blocked_news(&mut self) -> Vec<(StreamId, usize)> {
        core::mem::take(&mut self.blocked_news)
    }

    /// The connection is over: nothing waits any more. Returns streams with
    /// something to read.
    pub(super) fn clear(&mut self) -> Vec<QuicStreamId> {
        self.backlogs = Vec::new();
        self.read_all();
        self.take_unread()
    }

    /// Whether this is control of an accepted connection that the client has not
    /// opened yet.
    fn is_awaited(&self, id: QuicStreamId) -> bool {
        let control = QuicStreamId::new(Side::Client, Dir::Bi, 0);
        self.accepted && !self.opened_control && id == control
    }

    fn backlog_mut(&mut self, id: QuicStreamId) -> Option<&mut StreamBacklog> {
        self.backlogs.iter_mut().find(|b| b.id == id)
    }
}

/// The streams of a connection, to work with.
pub struct StreamsMut<'a> {
    state: &'a mut Streams,
    proto: &'a mut Connection,
    log: Option<&'a ConnLog>,
}

dunlin_base::opaque_debug!(StreamsMut<'_>);

impl<'a> StreamsMut<'a> {
    pub(super) const fn new(
        state: &'a mut Streams,
        proto: &'a mut Connection,
        log: Option<&'a ConnLog>,
    ) -> Self {
        Self { state, proto, log }
    }

    /// A dialled connection that may send before its handshake does so from
    /// now on; whether it may.
    pub fn begin_flight(&mut self) -> bool {
        let early = self.proto.has_0rtt();
        self.state.flight = early.then(Box::default);
        early
    }

    /// Keeps bytes of different streams in different packets.
    pub const fn set_isolation(&mut self, isolated: bool) {
        self.state.isolated = isolated;
    }

    /// Takes all of `data`; returns how many bytes left at once.
    pub(super) fn send(
        &mut self,
        id: QuicStreamId,
        data: &mut SendBuf,
        limits: &QuicLimits,
        counters: &mut Counters,
    ) -> Result<usize, CloseCause> {
        if let Some(backlog) = self.state.backlog_mut(id) {
            backlog.bytes.put(data, 0);
            // With isolation it may only be waiting for its turn.
            if !self.state.isolated {
                self.note_blocked(id);
            }
            self.check_backlog(limits, counters)?;
            return Ok(0);
        }
        if (self.state.isolated && self.state.flight.is_none()) || self.state.is_awaited(id) {
            self.state.backlogs.push(StreamBacklog::of(id, data, 0));
            self.check_backlog(limits, counters)?;
            return Ok(0);
        }
        let total = data.len();
        let mut left = self.write_direct(id, data);
        if left < total {
            self.state.backlogs.push(StreamBacklog::of(id, data, left));
            left += self.write_backlog(id);
            self.check_backlog(limits, counters)?;
        }
        data.clear();
        Ok(left)
    }

    fn check_backlog(
        &self,
        limits: &QuicLimits,
        counters: &mut Counters,
    ) -> Result<(), CloseCause> {
        if self.state.waiting() > limits.backlog_bytes_max {
            counters.backlog_overflows += 1;
            return Err(CloseCause::failed(
                "the peer reads too slowly: backlog limit reached",
            ));
        }
        Ok(())
    }

    /// The stream, if this side may send on it. A dialled connection opens its
    /// control stream by sending on it; an accepted one keeps what is sent on it
    /// until the client has opened it.
    pub(super) fn sending(&mut self, stream: StreamId) -> Option<QuicStreamId> {
        let id = quic_id(stream)?;
        if self.state.sending.contains(&id) || self.state.is_awaited(id) {
            return Some(id);
        }
        let may_open = !self.state.accepted && !self.state.opened_control;
        if stream == StreamId::CONTROL && may_open {
            return self.open(true).and_then(quic_id);
        }
        None
    }

    /// Gives bytes to the stream until it takes no more. A stream that takes
    /// nothing any more swallows them: its end is reported otherwise.
    fn write_direct(&mut self, id: QuicStreamId, data: &SendBuf) -> usize {
        let Some(flight) = &self.state.flight else {
            return self.write_now(id, data);
        };
        if !flight.takes(data.len()) {
            return 0;
        }
        let wrote = self.write_now(id, data);
        if let Some(flight) = &mut self.state.flight {
            flight.wrote(id, data, wrote);
        }
        wrote
    }

    fn write_now(&mut self, id: QuicStreamId, data: &SendBuf) -> usize {
        let wrote = self.write_stream(id, data);
        if let Some(log) = self.log {
            log.wrote(StreamId(id.into()), wrote);
        }
        wrote
    }

    fn write_stream(&mut self, id: QuicStreamId, data: &SendBuf) -> usize {
        let mut stream = self.proto.send_stream(id);
        let mut wrote = 0;
        if !data.chunks().is_empty() {
            let mut chunks = data.chunks().to_vec();
            let all: usize = chunks.iter().map(Bytes::len).sum();
            match stream.write_chunks(&mut chunks) {
                Ok(written) => wrote += written.bytes,
                Err(WriteError::Blocked) => {}
                Err(_) => return data.len(),
            }
            if wrote < all {
                return wrote;
            }
        }
        if !data.tail().is_empty() {
            match stream.write(data.tail()) {
                Ok(n) => wrote += n,
                Err(WriteError::Blocked) => {}
                Err(_) => return data.len(),
            }
        }
        wrote
    }

    /// Gives waiting bytes to the stream; returns how many it took. Goes on
    /// until the stream says that it is blocked: only then, and not after a
    /// partial write, will quinn-proto say when it takes more.
    fn write_backlog(&mut self, id: QuicStreamId) -> usize {
        self.write_some(id, usize::MAX)
    }

    /// As [`Self::write_backlog`], but not more than `max` bytes.
    fn write_some(&mut self, id: QuicStreamId, max: usize) -> usize {
        // Early data goes out once, and then waits for the verdict.
        if self.state.flight.is_some() || self.state.is_awaited(id) {
            return 0;
        }
        let Some(at) = self.state.backlogs.iter().position(|b| b.id == id) else {
            return 0;
        };
        let Some(backlog) = self.state.backlogs.get_mut(at) else {
            return 0;
        };
        let (mut wrote, mut blocked) = (0, false);
        let mut stream = self.proto.send_stream(id);
        while wrote < max
            && let Some(mut chunk) = backlog.bytes.pop()
        {
            if chunk.len() > max - wrote {
                backlog.bytes.unpop(chunk.split_off(max - wrote));
            }
            let mut chunks = [chunk];
            let result = stream.write_chunks(&mut chunks);
            let [rest] = chunks;
            match result {
                Ok(written) => {
                    wrote += written.bytes;
                    backlog.bytes.unpop(rest);
                }
                Err(WriteError::Blocked) => {
                    backlog.bytes.unpop(rest);
                    blocked = true;
                    break;
                }
                Err(_) => {
                    wrote += rest.len() + backlog.bytes.len();
                    backlog.bytes = Backlog::default();
                    break;
                }
            }
        }
        if let Some(log) = self.log {
            log.wrote(StreamId(id.into()), wrote);
        }
        if wrote > 0 && core::mem::take(&mut backlog.blocked) {
            self.state.blocked_news.push((StreamId(id.into()), 0));
        }
        let announced = wrote.min(backlog.announced);
        backlog.announced -= announced;
        wrote -= announced;
        if backlog.bytes.is_empty() {
            let finish = backlog.finish;
            self.state.backlogs.swap_remove(at);
            if finish {
                self.finish_now(id);
            }
        } else if blocked {
            self.note_blocked(id);
        }
        wrote
    }

    /// A stream takes nothing: reports it if that is because of the
    /// stream, and not of the connection. quinn-proto does not say which, but a
    /// connection that takes bytes would take those of control.
    fn note_blocked(&mut self, id: QuicStreamId) {
        let control = QuicStreamId::new(Side::Client, Dir::Bi, 0);
        let Some(backlog) = self.state.backlog_mut(id) else {
            return;
        };
        let waiting = backlog.bytes.len();
        if backlog.blocked || waiting < BLOCKED_BYTES_MIN || id == control {
            return;
        }
        if self.proto.send_stream(control).write(&[]).is_ok() {
            backlog.blocked = true;
            self.state.blocked_news.push((StreamId(id.into()), waiting));
        }
    }

    /// Opens a stream, if the peer allows one more.
    pub fn open(&mut self, bidirectional: bool) -> Option<StreamId> {
        let dir = if bidirectional { Dir::Bi } else { Dir::Uni };
        let Some(id) = self.proto.streams().open(dir) else {
            if let Some(refused) = self.state.refused.get_mut(dir as usize) {
                *refused = true;
            }
            return None;
        };
        self.state.opened_control |= bidirectional && !self.state.accepted;
        self.state.sending.push(id);
        if let Some(flight) = &mut self.state.flight {
            flight.opened(id);
        }
        if let Some(log) = self.log {
            log.stream_opened(StreamId(id.into()), true);
        }
        Some(StreamId(id.into()))
    }

    /// Lets the peer know of a stream on which nothing has been sent, by an empty
    /// STREAM frame: it may want to send first.
    pub fn announce(&mut self, stream: StreamId) {
        if let Some(id) = quic_id(stream)
            && self.state.sending.contains(&id)
        {
            let _ = self.proto.send_stream(id).write(&[]);
        }
    }

    /// Whether more may arrive on a stream, and whether this side may send on it.
    pub fn sides(&mut self, stream: StreamId) -> (bool, bool) {
        let Some(id) = quic_id(stream) else {
            return (false, false);
        };
        let ours = stream.is_server_initiated() == self.state.accepted;
        let receives =
            !(stream.is_unidirectional() && ours) && self.proto.recv_stream(id).read(true).is_ok();
        (receives, self.state.sending.contains(&id))
    }

    /// Bytes given to [`Self::send`] that the stream has not taken.
    pub fn backlog(&self, stream: StreamId) -> usize {
        let id = quic_id(stream);
        let found = self.state.backlogs.iter().find(|b| Some(b.id) == id);
        found.map_or(0, |backlog| backlog.bytes.len())
    }

    /// Has control and one other stream read only; `None`: all. The others
    /// hold what they were allowed at most, for which the connection's window
    /// is made larger: else they could keep away what the one needs. Returns
    /// whether there may be something to read now.
    pub fn read_only(&mut self, stream: Option<StreamId>, limits: &QuicLimits) -> bool {
        let waited = self.state.read_others();
        self.state.only = stream.and_then(quic_id).map(|stream| Only {
            stream,
            waiting: Vec::new(),
        });
        if let Some(inspector) = session::inspector(self.proto) {
            let whole = self.state.only.as_ref().map(|only| only.stream.into());
            inspector.allowance.set_whole(whole);
        }
        self.set_window(limits);
        waited
    }

    /// Counts the streams that the peer has open, which decides how far it may send
    /// ahead on each.
    pub(super) fn count_open(&mut self, limits: &QuicLimits) {
        let streams = self.proto.streams();
        let open = streams.remote_open_streams(Dir::Bi) + streams.remote_open_streams(Dir::Uni);
        if self.state.accepted
            && open != core::mem::replace(&mut self.state.open, open)
            && let Some(inspector) = session::inspector(self.proto)
        {
            inspector.allowance.set_open(open, limits);
        }
    }

    /// Whether there is something to read on a stream.
    #[cfg(test)]
    pub(crate) fn peek(&mut self, stream: StreamId) -> bool {
        let mut recv = quic_id(stream).map(|id| self.proto.recv_stream(id));
        let chunks = recv.as_mut().and_then(|recv| recv.read(true).ok());
        chunks.is_some_and(|mut chunks| matches!(chunks.next(1), Ok(Some(_))))
    }

    /// Stops or resumes reading a stream, so that the peer fills its window of
    /// the stream at most. Returns whether there may be something to read now.
    pub fn pause(&mut self, stream: StreamId, paused: bool) -> bool {
        let Some(id) = quic_id(stream) else {
            return false;
        };
        let at = self.state.paused.iter().position(|(p, _)| *p == id);
        match (at, paused) {
            (None, true) => self.state.paused.push((id, false)),
            (Some(at), false) if self.state.paused.swap_remove(at).1 => {
                self.state.note_unread(id);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Sets how much the peer may send ahead on the connection.
    fn set_window(&mut self, limits: &QuicLimits) {
        let window = match self.state.only {
            Some(_) => allowance::beside_one(limits),
            None => limits.receive_window.into(),
        };
        let window = VarInt::from_u64(window).unwrap_or(VarInt::MAX);
        self.proto.set_receive_window(window);
    }

    /// Has what we send on a stream leave before what we send on streams with
    /// a lower number.
    pub fn set_priority(&mut self, stream: StreamId, priority: i32) {
        if let Some(id) = quic_id(stream)
            && self.state.sending.contains(&id)
        {
            let _ = self.proto.send_stream(id).set_priority(priority);
        }
    }

    /// Ends our side of a stream after its backlog.
    pub fn finish(&mut self, stream: StreamId) {
        if let Some(id) = quic_id(stream) {
            if self.state.is_awaited(id) && self.state.backlog_mut(id).is_none() {
                let empty = StreamBacklog::new(id, Backlog::default());
                self.state.backlogs.push(empty);
            }
            match self.state.backlog_mut(id) {
                Some(backlog) => backlog.finish = true,
                None => self.finish_now(id),
            }
        }
    }

    fn finish_now(&mut self, id: QuicStreamId) {
        if let Some(at) = self.state.sending.iter().position(|s| *s == id) {
            self.state.sending.swap_remove(at);
            if let Some(flight) = &mut self.state.flight {
                flight.finished(id);
            }
            if self.proto.send_stream(id).finish().is_ok() {
                self.state.ending.push(id);
            }
        }
    }

    /// Abandons our side of a stream; returns the credit of dropped bytes.
    pub fn reset(&mut self, stream: StreamId, code: u64) -> usize {
        let Some(id) = quic_id(stream) else {
            return 0;
        };
        let may_send = self.state.sending.contains(&id) || self.state.ending.contains(&id);
        let dropped = self.forget_sending(id);
        if may_send {
            if let Some(flight) = &mut self.state.flight {
                flight.reset(id, varint(code));
            }
            let _ = self.proto.send_stream(id).reset(varint(code));
        }
        dropped
    }

    /// Asks the peer to stop sending on a stream.
    pub fn stop(&mut self, stream: StreamId, code: u64) {
        // Only the peer's unidirectional streams and bidirectional ones have a
        // receiving side; quinn-proto takes the others for a bug.
        let ours = stream.is_server_initiated() == self.state.accepted;
        if let Some(id) = quic_id(stream)
            && !(stream.is_unidirectional() && ours)
        {
            self.state.unread.retain(|u| *u != id);
            if let (true, Some(flight)) = (ours, &mut self.state.flight) {
                return flight.stop(id, varint(code));
            }
            let _ = self.proto.recv_stream(id).stop(varint(code));
        }
    }

    fn forget_sending(&mut self, id: QuicStreamId) -> usize {
        self.state.sending.retain(|s| *s != id);
        self.state.ending.retain(|s| *s != id);
        self.end_turn(id);
        let Some(at) = self.state.backlogs.iter().position(|b| b.id == id) else {
            return 0;
        };
        let backlog = self.state.backlogs.swap_remove(at);
        if backlog.blocked {
            self.state.blocked_news.push((StreamId(id.into()), 0));
        }
        backlog.bytes.len() - backlog.announced
    }

    /// Accepts the next stream that the peer opened.
    pub(super) fn accept(&mut self, dir: Dir) -> Option<QuicStreamId> {
        let id = self.proto.streams().accept(dir)?;
        if dir == Dir::Bi {
            self.state.sending.push(id);
            // What was kept for control leaves now.
            self.state.writable |= !core::mem::replace(&mut self.state.opened_control, true);
        }
        if let Some(log) = self.log {
            log.stream_opened(StreamId(id.into()), false);
        }
        Some(id)
    }

    /// Lets a peer that uses its streams open more of them, up to the limit;
    /// all others do not pay for it.
    pub(super) fn widen(&mut self, dir: Dir, limits: &QuicLimits) {
        let max = match dir {
            Dir::Bi => limits.bidi_streams,
            Dir::Uni => limits.uni_streams,
        };
        let Some(granted) = self.state.granted.get_mut(dir as usize) else {
            return;
        };
        let open = self.proto.streams().remote_open_streams(dir);
        if *granted < max && open * 2 >= u64::from(*granted) {
            *granted = granted.saturating_mul(2).min(max);
            self.proto
                .set_max_concurrent_streams(dir, VarInt::from_u32(*granted));
        }
    }

    /// The peer wants nothing more of a stream; returns the credit of dropped
    /// bytes.
    pub(super) fn stopped(&mut self, id: QuicStreamId, code: VarInt) -> usize {
        let dropped = self.forget_sending(id);
        let _ = self.proto.send_stream(id).reset(code);
        dropped
    }

    /// Ends all streams after their backlogs.
    pub(super) fn finish_all(&mut self) {
        for id in self.state.sending.clone() {
            self.finish(StreamId(id.into()));
        }
    }

    /// Writes what waits, if some stream takes bytes again; returns what left.
    pub(super) fn write_writable(&mut self) -> Left {
        if core::mem::take(&mut self.state.writable) && !self.state.isolated {
            self.write_by_priority()
        } else {
            Left::new()
        }
    }
}

/// These without the streams of which nothing left.
fn left_of(streams: impl IntoIterator<Item = (QuicStreamId, usize)>) -> Left {
    let some = streams.into_iter().filter(|(_, bytes)| *bytes > 0);
    some.map(|(id, bytes)| (StreamId(id.into()), bytes))
        .collect()
}

fn quic_id(stream: StreamId) -> Option<QuicStreamId> {
    VarInt::from_u64(stream.0).ok().map(Into::into)
}

pub(crate) fn varint(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
