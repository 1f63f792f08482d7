//! What reading a whole store finds, as values.

use std::io;

use dunlin_store::StoreOp;

/// Takes what is read, one operation after another.
pub type Sink<'a> = dyn FnMut(StoreOp) -> io::Result<()> + 'a;

/// What was found in a store.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The tables, with the rows that were read.
    pub tables: Vec<TableReport>,
    /// What is wrong, each in words; of very many the first.
    pub damage: Vec<String>,
    /// Pages that are not as they were written.
    pub damaged_pages: u64,
    /// Those of them in which one bit was wrong, so that nothing of them is lost.
    pub corrected_pages: u64,
    /// The last commit was not whole, as after a power cut, and the one before
    /// it is used. That is no damage.
    pub rolled_back: bool,
}

/// One table of a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableReport {
    /// Its name.
    pub name: &'static str,
    /// Rows read.
    pub rows: u64,
    /// Rows that should be there and cannot be read.
    pub lost: u64,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damaged_pages == 0 && self.lost() == 0 && self.damage.is_empty()
    }

    /// Rows that cannot be read.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.tables.iter().map(|table| table.lost).sum()
    }

    /// Rows that were read.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}
