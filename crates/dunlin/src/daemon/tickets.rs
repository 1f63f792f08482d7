//! Session tickets across restarts: the register's changes go to the store in
//! order, and shards get mail when a ticket's use has been kept.
//!
//! One thread does this for all shards, because the order counts: were two of
//! them to write, a ticket could be stored after its use was.
//!
//! Uses are stored at once, because early data waits for them. New tickets
//! gather for a moment: one that is used meanwhile is never stored, and what is
//! not stored cannot be good again after a crash.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use dunlin_base::{ShardId, Text};
use dunlin_net::{
    StrikeId, TICKET_KEY_BYTES, TicketChange, TicketKey, TicketLimits, TicketRegister,
};
use dunlin_store::limits::BATCH_OPS_MAX;
use dunlin_store::{Batch, Recovered, Request, StoreDone, StoreError, StoreOp};
use dunlin_store_redb::SubmitError;

use super::StartError;
use super::changes::{BATCH_MAX, Changes, GATHER, Sender};
use super::far::{Answers, Copies, Place};
use super::kept::{Kept, Submits};
use super::mailbox::{Addresses, Mail};

/// What precedes the name of a ticket in the store.
pub(crate) const PREFIX: &str = "ticket/";

/// Pause while the store is behind.
const BACK_OFF: Duration = Duration::from_micros(200);

/// A register and what it wants kept, before there is a store.
pub(super) struct Tickets {
    pub(super) register: Arc<TicketRegister>,
    changes: Option<Arc<Changes>>,
}

impl Tickets {
    /// `kept`: there will be a store, here or at another node.
    pub(super) fn new(limits: TicketLimits, kept: bool) -> Self {
        if !kept {
            return Self {
                register: Arc::new(TicketRegister::in_memory(limits)),
                changes: None,
            };
        }
        let changes = Arc::new(Changes::default());
        let sender = Sender::new(Arc::clone(&changes));
        // A keeper that has ended answers no more; the register then takes no
        // further ticket once its bound is reached.
        let keep = move |change| sender.add(change);
        Self {
            register: Arc::new(TicketRegister::kept_by(limits, Box::new(keep))),
            changes: Some(changes),
        }
    }

    /// Takes back what was stored and begins to store, or to ask the node that does. The
    /// thread ends when no one uses the register any more.
    pub(super) fn start(
        self,
        store: Option<&Kept>,
        recovered: &Recovered,
        shards: &Addresses,
        place: &Place,
    ) -> Result<Option<JoinHandle<()>>, StartError> {
        let Some(changes) = self.changes else {
            return Ok(None);
        };
        if let Some(asks) = place.ask_home(&self.register, shards, &changes) {
            return spawn(asks).map(Some);
        }
        let Some(store) = store else {
            return Ok(None);
        };
        self.register.load(stored(recovered));
        let copies = place.copies(&self.register, shards, &changes);
        let waiting = Arc::new(Waiting {
            register: Arc::downgrade(&self.register),
            shards: shards.clone(),
            answers: copies.answers(),
            batches: Mutex::default(),
        });
        let ours = Arc::clone(&waiting);
        let keeper = Keeper {
            changes,
            copies,
            waiting,
            store: store.submitter(Box::new(move |done| ours.done(&done))),
            token: 0,
        };
        spawn(Box::new(move || keeper.run())).map(Some)
    }
}

fn spawn(run: Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>, StartError> {
    let thread = std::thread::Builder::new().name("tickets".into());
    let started = thread.spawn(run);
    started.map_err(|e| StartError::Loop(e.to_string()))
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
    shards: Addresses,
    /// The way to shards of other nodes, which have other numbers.
    answers: Answers,
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
        match done {
            // The store has said so.
            StoreDone::Failed {
                error: StoreError::GivenUp(_),
                ..
            } => {}
            StoreDone::Failed { error, .. } => {
                tracing::error!(%error, "session tickets were not stored");
            }
            _ => {}
        }
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sent) = batches.remove(&done.token()) else {
            return;
        };
        drop(batches);
        self.tell(sent, kept);
    }

    fn tell(&self, sent: Sent, kept: bool) {
        if sent.changes > 0
            && let Some(register) = self.register.upgrade()
        {
            register.kept(sent.changes);
        }
        for (shard, strike) in sent.strikes {
            match self.shards.iter().nth(shard.0.into()) {
                Some(address) => address.send(Mail::Struck { strike, kept }),
                None => self.answers.struck(shard, strike, kept),
            }
        }
    }
}

/// The thread.
struct Keeper {
    changes: Arc<Changes>,
    /// Of other nodes.
    copies: Copies,
    waiting: Arc<Waiting>,
    store: Submits,
    token: u64,
}

impl Keeper {
    fn run(mut self) {
        let mut gathered = Gathered::default();
        let mut due = None;
        loop {
            let (changes, is_over) = self.changes.take(due);
            let mut work = Work::default();
            for change in changes {
                self.copies.note(&change);
                gathered.add(change, &mut work);
            }
            let now = Instant::now();
            if is_over || due.is_some_and(|due| due <= now) || gathered.len() >= BATCH_MAX {
                gathered.flush(&mut work);
            }
            due = match due {
                _ if gathered.len() == 0 => None,
                Some(due) if due > now => Some(due),
                _ => Some(now + GATHER),
            };
            due = due.into_iter().chain(self.copies.tell()).min();
            self.waiting.tell(work.settled, true);
            self.write(work.ops, work.sent);
            if is_over {
                return;
            }
        }
    }

    fn write(&mut self, mut ops: Vec<StoreOp>, mut sent: Sent) {
        while !ops.is_empty() {
            let rest = ops.split_off(ops.len().min(BATCH_OPS_MAX));
            self.token += 1;
            let token = self.token;
            // The answer for all goes out when the last part is stored.
            if rest.is_empty() {
                self.waiting.put(token, core::mem::take(&mut sent));
            }
            self.submit(Request::Write(Batch { token, ops }));
            ops = rest;
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
                    let error = StoreError::Closed;
                    return self.waiting.done(&StoreDone::Failed { token, error });
                }
            }
        }
    }
}

/// Changes without a waiting client, before they are stored.
#[derive(Default)]
struct Gathered {
    new: HashMap<TicketKey, Vec<u8>>,
    dropped: Vec<TicketKey>,
}

/// What follows from a few changes.
#[derive(Default)]
struct Work {
    /// To be stored.
    ops: Vec<StoreOp>,
    sent: Sent,
    /// Done with, without the store.
    settled: Sent,
}

impl Gathered {
    fn len(&self) -> usize {
        self.new.len() + self.dropped.len()
    }

    fn add(&mut self, change: TicketChange, work: &mut Work) {
        match change {
            TicketChange::Put { key, value } => _ = self.new.insert(key, value),
            TicketChange::Strike { key, strike, shard } => {
                let to = if self.new.remove(&key).is_some() {
                    work.settled.changes += 1;
                    &mut work.settled
                } else {
                    work.ops.push(StoreOp::DeleteMeta { key: name(&key) });
                    &mut work.sent
                };
                to.changes += 1;
                to.strikes.push((shard, strike));
            }
            TicketChange::Drop { key } => match self.new.remove(&key) {
                Some(_) => work.settled.changes += 2,
                None => self.dropped.push(key),
            },
            // A kind of change that this version does not know.
            _ => work.settled.changes += 1,
        }
    }

    fn flush(&mut self, work: &mut Work) {
        work.sent.changes += self.len();
        let new = self.new.drain().map(|(key, value)| StoreOp::PutMeta {
            key: name(&key),
            value: Bytes::from(value),
        });
        work.ops.extend(new);
        let dropped = self.dropped.drain(..);
        work.ops
            .extend(dropped.map(|key| StoreOp::DeleteMeta { key: name(&key) }));
    }
}

fn name(key: &TicketKey) -> Text {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let mut name = String::with_capacity(PREFIX.len() + 2 * TICKET_KEY_BYTES);
    name.push_str(PREFIX);
    for byte in key {
        for digit in [byte >> 4, byte & 0x0f] {
            name.extend(DIGITS.get(usize::from(digit)));
        }
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

    fn strike(key: TicketKey, number: u64) -> TicketChange {
        TicketChange::Strike {
            key,
            strike: StrikeId(number),
            shard: ShardId(0),
        }
    }

    #[test]
    fn a_ticket_that_was_used_before_it_was_stored_never_is() {
        let key = |n| [n; TICKET_KEY_BYTES];
        let mut gathered = Gathered::default();
        let mut work = Work::default();
        for n in 0..4 {
            let value = vec![n];
            gathered.add(TicketChange::Put { key: key(n), value }, &mut work);
        }
        // Of two kinds: new, and stored long ago.
        gathered.add(strike(key(1), 7), &mut work);
        gathered.add(strike(key(9), 8), &mut work);
        gathered.add(TicketChange::Drop { key: key(2) }, &mut work);
        gathered.add(TicketChange::Drop { key: key(8) }, &mut work);
        assert_eq!(work.ops, [StoreOp::DeleteMeta { key: name(&key(9)) }]);
        assert_eq!(work.settled.strikes, [(ShardId(0), StrikeId(7))]);
        assert_eq!(work.sent.strikes, [(ShardId(0), StrikeId(8))]);
        gathered.flush(&mut work);
        assert_eq!(gathered.len(), 0);
        let stored = work.ops.iter().map(|op| match op {
            StoreOp::PutMeta { key, .. } => (true, key.clone()),
            StoreOp::DeleteMeta { key } => (false, key.clone()),
            other => panic!("{other:?}"),
        });
        let mut stored = stored.collect::<Vec<_>>();
        stored.sort();
        let mut expected = vec![
            (true, name(&key(0))),
            (true, name(&key(3))),
            (false, name(&key(8))),
            (false, name(&key(9))),
        ];
        expected.sort();
        assert_eq!(stored, expected);
        // Each change is answered once, or the register would seem to be behind.
        assert_eq!(work.settled.changes + work.sent.changes, 8);
    }

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
