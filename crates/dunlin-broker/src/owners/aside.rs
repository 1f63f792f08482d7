//! Messages of a node that some consumers do not take, for the others, and those that are
//! dead. One that is only in the store is loaded before it leaves. Those that are dead while
//! the home of their queue is away wait for it here, and count as messages of their node.

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
    /// Dead messages that wait for a home. Bounded by what the node may have.
    unburied: VecDeque<Unburied>,
    /// Of those in memory.
    bytes: usize,
    /// It is looked after a while whether the home is there.
    is_reminded: bool,
}

/// A dead message, why it is, and who waits until it is with the dead.
pub(crate) type Unburied = (Delivery, Death, Waits);

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
    pub(super) dead: Vec<Unburied>,
}

impl Aside {
    pub(super) fn len(&self) -> usize {
        self.all.len() + self.unburied.len()
    }

    /// How many wait for something else than a home.
    pub(super) fn leaving(&self) -> usize {
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

    /// Messages in memory.
    pub(super) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let unburied = self.unburied.iter().map(|(delivery, ..)| delivery);
        let all = self.all.iter().map(|it| &it.delivery).chain(unburied);
        all.filter_map(Delivery::held)
    }

    /// Keeps a dead message until the home of its queue is there: in the store only, if it
    /// is there. Whether that is to be looked for after a while.
    pub(crate) fn keep_unburied(&mut self, mut dead: Unburied) -> bool {
        dead.0.shed();
        self.bytes += cost(&dead.0);
        self.unburied.push_back(dead);
        !core::mem::replace(&mut self.is_reminded, true)
    }

    /// It is looked whether the home is there; whether something waits for it.
    pub(crate) fn end_reminder(&mut self) -> bool {
        self.is_reminded = false;
        !self.unburied.is_empty()
    }

    /// It is to be looked again, after a while.
    pub(crate) const fn remind(&mut self) {
        self.is_reminded = true;
    }

    /// The dead message that has waited longest for its home.
    pub(crate) fn take_unburied(&mut self) -> Option<Unburied> {
        let dead = self.unburied.pop_front()?;
        self.bytes = self.bytes.saturating_sub(cost(&dead.0));
        Some(dead)
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

/// Bytes that a delivery takes in memory.
pub(super) fn cost(delivery: &Delivery) -> usize {
    delivery.held().map_or(0, |message| message.cost())
}
