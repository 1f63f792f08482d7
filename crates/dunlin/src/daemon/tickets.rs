//! Session tickets across restarts: the register's changes go to the store in
//! order, and shards are told when a ticket's use has been kept.
//!
//! One thread does this for all shards, because the order counts: were two of
//! them to write, a ticket could be stored after its use was.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use bytes::Bytes;
use dunlin_base::{ShardId, Text};
use dunlin_net::{
    StrikeId, TICKET_KEY_BYTES, TicketChange, TicketKey, TicketLimits, TicketRegister,
};
use dunlin_store::{Batch, Recovered, Request, StoreDone, StoreOp};
use dunlin_store_redb::{RedbStore, SubmitError, Submitter};

use super::StartError;
use super::post::{Address, Mail};

/// What precedes the name of a ticket in the store.
const PREFIX: &str = "ticket/";

/// Changes that are stored together.
const BATCH_MAX: usize = 256;

/// Pause while the store is behind.
const BACK_OFF: Duration = Duration::from_micros(200);

/// A register and what it wants kept, before there is a store.
pub(super) struct Tickets {
    pub(super) register: Arc<TicketRegister>,
    changes: Option<Receiver<TicketChange>>,
}

impl Tickets {
    /// `durable`: there will be a store.
    pub(super) fn new(limits: TicketLimits, durable: bool) -> Self {
        if !durable {
            return Self {
                register: Arc::new(TicketRegister::in_memory(limits)),
                changes: None,
            };
        }
        let (sender, receiver): (Sender<TicketChange>, _) = channel();
        // A keeper that has ended answers nobody; the register then takes no
        // further ticket once its bound is reached.
        let keep = move |change| _ = sender.send(change);
        Self {
            register: Arc::new(TicketRegister::kept_by(limits, Box::new(keep))),
            changes: Some(receiver),
        }
    }

    /// Takes back what was stored and begins to store. The thread ends when
    /// nobody uses the register any more.
    pub(super) fn start(
        self,
        store: Option<&RedbStore>,
        recovered: &Recovered,
        shards: &[Address],
    ) -> Result<Option<JoinHandle<()>>, StartError> {
        let (Some(changes), Some(store)) = (self.changes, store) else {
            return Ok(None);
        };
        self.register.load(stored(recovered));
        let waiting = Arc::new(Waiting {
            register: Arc::downgrade(&self.register),
            shards: shards.to_vec(),
            batches: Mutex::default(),
        });
        let ours = Arc::clone(&waiting);
        let keeper = Keeper {
            changes,
            waiting,
            store: store.submitter(Box::new(move |done| ours.done(&done))),
            token: 0,
        };
        std::thread::Builder::new()
            .name("tickets".into())
            .spawn(move || keeper.run())
            .map(Some)
            .map_err(|e| StartError::Loop(e.to_string()))
    }
}

/// Tickets that were stored.
fn stored(recovered: &Recovered) -> impl Iterator<Item = (TicketKey, Vec<u8>)> + '_ {
    recovered.meta.iter().filter_map(|(name, value)| {
        let mut key = [0; TICKET_KEY_BYTES];
        let digits = name.strip_prefix(PREFIX)?;
        unhex(digits, &mut key).then(|| (key, value.to_vec()))
    })
}

/// Batches on their way to the store.
struct Waiting {
    register: Weak<TicketRegister>,
    shards: Vec<Address>,
    batches: Mutex<BTreeMap<u64, Sent>>,
}

/// What a batch consists of.
#[derive(Default)]
struct Sent {
    changes: usize,
    strikes: Vec<(ShardId, StrikeId)>,
}

impl Waiting {
    fn put(&self, token: u64, sent: Sent) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.insert(token, sent);
    }

    fn done(&self, done: &StoreDone) {
        let kept = matches!(done, StoreDone::Committed { .. });
        if let StoreDone::Failed { error, .. } = done {
            tracing::error!(%error, "session tickets were not stored");
        }
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sent) = batches.remove(&done.token()) else {
            return;
        };
        drop(batches);
        if let Some(register) = self.register.upgrade() {
            register.kept(sent.changes);
        }
        for (shard, strike) in sent.strikes {
            if let Some(address) = self.shards.get(usize::from(shard.0)) {
                address.send(Mail::Struck { strike, kept });
            }
        }
    }
}

/// The thread.
struct Keeper {
    changes: Receiver<TicketChange>,
    waiting: Arc<Waiting>,
    store: Submitter,
    token: u64,
}

impl Keeper {
    fn run(mut self) {
        while let Ok(first) = self.changes.recv() {
            let mut batch = Batch::default();
            let mut sent = Sent::default();
            put(&mut batch, &mut sent, first);
            while batch.ops.len() < BATCH_MAX
                && let Ok(change) = self.changes.try_recv()
            {
                put(&mut batch, &mut sent, change);
            }
            self.token += 1;
            batch.token = self.token;
            self.waiting.put(self.token, sent);
            self.submit(Request::Write(batch));
        }
    }

    fn submit(&self, mut request: Request) {
        loop {
            match self.store.submit(request) {
                Ok(()) => return,
                Err(SubmitError::Busy(again)) => {
                    request = again;
                    std::thread::sleep(BACK_OFF);
                }
                Err(error) => {
                    let token = self.token;
                    tracing::error!(%error, "session tickets were not stored");
                    let error = dunlin_store::StoreError::Closed;
                    return self.waiting.done(&StoreDone::Failed { token, error });
                }
            }
        }
    }
}

fn put(batch: &mut Batch, sent: &mut Sent, change: TicketChange) {
    sent.changes += 1;
    match change {
        TicketChange::Put { key, value } => batch.ops.push(StoreOp::PutMeta {
            key: name(&key),
            value: Bytes::from(value),
        }),
        TicketChange::Strike { key, strike, shard } => {
            sent.strikes.push((shard, strike));
            batch.ops.push(StoreOp::DeleteMeta { key: name(&key) });
        }
        TicketChange::Drop { key } => batch.ops.push(StoreOp::DeleteMeta { key: name(&key) }),
        // A kind of change that this version does not know.
        _ => {}
    }
}

fn name(key: &TicketKey) -> Text {
    use core::fmt::Write as _;
    let mut name = String::with_capacity(PREFIX.len() + 2 * TICKET_KEY_BYTES);
    name.push_str(PREFIX);
    for byte in key {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.into()
}

/// Fills `bytes` from hexadecimal digits; `false`: they are not that.
pub(super) fn unhex(digits: &str, bytes: &mut [u8]) -> bool {
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hex || digits.len() != 2 * bytes.len() {
        return false;
    }
    bytes.iter_mut().enumerate().all(|(at, byte)| {
        let pair = digits.get(2 * at..2 * at + 2);
        match pair.map(|pair| u8::from_str_radix(pair, 16)) {
            Some(Ok(value)) => {
                *byte = value;
                true
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tickets_come_back() {
        let key: TicketKey = core::array::from_fn(|at| at as u8 * 7);
        let name = name(&key);
        let mut back = [0; TICKET_KEY_BYTES];
        assert!(unhex(name.strip_prefix(PREFIX).expect("prefix"), &mut back));
        assert_eq!(back, key);
        for wrong in ["", "zz", "+1", "é"] {
            assert!(!unhex(wrong, &mut [0]), "{wrong}");
        }
    }
}
