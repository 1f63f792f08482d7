//! A store that is not open: what is wrong with it, everything in it that can be
//! read, and a whole file with that in its place. Works on files that redb
//! refuses.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_store::{Batch, StoreOp};
use redb::StorageBackend;
use redb::backends::FileBackend;

use crate::codec;
use crate::engine::{Engine, EngineConfig};
use crate::error::{Fault, OpenError};
use crate::file::{self, FilePlace};
use crate::import::{Import, OPS_MAX, store_error};
use crate::ops::Ops;
use crate::pages::{Pages, RawRow};
use crate::report::{Report, Sink, TableReport};
use crate::rows::{BadRow, BadRows, Table};
use crate::upgrade;

/// A store that is not open, and that no other process opens as long as this is held.
pub struct Stopped {
    path: PathBuf,
    lock: Arc<file::Lock>,
}

dunlin_base::opaque_debug!(Stopped);

impl Stopped {
    /// Takes the store in the file `path` for this process.
    ///
    /// # Errors
    /// It is in use, or its lock cannot be had.
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        let lock = Arc::new(file::lock(path)?);
        let path = path.to_owned();
        Ok(Self { path, lock })
    }

    /// As [`read`].
    ///
    /// # Errors
    /// As those of [`read`].
    pub fn read(&self, sink: &mut Sink<'_>) -> Result<Report, OpenError> {
        read_locked(&self.path, sink)
    }

    /// Deletes named values, and waits for the disk. Those that are not there are left.
    ///
    /// # Errors
    /// See [`OpenError`]; some may be deleted then.
    pub fn delete_values(&self, names: &[Text]) -> Result<(), OpenError> {
        let io_error = |error| OpenError::Io {
            path: self.path.clone(),
            error,
        };
        let place = FilePlace::new(&self.path, 0, Arc::clone(&self.lock));
        let (mut engine, _) = Engine::open(place, EngineConfig::new(&self.path))?;
        for names in names.chunks(OPS_MAX) {
            let delete = |name: &Text| StoreOp::DeleteMeta { key: name.clone() };
            let ops = names.iter().map(delete).collect();
            let verdicts = engine.write(&[Batch { token: 0, ops }]);
            let written = verdicts.into_iter().collect::<Result<(), _>>();
            written.map_err(|error| io_error(store_error(error)))?;
        }
        Ok(())
    }
}

/// Reads the whole store in the file `path` and hands what it amounts to to
/// `sink`; what cannot be read is in the report. Changes nothing.
///
/// # Errors
/// The file cannot be read, is in use, or is not a store; what `sink` fails with.
pub fn read(path: &Path, sink: &mut Sink<'_>) -> Result<Report, OpenError> {
    let _lock = file::lock(path)?;
    read_locked(path, sink)
}

fn read_locked(path: &Path, sink: &mut Sink<'_>) -> Result<Report, OpenError> {
    let open_error = |error: io::Error| Fault::from(error).into_open_error(path.to_owned());
    file::refuse_empty(path)?;
    let file = File::open(path).map_err(open_error)?;
    let file = FileBackend::new(file).map_err(|e| open_error(io::Error::other(e)))?;
    read_pages(&file, sink).map_err(open_error)
}

fn read_pages(file: &dyn StorageBackend, sink: &mut Sink<'_>) -> io::Result<Report> {
    let mut pages = Pages::open(file)?;
    let format = format_of(&mut pages)?;
    let mut ops = Ops::default();
    let mut bad = BadRows::default();
    let mut tables = Vec::new();
    for table in Table::ALL {
        let mut rows = 0;
        let expected = pages.rows(table.name(), &mut |row| match read_row(
            table, format, &row, &mut ops,
        ) {
            Ok(op) => {
                rows += 1;
                op.map_or(Ok(()), &mut *sink)
            }
            Err(row) => {
                bad.push(&row);
                Ok(())
            }
        })?;
        tables.push(TableReport {
            name: table.name(),
            rows,
            lost: expected.saturating_sub(rows),
        });
    }
    let mut damage = core::mem::take(&mut pages.damage.described);
    damage.append(&mut bad.described);
    Ok(Report {
        tables,
        damage,
        damaged_pages: pages.damage.pages,
        corrected_pages: pages.damage.corrected,
        rolled_back: pages.rolled_back,
    })
}

/// The version of the layout; of a file that does not say it, the newest,
/// because its checksums tell.
fn format_of(pages: &mut Pages<'_>) -> io::Result<u64> {
    let mut format = None;
    pages.rows("format", &mut |row| {
        format = row.value.try_into().ok().map(u64::from_le_bytes);
        Ok(())
    })?;
    match format {
        Some(1) => Ok(1),
        None | Some(2) => Ok(2),
        Some(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it has a format that this release does not know",
        )),
    }
}

fn read_row(
    table: Table,
    format: u64,
    row: &RawRow<'_>,
    ops: &mut Ops,
) -> Result<Option<StoreOp>, BadRow> {
    let old;
    let value = if format == 2 {
        table.unseal(row.key, row.value)?
    } else if row.trusted {
        old = upgrade::value_of_format_1(table, row.value);
        &old
    } else {
        // Without a checksum of its own, only its page could vouch for it.
        return Err(table.bad(row.key, codec::DecodeError::Checksum));
    };
    ops.read(table, row.key, value)
        .map_err(|error| table.bad(row.key, error))
}

/// Writes what can be read of the store in the file `path` into a new file,
/// which takes its place. The old file is kept under the name returned.
///
/// # Errors
/// The file cannot be read, is in use, or is not a store; there is no space for
/// the new one. Nothing is changed then.
pub fn repair(path: &Path) -> Result<(Report, PathBuf), OpenError> {
    let _lock = file::lock(path)?;
    repair_locked(path)
}

/// As [`repair`], by the owner of the lock.
pub(crate) fn repair_locked(path: &Path) -> Result<(Report, PathBuf), OpenError> {
    let io_error = |error| OpenError::Io {
        path: path.to_owned(),
        error,
    };
    // The new file takes the place of what a symbolic link leads to, not of the link.
    let path = &std::fs::canonicalize(path).map_err(io_error)?;
    let mut import = Import::beside(path)?;
    let report = read_locked(path, &mut |op| import.push(op))?;
    let new = import.finish().map_err(io_error)?;
    let kept = file::replace(path, &new).map_err(io_error)?;
    Ok((report, kept))
}
