//! All of an open store as of one commit, read while others are made. As long as
//! it is held, the file cannot use the space of what it shows again.

use dunlin_store::StoreError;
use redb::{Database, ReadTransaction, ReadableDatabase};

use crate::error::Fault;
use crate::ops::Ops;
use crate::report::{Report, Sink, TableReport};
use crate::rows::{BadRows, Table};
use crate::tables;

/// A view of a store.
pub struct Snapshot(ReadTransaction);

impl core::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(crate) fn new(db: &Database) -> Result<Self, Fault> {
        Ok(Self(db.begin_read()?))
    }

    /// Hands what the store amounts to to `sink`. What cannot be read is in the
    /// report.
    ///
    /// # Errors
    /// What the disk or `sink` says.
    pub fn read(&self, sink: &mut Sink<'_>) -> Result<Report, StoreError> {
        let mut ops = Ops::default();
        let mut bad = BadRows::default();
        let mut report = Report::default();
        for table in Table::ALL {
            let mut rows = 0;
            let before = bad.count;
            let mut failed = None;
            let read = tables::each_of(&self.0, table, &mut bad, |key, value| {
                let op = ops.read(table, key, value)?;
                rows += 1;
                if let (Some(op), None) = (op, &failed) {
                    failed = sink(op).err();
                }
                Ok(())
            });
            read.map_err(|fault| fault.to_store_error())?;
            if let Some(error) = failed {
                return Err(Fault::Io(error).to_store_error());
            }
            report.tables.push(TableReport {
                name: table.name(),
                rows,
                lost: bad.count - before,
            });
        }
        report.damage = bad.described;
        Ok(report)
    }
}
