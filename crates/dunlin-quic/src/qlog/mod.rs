//! qlog: a file for each QUIC connection that is to be logged, in the
//! sequential form of the main schema (JSON text sequences, RFC 7464), with the
//! events of QUIC. Which connections those are may change at any time; a
//! connection that is not logged costs nothing.
//!
//! What packets do is written by quinn-proto ([`sink`]), what happens to
//! connection, streams and datagrams by this crate's loop ([`watch`]). Files are
//! written by a thread of their own ([`mod@file`]); what it is too slow for is left
//! out, a connection never waits for it.

mod file;
mod filter;
mod sink;
mod watch;

use core::fmt;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use file::{Create, Failure, Writer};
pub use filter::QlogFilter;
pub use watch::LogMut;
pub(crate) use watch::{ConnLog, LogStart};

use crate::Clock;

/// Bounds of what is written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QlogLimits {
    /// Files in the directory at most, those of earlier runs included. Default
    /// 1,000.
    pub files_max: u64,
    /// Bytes of one file at most; then its log ends. Default 16 MiB.
    pub file_bytes_max: u64,
    /// Bytes of all files together at most, those of earlier runs included.
    /// Default 1 GiB.
    pub total_bytes_max: u64,
}

impl Default for QlogLimits {
    fn default() -> Self {
        Self {
            files_max: 1000,
            file_bytes_max: 16 << 20,
            total_bytes_max: 1 << 30,
        }
    }
}

/// What was written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QlogTotals {
    /// Files in the directory.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Connections that got no file, because there were enough or none could
    /// be written.
    pub refused: u64,
    /// Bytes left out, because the disk was too slow or full, or a bound was
    /// reached.
    pub dropped_bytes: u64,
}

/// A directory for logs, shared by all loops of a process.
#[derive(Clone)]
pub struct Qlog(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    limits: QlogLimits,
    clock: Clock,
    /// Whether any connection may be wanted.
    active: AtomicBool,
    filter: Mutex<QlogFilter>,
    /// Accepted connections, to choose one of so many.
    seen: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
    /// Logs that are being written, to find them when they are to be flushed.
    live: Mutex<Vec<sink::WeakLog>>,
    failure: Arc<Failure>,
    writer: Writer,
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qlog")
            .field("dir", &self.0.dir)
            .finish_non_exhaustive()
    }
}

/// What a filter says of a connection that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    No,
    Yes,
    /// Its client identifier decides.
    Later,
}

impl Qlog {
    /// Uses a directory, which is made if it is not there. No connection is
    /// logged until [`Qlog::select`] says which.
    ///
    /// # Errors
    /// The directory cannot be made or read, or no thread is to be had.
    pub fn open(dir: &Path, limits: QlogLimits, clock: Clock) -> io::Result<Self> {
        Self::open_by(file::create, dir, limits, clock)
    }

    /// As [`Qlog::open`], with files that `create` makes.
    ///
    /// # Errors
    /// As there.
    pub fn open_by(
        create: Create,
        dir: &Path,
        limits: QlogLimits,
        clock: Clock,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (mut files, mut bytes) = (0, 0);
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if entry
                .path()
                .extension()
                .is_some_and(|e| e == file::EXTENSION)
            {
                files += 1;
                bytes += entry.metadata().map_or(0, |m| m.len());
            }
        }
        let failure = Arc::new(Failure::default());
        Ok(Self(Arc::new(Inner {
            dir: dir.into(),
            limits,
            clock,
            active: AtomicBool::new(false),
            filter: Mutex::default(),
            seen: AtomicU64::new(0),
            files: AtomicU64::new(files),
            bytes: AtomicU64::new(bytes),
            refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            live: Mutex::default(),
            writer: Writer::start(create, Arc::clone(&failure))?,
            failure,
        })))
    }

    /// Logs connections that this filter lets through, from now on. Those that
    /// are being logged go on. After an error of the disk it is tried again.
    pub fn select(&self, filter: QlogFilter) {
        let mut current = self.lock();
        self.0.failure.forget();
        self.0.active.store(!filter.is_empty(), Ordering::Relaxed);
        *current = filter;
    }

    /// The filter in force.
    #[must_use]
    pub fn filter(&self) -> QlogFilter {
        self.lock().clone()
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// What was written so far.
    #[must_use]
    pub fn totals(&self) -> QlogTotals {
        let get = |from: &AtomicU64| from.load(Ordering::Relaxed);
        QlogTotals {
            files: get(&self.0.files),
            bytes: get(&self.0.bytes),
            refused: get(&self.0.refused),
            dropped_bytes: get(&self.0.dropped),
        }
    }

    /// Why nothing is logged any more, against the filter: a file could
    /// not be made or written. [`Qlog::select`] forgets it.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.0.failure.why()
    }

    /// Waits until everything that was logged so far is in its file.
    pub fn flush(&self) {
        for log in self.live().iter().filter_map(sink::WeakLog::upgrade) {
            log.leave();
        }
        self.0.writer.flush();
    }

    /// As [`Qlog::flush`], after the last log has ended; waits for that no
    /// longer than `patience`.
    pub fn finish(&self, patience: Duration) {
        const PAUSE: Duration = Duration::from_millis(2);
        let begin = std::time::Instant::now();
        let open = || self.live().iter().any(sink::WeakLog::is_open);
        while open() && begin.elapsed() < patience {
            std::thread::sleep(PAUSE);
        }
        self.flush();
    }

    fn live(&self) -> MutexGuard<'_, Vec<sink::WeakLog>> {
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A log that is written from now on.
    fn note_live(&self, log: sink::WeakLog) {
        let mut live = self.live();
        if live.len() == live.capacity() {
            live.retain(sink::WeakLog::is_open);
        }
        live.push(log);
    }

    /// Whether a connection from this address is wanted. Asked once for each,
    /// in its handshake.
    pub(crate) fn choose(&self, ip: IpAddr) -> Choice {
        if !self.is_active() {
            return Choice::No;
        }
        let filter = self.lock();
        if filter.one_in > 0 {
            let seen = self.0.seen.fetch_add(1, Ordering::Relaxed);
            if seen.is_multiple_of(u64::from(filter.one_in)) {
                return Choice::Yes;
            }
        }
        match () {
            () if filter.has_address(ip) => Choice::Yes,
            () if !filter.clients.is_empty() => Choice::Later,
            () => Choice::No,
        }
    }

    /// Whether connections of this client are wanted.
    pub(crate) fn wants_client(&self, client_id: &str) -> bool {
        self.is_active() && self.lock().has_client(client_id)
    }

    /// Whether `Qlog::wants_client` may be asked in vain.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.0.active.load(Ordering::Relaxed) && !self.0.failure.is_there()
    }

    fn lock(&self) -> MutexGuard<'_, QlogFilter> {
        self.0.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of one more file, if there is one.
    fn take_file(&self) -> bool {
        if self.0.failure.is_there() {
            self.0.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let max = self.0.limits.files_max;
        let more = |files: u64| (files < max).then_some(files + 1);
        let files = &self.0.files;
        let taken = files.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if taken.is_err() {
            self.0.refused.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Takes the place of so many bytes, if there is one.
    fn take_bytes(&self, count: u64) -> bool {
        let max = self.0.limits.total_bytes_max;
        let more = |bytes: u64| bytes.checked_add(count).filter(|sum| *sum <= max);
        let bytes = &self.0.bytes;
        let taken = bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok()
    }

    fn note_dropped(&self, count: usize) {
        self.0.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}
