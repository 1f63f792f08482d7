//! What a process is to its log, for others to see at any time.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

/// What is known of a lease besides whether it is held.
#[derive(Debug, Default)]
pub(crate) struct LeaseSeen {
    /// When this process wrote it last and had that acknowledged.
    renewed: Mutex<Option<Instant>>,
    /// Another one has it, as of the last look.
    is_of_other: AtomicBool,
}

impl LeaseSeen {
    /// This process has it, as of now.
    pub(crate) fn note_renewed(&self) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.note_other(false);
    }

    /// Another one has it, or has not.
    pub(crate) fn note_other(&self, is_of_other: bool) {
        self.is_of_other.store(is_of_other, Ordering::Relaxed);
    }

    fn age(&self) -> Option<Duration> {
        let renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        renewed.map(|at| at.elapsed())
    }
}

/// What a process is to its log. Read by other threads.
#[derive(Debug, Default)]
pub struct LogMetrics {
    owner: AtomicBool,
    lease: OnceLock<(watch::Receiver<bool>, Arc<LeaseSeen>)>,
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
    /// How long ago it renewed the lease that it holds.
    pub lease_age: Option<Duration>,
    /// Another one has the lease, as of the last look of a standby.
    pub is_lease_of_other: bool,
    /// Messages of the log that a standby has not read yet, as of the last look.
    pub behind: u64,
}

impl LogMetrics {
    /// Where it is known whether the lease is held, and what was seen of it.
    pub(crate) fn set_lease(&self, held: watch::Receiver<bool>, seen: Arc<LeaseSeen>) {
        // There is one lease.
        let _ = self.lease.set((held, seen));
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
        let lease = self.lease.get();
        let holds_lease = lease.is_some_and(|(held, _)| *held.borrow());
        LogRole {
            is_owner,
            holds_lease,
            lease_age: lease
                .filter(|_| holds_lease)
                .and_then(|(_, seen)| seen.age()),
            is_lease_of_other: lease
                .is_some_and(|(_, seen)| seen.is_of_other.load(Ordering::Relaxed)),
            behind: if is_owner { 0 } else { behind },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_an_age_while_it_is_held() {
        let metrics = LogMetrics::default();
        assert_eq!(metrics.role(), LogRole::default());
        let (held, seen) = (watch::Sender::new(false), Arc::new(LeaseSeen::default()));
        metrics.set_lease(held.subscribe(), Arc::clone(&seen));
        seen.note_other(true);
        let role = metrics.role();
        assert!(
            role.is_lease_of_other && role.lease_age.is_none(),
            "{role:?}"
        );
        seen.note_renewed();
        held.send_replace(true);
        let role = metrics.role();
        assert!(role.holds_lease && !role.is_lease_of_other, "{role:?}");
        assert!(role.lease_age.is_some(), "{role:?}");
        held.send_replace(false);
        assert_eq!(metrics.role().lease_age, None);
    }
}
