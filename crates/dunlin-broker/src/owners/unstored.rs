//! Retained messages of clients that are on their way to the store: how many bytes
//! they have, and which publishers are not read until some of them are stored. What
//! other clients have stored waits behind them.

use alloc::collections::VecDeque;

use dunlin_base::ConnId;

/// Bytes on their way to the store at which publishers of retained messages are not
/// read any more.
pub(crate) const UNSTORED_BYTES_MAX: usize = 256 * 1024;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Unstored {
    bytes: usize,
    /// In the order in which they go on. Bounded by the connections there are.
    held: VecDeque<ConnId>,
    /// A reminder is set to let more of them go on.
    pub(crate) reminded: bool,
}

impl Unstored {
    /// More is on its way; whether it is too much.
    pub(crate) const fn add(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes > UNSTORED_BYTES_MAX
    }

    /// Some of it was stored, or refused.
    pub(crate) const fn remove(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A publisher is not read any more.
    pub(crate) fn hold(&mut self, publisher: ConnId) {
        self.held.push_back(publisher);
    }

    /// The next publisher that may go on.
    pub(crate) fn release(&mut self) -> Option<ConnId> {
        match self.bytes <= UNSTORED_BYTES_MAX / 2 {
            true => self.held.pop_front(),
            false => None,
        }
    }

    /// Whether publishers wait though nothing is on its way, after which they
    /// could go on.
    pub(crate) fn is_stuck(&self) -> bool {
        self.bytes == 0 && !self.held.is_empty()
    }
}
