//! Datagrams of one QUIC connection (RFC 9221): a bounded queue of our own in
//! front of quinn-proto's, because quinn-proto does not know that a datagram
//! can be too old to be worth sending.

use std::collections::VecDeque;

use bytes::Bytes;
use dunlin_base::Instant;
use quinn_proto::{Connection, SendDatagramError};

use crate::Counters;
use crate::limits::QuicLimits;

/// Bytes that quinn-proto holds for the next transmission. What it has taken
/// is sent however old it becomes, so this is small.
pub(crate) const READY_BYTES_MAX: usize = 16 << 10;

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

/// Datagrams of one connection.
pub struct DatagramsMut<'a> {
    queue: &'a mut DatagramQueue,
    proto: &'a mut Connection,
    is_open: bool,
}

dunlin_base::opaque_debug!(DatagramsMut<'_>);

impl<'a> DatagramsMut<'a> {
    pub(super) const fn new(
        queue: &'a mut DatagramQueue,
        proto: &'a mut Connection,
        is_open: bool,
    ) -> Self {
        Self {
            queue,
            proto,
            is_open,
        }
    }

    /// The largest that can be sent now; `None`: none at all.
    pub fn max_size(&mut self) -> Option<usize> {
        if !self.is_open {
            return None;
        }
        self.proto.datagrams().max_size()
    }

    /// Queues one. When the queue is full the oldest make room: of values that
    /// nothing waits for, the newest is worth most.
    ///
    /// # Errors
    /// It does not fit, or the connection carries none.
    pub fn send(
        &mut self,
        data: Bytes,
        expires: Instant,
        limits: &QuicLimits,
        counters: &mut Counters,
    ) -> Result<(), DatagramError> {
        let max = self.max_size().ok_or(DatagramError::Unsupported)?;
        if data.len() > max {
            return Err(DatagramError::TooLarge { max });
        }
        let cost = data.len() + ENTRY_BYTES;
        while self.queue.bytes + cost > limits.datagram_queue_bytes {
            if self.queue.pop().is_none() {
                break;
            }
            counters.app_datagrams_dropped += 1;
        }
        self.queue.push(expires, data);
        Ok(())
    }

    /// Gives quinn-proto what it takes for the next transmission, and drops
    /// what has become too old.
    pub(super) fn feed(&mut self, now: Instant, counters: &mut Counters) {
        while let Some((expires, data)) = self.queue.pop() {
            if expires <= now {
                counters.app_datagrams_expired += 1;
                continue;
            }
            match self.proto.datagrams().send(data, false) {
                Ok(()) => counters.app_datagrams_out += 1,
                Err(SendDatagramError::Blocked(data)) => {
                    self.queue.bytes += data.len() + ENTRY_BYTES;
                    self.queue.waiting.push_front((expires, data));
                    return;
                }
                // The path has become narrower since it was queued.
                Err(_) => counters.app_datagrams_dropped += 1,
            }
        }
    }
}
