//! Changes of session tickets on their way to the thread that keeps them, or asks the node
//! that does.

use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use dunlin_net::TicketChange;

/// New tickets that are stored together.
pub(super) const BATCH_MAX: usize = 1024;

/// How long a new ticket may wait for others. After a crash the clients with
/// those that were not stored make a full handshake.
pub(super) const GATHER: Duration = Duration::from_millis(100);

/// Changes on their way from the register to the keeper. The register bounds
/// them.
#[derive(Default)]
pub(super) struct Changes {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    changes: Vec<TicketChange>,
    /// Someone waits for one of them.
    is_urgent: bool,
    /// There will be no more.
    is_over: bool,
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, change: TicketChange) {
        let mut queue = self.lock();
        let was_urgent = queue.is_urgent;
        queue.is_urgent |= matches!(change, TicketChange::Strike { .. });
        queue.changes.push(change);
        // The keeper looks by itself when the first one has waited long enough.
        let wakes = queue.changes.len() == 1 || queue.is_urgent != was_urgent;
        if wakes || queue.changes.len() == BATCH_MAX {
            self.wake.notify_one();
        }
    }

    /// Has the thread look what there is to do.
    #[cfg(feature = "cluster")]
    pub(super) fn nudge(&self) {
        self.lock().is_urgent = true;
        self.wake.notify_one();
    }

    /// Waits for changes, or until `due`; tells whether there will be no more.
    /// Changes without a waiting client are left where they are until then.
    pub(super) fn take(&self, due: Option<Instant>) -> (Vec<TicketChange>, bool) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            let is_due = match due {
                Some(due) => due <= now || queue.changes.len() >= BATCH_MAX,
                None => !queue.changes.is_empty(),
            };
            if is_due || queue.is_urgent || queue.is_over {
                queue.is_urgent = false;
                return (core::mem::take(&mut queue.changes), queue.is_over);
            }
            queue = match due {
                Some(due) => {
                    let result = self.wake.wait_timeout(queue, due - now);
                    result.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let result = self.wake.wait(queue);
                    result.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

/// The register's end; without it there are no more changes.
pub(super) struct Sender(Arc<Changes>);

impl Sender {
    pub(super) const fn new(changes: Arc<Changes>) -> Self {
        Self(changes)
    }

    pub(super) fn add(&self, change: TicketChange) {
        self.0.add(change);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use dunlin_base::ShardId;
    use dunlin_net::{StrikeId, TICKET_KEY_BYTES};

    use super::*;

    #[test]
    fn only_uses_are_urgent() {
        let changes = Changes::default();
        let due = || Some(Instant::now() + Duration::from_secs(3600));
        let key = [1; TICKET_KEY_BYTES];
        let value = Vec::new();
        changes.add(TicketChange::Put { key, value });
        let (strike, shard) = (StrikeId(1), ShardId(0));
        changes.add(TicketChange::Strike { key, strike, shard });
        assert_eq!(changes.take(due()).0.len(), 2);
        changes.add(TicketChange::Drop { key });
        assert_eq!(changes.take(None).0.len(), 1);
        for _ in 0..BATCH_MAX {
            changes.add(TicketChange::Drop { key });
        }
        assert_eq!(changes.take(due()).0.len(), BATCH_MAX);
        let changes = Arc::new(changes);
        drop(Sender(Arc::clone(&changes)));
        assert_eq!(changes.take(due()), (Vec::new(), true));
    }
}
