//! The tables of the file: writing changes into a transaction, and reading
//! everything back at start.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::Message;
use dunlin_store::{QueuedRef, Recovered, RecoveredSession, Seq, SessionKey, Target};
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};

use crate::changes::Changes;
use crate::codec;
use crate::error::Fault;
use crate::index::Index;

/// Version of the layout that this release writes.
const FORMAT_VERSION: u64 = 1;

type Bytewise = &'static [u8];

const FORMAT: TableDefinition<'_, &str, u64> = TableDefinition::new("format");
const LOG: TableDefinition<'_, u64, Bytewise> = TableDefinition::new("log");
const MARKS: TableDefinition<'_, [u8; 16], Bytewise> = TableDefinition::new("marks");
const SESSIONS: TableDefinition<'_, u64, Bytewise> = TableDefinition::new("sessions");
const SUBSCRIPTIONS: TableDefinition<'_, Bytewise, [u8; 6]> = TableDefinition::new("subscriptions");
const INFLIGHT: TableDefinition<'_, [u8; 10], [u8; 9]> = TableDefinition::new("inflight");
const INBOUND: TableDefinition<'_, [u8; 10], ()> = TableDefinition::new("inbound");
const RETAINED: TableDefinition<'_, Bytewise, Bytewise> = TableDefinition::new("retained");
const META: TableDefinition<'_, Bytewise, Bytewise> = TableDefinition::new("meta");

/// Makes sure that all tables exist and that the layout is known.
pub(crate) fn prepare(db: &Database) -> Result<(), Fault> {
    let txn = db.begin_write()?;
    {
        let mut format = txn.open_table(FORMAT)?;
        let found = format.get("version")?.map(|v| v.value());
        match found {
            Some(FORMAT_VERSION) => {
                drop(format);
                txn.abort()?;
                return Ok(());
            }
            Some(found) => return Err(Fault::Format(found)),
            None => {
                format.insert("version", FORMAT_VERSION)?;
            }
        }
        txn.open_table(LOG)?;
        txn.open_table(MARKS)?;
        txn.open_table(SESSIONS)?;
        txn.open_table(SUBSCRIPTIONS)?;
        txn.open_table(INFLIGHT)?;
        txn.open_table(INBOUND)?;
        txn.open_table(RETAINED)?;
        txn.open_table(META)?;
    }
    txn.commit()?;
    Ok(())
}

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
                table.insert(topic.as_bytes(), value.as_slice())?;
            } else {
                table.remove(topic.as_bytes())?;
            }
        }
    }
    if !changes.meta.is_empty() {
        let mut table = txn.open_table(META)?;
        for (key, value) in &changes.meta {
            match value {
                Some(value) => table.insert(key.as_bytes(), value.as_ref())?,
                None => table.remove(key.as_bytes())?,
            };
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
        value.clear();
        if let Some(target) = target {
            codec::encode_target(target, &mut value);
        }
        table.insert(codec::mark_key(*seq, *session), value.as_slice())?;
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
    for ((session, filter), value) in &changes.subscriptions {
        let key = codec::subscription_key(*session, filter);
        if let Some((options, identifier)) = value {
            let value = codec::encode_subscription(*options, *identifier);
            table.insert(key.as_slice(), value)?;
        } else {
            table.remove(key.as_slice())?;
        }
    }
    Ok(())
}

fn write_packet_ids(txn: &WriteTransaction, changes: &Changes<'_>) -> Result<(), Fault> {
    let of_session = |s: u64| codec::packet_key(s, 0)..=codec::packet_key(s, u16::MAX);
    if !changes.inflight.is_empty() || !changes.cleared.is_empty() {
        let mut table = txn.open_table(INFLIGHT)?;
        for session in &changes.cleared {
            table.retain_in(of_session(*session), |_, _| false)?;
        }
        for ((session, id), value) in &changes.inflight {
            let key = codec::packet_key(*session, *id);
            match value {
                Some((seq, state)) => table.insert(key, codec::encode_inflight(*seq, *state))?,
                None => table.remove(key)?,
            };
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
                table.insert(key, ())?;
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
        match self.table.get(seq.0)? {
            Some(value) => Ok(Some(codec::decode_log_message(value.value())?)),
            None => Ok(None),
        }
    }
}

/// Reads everything but the payloads of queued messages, in one pass over each
/// table.
pub(crate) fn scan(db: &Database) -> Result<(Index, Recovered), Fault> {
    let txn = db.begin_read()?;
    let mut scan = Scan::default();
    scan.sessions(&txn)?;
    scan.log(&txn)?;
    let mut recovered = Recovered::default();
    for row in txn.open_table(RETAINED)?.iter()? {
        let message = codec::decode_message(row?.1.value())?;
        recovered.retained.push(message);
    }
    for row in txn.open_table(META)?.iter()? {
        let (key, value) = row?;
        let value = Bytes::copy_from_slice(value.value());
        recovered
            .meta
            .push((codec::decode_text(key.value())?, value));
    }
    recovered.last_seq = scan.last_seq;
    recovered.next_session = scan.sessions.keys().next_back().map_or(0, |key| key + 1);
    recovered.sessions = scan.sessions.into_values().collect();
    Ok((scan.index, recovered))
}

#[derive(Default)]
struct Scan {
    index: Index,
    sessions: BTreeMap<u64, RecoveredSession>,
    last_seq: Seq,
}

impl Scan {
    fn sessions(&mut self, txn: &ReadTransaction) -> Result<(), Fault> {
        for row in txn.open_table(SESSIONS)?.iter()? {
            let (key, record) = row?;
            let session = RecoveredSession {
                key: SessionKey(key.value()),
                record: codec::decode_record(record.value())?,
                ..RecoveredSession::default()
            };
            self.index.create(session.key.0);
            self.sessions.insert(session.key.0, session);
        }
        for row in txn.open_table(SUBSCRIPTIONS)?.iter()? {
            let (key, value) = row?;
            let (key, filter) = codec::split_subscription_key(key.value())?;
            if let Some(session) = self.sessions.get_mut(&key) {
                let (options, identifier) = codec::decode_subscription(value.value());
                session.subscriptions.push((filter, options, identifier));
            }
        }
        for row in txn.open_table(INFLIGHT)?.iter()? {
            let (key, value) = row?;
            let (key, packet_id) = codec::split_packet_key(key.value());
            let (seq, state) = codec::decode_inflight(value.value())?;
            if let Some(session) = self.sessions.get_mut(&key) {
                session.inflight.push((packet_id, seq, state));
                self.last_seq = self.last_seq.max(seq);
            }
        }
        for row in txn.open_table(INBOUND)?.iter()? {
            let (key, packet_id) = codec::split_packet_key(row?.0.value());
            if let Some(session) = self.sessions.get_mut(&key) {
                session.inbound.push(packet_id);
            }
        }
        Ok(())
    }

    /// `log` and `marks` are both in the order of `seq`: read side by side.
    fn log(&mut self, txn: &ReadTransaction) -> Result<(), Fault> {
        let marks = txn.open_table(MARKS)?;
        let mut marks = marks.iter()?;
        let mut mark = next_mark(&mut marks)?;
        for row in txn.open_table(LOG)?.iter()? {
            let (seq, value) = row?;
            let seq = Seq(seq.value());
            let head = codec::decode_log_head(value.value())?;
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
                mark = next_mark(&mut marks)?;
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
        Ok(())
    }
}

type Mark = (u64, u64, Option<Target>);

fn next_mark(marks: &mut redb::Range<'_, [u8; 16], Bytewise>) -> Result<Option<Mark>, Fault> {
    let Some(row) = marks.next() else {
        return Ok(None);
    };
    let (key, value) = row?;
    let (seq, session) = codec::split_mark_key(key.value());
    let target = match value.value() {
        [] => None,
        bytes => Some(codec::decode_target(bytes)?),
    };
    Ok(Some((seq, session, target)))
}
