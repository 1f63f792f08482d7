//! What a process is to its log, for others to see at any time.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;

use tokio::sync::watch;

/// What a process is to its log. Read by other threads.
#[derive(Debug, Default)]
pub struct LogMetrics {
    owner: AtomicBool,
    held: OnceLock<watch::Receiver<bool>>,
    read: AtomicU64,
    last: AtomicU64,
}

/// [`LogMetrics`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogRole {
    /// It owns the log; else it is a standby, or has given up.
    pub is_owner: bool,
    /// It holds the lease, as far as it knows.
    pub holds_lease: bool,
    /// Messages of the log that a standby has not read yet, as of the last look.
    pub behind: u64,
}

impl LogMetrics {
    /// Where it is known whether the lease is held.
    pub(crate) fn set_lease(&self, held: watch::Receiver<bool>) {
        // There is one lease.
        let _ = self.held.set(held);
    }

    /// It owns the log from here on, or no more.
    pub(crate) fn set_owner(&self, owner: bool) {
        self.owner.store(owner, Ordering::Relaxed);
    }

    /// All up to this message was read.
    pub(crate) fn note_read(&self, seq: u64) {
        self.read.store(seq, Ordering::Relaxed);
    }

    /// The log ends with this message.
    pub(crate) fn note_last(&self, seq: u64) {
        self.last.store(seq, Ordering::Relaxed);
    }

    /// As of now.
    #[must_use]
    pub fn role(&self) -> LogRole {
        let is_owner = self.owner.load(Ordering::Relaxed);
        let (read, last) = (&self.read, &self.last);
        let behind = last
            .load(Ordering::Relaxed)
            .saturating_sub(read.load(Ordering::Relaxed));
        LogRole {
            is_owner,
            holds_lease: self.held.get().is_some_and(|held| *held.borrow()),
            behind: if is_owner { 0 } else { behind },
        }
    }
}
