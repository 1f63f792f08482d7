//! Messages of a node that some consumers do not take, for the others, and those that are
//! dead. One that is only in the store is loaded before it leaves.

use alloc::collections::VecDeque;
use alloc::collections::vec_deque::Iter;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::Message;
use dunlin_queue::{Content, Delivery};

use crate::ids::SessionRef;
use crate::queues::calls::{Death, Waits};

/// Messages of a queue that some consumers do not take; one more is dead.
const WAITING_MAX: usize = 256;

/// All of one node.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    all: VecDeque<Entry>,
    /// Of those in memory.
    bytes: usize,
}

/// A message, and the links whose clients do not take it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) delivery: Delivery,
    pub(super) refusers: Vec<SessionRef>,
    /// Why it is for none of them any more.
    pub(super) death: Option<(Death, Waits)>,
}

/// What becomes of messages when a consumer has gone, or some were loaded.
#[derive(Debug, Default)]
pub(super) struct Stranded {
    /// They wait in the queue again.
    pub(super) back: Vec<Delivery>,
    pub(super) dead: Vec<(Delivery, Death, Waits)>,
}

impl Aside {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether one more may wait for another consumer.
    pub(super) fn has_room(&self) -> bool {
        let waiting = self.all.iter().filter(|it| it.death.is_none());
        waiting.count() < WAITING_MAX
    }

    pub(super) fn iter(&self) -> Iter<'_, Entry> {
        self.all.iter()
    }

    pub(super) fn put(&mut self, entry: Entry) {
        self.bytes += cost(&entry.delivery);
        self.all.push_back(entry);
    }

    /// Keeps a message that is dead until it is loaded.
    pub(crate) fn put_dead(&mut self, delivery: Delivery, death: Death, waits: Waits) {
        self.put(Entry {
            delivery,
            refusers: Vec::new(),
            death: Some((death, waits)),
        });
    }

    pub(super) fn take(&mut self, place: usize) -> Option<Entry> {
        let entry = self.all.remove(place)?;
        self.bytes = self.bytes.saturating_sub(cost(&entry.delivery));
        Some(entry)
    }

    /// Whether some have to be loaded.
    pub(super) fn lacks_messages(&self) -> bool {
        self.all.iter().any(|it| it.delivery.is_stored())
    }

    /// Those that are loaded next, at most `max` and for about `bytes_max`.
    pub(super) fn stored(&self, max: usize, bytes_max: usize) -> Vec<u64> {
        let mut bytes = 0;
        let stored = self.all.iter().map(|it| &it.delivery);
        let stored = stored.filter(|it| it.is_stored()).take(max);
        let fitting = stored.take_while(|it| {
            let is_first = bytes == 0;
            bytes += it.held_cost();
            is_first || bytes <= bytes_max
        });
        fitting.filter_map(|it| it.seq).collect()
    }

    /// A message came from the store, or is gone from there; `false`: it is not one of
    /// these.
    pub(super) fn handle_loaded(&mut self, seq: u64, message: Option<&Arc<Message>>) -> bool {
        let is_it = |it: &Entry| it.delivery.seq == Some(seq) && it.delivery.is_stored();
        let Some(place) = self.all.iter().position(is_it) else {
            return false;
        };
        let Some(message) = message else {
            return self.take(place).is_some();
        };
        if let Some(entry) = self.all.get_mut(place) {
            entry.delivery.content = Content::Held(Arc::clone(message));
            self.bytes += message.cost();
        }
        true
    }

    /// Takes those out that do not wait for others any more: the dead that are loaded,
    /// and of the rest those that none takes. Where no consumer `is_left`, all of these
    /// go back.
    pub(super) fn take_stranded(
        &mut self,
        is_left: bool,
        is_wanted: impl Fn(&[SessionRef]) -> bool,
    ) -> Stranded {
        let mut stranded = Stranded::default();
        for _ in 0..self.all.len() {
            let Some(entry) = self.take(0) else {
                break;
            };
            match entry.death {
                Some(_) if entry.delivery.is_stored() => self.put(entry),
                Some((death, waits)) => stranded.dead.push((entry.delivery, death, waits)),
                None if !is_left => stranded.back.push(entry.delivery),
                None if is_wanted(&entry.refusers) => self.put(entry),
                None => stranded.dead.push((entry.delivery, Death::Rejected, None)),
            }
        }
        stranded
    }
}

/// Bytes that a delivery takes.
fn cost(delivery: &Delivery) -> usize {
    delivery.held().map_or(0, |message| message.cost())
}
