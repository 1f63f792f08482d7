//! Streams of one QUIC connection, as far as we send on them or end them: what
//! a stream does not take waits in its backlog.

use bytes::Bytes;
use dunlin_base::transport::CloseCause;
use dunlin_base::{SendBuf, StreamId};
use quinn_proto::{Dir, Side, StreamId as QuicStreamId, VarInt, WriteError};

use super::conn::{Phase, QuicConn};
use crate::backlog::Backlog;
use crate::stream::failure;
use crate::{Counters, NetLimits};

#[derive(Debug)]
pub(super) struct StreamBacklog {
    pub(super) id: QuicStreamId,
    pub(super) bytes: Backlog,
    /// The first of them, whose room was given back before.
    pub(super) announced: usize,
    /// End the stream after them.
    pub(super) finish: bool,
    /// The owner was told that the peer takes nothing more on this stream.
    pub(super) blocked: bool,
}

impl StreamBacklog {
    fn new(id: QuicStreamId, data: &mut SendBuf, skip: usize) -> Self {
        let mut bytes = Backlog::default();
        bytes.put(data, skip);
        Self {
            id,
            bytes,
            announced: 0,
            finish: false,
            blocked: false,
        }
    }
}

/// Waiting bytes of a stream at which its owner is told that the peer takes no
/// more of it.
const BLOCKED_BYTES_MIN: usize = 16 << 10;

impl QuicConn {
    /// Takes all of `data`; returns how many bytes left at once.
    pub(crate) fn send(
        &mut self,
        stream: StreamId,
        data: &mut SendBuf,
        limits: &NetLimits,
        counters: &mut Counters,
    ) -> Result<usize, CloseCause> {
        let Some(id) = self.stream_id(stream).filter(|_| self.phase <= Phase::Open) else {
            let all = data.len();
            data.clear();
            return Ok(all);
        };
        // Whoever says that more follows is not done with its answer.
        self.unfinished = core::mem::take(&mut self.more);
        self.wrote = true;
        if let Some(backlog) = self.backlogs.iter_mut().find(|b| b.id == id) {
            backlog.bytes.put(data, 0);
            // With isolation it may only be waiting for its turn.
            if !self.isolate {
                self.note_blocked(id);
            }
            self.check_backlog(limits, counters)?;
            return Ok(0);
        }
        if self.isolate && self.flight.is_none() {
            self.backlogs.push(StreamBacklog::new(id, data, 0));
            self.check_backlog(limits, counters)?;
            return Ok(0);
        }
        let total = data.len();
        let mut left = self.write_direct(id, data);
        if left < total {
            self.backlogs.push(StreamBacklog::new(id, data, left));
            left += self.write_backlog(id);
            self.check_backlog(limits, counters)?;
        }
        data.clear();
        Ok(left)
    }

    fn check_backlog(&self, limits: &NetLimits, counters: &mut Counters) -> Result<(), CloseCause> {
        let waiting: usize = self.backlogs.iter().map(|b| b.bytes.len()).sum();
        if waiting > limits.backlog_bytes_max {
            counters.backlog_overflows += 1;
            return Err(failure("the peer reads too slowly: backlog limit reached"));
        }
        Ok(())
    }

    /// The stream, if we may send on it. A dialled connection opens its
    /// control stream by sending on it.
    fn stream_id(&mut self, stream: StreamId) -> Option<QuicStreamId> {
        let id = quic_id(stream)?;
        if self.sending.contains(&id) {
            return Some(id);
        }
        if stream == StreamId::CONTROL && !self.accepted && !self.opened_control {
            return self.open_stream(true).and_then(quic_id);
        }
        None
    }

    /// Gives bytes to the stream until it takes no more. A stream that takes
    /// nothing any more swallows them: its end is reported otherwise.
    fn write_direct(&mut self, id: QuicStreamId, data: &SendBuf) -> usize {
        let Some(flight) = &self.flight else {
            return self.write_now(id, data);
        };
        if !flight.takes(data.len()) {
            return 0;
        }
        let wrote = self.write_now(id, data);
        if let Some(flight) = &mut self.flight {
            flight.wrote(id, data, wrote);
        }
        wrote
    }

    fn write_now(&mut self, id: QuicStreamId, data: &SendBuf) -> usize {
        let wrote = self.write_stream(id, data);
        if let Some(log) = &self.log {
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
    pub(super) fn write_backlog(&mut self, id: QuicStreamId) -> usize {
        self.write_some(id, usize::MAX)
    }

    /// As [`QuicConn::write_backlog`], but not more than `max` bytes.
    pub(super) fn write_some(&mut self, id: QuicStreamId, max: usize) -> usize {
        // Early data goes out once, and then waits for the verdict.
        if self.flight.is_some() {
            return 0;
        }
        let Some(at) = self.backlogs.iter().position(|b| b.id == id) else {
            return 0;
        };
        let Some(backlog) = self.backlogs.get_mut(at) else {
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
        if let Some(log) = &self.log {
            log.wrote(StreamId(id.into()), wrote);
        }
        if wrote > 0 && core::mem::take(&mut backlog.blocked) {
            self.blocked_news.push((StreamId(id.into()), 0));
        }
        let announced = wrote.min(backlog.announced);
        backlog.announced -= announced;
        wrote -= announced;
        if backlog.bytes.is_empty() {
            let finish = backlog.finish;
            self.backlogs.swap_remove(at);
            if finish {
                self.finish_now(id);
            }
        } else if blocked {
            self.note_blocked(id);
        }
        wrote
    }

    /// A stream takes nothing: tells the owner if that is because of the
    /// stream, and not of the connection. quinn-proto does not say which, but a
    /// connection that takes bytes would take those of control.
    fn note_blocked(&mut self, id: QuicStreamId) {
        let control = QuicStreamId::new(Side::Client, Dir::Bi, 0);
        let Some(backlog) = self.backlogs.iter_mut().find(|b| b.id == id) else {
            return;
        };
        let waiting = backlog.bytes.len();
        if backlog.blocked || waiting < BLOCKED_BYTES_MIN || id == control {
            return;
        }
        if self.proto.send_stream(control).write(&[]).is_ok() {
            backlog.blocked = true;
            self.blocked_news.push((StreamId(id.into()), waiting));
        }
    }

    /// Streams that the peer takes no more of, with the bytes that wait, and
    /// those that go on, since the last call.
    pub(crate) fn take_blocked_news(&mut self) -> Vec<(StreamId, usize)> {
        core::mem::take(&mut self.blocked_news)
    }

    /// Opens a stream, if the peer allows one more.
    pub(crate) fn open_stream(&mut self, bidirectional: bool) -> Option<StreamId> {
        let dir = if bidirectional { Dir::Bi } else { Dir::Uni };
        let Some(id) = self.proto.streams().open(dir) else {
            if let Some(wanted) = self.wanted.get_mut(dir as usize) {
                *wanted = true;
            }
            return None;
        };
        self.opened_control |= bidirectional;
        self.sending.push(id);
        if let Some(flight) = &mut self.flight {
            flight.opened(id);
        }
        if let Some(log) = &self.log {
            log.stream_opened(StreamId(id.into()), true);
        }
        Some(StreamId(id.into()))
    }

    /// Bytes given to [`QuicConn::send`] that the stream has not taken.
    pub(crate) fn stream_backlog(&self, stream: StreamId) -> usize {
        let id = quic_id(stream);
        let found = self.backlogs.iter().find(|b| Some(b.id) == id);
        found.map_or(0, |backlog| backlog.bytes.len())
    }

    /// Has what we send on a stream leave before what we send on streams with
    /// a lower number.
    pub(crate) fn set_stream_priority(&mut self, stream: StreamId, priority: i32) {
        if let Some(id) = quic_id(stream)
            && self.sending.contains(&id)
        {
            let _ = self.proto.send_stream(id).set_priority(priority);
        }
    }

    /// Ends our side of a stream after its backlog.
    pub(crate) fn finish_stream(&mut self, stream: StreamId) {
        if let Some(id) = quic_id(stream) {
            match self.backlogs.iter_mut().find(|b| b.id == id) {
                Some(backlog) => backlog.finish = true,
                None => self.finish_now(id),
            }
        }
    }

    fn finish_now(&mut self, id: QuicStreamId) {
        if let Some(at) = self.sending.iter().position(|s| *s == id) {
            self.sending.swap_remove(at);
            if let Some(flight) = &mut self.flight {
                flight.finished(id);
            }
            if self.proto.send_stream(id).finish().is_ok() {
                self.ending.push(id);
            }
        }
    }

    /// Abandons our side of a stream; returns the credit of dropped bytes.
    pub(crate) fn reset_stream(&mut self, stream: StreamId, code: u64) -> usize {
        let Some(id) = quic_id(stream) else {
            return 0;
        };
        let may_send = self.sending.contains(&id) || self.ending.contains(&id);
        let dropped = self.forget_sending(id);
        if may_send {
            if let Some(flight) = &mut self.flight {
                flight.reset(id, varint(code));
            }
            let _ = self.proto.send_stream(id).reset(varint(code));
        }
        dropped
    }

    /// Asks the peer to stop sending on a stream.
    pub(crate) fn stop_stream(&mut self, stream: StreamId, code: u64) {
        // Only the peer's unidirectional streams and bidirectional ones have a
        // receiving side; quinn-proto takes the others for a bug.
        let ours = stream.is_server_initiated() == self.accepted;
        if let Some(id) = quic_id(stream)
            && !(stream.is_unidirectional() && ours)
        {
            self.unread.retain(|u| *u != id);
            if let (true, Some(flight)) = (ours, &mut self.flight) {
                return flight.stop(id, varint(code));
            }
            let _ = self.proto.recv_stream(id).stop(varint(code));
        }
    }

    pub(super) fn forget_sending(&mut self, id: QuicStreamId) -> usize {
        self.sending.retain(|s| *s != id);
        self.ending.retain(|s| *s != id);
        self.end_turn(id);
        let Some(at) = self.backlogs.iter().position(|b| b.id == id) else {
            return 0;
        };
        let backlog = self.backlogs.swap_remove(at);
        if backlog.blocked {
            self.blocked_news.push((StreamId(id.into()), 0));
        }
        backlog.bytes.len() - backlog.announced
    }
}

pub(super) fn quic_id(stream: StreamId) -> Option<QuicStreamId> {
    VarInt::from_u64(stream.0).ok().map(Into::into)
}

pub(super) fn varint(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
