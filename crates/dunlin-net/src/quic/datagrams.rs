//! Datagrams of one QUIC connection (RFC 9221): a bounded queue of our own in
//! front of quinn-proto's, because quinn-proto does not know that a datagram
//! can be too old to be worth sending.

use std::collections::VecDeque;

use bytes::Bytes;
use dunlin_base::Instant;
use dunlin_base::transport::{NetEvent, NetEventKind};
use quinn_proto::SendDatagramError;

use super::conn::{Phase, QuicConn};
use crate::stream::Cx;
use crate::{Counters, NetLimits};

/// Bytes that quinn-proto holds for the next transmission. What it has taken
/// is sent however old it becomes, so this is small.
pub(super) const READY_BYTES_MAX: usize = 16 << 10;

/// What a datagram of the queue costs besides its bytes.
const ENTRY_BYTES: usize = 64;

/// Why a datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatagramError {
    /// Not a QUIC connection, not open, or the peer takes no datagrams.
    #[error("the connection carries no datagrams")]
    Unsupported,
    /// The path or the peer does not take one of that size now.
    #[error("a datagram holds at most {max} bytes here")]
    TooLarge {
        /// The largest that it takes.
        max: usize,
    },
}

/// Datagrams that wait for quinn-proto to take them.
#[derive(Debug, Default)]
pub(super) struct DatagramQueue {
    waiting: VecDeque<(Instant, Bytes)>,
    bytes: usize,
}

impl DatagramQueue {
    fn push(&mut self, expires: Instant, data: Bytes) {
        self.bytes += data.len() + ENTRY_BYTES;
        self.waiting.push_back((expires, data));
    }

    fn pop(&mut self) -> Option<(Instant, Bytes)> {
        let (expires, data) = self.waiting.pop_front()?;
        self.bytes -= data.len() + ENTRY_BYTES;
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        Some((expires, data))
    }
}

impl QuicConn {
    /// The largest datagram that can be sent now; `None`: none at all.
    pub(crate) fn datagram_max_size(&mut self) -> Option<usize> {
        if self.phase != Phase::Open {
            return None;
        }
        self.proto.datagrams().max_size()
    }

    /// Queues a datagram. When the queue is full the oldest make room: of
    /// values that nobody waits for, the newest is worth most.
    pub(crate) fn send_datagram(
        &mut self,
        data: Bytes,
        expires: Instant,
        limits: &NetLimits,
        counters: &mut Counters,
    ) -> Result<(), DatagramError> {
        let max = self.datagram_max_size().ok_or(DatagramError::Unsupported)?;
        if data.len() > max {
            return Err(DatagramError::TooLarge { max });
        }
        let cost = data.len() + ENTRY_BYTES;
        while self.datagrams.bytes + cost > limits.quic_datagram_queue_bytes {
            if self.datagrams.pop().is_none() {
                break;
            }
            counters.app_datagrams_dropped += 1;
        }
        self.datagrams.push(expires, data);
        Ok(())
    }

    /// Gives quinn-proto what it takes for the next transmission, and drops
    /// what has become too old.
    pub(crate) fn feed_datagrams(&mut self, now: Instant, counters: &mut Counters) {
        // Nobody sends them again when the server refuses early data.
        if self.flight.is_some() {
            return;
        }
        while let Some((expires, data)) = self.datagrams.pop() {
            if expires <= now {
                counters.app_datagrams_expired += 1;
                continue;
            }
            match self.proto.datagrams().send(data, false) {
                Ok(()) => counters.app_datagrams_out += 1,
                Err(SendDatagramError::Blocked(data)) => {
                    self.datagrams.bytes += data.len() + ENTRY_BYTES;
                    self.datagrams.waiting.push_front((expires, data));
                    return;
                }
                // The path has become narrower since it was queued.
                Err(_) => counters.app_datagrams_dropped += 1,
            }
        }
    }

    /// Reports what has arrived. A paused connection is not told: datagrams
    /// are not held back for anyone, and the oldest of a full buffer go first.
    pub(super) fn read_datagrams(&mut self, cx: &mut Cx<'_>) {
        if self.phase != Phase::Open || self.paused {
            return;
        }
        while let Some(data) = self.proto.datagrams().recv() {
            self.spoke = true;
            cx.counters.app_datagrams_in += 1;
            (cx.out)(NetEvent::new(
                self.id,
                NetEventKind::Datagram { data: &data },
            ));
        }
    }
}
