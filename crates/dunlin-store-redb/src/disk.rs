//! What redb writes to: a storage back end whose syncing can be switched off,
//! and whose length is known. Knows no table.
//!
//! redb's own `Durability::None` keeps committed pages in the memory of the
//! process until the next durable commit, so a killed process loses them. The
//! durability `os` therefore commits durably to a disk whose `sync_data` does
//! nothing: every commit is in the page cache, which outlives the process.

use core::ops::Bound;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::sync::Arc;

use redb::{BackendError, StorageBackend};

/// A back end as seen by redb and, for its length and a forced sync, by the
/// engine.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    inner: Arc<dyn StorageBackend>,
    sync: bool,
    len: Arc<AtomicU64>,
}

impl Disk {
    /// Wraps `inner`; without `sync`, syncing is left to the system.
    pub(crate) fn new(inner: Box<dyn StorageBackend>, sync: bool) -> Self {
        Self {
            inner: Arc::from(inner),
            sync,
            len: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Length of the file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Syncs with every durability.
    pub(crate) fn force_sync(&self) -> io::Result<()> {
        if self.sync {
            // Every commit was synced.
            return Ok(());
        }
        self.inner.sync_data()
    }
}

type Start = Bound<u64>;
type End = Bound<u64>;

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        let len = self.inner.len()?;
        self.len.store(len, Ordering::Relaxed);
        Ok(len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)?;
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.sync {
            self.inner.sync_data()
        } else {
            Ok(())
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Start, end: End) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Start, end: End) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Start, end: End) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Start, end: End) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Start, end: End) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Start, end: End) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}
