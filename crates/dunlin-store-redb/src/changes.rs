//! What a group of batches amounts to: the last word on each row. A message
//! that is queued and acknowledged within one group never reaches the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::{Message, Text};
use dunlin_store::{InflightState, Seq, SessionRecord, StoreOp, Target};

use crate::index::{Index, Left};

/// Sorts before every other text.
static EMPTY: Text = Text::new();

/// Rows to write (`Some`) and to delete (`None`), by key.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    pub(crate) log: BTreeMap<u64, Option<NewMessage<'a>>>,
    /// Messages whose marks all go, before any in `marks` is written.
    pub(crate) unmarked: BTreeSet<u64>,
    /// By message and session; `None` as target: acknowledged.
    pub(crate) marks: BTreeMap<(u64, u64), Option<&'a Target>>,
    pub(crate) sessions: BTreeMap<u64, Option<&'a SessionRecord>>,
    /// Sessions whose rows in the three tables below all go, before any of
    /// those is written.
    pub(crate) cleared: BTreeSet<u64>,
    pub(crate) subscriptions: BTreeMap<(u64, &'a Text), Option<Subscription>>,
    pub(crate) inflight: BTreeMap<(u64, u16), Option<(Seq, InflightState)>>,
    /// Whether the packet id is in use.
    pub(crate) inbound: BTreeMap<(u64, u16), bool>,
    pub(crate) retained: BTreeMap<&'a Text, Option<&'a Arc<Message>>>,
    pub(crate) meta: BTreeMap<&'a Text, Option<&'a Bytes>>,
}

/// Options byte and identifier.
pub(crate) type Subscription = (u8, Option<u32>);

/// A message that is not on disk yet.
#[derive(Debug)]
pub(crate) struct NewMessage<'a> {
    pub(crate) message: &'a Arc<Message>,
    targets: &'a [Target],
    /// Targets of later requests.
    more: Vec<&'a Target>,
    /// A row with this number is on disk, deleted earlier in this group.
    replaces: bool,
}

impl<'a> NewMessage<'a> {
    /// The targets that still want it; a session's last mention counts.
    pub(crate) fn live_targets(&self, seq: u64, index: &Index) -> Vec<&'a Target> {
        let all = self.targets.iter().chain(self.more.iter().copied());
        all.filter(|target| index.has(target.session.0, seq))
            .collect()
    }
}

impl<'a> Changes<'a> {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.log.is_empty()
            && self.unmarked.is_empty()
            && self.marks.is_empty()
            && self.sessions.is_empty()
            && self.cleared.is_empty()
            && self.subscriptions.is_empty()
            && self.inflight.is_empty()
            && self.inbound.is_empty()
            && self.retained.is_empty()
            && self.meta.is_empty()
    }

    /// Adds one operation, keeping `index` in step.
    ///
    /// # Errors
    /// What `is_stored` fails with; it says whether the last commit has a row
    /// of `log`.
    pub(crate) fn add<E>(
        &mut self,
        op: &'a StoreOp,
        index: &mut Index,
        is_stored: &impl Fn(u64) -> Result<bool, E>,
    ) -> Result<(), E> {
        match op {
            StoreOp::PutSession { key, record } => {
                index.create(key.0);
                self.sessions.insert(key.0, Some(record));
            }
            StoreOp::DeleteSession { key } => self.delete_session(key.0, index),
            StoreOp::Enqueue {
                seq,
                message,
                targets,
            } => self.enqueue(seq.0, message, targets, index, is_stored)?,
            StoreOp::Dequeue { seq, session } => {
                if index.pop(session.0, seq.0) {
                    self.release(seq.0, session.0, index);
                }
            }
            StoreOp::PutRetained { message } => {
                self.retained.insert(&message.topic, Some(message));
            }
            StoreOp::DeleteRetained { topic } => {
                self.retained.insert(topic, None);
            }
            StoreOp::PutMeta { key, value } => {
                self.meta.insert(key, Some(value));
            }
            StoreOp::DeleteMeta { key } => {
                self.meta.insert(key, None);
            }
            _ => self.add_small(op, index),
        }
        Ok(())
    }

    /// Rows that belong to one session and are nothing without it.
    fn add_small(&mut self, op: &'a StoreOp, index: &Index) {
        match op {
            StoreOp::PutSubscription {
                key,
                filter,
                options,
                identifier,
            } if index.exists(key.0) => {
                let value = Some((*options, *identifier));
                self.subscriptions.insert((key.0, filter), value);
            }
            StoreOp::DeleteSubscription { key, filter } if index.exists(key.0) => {
                self.subscriptions.insert((key.0, filter), None);
            }
            StoreOp::PutInflight {
                session,
                packet_id,
                seq,
                state,
            } if index.exists(session.0) => {
                let value = Some((*seq, *state));
                self.inflight.insert((session.0, *packet_id), value);
            }
            StoreOp::DeleteInflight { session, packet_id } if index.exists(session.0) => {
                self.inflight.insert((session.0, *packet_id), None);
            }
            StoreOp::PutInbound { session, packet_id } if index.exists(session.0) => {
                self.inbound.insert((session.0, *packet_id), true);
            }
            StoreOp::DeleteInbound { session, packet_id } if index.exists(session.0) => {
                self.inbound.insert((session.0, *packet_id), false);
            }
            _ => {}
        }
    }

    fn delete_session(&mut self, session: u64, index: &mut Index) {
        let Some(queue) = index.remove(session) else {
            return;
        };
        for seq in queue {
            self.release(seq, session, index);
        }
        self.sessions.insert(session, None);
        self.cleared.insert(session);
        remove_session(&mut self.subscriptions, session, &EMPTY);
        remove_session(&mut self.inflight, session, 0);
        remove_session(&mut self.inbound, session, 0);
    }

    fn enqueue<E>(
        &mut self,
        seq: u64,
        message: &'a Arc<Message>,
        targets: &'a [Target],
        index: &mut Index,
        is_stored: &impl Fn(u64) -> Result<bool, E>,
    ) -> Result<(), E> {
        // Which row this is, before it changes: not yet written, on disk, or
        // none.
        let fresh = matches!(self.log.get(&seq), Some(Some(_)));
        let on_disk =
            !fresh && !self.log.contains_key(&seq) && index.may_be_stored(seq) && is_stored(seq)?;
        let mut gained = 0;
        for target in targets {
            let session = target.session.0;
            if index.push(session, seq) {
                gained += 1;
            } else if !index.exists(session) {
                continue;
            }
            if on_disk {
                self.marks.insert((seq, session), Some(target));
            }
        }
        if fresh || on_disk {
            index.add_targets(seq, gained);
        } else if gained > 0 {
            index.add_message(seq, gained);
        }
        if on_disk {
            return Ok(());
        }
        if let Some(Some(new)) = self.log.get_mut(&seq) {
            new.more.extend(targets);
        } else if gained > 0 {
            let new = NewMessage {
                replaces: self.log.contains_key(&seq),
                message,
                targets,
                more: Vec::new(),
            };
            self.log.insert(seq, Some(new));
        }
        Ok(())
    }

    /// A message lost this target, which was in the queue of the session.
    fn release(&mut self, seq: u64, session: u64, index: &mut Index) {
        let fresh = matches!(self.log.get(&seq), Some(Some(_)));
        let left = index.release(seq);
        if left == Left::Some {
            // What is not on disk is written with the targets it has left.
            if !fresh {
                self.marks.insert((seq, session), None);
            }
            return;
        }
        if left == Left::NoneOfSeveral {
            let marks = (seq, 0)..=(seq, u64::MAX);
            let written: Vec<_> = self.marks.range(marks).map(|(key, _)| *key).collect();
            for key in written {
                self.marks.remove(&key);
            }
        }
        if matches!(self.log.get(&seq), Some(Some(new)) if !new.replaces) {
            self.log.remove(&seq);
            return;
        }
        self.log.insert(seq, None);
        if left == Left::NoneOfSeveral {
            self.unmarked.insert(seq);
        }
    }
}

/// Removes the keys of one session.
fn remove_session<T: Ord + Copy, V>(rows: &mut BTreeMap<(u64, T), V>, session: u64, smallest: T) {
    let from_here = rows.range((session, smallest)..).map(|(key, _)| *key);
    let keys: Vec<_> = from_here.take_while(|(s, _)| *s == session).collect();
    for key in keys {
        rows.remove(&key);
    }
}
