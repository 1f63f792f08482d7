//! The tables of a new file, and files of former releases, rewritten when they are
//! opened. Knows how they differ from those of this release, and nothing else.
//!
//! Format 1 had no checksums, and values without a version in five tables, three
//! of them of a fixed width.

use redb::{Database, Key, ReadableTable, TableDefinition, Value, WriteTransaction};

use crate::error::Fault;
use crate::rows::{CHECKSUM_BYTES, Table};
use crate::tables::{
    Bytewise, FORMAT, INBOUND, INFLIGHT, LOG, MARKS, META, RETAINED, SESSIONS, SUBSCRIPTIONS,
};

/// Version of the layout that this release writes.
const FORMAT_VERSION: u64 = 2;

/// Rows of `log` that are in memory at once.
const LOG_ROWS: usize = 256;

const OLD_SUBSCRIPTIONS: TableDefinition<'_, Bytewise, [u8; 6]> =
    TableDefinition::new("subscriptions");
const OLD_INFLIGHT: TableDefinition<'_, [u8; 10], [u8; 9]> = TableDefinition::new("inflight");
const OLD_INBOUND: TableDefinition<'_, [u8; 10], ()> = TableDefinition::new("inbound");

/// Version of the values that had none.
const FIRST_VERSION: u8 = 1;

type Sealed = (Vec<u8>, Vec<u8>);

/// Makes sure that all tables exist and that the layout is that of this
/// release: one of a former release is rewritten, in one transaction.
pub(crate) fn prepare(db: &Database) -> Result<(), Fault> {
    let txn = db.begin_write()?;
    let found = txn.open_table(FORMAT)?.get("version")?.map(|v| v.value());
    match found {
        Some(FORMAT_VERSION) => {
            txn.abort()?;
            return Ok(());
        }
        Some(1) => from_format_1(&txn)?,
        Some(found) => return Err(Fault::Format(found)),
        None => {}
    }
    txn.open_table(FORMAT)?.insert("version", FORMAT_VERSION)?;
    txn.open_table(LOG)?;
    txn.open_table(MARKS)?;
    txn.open_table(SESSIONS)?;
    txn.open_table(SUBSCRIPTIONS)?;
    txn.open_table(INFLIGHT)?;
    txn.open_table(INBOUND)?;
    txn.open_table(RETAINED)?;
    txn.open_table(META)?;
    txn.commit()?;
    Ok(())
}

/// Gives every value of a file of format 1 a version and a checksum.
fn from_format_1(txn: &WriteTransaction) -> Result<(), Fault> {
    log(txn)?;
    rewrite(txn, Table::Sessions, SESSIONS, SESSIONS)?;
    rewrite(txn, Table::Marks, MARKS, MARKS)?;
    rewrite(txn, Table::Retained, RETAINED, RETAINED)?;
    rewrite(txn, Table::Meta, META, META)?;
    let (table, old) = (Table::Subscriptions, OLD_SUBSCRIPTIONS);
    rewrite(txn, table, old, SUBSCRIPTIONS)?;
    rewrite(txn, Table::Inflight, OLD_INFLIGHT, INFLIGHT)?;
    rewrite(txn, Table::Inbound, OLD_INBOUND, INBOUND)
}

/// Replaces a table by one with the same keys.
fn rewrite<K: Key + 'static, V: Value + 'static>(
    txn: &WriteTransaction,
    table: Table,
    old: TableDefinition<'_, K, V>,
    new: TableDefinition<'_, K, Bytewise>,
) -> Result<(), Fault> {
    let rows = sealed(txn, table, old)?;
    txn.delete_table(old)?;
    let mut table = txn.open_table(new)?;
    for (key, value) in &rows {
        table.insert(K::from_bytes(key), value.as_slice())?;
    }
    Ok(())
}

/// All rows of a table, with the values that they get.
fn sealed<K: Key + 'static, V: Value + 'static>(
    txn: &WriteTransaction,
    table: Table,
    definition: TableDefinition<'_, K, V>,
) -> Result<Vec<Sealed>, Fault> {
    let mut rows = Vec::new();
    for row in txn.open_table(definition)?.iter()? {
        let (key, value) = row?;
        let (key, value) = (key.value(), value.value());
        let key = K::as_bytes(&key).as_ref().to_vec();
        let mut value = value_of_format_1(table, V::as_bytes(&value).as_ref());
        table.seal(&key, &mut value);
        rows.push((key, value));
    }
    Ok(rows)
}

/// The one table that can be larger than memory: some rows at a time.
fn log(txn: &WriteTransaction) -> Result<(), Fault> {
    let mut table = txn.open_table(LOG)?;
    let mut from = 0;
    loop {
        let mut rows = Vec::new();
        for row in table.range(from..)?.take(LOG_ROWS) {
            let (key, value) = row?;
            let mut value = value_of_format_1(Table::Log, value.value());
            Table::Log.seal(&key.value().to_le_bytes(), &mut value);
            rows.push((key.value(), value));
        }
        let Some((last, _)) = rows.last() else {
            return Ok(());
        };
        let next = last.checked_add(1);
        for (key, value) in &rows {
            table.insert(key, value.as_slice())?;
        }
        match next {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

/// The value of format 2, without its checksum, for a value of format 1.
pub(crate) fn value_of_format_1(table: Table, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + value.len() + CHECKSUM_BYTES);
    if !matches!(table, Table::Log | Table::Sessions | Table::Retained) {
        out.push(FIRST_VERSION);
    }
    out.extend_from_slice(value);
    out
}
