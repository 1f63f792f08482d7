//! All of an open store as of one commit, read while others are made. As long as
//! it is held, the file cannot use the space of what it shows again.

use dunlin_store::{StoreError, StoreOp};
use redb::{Database, ReadTransaction, ReadableDatabase};

use crate::error::Fault;
use crate::ops::Ops;
use crate::report::{Report, Sink, TableReport};
use crate::rows::{BadRows, Table};
use crate::tables;

/// A view of a store.
pub struct Snapshot {
    of: ReadTransaction,
    /// A named value that is not shown.
    hidden: Option<&'static str>,
}

dunlin_base::opaque_debug!(Snapshot);

impl Snapshot {
    pub(crate) fn new(db: &Database) -> Result<Self, Fault> {
        let of = db.begin_read()?;
        Ok(Self { of, hidden: None })
    }

    /// Without the value of this name, which is the caller's own.
    #[must_use]
    pub fn without(self, name: &'static str) -> Self {
        Self {
            hidden: Some(name),
            ..self
        }
    }

    fn is_hidden(&self, op: &StoreOp) -> bool {
        matches!((op, self.hidden), (StoreOp::PutMeta { key, .. }, Some(name)) if key == name)
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
            let read = tables::each_of(&self.of, table, &mut bad, |key, value| {
                let op = ops.read(table, key, value)?;
                if op.as_ref().is_some_and(|op| self.is_hidden(op)) {
                    return Ok(());
                }
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
