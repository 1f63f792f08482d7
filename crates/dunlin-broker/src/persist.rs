//! Store operations of one round of the loop, gathered into few batches, and
//! what happens when the store answers.

use alloc::vec::Vec;

use dunlin_base::Text;
use dunlin_mqtt_codec::ReasonCode;
use dunlin_store::limits::BATCH_OPS_MAX;
use dunlin_store::{Batch, Request, SessionKey, StoreDone, StoreError, StoreOp};
use hashbrown::HashMap;

use crate::io::{Event, Output};
use crate::pending::Pending;
use crate::session::SessionIdx;
use crate::shard::Shard;

/// Operations not yet given to the store, and batches that it has.
///
/// Removals go in a batch of their own, ahead of the rest: when the disk is
/// full they must not fail with what needs room. They may go first because an
/// identifier is used again only after its removal was asked for.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    removals: Vec<StoreOp>,
    removal_tokens: Vec<u64>,
    ops: Vec<StoreOp>,
    tokens: Vec<u64>,
    /// Tokens that wait for a batch, by its number.
    batches: HashMap<u64, Vec<u64>>,
}

impl Writes {
    pub(crate) fn is_idle(&self) -> bool {
        self.removals.is_empty() && self.ops.is_empty() && self.batches.is_empty()
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
            | StoreOp::DeleteInbound { .. } => self.writes.removals.push(op),
            _ => self.writes.ops.push(op),
        }
    }

    /// As [`Shard::write`], but in one batch with what was written before and
    /// is written next in the same call, whatever the operation.
    pub(crate) fn write_together(&mut self, op: StoreOp) {
        if self.config.durable {
            self.writes.ops.push(op);
        }
    }

    /// Has `pending` completed when everything written so far in this round
    /// is stored.
    pub(crate) fn await_writes(&mut self, token: u64, pending: Pending) {
        self.pending.insert(token, pending);
        if self.config.durable {
            self.writes.tokens.push(token);
        } else {
            self.settle(token, Ok(()));
        }
    }

    /// As [`Shard::await_writes`], for a removal.
    pub(crate) fn await_removal(&mut self, token: u64, pending: Pending) {
        self.pending.insert(token, pending);
        if self.config.durable {
            self.writes.removal_tokens.push(token);
        } else {
            self.settle(token, Ok(()));
        }
    }

    /// The round's batches, removals first.
    pub(crate) fn poll_writes(&mut self) -> Option<Output> {
        let (ops, tokens) =
            if self.writes.removals.is_empty() && self.writes.removal_tokens.is_empty() {
                (&mut self.writes.ops, &mut self.writes.tokens)
            } else {
                (&mut self.writes.removals, &mut self.writes.removal_tokens)
            };
        if ops.is_empty() && tokens.is_empty() {
            return None;
        }
        let ops = if ops.len() > BATCH_OPS_MAX {
            let rest = ops.split_off(BATCH_OPS_MAX);
            core::mem::replace(ops, rest)
        } else {
            core::mem::take(ops)
        };
        // Tokens wait for the last part of what they cover.
        let tokens = if ops.len() == BATCH_OPS_MAX {
            Vec::new()
        } else {
            core::mem::take(tokens)
        };
        let token = self.token();
        self.writes.batches.insert(token, tokens);
        Some(Output::Store(Request::Write(Batch { token, ops })))
    }

    /// The store answered.
    pub(crate) fn handle_store(&mut self, done: StoreDone) {
        match done {
            StoreDone::Committed { token } => {
                for waiting in self.writes.batches.remove(&token).unwrap_or_default() {
                    self.settle(waiting, Ok(()));
                }
            }
            StoreDone::Failed { token, error } => {
                self.event(Event::StoreFailed(Text::from(alloc::format!("{error}"))));
                if let Some(key) = self.loads.remove(&token) {
                    self.handle_loaded(key, &[]);
                }
                for waiting in self.writes.batches.remove(&token).unwrap_or_default() {
                    self.settle(waiting, Err(error.clone()));
                }
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

    pub(crate) fn session_of(&self, key: SessionKey) -> Option<SessionIdx> {
        self.session_keys.get(&key.0).copied()
    }

    /// Completes what waited under a token.
    fn settle(&mut self, token: u64, outcome: Result<(), StoreError>) {
        let stored = outcome.is_ok();
        match self.pending.remove(&token) {
            None => {}
            Some(Pending::Publish(publish)) => self.finish_publish(token, publish, stored),
            Some(Pending::Subscribe(mut subscribe)) => {
                if !stored {
                    subscribe.reasons.fill(ReasonCode::QuotaExceeded);
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
            Some(Pending::Outgoing { session, packet_id }) => {
                if let Some(s) = self.session_of(session)
                    && let Some(entry) = self.sessions.get_mut(s)
                {
                    entry.outbound.handle_stored(packet_id);
                    self.pump(s);
                }
            }
            Some(Pending::Release { session, packet_id }) => {
                if let Some(s) = self.session_of(session)
                    && let Some(entry) = self.sessions.get_mut(s)
                {
                    entry.outbound.handle_release_stored(packet_id);
                    self.pump(s);
                }
            }
            Some(Pending::Complete {
                conn,
                session,
                stream,
                packet_id,
                reason,
            }) => self.send_pubcomp(conn, session, stream, packet_id, reason),
        }
    }
}
