//! Entries that must be there and are not. Each is a bug, which the shard counts and
//! logs.

use core::cell::Cell;

/// How many were missing.
#[derive(Debug, Default)]
pub(crate) struct Missing(Cell<u64>);

impl Missing {
    /// Counts one.
    pub(crate) fn note(&self) {
        self.0.set(self.0.get() + 1);
    }

    /// Counts it if an entry is not there that must be.
    pub(crate) fn checked<T>(&self, found: Option<T>) -> Option<T> {
        if found.is_none() {
            self.note();
        }
        found
    }

    /// Those since the last call.
    pub(crate) fn take(&self) -> u64 {
        self.0.take()
    }
}
