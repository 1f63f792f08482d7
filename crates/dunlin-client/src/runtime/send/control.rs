//! The control stream of one connection: what was written on it, and which
//! messages of QoS 0 have left.

use std::collections::VecDeque;

use dunlin_base::{ConnId, SendBuf, StreamId};
use dunlin_dial::Context;
use dunlin_mqtt::codec::ReasonCode;

use crate::error::PublishError;
use crate::work::QueuedPublish;

/// Bytes given to the transport that have not left, beyond which no more
/// messages are encoded.
pub(super) const OUTSTANDING_BYTES_MAX: u64 = 256 * 1024;

/// The first stream.
#[derive(Default)]
pub(super) struct Control {
    pub(super) out: SendBuf,
    /// Bytes given to the transport on this connection.
    given: u64,
    /// Bytes of them that have left.
    left: u64,
    /// Messages of QoS 0 whose last byte is the n-th given to the transport.
    leaving: VecDeque<(u64, QueuedPublish)>,
}

impl Control {
    /// A message of QoS 0 was written.
    pub(super) fn wrote(&mut self, message: QueuedPublish) {
        let end = self.given + self.out.len() as u64;
        self.leaving.push_back((end, message));
    }

    /// Bytes left the transport.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// Gives everything to the transport.
    pub(super) fn flush(&mut self, context: &mut Context<'_>, conn: ConnId) {
        if !self.out.is_empty() {
            self.given += self.out.len() as u64;
            self.left += context.net.send(conn, StreamId::CONTROL, &mut self.out) as u64;
        }
    }

    /// Other streams carry bytes, too: what has left is seen by the backlog.
    pub(super) fn measure_left(&mut self, context: &mut Context<'_>, conn: ConnId) {
        let waits = context.net.conn(conn).stream_backlog(StreamId::CONTROL) as u64;
        self.left = self.given.saturating_sub(waits);
    }

    /// Ends the messages of QoS 0 that have left.
    pub(super) fn finish_left(&mut self) {
        while let Some((end, _)) = self.leaving.front()
            && *end <= self.left
            && let Some((_, queued)) = self.leaving.pop_front()
        {
            queued.finish(Ok(ReasonCode::Success));
        }
    }

    /// Bytes that the transport has not passed on.
    pub(super) fn outstanding(&self) -> u64 {
        (self.given + self.out.len() as u64).saturating_sub(self.left)
    }

    /// Whether no message of QoS 0 is on its way.
    pub(super) fn messages_have_left(&self) -> bool {
        self.leaving.is_empty()
    }

    /// The transport is gone, with what was given to it.
    pub(super) fn forget_connection(&mut self) {
        for queued in core::mem::take(self).into_messages() {
            queued.finish(Err(PublishError::Lost));
        }
    }

    pub(super) fn into_messages(self) -> impl Iterator<Item = QueuedPublish> {
        self.leaving.into_iter().map(|(_, queued)| queued)
    }
}
