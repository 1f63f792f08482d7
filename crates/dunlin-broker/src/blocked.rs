//! Streams of which a client takes nothing while it takes others: their
//! messages wait apart, so that those of other streams go on.
//!
//! QoS 0 for such a stream is dropped. Of QoS 1 and 2, [`ASIDE_MAX`] messages
//! are passed over; with more, all of the session's wait. Messages that are in
//! flight on such a stream count against Receive Maximum like all others.

use dunlin_base::StreamId;

use crate::conn::{Conn, ConnIdx, Phase};
use crate::session::SessionIdx;
use crate::shard::Shard;

/// Queued messages of a session that are passed over because of their streams.
const ASIDE_MAX: usize = 1024;

impl Conn {
    /// Whether messages of a topic would go to a stream of which the client
    /// takes nothing. `stream` is that of their subscription.
    pub(crate) fn is_blocked_for(&self, stream: StreamId, topic: &str) -> bool {
        if !self.any_blocked {
            return false;
        }
        let stream = match &self.lanes {
            Some(lanes) if stream == StreamId::CONTROL => lanes.stream_of(topic),
            _ => Some(stream),
        };
        stream.is_some_and(|stream| self.is_blocked(stream))
    }
}

impl Shard {
    /// The client takes no more of a stream, or takes it again.
    pub(crate) fn handle_blocked(&mut self, c: ConnIdx, stream: StreamId, bytes: usize) {
        let limit = self.config.qos0_backlog_bytes;
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        // All that waits apart is bounded like all that does not.
        let others = conn.streams.iter().filter(|(id, _)| *id != stream);
        let room = limit.saturating_sub(others.map(|(_, data)| data.apart).sum());
        if let Some(data) = conn.data_stream(stream) {
            let apart = if bytes <= room { bytes } else { 0 };
            data.blocked = bytes > 0;
            let before = core::mem::replace(&mut data.apart, apart);
            conn.unsent += before as i64 - apart as i64;
        }
        self.go_on(c);
    }

    /// The streams of a connection have changed, and with them perhaps the
    /// stream of what was passed over.
    pub(crate) fn streams_changed(&mut self, c: ConnIdx) {
        if self.conns.get(c).is_some_and(|conn| conn.any_blocked) {
            self.go_on(c);
        }
    }

    /// A topic loses its stream: what was passed over comes first.
    pub(crate) fn take_back(&mut self, c: ConnIdx) {
        let conn = self.conns.get(c).filter(|conn| conn.any_blocked);
        if let Some(s) = conn.and_then(Conn::session)
            && let Some(session) = self.sessions.get_mut(s)
        {
            session.outbound.take_back();
        }
    }

    fn go_on(&mut self, c: ConnIdx) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        conn.any_blocked = conn.streams.iter().any(|(_, data)| data.blocked);
        let Phase::Connected(s) = conn.phase else {
            return;
        };
        if conn.backlog() <= self.config.send_backlog_bytes / 2 {
            conn.blocked = false;
        }
        if let Some(session) = self.sessions.get_mut(s) {
            session.outbound.take_back();
        }
        self.pump(s);
        self.release_publishers(c);
    }

    /// Passes over the next message of a session if its stream takes nothing;
    /// `None`: it may go. `Some(false)`: too many are waiting.
    pub(crate) fn pass_over(&mut self, s: SessionIdx, c: ConnIdx) -> Option<bool> {
        let conn = self.conns.get(c).filter(|conn| conn.any_blocked)?;
        let session = self.sessions.get_mut(s)?;
        let (delivery, message) = session.outbound.next_new()?;
        conn.is_blocked_for(delivery.stream, &message.topic)
            .then(|| session.outbound.set_aside(ASIDE_MAX))
    }
}
