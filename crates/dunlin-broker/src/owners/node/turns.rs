//! Which consumer of a node takes next, and what; messages that some of them do not take.

use alloc::vec::Vec;

use dunlin_base::Instant;
use dunlin_queue::{Content, Delivery, Next, Outcome, Queue};
use slab::Slab;

use super::Node;
use crate::ids::SessionRef;
use crate::owners::aside::{Entry, Stranded};
use crate::owners::end::{End, Found, ScanBudget};
use crate::queues::calls::{Death, Use, Waits};

impl Node {
    /// What comes next, for the consumer whose turn it is.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        unsettled_max: usize,
        budget: &mut ScanBudget,
    ) -> Option<(usize, Next<u32>)> {
        if let Some(next) = self.next_due(now) {
            return Some(next);
        }
        if self.aside.lacks_messages() && self.queue.begin_loading() {
            return Some((usize::MAX, Next::Load));
        }
        // Consumers in a row that have found nothing.
        let mut idle = 0;
        while idle < self.turns.len()
            && let Some(at) = self.turns.front().copied()
        {
            let credit = self.ends.get(at).map_or(0, |end| end.credit(unsettled_max));
            if credit == 0 {
                self.turns.pop_front();
                if let Some(end) = self.ends.get_mut(at) {
                    end.waits = false;
                }
                continue;
            }
            let next = match self.next_aside(at, now, credit, budget) {
                Some(next) => Some(next),
                None => self.next_queued(at, now, credit, budget),
            };
            if let Some(next) = next {
                if matches!(next, Next::Send(_)) {
                    self.turns.rotate_left(1);
                }
                return Some((at, next));
            }
            // Others may want what this one does not.
            if self.searching == 0 && self.aside.len() == 0 {
                return None;
            }
            self.turns.rotate_left(1);
            idle += 1;
        }
        None
    }

    /// What comes next for a consumer that has credit.
    fn next_queued(
        &mut self,
        at: usize,
        now: Instant,
        credit: usize,
        budget: &mut ScanBudget,
    ) -> Option<Next<u32>> {
        let buries = self.kept.options.dead_letter.is_some();
        if self.ends.get(at)?.search.is_none() {
            return self.with(at, |end, queue| {
                // One that is past its time is needed to be dead.
                let is_stored = |it: &Delivery| matches!(it.content, Content::Stored { .. });
                let is_dead = buries && queue.is_front_expired(now);
                if is_dead && queue.front().is_some_and(is_stored) {
                    return queue.must_load_front().then_some(Next::Load);
                }
                end.poll(queue, now, credit)
            });
        }
        loop {
            let found = self.with(at, |end, queue| {
                Some(end.search(queue, budget, now, buries))
            })?;
            let place = match found {
                Found::Next(next) => return Some(next),
                Found::Nothing => return None,
                Found::Back(place) => place,
            };
            let others = self.ends.iter_mut().filter(|(other, _)| *other != at);
            for search in others.filter_map(|(_, end)| end.search.as_mut()) {
                search.scanned.note_back(place);
            }
        }
    }

    /// The first message that others did not take, for a consumer that may.
    fn next_aside(
        &mut self,
        at: usize,
        now: Instant,
        credit: usize,
        budget: &mut ScanBudget,
    ) -> Option<Next<u32>> {
        let end = self.ends.get_mut(at)?;
        if end.consumer.is_behind() {
            return None;
        }
        let End { link, search, .. } = end;
        let mut aside = self.aside.iter();
        let place = aside.position(|it| {
            it.death.is_none()
                && !it.refusers.contains(link)
                && match (search.as_mut(), &it.delivery.content) {
                    (None, Content::Held(_)) => true,
                    (Some(search), Content::Held(message)) => {
                        search.look(budget, message, now) == Some(true)
                    }
                    (_, Content::Stored { .. }) => false,
                }
        })?;
        let Entry {
            delivery, refusers, ..
        } = self.aside.take(place)?;
        let mut one = Queue::default();
        one.push(delivery);
        let next = self.with(at, |end, _| end.poll(&mut one, now, credit));
        if let Some(delivery) = one.remove_front() {
            self.set_aside(delivery, refusers);
            return next;
        }
        let key = match &next {
            Some(Next::Send(transfer)) => Some(transfer.key),
            Some(Next::Store { key, .. }) => Some(*key),
            _ => None,
        };
        if let Some(key) = key {
            self.refusers.insert((at, key), refusers);
        }
        next
    }

    /// Keeps a message for other consumers than these.
    pub(crate) fn set_aside(&mut self, delivery: Delivery, refusers: Vec<SessionRef>) {
        self.aside.put(Entry {
            delivery,
            refusers,
            death: None,
        });
        self.wake();
    }

    /// All consumers may have something to take.
    fn wake(&mut self) {
        let others: Vec<usize> = self.ends.iter().map(|(at, _)| at).collect();
        for at in others {
            self.wait(at);
        }
    }

    /// Who does not take a message that leaves its link with this outcome.
    pub(crate) fn take_refusers(
        &mut self,
        at: usize,
        key: u32,
        outcome: Outcome,
    ) -> Vec<SessionRef> {
        let mut refusers = self.refusers.remove(&(at, key)).unwrap_or_default();
        let refuses = matches!(
            outcome,
            Outcome::Modified {
                undeliverable_here: true,
                ..
            }
        );
        let link = self.ends.get(at).map(|end| end.link);
        refusers.extend(link.filter(|_| refuses));
        refusers
    }

    /// Whether there is a consumer besides these, and room for what it may take.
    pub(crate) fn may_set_aside(&self, refusers: &[SessionRef]) -> bool {
        self.aside.has_room() && self.has_other(refusers)
    }

    /// Whether there is a consumer besides these.
    pub(crate) fn has_other(&self, refusers: &[SessionRef]) -> bool {
        has_other(&self.ends, refusers)
    }

    /// A consumer has gone, or messages aside were loaded: those come out that are dead
    /// or that none of the consumers left takes. Where none is left, all of these wait
    /// for others.
    pub(crate) fn take_stranded(&mut self) -> Vec<(Delivery, Death, Waits)> {
        if self.aside.len() == 0 {
            return Vec::new();
        }
        let (is_left, ends) = (self.has_other(&[]), &self.ends);
        let is_wanted = |refusers: &[SessionRef]| has_other(ends, refusers);
        let Stranded { back, dead } = self.aside.take_stranded(is_left, is_wanted);
        for delivery in back {
            self.queue.push(delivery);
        }
        self.wake();
        dead
    }
}

/// Whether there is a consumer besides these.
fn has_other(ends: &Slab<End>, refusers: &[SessionRef]) -> bool {
    let takes = |end: &End| end.away.is_none() && matches!(end.wants, Use::Take { .. });
    let mut ends = ends.iter().map(|(_, end)| end);
    ends.any(|end| takes(end) && !refusers.contains(&end.link))
}
