//! The reference store: what every request means, in ordered maps. It keeps
//! nothing when the process ends, which is also the durability `memory`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Message, Text};

use crate::{
    Batch, InflightState, QueuedRef, Recovered, RecoveredSession, Request, Seq, SessionKey,
    SessionRecord, StoreDone, StoreOp, Target,
};

/// A store in memory. Every request is answered at once.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    sessions: BTreeMap<SessionKey, Session>,
    log: BTreeMap<Seq, Entry>,
    retained: BTreeMap<Text, Arc<Message>>,
    meta: BTreeMap<Text, Bytes>,
}

#[derive(Clone, Debug, Default)]
struct Session {
    record: SessionRecord,
    subscriptions: BTreeMap<Text, (u8, Option<u32>)>,
    inflight: BTreeMap<u16, (Seq, InflightState)>,
    inbound: BTreeSet<u16>,
    queue: BTreeMap<Seq, Target>,
}

#[derive(Clone, Debug)]
struct Entry {
    message: Arc<Message>,
    /// Sessions that have it in their queue; never zero.
    targets: usize,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sessions: BTreeMap::new(),
            log: BTreeMap::new(),
            retained: BTreeMap::new(),
            meta: BTreeMap::new(),
        }
    }

    /// Does what `request` says.
    pub fn handle(&mut self, request: &Request) -> StoreDone {
        let token = request.token();
        if let Err(error) = request.check() {
            return StoreDone::Failed { token, error };
        }
        match request {
            Request::Write(batch) => {
                self.apply(batch);
                StoreDone::Committed { token }
            }
            Request::Load { seqs, .. } => {
                let message = |seq: &Seq| self.log.get(seq).map(|e| e.message.clone());
                StoreDone::Loaded {
                    token,
                    messages: seqs.iter().map(|seq| (*seq, message(seq))).collect(),
                }
            }
            Request::Flush { .. } => StoreDone::Committed { token },
        }
    }

    /// Applies a batch that passed [`Batch::check`].
    pub fn apply(&mut self, batch: &Batch) {
        for op in &batch.ops {
            self.apply_op(op);
        }
    }

    /// What a store with this content finds when it opens.
    #[must_use]
    pub fn recover(&self) -> Recovered {
        let inflight = self.sessions.values().flat_map(|s| s.inflight.values());
        let last_inflight = inflight.map(|(seq, _)| *seq).max().unwrap_or_default();
        let last_queued = self.log.keys().next_back().copied().unwrap_or_default();
        Recovered {
            sessions: self
                .sessions
                .iter()
                .map(|(key, session)| self.recover_session(*key, session))
                .collect(),
            retained: self.retained.values().map(|m| (**m).clone()).collect(),
            meta: self
                .meta
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            last_seq: last_queued.max(last_inflight),
            next_session: self.sessions.keys().next_back().map_or(0, |key| key.0 + 1),
        }
    }

    fn recover_session(&self, key: SessionKey, session: &Session) -> RecoveredSession {
        RecoveredSession {
            key,
            record: session.record.clone(),
            subscriptions: session
                .subscriptions
                .iter()
                .map(|(filter, (options, identifier))| (filter.clone(), *options, *identifier))
                .collect(),
            inflight: session
                .inflight
                .iter()
                .map(|(id, (seq, state))| (*id, *seq, *state))
                .collect(),
            inbound: session.inbound.iter().copied().collect(),
            queue: session
                .queue
                .iter()
                .filter_map(|(seq, target)| {
                    let entry = self.log.get(seq)?;
                    Some(QueuedRef::new(*seq, &entry.message, target))
                })
                .collect(),
        }
    }

    fn apply_op(&mut self, op: &StoreOp) {
        match op {
            StoreOp::PutSession { key, record } => {
                self.sessions.entry(*key).or_default().record = record.clone();
            }
            StoreOp::DeleteSession { key } => {
                let session = self.sessions.remove(key).unwrap_or_default();
                for seq in session.queue.keys() {
                    self.release(*seq);
                }
            }
            StoreOp::Enqueue {
                seq,
                message,
                targets,
            } => self.enqueue(*seq, message, targets),
            StoreOp::Dequeue { seq, session } => {
                let session = self.sessions.get_mut(session);
                if session.is_some_and(|s| s.queue.remove(seq).is_some()) {
                    self.release(*seq);
                }
            }
            StoreOp::PutRetained { message } => {
                self.retained.insert(message.topic.clone(), message.clone());
            }
            StoreOp::DeleteRetained { topic } => {
                self.retained.remove(topic);
            }
            StoreOp::PutMeta { key, value } => {
                self.meta.insert(key.clone(), value.clone());
            }
            StoreOp::DeleteMeta { key } => {
                self.meta.remove(key);
            }
            StoreOp::PutSubscription { key, .. } | StoreOp::DeleteSubscription { key, .. } => {
                if let Some(session) = self.sessions.get_mut(key) {
                    session.apply(op);
                }
            }
            StoreOp::PutInflight { session, .. }
            | StoreOp::DeleteInflight { session, .. }
            | StoreOp::PutInbound { session, .. }
            | StoreOp::DeleteInbound { session, .. } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.apply(op);
                }
            }
        }
    }

    fn enqueue(&mut self, seq: Seq, message: &Arc<Message>, targets: &[Target]) {
        let mut gained = 0;
        for target in targets {
            if let Some(session) = self.sessions.get_mut(&target.session)
                && session.queue.insert(seq, target.clone()).is_none()
            {
                gained += 1;
            }
        }
        if gained > 0 {
            let entry = self.log.entry(seq).or_insert_with(|| Entry {
                message: message.clone(),
                targets: 0,
            });
            entry.targets += gained;
        }
    }

    /// One session less has this message.
    fn release(&mut self, seq: Seq) {
        if let Some(entry) = self.log.get_mut(&seq) {
            entry.targets -= 1;
            if entry.targets == 0 {
                self.log.remove(&seq);
            }
        }
    }

    /// Messages stored, each counted once.
    #[must_use]
    pub fn stored_messages(&self) -> usize {
        self.log.len()
    }

    /// Sequence numbers of all stored messages, oldest first.
    #[must_use]
    pub fn stored_seqs(&self) -> Vec<Seq> {
        self.log.keys().copied().collect()
    }
}

impl Session {
    /// Operations that touch nothing but this session.
    fn apply(&mut self, op: &StoreOp) {
        match op {
            StoreOp::PutSubscription {
                filter,
                options,
                identifier,
                ..
            } => {
                let value = (*options, *identifier);
                self.subscriptions.insert(filter.clone(), value);
            }
            StoreOp::DeleteSubscription { filter, .. } => {
                self.subscriptions.remove(filter);
            }
            StoreOp::PutInflight {
                packet_id,
                seq,
                state,
                ..
            } => {
                self.inflight.insert(*packet_id, (*seq, *state));
            }
            StoreOp::DeleteInflight { packet_id, .. } => {
                self.inflight.remove(packet_id);
            }
            StoreOp::PutInbound { packet_id, .. } => {
                self.inbound.insert(*packet_id);
            }
            StoreOp::DeleteInbound { packet_id, .. } => {
                self.inbound.remove(packet_id);
            }
            _ => debug_assert!(false, "not an operation of one session"),
        }
    }
}
