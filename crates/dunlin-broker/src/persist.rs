//! Store operations of one round of the loop, gathered into few batches, and
//! what happens when the store answers.

use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::Text;
use dunlin_mqtt::codec::ReasonCode;
use dunlin_store::limits::BATCH_OPS_MAX;
use dunlin_store::{Batch, Request, Seq, SessionKey, StoreDone, StoreOp};
use hashbrown::HashMap;

use crate::io::{Event, Output};
use crate::pending::Pending;
use crate::session::SessionIdx;
use crate::shard::Shard;
use crate::timers::Timer;

/// Time until what the store refused is asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Operations not yet given to the store, and batches that it has.
///
/// Removals go in a batch of their own, ahead of the rest: when the disk is
/// full they must not fail with what needs room. They may go first because an
/// identifier is used again only after its removal was asked for.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    removals: Round,
    others: Round,
    /// Batches that the store has, by number; it answers them in order.
    batches: HashMap<u64, Sent>,
    /// What the store refused and must have, to be asked for again. Bounded by
    /// what can be in flight.
    refused: Vec<Pending>,
}

/// One kind of operations.
#[derive(Debug, Default)]
struct Round {
    ops: Vec<StoreOp>,
    tokens: Vec<u64>,
    /// An earlier part of what was too much for one batch has failed.
    torn: bool,
}

/// A batch that the store has.
#[derive(Debug)]
struct Sent {
    tokens: Vec<u64>,
    removals: bool,
    /// More of the same round follows in the next batch of its kind.
    goes_on: bool,
}

impl Writes {
    /// Batches that the store has not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.batches.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.removals.is_idle() && self.others.is_idle() && self.batches.is_empty()
    }
}

impl Round {
    const fn is_idle(&self) -> bool {
        self.ops.is_empty() && self.tokens.is_empty()
    }
}

impl Shard {
    /// Has an operation done with the next batch.
    pub(crate) fn write(&mut self, op: StoreOp) {
        if !self.config.durable {
            return;
        }
        match op {
            StoreOp::Dequeue { .. }
            | StoreOp::DeleteInflight { .. }
            | StoreOp::DeleteInbound { .. } => self.writes.removals.ops.push(op),
            _ => self.writes.others.ops.push(op),
        }
    }

    /// As [`Shard::write`], but in one batch with what was written before and
    /// is written next in the same call, whatever the operation.
    pub(crate) fn write_together(&mut self, op: StoreOp) {
        if self.config.durable {
            self.writes.others.ops.push(op);
        }
    }

    /// Has `pending` completed when everything written so far in this round
    /// is stored.
    pub(crate) fn await_writes(&mut self, token: u64, pending: Pending) {
        self.pending.insert(token, pending);
        if self.config.durable {
            self.writes.others.tokens.push(token);
        } else {
            self.settle(token, true);
        }
    }

    /// As [`Shard::await_writes`], for a removal.
    pub(crate) fn await_removal(&mut self, token: u64, pending: Pending) {
        self.pending.insert(token, pending);
        if self.config.durable {
            self.writes.removals.tokens.push(token);
        } else {
            self.settle(token, true);
        }
    }

    /// The round's batches, removals first.
    pub(crate) fn poll_writes(&mut self) -> Option<Output> {
        let removals = !self.writes.removals.is_idle();
        let round = match removals {
            true => &mut self.writes.removals,
            false => &mut self.writes.others,
        };
        if round.is_idle() {
            return None;
        }
        let goes_on = round.ops.len() > BATCH_OPS_MAX;
        let (ops, tokens) = if goes_on {
            // Tokens wait for the last part of what they cover.
            let rest = round.ops.split_off(BATCH_OPS_MAX);
            (core::mem::replace(&mut round.ops, rest), Vec::new())
        } else {
            let ops = core::mem::take(&mut round.ops);
            (ops, core::mem::take(&mut round.tokens))
        };
        let token = self.token();
        let sent = Sent {
            tokens,
            removals,
            goes_on,
        };
        self.writes.batches.insert(token, sent);
        Some(Output::Store(Request::Write(Batch { token, ops })))
    }

    /// The store answered.
    pub(crate) fn handle_store(&mut self, done: StoreDone) {
        match done {
            StoreDone::Committed { token } => self.handle_written(token, true),
            StoreDone::Failed { token, error } => {
                self.event(Event::StoreFailed(Text::from(alloc::format!("{error}"))));
                if let Some(key) = self.loads.remove(&token) {
                    self.handle_loaded(key, &[]);
                    let session = SessionKey(key);
                    self.retry_later(Pending::Load { session });
                }
                self.handle_written(token, false);
            }
            StoreDone::Loaded { token, messages } => {
                if let Some(key) = self.loads.remove(&token) {
                    let messages: Vec<_> =
                        messages.into_iter().map(|(seq, m)| (seq.0, m)).collect();
                    self.handle_loaded(key, &messages);
                }
            }
        }
    }

    /// A batch was stored, or not. What was too much for one batch is stored
    /// when all of its parts are.
    fn handle_written(&mut self, token: u64, stored: bool) {
        let Some(sent) = self.writes.batches.remove(&token) else {
            return;
        };
        let round = match sent.removals {
            true => &mut self.writes.removals,
            false => &mut self.writes.others,
        };
        let torn = core::mem::replace(&mut round.torn, false) || !stored;
        round.torn = torn && sent.goes_on;
        for waiting in sent.tokens {
            self.settle(waiting, !torn);
        }
    }

    /// Asks again, after a while, for what the protocol cannot go on without.
    fn retry_later(&mut self, pending: Pending) {
        if self.writes.refused.is_empty() {
            self.timers.set(self.now + RETRY_AFTER, Timer::Retry);
        }
        self.writes.refused.push(pending);
    }

    /// Asks again.
    pub(crate) fn retry(&mut self) {
        for pending in core::mem::take(&mut self.writes.refused) {
            match pending {
                Pending::Outgoing { session, packet_id } => {
                    let entry = self.session_of(session).and_then(|s| self.sessions.get(s));
                    let delivery = entry.and_then(|s| s.outbound.delivery(packet_id));
                    if let Some(seq) = delivery.and_then(|delivery| delivery.seq) {
                        self.store_outgoing(session, packet_id, Seq(seq));
                    }
                }
                Pending::Release {
                    session,
                    packet_id,
                    seq,
                } => self.store_release(session, packet_id, seq),
                Pending::Complete {
                    session,
                    stream,
                    packet_id,
                } => self.store_complete(session, stream, packet_id),
                Pending::Forget { session } => self.store_forget(session),
                Pending::Load { session } => {
                    if let Some(s) = self.session_of(session) {
                        self.pump(s);
                    }
                }
                _ => {}
            }
        }
    }

    pub(crate) fn session_of(&self, key: SessionKey) -> Option<SessionIdx> {
        self.session_keys.get(&key.0).copied()
    }

    /// Completes what waited under a token.
    fn settle(&mut self, token: u64, stored: bool) {
        match self.pending.remove(&token) {
            None | Some(Pending::Load { .. }) => {}
            Some(Pending::Publish(publish)) => self.finish_publish(token, publish, stored),
            Some(Pending::Subscribe(mut subscribe)) => {
                if !stored {
                    self.refuse_subscribe(&mut subscribe);
                }
                self.advance_subscribe(token, subscribe);
            }
            Some(Pending::Connect { conn }) => {
                if let Some(&c) = self.conn_ids.get(&conn) {
                    if stored {
                        self.connected(c);
                        self.unpark(c);
                    } else {
                        self.disconnect(c, ReasonCode::ServerUnavailable);
                    }
                }
            }
            // Without their record, a restart would double or lose a message, or
            // bring back a session.
            Some(
                pending @ (Pending::Outgoing { .. }
                | Pending::Release { .. }
                | Pending::Complete { .. }
                | Pending::Forget { .. }),
            ) if !stored => self.retry_later(pending),
            Some(Pending::Forget { .. }) => {}
            Some(Pending::Outgoing { session, packet_id }) => {
                if let Some(s) = self.session_of(session)
                    && let Some(entry) = self.sessions.get_mut(s)
                {
                    entry.outbound.handle_stored(packet_id);
                    self.pump(s);
                }
            }
            Some(Pending::Release {
                session, packet_id, ..
            }) => {
                if let Some(s) = self.session_of(session)
                    && let Some(entry) = self.sessions.get_mut(s)
                {
                    entry.outbound.handle_release_stored(packet_id);
                    self.pump(s);
                }
            }
            Some(Pending::Complete {
                session,
                stream,
                packet_id,
            }) => self.send_pubcomp(session, stream, packet_id),
        }
    }
}
