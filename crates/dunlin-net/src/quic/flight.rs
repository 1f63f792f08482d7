//! Early data (0-RTT) of one dialled connection: what was sent before the
//! server's verdict is kept, bounded, and sent again when it is refused.
//!
//! quinn-proto forgets refused streams altogether; they are opened again in
//! the order in which they were first, so that they get the same ids and the
//! owner of the connection notices nothing.

use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind};
use dunlin_base::{Instant, SendBuf, StreamId};
use quinn_proto::{StreamId as QuicStreamId, VarInt};

use super::conn::{Phase, QuicConn};
use super::streams::StreamBacklog;
use crate::backlog::Backlog;
use crate::stream::{Cx, failure};

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

impl QuicConn {
    /// A dialled connection that may send before its handshake does so from
    /// now on.
    pub(crate) fn begin_flight(&mut self) -> bool {
        let early = self.proto.has_0rtt();
        self.flight = early.then(Box::default);
        early
    }

    /// Whether a ticket for the next connection may still come. A client that
    /// connects only to say something is done before its server can give one.
    pub(super) fn awaits_ticket(&self, now: Instant) -> bool {
        self.tickets.as_ref().is_some_and(|t| t.came() == 0) && now < self.ticket_deadline
    }

    /// How long to wait: servers give tickets when they know that the handshake
    /// is complete, a round trip after the client does.
    pub(super) fn ticket_wait(&self) -> Duration {
        /// Beside the round trips; as much as an acknowledgement may be late.
        const MARGIN: Duration = Duration::from_millis(25);
        const ROUND_TRIPS: u32 = 3;
        self.proto.rtt() * ROUND_TRIPS + MARGIN
    }

    /// Whether nothing must be sent yet, because the owner does not know that
    /// it may add to the first datagram.
    pub(crate) fn awaits_owner(&self) -> bool {
        self.phase == Phase::Handshake && self.flight.is_some()
    }

    /// The handshake is complete: the server took the early data, or it goes
    /// again.
    pub(super) fn end_flight(&mut self, cx: &mut Cx<'_>) -> Result<(), CloseCause> {
        let Some(flight) = self.flight.take() else {
            return Ok(());
        };
        let accepted = self.proto.accepted_0rtt();
        if accepted {
            cx.counters.early_data_sent += 1;
        } else {
            cx.counters.early_data_resent += 1;
        }
        for stream in flight.streams {
            if !accepted {
                self.send_again(&stream)?;
            }
            if let Some(code) = stream.stop {
                let _ = self.proto.recv_stream(stream.id).stop(code);
            }
        }
        let waiting: Vec<_> = self.backlogs.iter().map(|b| b.id).collect();
        for id in waiting {
            let left = self.write_backlog(id);
            self.report_sent(left, cx);
        }
        if !self.reported {
            let conn = self.id();
            (cx.out)(NetEvent::new(conn, NetEventKind::EarlyData { accepted }));
        }
        Ok(())
    }

    fn send_again(&mut self, stream: &FlightStream) -> Result<(), CloseCause> {
        let dir = stream.id.dir();
        if self.proto.streams().open(dir) != Some(stream.id) {
            return Err(failure(
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
            self.ending.retain(|id| *id != stream.id);
            self.sending.push(stream.id);
            self.finish_stream(StreamId(stream.id.into()));
        }
        Ok(())
    }

    /// Bytes whose room was given back when they were sent first wait before
    /// all others of their stream.
    fn put_back(&mut self, id: QuicStreamId, bytes: &[u8]) {
        let chunk = Bytes::copy_from_slice(bytes);
        match self.backlogs.iter_mut().find(|b| b.id == id) {
            Some(backlog) => {
                backlog.bytes.unpop(chunk);
                backlog.announced = bytes.len();
            }
            None => {
                let mut waiting = Backlog::default();
                waiting.unpop(chunk);
                self.backlogs.push(StreamBacklog {
                    id,
                    bytes: waiting,
                    announced: bytes.len(),
                    finish: false,
                    blocked: false,
                });
            }
        }
    }
}
