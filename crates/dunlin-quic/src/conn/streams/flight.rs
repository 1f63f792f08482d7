//! Early data (0-RTT) of one dialled connection: what was sent before the
//! server's verdict is kept, bounded, and sent again when it is refused.
//!
//! quinn-proto forgets refused streams altogether; they are opened again in
//! the order in which they were first, so that they get the same ids and the
//! owner of the connection notices nothing.

use bytes::Bytes;
use dunlin_base::transport::CloseCause;
use dunlin_base::{SendBuf, StreamId};
use quinn_proto::{StreamId as QuicStreamId, VarInt};

use super::{Left, StreamBacklog, StreamsMut, left_of};
use crate::Counters;
use crate::backlog::Backlog;

/// Bytes sent as early data at most; what is more waits for the verdict.
const FLIGHT_BYTES_MAX: usize = 64 << 10;

/// What was sent as early data.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// In the order in which they were opened.
    streams: Vec<FlightStream>,
    bytes: usize,
}

#[derive(Debug)]
struct FlightStream {
    id: QuicStreamId,
    bytes: Vec<u8>,
    finished: bool,
    reset: Option<VarInt>,
    /// Held back: quinn-proto must still know both sides of a stream when it
    /// is refused.
    stop: Option<VarInt>,
}

impl Flight {
    pub(super) fn opened(&mut self, id: QuicStreamId) {
        self.streams.push(FlightStream {
            id,
            bytes: Vec::new(),
            finished: false,
            reset: None,
            stop: None,
        });
    }

    /// Whether there is room for all of these bytes.
    pub(super) const fn takes(&self, bytes: usize) -> bool {
        bytes <= FLIGHT_BYTES_MAX - self.bytes
    }

    /// These first bytes of `data` were written.
    pub(super) fn wrote(&mut self, id: QuicStreamId, data: &SendBuf, mut bytes: usize) {
        let Some(stream) = self.streams.iter_mut().find(|s| s.id == id) else {
            return;
        };
        self.bytes += bytes;
        let parts = data.chunks().iter().map(AsRef::as_ref);
        for part in parts.chain([data.tail()]) {
            let part = part.get(..bytes).unwrap_or(part);
            stream.bytes.extend_from_slice(part);
            bytes -= part.len();
        }
    }

    pub(super) fn finished(&mut self, id: QuicStreamId) {
        self.change(id, |stream| stream.finished = true);
    }

    pub(super) fn reset(&mut self, id: QuicStreamId, code: VarInt) {
        self.change(id, |stream| stream.reset = Some(code));
    }

    pub(super) fn stop(&mut self, id: QuicStreamId, code: VarInt) {
        self.change(id, |stream| stream.stop = Some(code));
    }

    fn change(&mut self, id: QuicStreamId, f: impl FnOnce(&mut FlightStream)) {
        if let Some(stream) = self.streams.iter_mut().find(|s| s.id == id) {
            f(stream);
        }
    }
}

impl StreamsMut<'_> {
    /// The handshake is complete: the server took the early data, or it goes
    /// again. Returns whether it took it, and how many waiting bytes left;
    /// `None`: there was none.
    pub(in crate::conn) fn end_flight(
        &mut self,
        counters: &mut Counters,
    ) -> Result<Option<(bool, Left)>, CloseCause> {
        let Some(flight) = self.state.flight.take() else {
            return Ok(None);
        };
        let accepted = self.proto.accepted_0rtt();
        if accepted {
            counters.early_data_sent += 1;
        } else {
            counters.early_data_resent += 1;
        }
        for stream in flight.streams {
            if !accepted {
                self.send_again(&stream)?;
            }
            if let Some(code) = stream.stop {
                let _ = self.proto.recv_stream(stream.id).stop(code);
            }
        }
        let waiting: Vec<_> = self.state.backlogs.iter().map(|b| b.id).collect();
        let waiting = waiting.into_iter();
        let left = left_of(waiting.map(|id| (id, self.write_backlog(id))));
        Ok(Some((accepted, left)))
    }

    fn send_again(&mut self, stream: &FlightStream) -> Result<(), CloseCause> {
        let dir = stream.id.dir();
        if self.proto.streams().open(dir) != Some(stream.id) {
            return Err(CloseCause::failed(
                "the server refused early data and allows fewer streams than before",
            ));
        }
        if let Some(code) = stream.reset {
            let _ = self.proto.send_stream(stream.id).reset(code);
            return Ok(());
        }
        let wrote = self.proto.send_stream(stream.id).write(&stream.bytes);
        let rest = stream.bytes.get(wrote.unwrap_or(0)..).unwrap_or_default();
        if !rest.is_empty() {
            self.put_back(stream.id, rest);
        }
        if stream.finished {
            self.state.ending.retain(|id| *id != stream.id);
            self.state.sending.push(stream.id);
            self.finish(StreamId(stream.id.into()));
        }
        Ok(())
    }

    /// Bytes whose room was given back when they were sent first wait before
    /// all others of their stream.
    fn put_back(&mut self, id: QuicStreamId, bytes: &[u8]) {
        let chunk = Bytes::copy_from_slice(bytes);
        if self.state.backlog_mut(id).is_none() {
            let empty = StreamBacklog::new(id, Backlog::default());
            self.state.backlogs.push(empty);
        }
        if let Some(backlog) = self.state.backlog_mut(id) {
            backlog.bytes.unpop(chunk);
            backlog.announced = bytes.len();
        }
    }
}
