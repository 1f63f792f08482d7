//! One open database without threads: groups of batches in, verdicts out. The
//! writer thread drives it; so do tests, which then decide what a group is and
//! what the disk does.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use dunlin_store::{Batch, LoadedMessage, Recovered, Seq, StoreError, StoreOp};
use redb::{CompactionError, Database, StorageBackend};

use crate::changes::Changes;
use crate::disk::Disk;
use crate::error::{self, Fault, OpenError};
use crate::index::Index;
use crate::pages::Pages;
use crate::place::Place;
use crate::rows::BadRow;
use crate::snapshot::Snapshot;
use crate::tables::{self, LogReader};
use crate::upgrade;

/// Default of [`StoreConfig::cache_bytes`]. A broker with long queues is to
/// stay below 64 MiB, and the queues' indices need as much again.
pub const CACHE_BYTES_DEFAULT: usize = 12 * 1024 * 1024;

/// How long a store that could not be opened again, or a full disk, is left
/// alone before the next try. At least ten times what opening took.
pub const RETRY_AFTER: Duration = Duration::from_millis(100);

/// From this size on, every commit also saves redb's allocator state. That
/// costs a second sync and a few pages a commit, and spares the next start
/// after a kill from reading the whole file twice.
pub const QUICK_REPAIR_BYTES_MIN: u64 = 1024 * 1024 * 1024;

/// What an engine needs to know.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Name of the store in messages for people.
    pub path: PathBuf,
    /// Memory for cached pages, in bytes.
    pub cache_bytes: usize,
    /// Whether a commit waits for the disk.
    pub sync: bool,
    /// See [`QUICK_REPAIR_BYTES_MIN`].
    pub quick_repair_bytes_min: u64,
    /// See [`RETRY_AFTER`].
    pub retry_after: Duration,
}

impl EngineConfig {
    /// The defaults for a store of this name.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            cache_bytes: CACHE_BYTES_DEFAULT,
            sync: true,
            quick_repair_bytes_min: QUICK_REPAIR_BYTES_MIN,
            retry_after: RETRY_AFTER,
        }
    }
}

/// A store on disk, for one caller at a time.
pub struct Engine {
    place: Box<dyn Place>,
    config: EngineConfig,
    state: State,
    /// The reserve is spent: what needs space is refused until there is room
    /// for the reserve, which is looked for from this time on.
    full: Option<Instant>,
    /// The file was written to since it was compacted.
    loose: bool,
    /// What the last opening, or compacting, took.
    opening: Duration,
}

enum State {
    Up(Box<Up>),
    Down {
        error: StoreError,
        retry_at: Instant,
    },
}

struct Up {
    db: Database,
    index: Index,
    disk: Disk,
    /// Rows that could not be read.
    bad: u64,
}

impl Engine {
    /// Opens the store at `place`, and again when it failed.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        place: impl Place + 'static,
        config: EngineConfig,
    ) -> Result<(Self, Recovered), OpenError> {
        let started = Instant::now();
        let mut place: Box<dyn Place> = Box::new(place);
        let mut opened = open_up(place.as_mut(), &config);
        if matches!(&opened, Err(fault) if fault.is_full()) {
            // Repairing takes some space.
            place.spend();
            opened = open_up(place.as_mut(), &config);
        }
        let (up, recovered) = opened.map_err(|fault| fault.into_open_error(config.path.clone()))?;
        let full = lacks_room(place.as_mut()).then(Instant::now);
        let engine = Self {
            place,
            config,
            state: State::Up(Box::new(up)),
            full,
            opening: started.elapsed(),
            loose: false,
        };
        Ok((engine, recovered))
    }

    /// Commits a group of batches in one transaction; a verdict for each.
    ///
    /// When the disk is full, batches that only free space or change little
    /// are tried again without the others.
    pub fn write(&mut self, batches: &[Batch]) -> Vec<Result<(), StoreError>> {
        let mut verdicts: Vec<_> = batches.iter().map(Batch::check).collect();
        if self.is_full() {
            refuse_growth(batches, &mut verdicts, &StoreError::DiskFull);
        }
        let Err(error) = self.try_group(batches, &verdicts) else {
            return verdicts;
        };
        if error == StoreError::DiskFull {
            refuse_growth(batches, &mut verdicts, &error);
            self.place.spend();
            self.full = Some(Instant::now() + self.patience());
            let Err(error) = self.try_group(batches, &verdicts) else {
                return verdicts;
            };
            refuse(&mut verdicts, &error);
        } else {
            refuse(&mut verdicts, &error);
        }
        verdicts
    }

    /// Commits all of these batches in one transaction, or none of them, however little
    /// room there is.
    ///
    /// # Errors
    /// What the disk says.
    pub fn write_all(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        let verdicts = vec![Ok(()); batches.len()];
        self.try_group(batches, &verdicts)
    }

    /// Makes everything committed survive a power cut.
    ///
    /// # Errors
    /// What the disk says.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        let synced = self.up()?.disk.force_sync();
        synced.map_err(|error| self.fail(&Fault::Io(error)))
    }

    /// Reads queued messages as of the last commit. A message whose checksum is
    /// wrong is not there, and logged.
    ///
    /// # Errors
    /// What the disk says.
    pub fn load(&mut self, seqs: &[Seq]) -> Result<Vec<LoadedMessage>, StoreError> {
        let reader = self.reader()?;
        load(&reader, seqs, &mut |_| {})
    }

    /// Rows that could not be read when the store was opened last.
    #[must_use]
    pub fn damaged_rows(&self) -> u64 {
        match &self.state {
            State::Up(up) => up.bad,
            State::Down { .. } => 0,
        }
    }

    /// Everything as of the last commit, as [`Engine::open`] finds it, and how many rows
    /// cannot be read. Does not look at pages that have no row.
    ///
    /// # Errors
    /// What the disk says.
    pub fn recovered(&mut self) -> Result<(Recovered, u64), StoreError> {
        match tables::scan(&self.up()?.db) {
            Ok((_, recovered, bad)) => Ok((recovered, bad.count)),
            Err(fault) => Err(self.fail(&fault)),
        }
    }

    /// A view of everything as of the last commit.
    ///
    /// # Errors
    /// What the disk says.
    pub fn snapshot(&mut self) -> Result<Snapshot, StoreError> {
        match Snapshot::new(&self.up()?.db) {
            Ok(snapshot) => Ok(snapshot),
            Err(fault) => Err(self.fail(&fault)),
        }
    }

    /// A view of the queued messages as of the last commit, for another
    /// thread.
    pub(crate) fn reader(&mut self) -> Result<LogReader, StoreError> {
        match LogReader::new(&self.up()?.db) {
            Ok(reader) => Ok(reader),
            Err(Fault::Closed) => {
                self.fail(&Fault::Closed);
                let reader = LogReader::new(&self.up()?.db);
                reader.map_err(|fault| self.fail(&fault))
            }
            Err(fault) => Err(self.fail(&fault)),
        }
    }

    fn is_full(&mut self) -> bool {
        let Some(look_from) = self.full else {
            return false;
        };
        let now = Instant::now();
        if now < look_from {
            return true;
        }
        if core::mem::take(&mut self.loose) {
            self.compact();
        }
        let full = lacks_room(self.place.as_mut());
        self.full = full.then(|| Instant::now() + self.patience());
        full
    }

    /// Gives free pages of the file back to the disk, where the reserve can
    /// have them. Costs what moving the used ones costs, so it is for a full
    /// disk only.
    fn compact(&mut self) {
        let started = Instant::now();
        let Ok(up) = self.up() else {
            return;
        };
        match up.db.compact() {
            Ok(_) | Err(CompactionError::TransactionInProgress) => {}
            Err(error) => {
                self.fail(&redb::Error::from(error).into());
            }
        }
        self.opening = started.elapsed();
    }

    fn patience(&self) -> Duration {
        /// A store that takes long to open is opened in vain less often.
        const OPENINGS: u32 = 10;
        self.config
            .retry_after
            .max(self.opening.saturating_mul(OPENINGS))
            .min(self.config.retry_after.saturating_mul(100))
    }

    /// Commits the batches that nothing is held against.
    fn try_group(
        &mut self,
        batches: &[Batch],
        verdicts: &[Result<(), StoreError>],
    ) -> Result<(), StoreError> {
        let wanted = || {
            let good = verdicts.iter().map(Result::is_ok);
            batches
                .iter()
                .zip(good)
                .filter_map(|(b, ok)| ok.then_some(b))
        };
        if wanted().next().is_none() {
            return Ok(());
        }
        self.loose = true;
        let quick_repair_from = self.config.quick_repair_bytes_min;
        let mut last = None;
        // Twice: a failed read that was not reported leaves a database that
        // refuses everything until it is opened again.
        for _ in 0..2 {
            let up = self.up()?;
            let quick_repair = up.disk.bytes() >= quick_repair_from;
            // A damaged file can make redb panic: that is an answer too.
            let commit = AssertUnwindSafe(|| commit(up, wanted(), quick_repair));
            let fault = match catch_unwind(commit) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(fault)) => fault,
                Err(_) => Fault::panicked(),
            };
            let closed = matches!(fault, Fault::Closed);
            last = Some(self.fail(&fault));
            if !closed {
                break;
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// The database, opened again if it had to be given up.
    fn up(&mut self) -> Result<&mut Up, StoreError> {
        if let State::Down { error, retry_at } = &self.state {
            if Instant::now() < *retry_at {
                return Err(error.clone());
            }
            let started = Instant::now();
            match open_up(self.place.as_mut(), &self.config) {
                Ok((up, _)) => {
                    self.opening = started.elapsed();
                    self.state = State::Up(Box::new(up));
                }
                Err(fault) => {
                    let error = fault.to_store_error();
                    self.state = State::Down {
                        error: error.clone(),
                        retry_at: Instant::now() + self.patience(),
                    };
                    return Err(error);
                }
            }
        }
        match &mut self.state {
            State::Up(up) => Ok(up),
            State::Down { error, .. } => Err(error.clone()),
        }
    }

    /// Gives the database up; the next request opens it again. The index is
    /// read again then, so it never claims what the file does not hold.
    fn fail(&mut self, fault: &Fault) -> StoreError {
        let error = fault.to_store_error();
        self.state = State::Down {
            error: error.clone(),
            retry_at: Instant::now(),
        };
        error
    }
}

/// Whether the reserve cannot be held for want of space. Without a reserve for
/// another reason, the store does without.
fn lacks_room(place: &mut dyn Place) -> bool {
    place.hold().is_err_and(|error| error::is_full(&error))
}

/// Reads messages through a view; those that cannot be read go to `bad`.
pub(crate) fn load(
    reader: &LogReader,
    seqs: &[Seq],
    bad: &mut dyn FnMut(&BadRow),
) -> Result<Vec<LoadedMessage>, StoreError> {
    let one = |seq: &Seq| match reader.get(*seq) {
        Err(Fault::Row(row)) => {
            tracing::error!("the store is damaged, and a message lost: {row}");
            bad(&row);
            Ok((*seq, None))
        }
        found => {
            let found = found?;
            if found.is_none() {
                // A damaged page can lead past a row that is there.
                tracing::warn!("message {} is wanted and not in the store", seq.0);
            }
            Ok((*seq, found))
        }
    };
    // A damaged file can make redb panic: that is an answer too.
    let all = AssertUnwindSafe(|| seqs.iter().map(one).collect());
    let all: Result<_, Fault> = catch_unwind(all).unwrap_or_else(|_| Err(Fault::panicked()));
    all.map_err(|fault| fault.to_store_error())
}

fn open_up(place: &mut dyn Place, config: &EngineConfig) -> Result<(Up, Recovered), Fault> {
    let disk = Disk::new(place.open()?, config.sync);
    let open = || {
        verify(&disk, config)?;
        let db = Database::builder()
            .set_cache_size(config.cache_bytes)
            .create_with_backend(disk.clone())?;
        upgrade::prepare(&db)?;
        let (index, recovered, bad) = tables::scan(&db)?;
        for row in &bad.described {
            tracing::error!(store = %config.path.display(), "damaged, and left out: {row}");
        }
        Ok((db, index, recovered, bad.count))
    };
    let (db, index, recovered, bad) =
        catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|_| Err(Fault::panicked()))?;
    let up = Up {
        db,
        index,
        disk,
        bad,
    };
    Ok((up, recovered))
}

/// Looks at every page of a file that is not new.
fn verify(disk: &Disk, config: &EngineConfig) -> Result<(), Fault> {
    if disk.len()? == 0 {
        return Ok(());
    }
    let pages = Pages::open(disk)?;
    if !pages.is_sound() {
        return Err(Fault::Damaged(pages.damage.to_string()));
    }
    if pages.rolled_back {
        tracing::warn!(
            store = %config.path.display(),
            "the last commit is not whole; the one before it is used"
        );
    }
    Ok(())
}

fn commit<'a>(
    up: &mut Up,
    batches: impl Iterator<Item = &'a Batch>,
    quick_repair: bool,
) -> Result<(), Fault> {
    let mut txn = up.db.begin_write()?;
    txn.set_quick_repair(quick_repair);
    let mut changes = Changes::default();
    let is_stored = |seq| tables::is_stored(&txn, seq);
    for op in batches.flat_map(|batch| &batch.ops) {
        changes.add(op, &mut up.index, &is_stored)?;
    }
    if changes.is_empty() {
        txn.abort()?;
        return Ok(());
    }
    tables::write(&txn, &changes, &up.index)?;
    txn.commit()?;
    Ok(())
}

fn refuse(verdicts: &mut [Result<(), StoreError>], error: &StoreError) {
    for verdict in verdicts.iter_mut().filter(|v| v.is_ok()) {
        *verdict = Err(error.clone());
    }
}

/// Refuses the batches that need space worth the name.
fn refuse_growth(batches: &[Batch], verdicts: &mut [Result<(), StoreError>], error: &StoreError) {
    let grows = |op: &StoreOp| {
        matches!(
            op,
            StoreOp::Enqueue { .. } | StoreOp::PutRetained { .. } | StoreOp::PutMeta { .. }
        )
    };
    for (batch, verdict) in batches.iter().zip(verdicts) {
        if verdict.is_ok() && batch.ops.iter().any(grows) {
            *verdict = Err(error.clone());
        }
    }
}
