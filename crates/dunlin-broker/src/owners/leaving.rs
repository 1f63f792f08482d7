//! What is left of a session that has ended: subscriptions that are still in the tree.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::time::Duration;

use dunlin_base::Text;
use dunlin_store::SessionKey;

/// Subscriptions of ended sessions that are taken out of the tree in one call of the shard.
pub(crate) const LEAVE_MAX: usize = 512;

/// Time until the next ones are: a shard is busy with it for about a third of its time.
pub(crate) const LEAVE_PAUSE: Duration = Duration::from_millis(1);

/// The filters that a session had when it ended.
pub(crate) trait LeavingFilters: Debug + Send {
    /// Takes at most `max` of them, those of shared subscriptions first.
    fn take(&mut self, max: usize) -> Vec<Text>;

    /// Whether none is left.
    fn is_empty(&self) -> bool;
}

/// What is left of a session that has ended.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) key: SessionKey,
    pub(crate) filters: Box<dyn LeavingFilters>,
    /// What the budget counts for it until it is gone.
    pub(crate) bytes: usize,
}
