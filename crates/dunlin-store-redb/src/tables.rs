//! The tables of the file: writing changes into a transaction, and reading
//! everything back at start.

use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin_base::Message;
use dunlin_store::{QueuedRef, Recovered, RecoveredSession, Seq, Target};
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};

use crate::changes::Changes;
use crate::codec::{self, DecodeError};
use crate::error::Fault;
use crate::index::Index;
use crate::rows::{BadRows, Table};

pub(crate) type Bytewise = &'static [u8];
type Definition<K> = TableDefinition<'static, K, Bytewise>;

pub(crate) const FORMAT: TableDefinition<'_, &str, u64> = TableDefinition::new("format");
pub(crate) const LOG: Definition<u64> = TableDefinition::new("log");
pub(crate) const MARKS: Definition<[u8; 16]> = TableDefinition::new("marks");
pub(crate) const SESSIONS: Definition<u64> = TableDefinition::new("sessions");
pub(crate) const SUBSCRIPTIONS: Definition<Bytewise> = TableDefinition::new("subscriptions");
pub(crate) const INFLIGHT: Definition<[u8; 10]> = TableDefinition::new("inflight");
pub(crate) const INBOUND: Definition<[u8; 10]> = TableDefinition::new("inbound");
pub(crate) const RETAINED: Definition<Bytewise> = TableDefinition::new("retained");
pub(crate) const META: Definition<Bytewise> = TableDefinition::new("meta");

/// Whether the transaction sees this row of `log`.
pub(crate) fn is_stored(txn: &WriteTransaction, seq: u64) -> Result<bool, Fault> {
    Ok(txn.open_table(LOG)?.get(seq)?.is_some())
}

/// Writes what a group amounts to.
pub(crate) fn write(
    txn: &WriteTransaction,
    changes: &Changes<'_>,
    index: &Index,
) -> Result<(), Fault> {
    write_log(txn, changes, index)?;
    write_sessions(txn, changes)?;
    write_packet_ids(txn, changes)?;
    if !changes.retained.is_empty() {
        let mut table = txn.open_table(RETAINED)?;
        let mut value = Vec::new();
        for (topic, message) in &changes.retained {
            if let Some(message) = message {
                value.clear();
                codec::encode_message(message, &mut value);
                Table::Retained.seal(topic.as_bytes(), &mut value);
                table.insert(topic.as_bytes(), value.as_slice())?;
            } else {
                table.remove(topic.as_bytes())?;
            }
        }
    }
    if !changes.meta.is_empty() {
        let mut table = txn.open_table(META)?;
        let mut sealed = Vec::new();
        for (key, value) in &changes.meta {
            if let Some(value) = value {
                sealed.clear();
                codec::encode_meta(value, &mut sealed);
                Table::Meta.seal(key.as_bytes(), &mut sealed);
                table.insert(key.as_bytes(), sealed.as_slice())?;
            } else {
                table.remove(key.as_bytes())?;
            }
        }
    }
    Ok(())
}

fn write_log(txn: &WriteTransaction, changes: &Changes<'_>, index: &Index) -> Result<(), Fault> {
    let mut value = Vec::new();
    if !changes.log.is_empty() {
        let mut table = txn.open_table(LOG)?;
        for (seq, message) in &changes.log {
            if let Some(new) = message {
                value.clear();
                let targets = new.live_targets(*seq, index);
                codec::encode_log(new.message, &targets, &mut value);
                Table::Log.seal(&seq.to_le_bytes(), &mut value);
                table.insert(seq, value.as_slice())?;
            } else {
                table.remove(seq)?;
            }
        }
    }
    if changes.marks.is_empty() && changes.unmarked.is_empty() {
        return Ok(());
    }
    let mut table = txn.open_table(MARKS)?;
    for seq in &changes.unmarked {
        let all = codec::mark_key(*seq, 0)..=codec::mark_key(*seq, u64::MAX);
        table.retain_in(all, |_, _| false)?;
    }
    for ((seq, session), target) in &changes.marks {
        let key = codec::mark_key(*seq, *session);
        value.clear();
        codec::encode_mark(*target, &mut value);
        Table::Marks.seal(&key, &mut value);
        table.insert(key, value.as_slice())?;
    }
    Ok(())
}

fn write_sessions(txn: &WriteTransaction, changes: &Changes<'_>) -> Result<(), Fault> {
    if !changes.sessions.is_empty() {
        let mut table = txn.open_table(SESSIONS)?;
        let mut value = Vec::new();
        for (key, record) in &changes.sessions {
            if let Some(record) = record {
                value.clear();
                codec::encode_record(record, &mut value);
                Table::Sessions.seal(&key.to_le_bytes(), &mut value);
                table.insert(key, value.as_slice())?;
            } else {
                table.remove(key)?;
            }
        }
    }
    if changes.subscriptions.is_empty() && changes.cleared.is_empty() {
        return Ok(());
    }
    let mut table = txn.open_table(SUBSCRIPTIONS)?;
    for session in &changes.cleared {
        let from = session.to_be_bytes();
        if let Some(next) = session.checked_add(1) {
            let to = next.to_be_bytes();
            table.retain_in(from.as_slice()..to.as_slice(), |_, _| false)?;
        } else {
            table.retain_in(from.as_slice().., |_, _| false)?;
        }
    }
    let mut value = Vec::new();
    for ((session, filter), subscription) in &changes.subscriptions {
        let key = codec::subscription_key(*session, filter);
        if let Some((options, identifier)) = subscription {
            value.clear();
            codec::encode_subscription(*options, *identifier, &mut value);
            Table::Subscriptions.seal(&key, &mut value);
            table.insert(key.as_slice(), value.as_slice())?;
        } else {
            table.remove(key.as_slice())?;
        }
    }
    Ok(())
}

fn write_packet_ids(txn: &WriteTransaction, changes: &Changes<'_>) -> Result<(), Fault> {
    let of_session = |s: u64| codec::packet_key(s, 0)..=codec::packet_key(s, u16::MAX);
    let mut value = Vec::new();
    if !changes.inflight.is_empty() || !changes.cleared.is_empty() {
        let mut table = txn.open_table(INFLIGHT)?;
        for session in &changes.cleared {
            table.retain_in(of_session(*session), |_, _| false)?;
        }
        for ((session, id), delivery) in &changes.inflight {
            let key = codec::packet_key(*session, *id);
            if let Some((seq, state)) = delivery {
                value.clear();
                codec::encode_inflight(*seq, *state, &mut value);
                Table::Inflight.seal(&key, &mut value);
                table.insert(key, value.as_slice())?;
            } else {
                table.remove(key)?;
            }
        }
    }
    if !changes.inbound.is_empty() || !changes.cleared.is_empty() {
        let mut table = txn.open_table(INBOUND)?;
        for session in &changes.cleared {
            table.retain_in(of_session(*session), |_, _| false)?;
        }
        for ((session, id), used) in &changes.inbound {
            let key = codec::packet_key(*session, *id);
            if *used {
                value.clear();
                codec::encode_inbound(&mut value);
                Table::Inbound.seal(&key, &mut value);
                table.insert(key, value.as_slice())?;
            } else {
                table.remove(key)?;
            }
        }
    }
    Ok(())
}

/// Queued messages as of one commit.
pub(crate) struct LogReader {
    table: ReadOnlyTable<u64, Bytewise>,
}

impl LogReader {
    /// Reads as of the last commit.
    pub(crate) fn new(db: &Database) -> Result<Self, Fault> {
        let table = db.begin_read()?.open_table(LOG)?;
        Ok(Self { table })
    }

    /// One message, if it is stored.
    pub(crate) fn get(&self, seq: Seq) -> Result<Option<Arc<Message>>, Fault> {
        let Some(sealed) = self.table.get(seq.0)? else {
            return Ok(None);
        };
        let key = seq.0.to_le_bytes();
        let value = Table::Log.unseal(&key, sealed.value())?;
        let message = codec::decode_log_message(value).map_err(|e| Table::Log.bad(&key, e))?;
        Ok(Some(message))
    }
}

/// Hands the rows of a table to `row`: key, and value without its checksum.
/// Rows that cannot be read are written down in `bad`.
fn each<K: redb::Key + 'static>(
    txn: &ReadTransaction,
    table: Table,
    definition: Definition<K>,
    bad: &mut BadRows,
    mut row: impl FnMut(&[u8], &[u8]) -> Result<(), DecodeError>,
) -> Result<(), Fault> {
    for found in txn.open_table(definition)?.iter()? {
        let (key, sealed) = found?;
        let key = key.value();
        let key = K::as_bytes(&key);
        let read = table.unseal(key.as_ref(), sealed.value());
        let read = read.and_then(|value| {
            row(key.as_ref(), value).map_err(|error| table.bad(key.as_ref(), error))
        });
        if let Err(row) = read {
            bad.push(&row);
        }
    }
    Ok(())
}

/// Hands out the rows of any table, as [`each`].
pub(crate) fn each_of(
    txn: &ReadTransaction,
    table: Table,
    bad: &mut BadRows,
    row: impl FnMut(&[u8], &[u8]) -> Result<(), DecodeError>,
) -> Result<(), Fault> {
    match table {
        Table::Log => each(txn, table, LOG, bad, row),
        Table::Marks => each(txn, table, MARKS, bad, row),
        Table::Sessions => each(txn, table, SESSIONS, bad, row),
        Table::Subscriptions => each(txn, table, SUBSCRIPTIONS, bad, row),
        Table::Inflight => each(txn, table, INFLIGHT, bad, row),
        Table::Inbound => each(txn, table, INBOUND, bad, row),
        Table::Retained => each(txn, table, RETAINED, bad, row),
        Table::Meta => each(txn, table, META, bad, row),
    }
}

/// Reads everything but the payloads of queued messages, in one pass over each
/// table. Rows that cannot be read are left where they are, and written down.
pub(crate) fn scan(db: &Database) -> Result<(Index, Recovered, BadRows), Fault> {
    let txn = db.begin_read()?;
    let mut scan = Scan::default();
    scan.sessions(&txn)?;
    scan.log(&txn)?;
    let mut recovered = Recovered::default();
    let bad = &mut scan.bad;
    each(&txn, Table::Retained, RETAINED, bad, |_, value| {
        recovered.retained.push(codec::decode_message(value)?);
        Ok(())
    })?;
    each(&txn, Table::Meta, META, bad, |key, value| {
        let row = (codec::decode_text(key)?, codec::decode_meta(value)?);
        recovered.meta.push(row);
        Ok(())
    })?;
    recovered.last_seq = scan.last_seq;
    recovered.next_session = scan.sessions.keys().next_back().map_or(0, |key| key + 1);
    recovered.sessions = scan.sessions.into_values().collect();
    Ok((scan.index, recovered, scan.bad))
}

#[derive(Default)]
struct Scan {
    index: Index,
    sessions: BTreeMap<u64, RecoveredSession>,
    last_seq: Seq,
    bad: BadRows,
}

impl Scan {
    fn sessions(&mut self, txn: &ReadTransaction) -> Result<(), Fault> {
        let Self {
            index,
            sessions,
            last_seq,
            bad,
        } = self;
        each(txn, Table::Sessions, SESSIONS, bad, |key, value| {
            let session = RecoveredSession {
                key: codec::decode_session_key(key)?,
                record: codec::decode_record(value)?,
                ..RecoveredSession::default()
            };
            index.create(session.key.0);
            sessions.insert(session.key.0, session);
            Ok(())
        })?;
        each(
            txn,
            Table::Subscriptions,
            SUBSCRIPTIONS,
            bad,
            |key, value| {
                let (key, filter) = codec::split_subscription_key(key)?;
                let (options, identifier) = codec::decode_subscription(value)?;
                if let Some(session) = sessions.get_mut(&key) {
                    session.subscriptions.push((filter, options, identifier));
                }
                Ok(())
            },
        )?;
        each(txn, Table::Inflight, INFLIGHT, bad, |key, value| {
            let (key, packet_id) = codec::decode_packet_key(key)?;
            let (seq, state) = codec::decode_inflight(value)?;
            if let Some(session) = sessions.get_mut(&key) {
                session.inflight.push((packet_id, seq, state));
                *last_seq = seq.max(*last_seq);
            }
            Ok(())
        })?;
        each(txn, Table::Inbound, INBOUND, bad, |key, value| {
            let (key, packet_id) = codec::decode_packet_key(key)?;
            codec::decode_inbound(value)?;
            if let Some(session) = sessions.get_mut(&key) {
                session.inbound.push(packet_id);
            }
            Ok(())
        })
    }

    /// `log` and `marks` are both in the order of `seq`: read side by side.
    fn log(&mut self, txn: &ReadTransaction) -> Result<(), Fault> {
        let marks = txn.open_table(MARKS)?;
        let mut marks = marks.iter()?;
        let mut bad = BadRows::default();
        let mut mark = next_mark(&mut marks, &mut bad)?;
        for row in txn.open_table(LOG)?.iter()? {
            let (seq, sealed) = row?;
            let seq = Seq(seq.value());
            let key = seq.0.to_le_bytes();
            let head = Table::Log.unseal(&key, sealed.value()).and_then(|value| {
                codec::decode_log_head(value).map_err(|error| Table::Log.bad(&key, error))
            });
            let head = match head {
                Ok(head) => head,
                Err(row) => {
                    self.bad.push(&row);
                    continue;
                }
            };
            let mut targets: BTreeMap<u64, Target> = BTreeMap::new();
            let mut has_marks = false;
            let mut only = None;
            if head.targets.len() == 1 {
                only = head.targets.into_iter().next();
            } else {
                targets.extend(head.targets.into_iter().map(|t| (t.session.0, t)));
            }
            while let Some((at, session, target)) = mark.take_if(|(at, ..)| *at <= seq.0) {
                if at == seq.0 {
                    has_marks = true;
                    targets.extend(only.take().map(|t| (t.session.0, t)));
                    match target {
                        Some(target) => targets.insert(session, target),
                        None => targets.remove(&session),
                    };
                }
                mark = next_mark(&mut marks, &mut bad)?;
            }
            let mut live = 0;
            for target in only.iter().chain(targets.values()) {
                if let Some(session) = self.sessions.get_mut(&target.session.0) {
                    let queued = QueuedRef::from_parts(seq, head.expires, head.cost, target);
                    session.queue.push(queued);
                    self.index.push(target.session.0, seq.0);
                    live += 1;
                }
            }
            self.index.recover_message(seq.0, live, has_marks);
            self.last_seq = self.last_seq.max(seq);
        }
        self.bad.extend(bad);
        Ok(())
    }
}

type Mark = (u64, u64, Option<Target>);

fn next_mark(
    marks: &mut redb::Range<'_, [u8; 16], Bytewise>,
    bad: &mut BadRows,
) -> Result<Option<Mark>, Fault> {
    for row in marks {
        let (key, sealed) = row?;
        let key = key.value();
        let (seq, session) = codec::split_mark_key(key);
        let target = Table::Marks.unseal(&key, sealed.value()).and_then(|value| {
            codec::decode_mark(value).map_err(|error| Table::Marks.bad(&key, error))
        });
        match target {
            Ok(target) => return Ok(Some((seq, session, target))),
            Err(row) => bad.push(&row),
        }
    }
    Ok(None)
}
