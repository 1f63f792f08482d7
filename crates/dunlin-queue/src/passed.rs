//! Messages that a consumer with a filter has gone past: they wait in their order for
//! consumers that want them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::cmp::Reverse;

use dunlin_base::Message;

use crate::delivery::{Content, Delivery};

/// Messages in memory among those that were passed over; of further ones only their
/// place in the store is kept.
const HELD_MAX: usize = 4096;

/// What one of them takes besides its message.
const PASSED_BYTES: usize = size_of::<(Place, Delivery)>() + size_of::<(u64, Place)>() + 32;

/// Messages that came back to where a consumer has looked; one more, and it looks at
/// everything again.
const MISSED_MAX: usize = 1024;

/// Where a message is in the order in which a queue is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    level: Reverse<u8>,
    turn: u64,
}

impl Place {
    /// The last turn is that of what was never taken.
    pub(crate) const fn new(level: u8, turn: Option<u64>) -> Self {
        Self {
            level: Reverse(level),
            turn: match turn {
                Some(turn) => turn,
                None => u64::MAX,
            },
        }
    }

    pub(crate) const fn turn(self) -> u64 {
        self.turn
    }
}

/// How far a consumer has looked that does not want every message.
#[derive(Debug, Default)]
pub struct Scanned {
    /// The last turn of each level.
    turns: BTreeMap<Reverse<u8>, u64>,
    /// What came back to where it has scanned.
    missed: BTreeSet<Place>,
}

impl Scanned {
    /// It has looked at the message of this place.
    pub(crate) fn note(&mut self, place: Place) {
        if !self.missed.remove(&place) {
            let last = self.turns.entry(place.level).or_default();
            *last = place.turn.max(*last);
        }
    }

    /// A message came back to this place.
    pub fn note_back(&mut self, place: Place) {
        let last = self.turns.get(&place.level);
        if last.is_none_or(|last| place.turn > *last) {
            return;
        }
        if self.missed.len() >= MISSED_MAX {
            *self = Self::default();
        } else {
            self.missed.insert(place);
        }
    }
}

/// Messages that were passed over.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    all: BTreeMap<Place, Delivery>,
    /// Those that are not in memory, by their place in the store.
    stored: BTreeMap<u64, Place>,
}

impl Passed {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// What they take besides their messages.
    pub(crate) fn bytes(&self) -> usize {
        self.len() * PASSED_BYTES
    }

    pub(crate) fn first(&self) -> Option<(Place, &Delivery)> {
        self.all.first_key_value().map(|(place, it)| (*place, it))
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Delivery> {
        self.all.get(&place)
    }

    /// From a place on, or all.
    pub(crate) fn from(&self, place: Option<Place>) -> impl Iterator<Item = &Delivery> {
        let first = place.unwrap_or(Place::new(u8::MAX, Some(0)));
        self.all.range(first..).map(|(_, delivery)| delivery)
    }

    pub(crate) fn insert(&mut self, place: Place, delivery: Delivery) {
        if let (Content::Stored { .. }, Some(seq)) = (&delivery.content, delivery.seq) {
            self.stored.insert(seq, place);
        }
        self.all.insert(place, delivery);
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<Delivery> {
        let delivery = self.all.remove(&place)?;
        if let Some(seq) = delivery.seq {
            self.stored.remove(&seq);
        }
        Some(delivery)
    }

    /// The first message that a consumer has not looked at.
    pub(crate) fn ahead(&self, scanned: &mut Scanned) -> Option<Place> {
        // What was taken meanwhile is not there any more.
        while let Some(place) = scanned.missed.first().copied()
            && !self.all.contains_key(&place)
        {
            scanned.missed.pop_first();
        }
        let mut start = Place::new(u8::MAX, Some(0));
        let next = loop {
            let Some((&place, _)) = self.all.range(start..).next() else {
                break None;
            };
            let last = scanned.turns.get(&place.level).copied();
            let turn = last.map_or(0, |last| last.saturating_add(1));
            if place.turn >= turn {
                break Some(place);
            }
            start = Place { turn, ..place };
        };
        let missed = scanned.missed.first().copied();
        missed.into_iter().chain(next).min()
    }

    /// No consumer wants a message now: it stays in memory while there are few. Returns
    /// the bytes set free.
    pub(crate) fn settle(&mut self, place: Place) -> usize {
        match self.all.len() > HELD_MAX {
            true => self.shed_at(place),
            false => 0,
        }
    }

    fn shed_at(&mut self, place: Place) -> usize {
        let Some(delivery) = self.all.get_mut(&place) else {
            return 0;
        };
        let before = delivery.cost();
        delivery.shed();
        let freed = before.saturating_sub(delivery.cost());
        if let (true, Some(seq)) = (delivery.is_stored(), delivery.seq) {
            self.stored.insert(seq, place);
        }
        freed
    }

    /// Lets go of the messages of durable deliveries beyond the first `keep`. Returns
    /// the bytes set free.
    pub(crate) fn shed(&mut self, keep: usize) -> usize {
        let held = self.all.iter().skip(keep).filter(|(_, it)| !it.is_stored());
        let held: alloc::vec::Vec<Place> = held.map(|(place, _)| *place).collect();
        held.into_iter().map(|place| self.shed_at(place)).sum()
    }

    /// A message came from the store, and takes this many bytes now; `None`: it is not
    /// here. One that is gone is dropped.
    pub(crate) fn handle_loaded(
        &mut self,
        seq: u64,
        message: Option<&Arc<Message>>,
    ) -> Option<usize> {
        let place = self.stored.remove(&seq)?;
        let Some(message) = message else {
            self.all.remove(&place);
            return Some(0);
        };
        let delivery = self.all.get_mut(&place)?;
        delivery.content = Content::Held(Arc::clone(message));
        Some(message.cost())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::Identifiers;
    use crate::queue::{Ahead, Queue};
    use alloc::vec::Vec;
    use dunlin_base::{Instant, QoS, StreamId};

    const NOW: Instant = Instant::from_micros(1);

    fn delivery(seq: u64, level: u8) -> Delivery {
        Delivery {
            content: Content::Held(Arc::default()),
            seq: Some(seq),
            qos: QoS::AtLeastOnce,
            retain: false,
            identifiers: Identifiers::new(),
            share: None,
            stream: StreamId::CONTROL,
            level,
            maybe_sent: false,
            failed: 0,
            added: None,
        }
    }

    /// Brings what has to be loaded.
    fn load(queue: &mut Queue) {
        let (seqs, _) = queue.stored_at_front(7, usize::MAX);
        assert!(!seqs.is_empty(), "something is asked for");
        let loaded = seqs.into_iter().map(|seq| (seq, Some(Arc::default())));
        queue.handle_loads(&loaded.collect::<Vec<_>>());
    }

    /// The next message whose number is `of` modulo 3.
    fn search(
        queue: &mut Queue,
        scanned: &mut [Scanned; 2],
        of: usize,
        looks: &mut usize,
    ) -> Option<(u64, Delivery)> {
        loop {
            match queue.ahead(&mut scanned[of], NOW, false) {
                Ahead::Message { place, back } => {
                    *looks += 1;
                    if back {
                        scanned[1 - of].note_back(place);
                    }
                    assert!(queue.message_at(place).is_some());
                    let seq = queue.delivery_at(place).and_then(|it| it.seq);
                    if seq.expect("durable") % 3 == of as u64 {
                        return queue.take_at(place);
                    }
                    queue.pass(place);
                }
                Ahead::Load => load(queue),
                Ahead::Expired(_) => panic!("nothing expires"),
                Ahead::Nothing => return None,
            }
        }
    }

    fn take(queue: &mut Queue) -> Option<(u64, Delivery)> {
        while queue.must_load_front() {
            load(queue);
        }
        queue.take()
    }

    #[test]
    fn each_consumer_gets_what_it_wants_in_order() {
        for seed in 1..200_u64 {
            let mut random = seed;
            let mut next = |max: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % max
            };
            let mut queue = Queue::default();
            let mut scanned = [Scanned::default(), Scanned::default()];
            let (mut out, mut waiting) = (Vec::new(), Vec::new());
            let (mut pushed, mut looks) = (0, 0);
            for _ in 0..150 {
                match next(6) {
                    0 | 1 => {
                        pushed += 1;
                        let level = next(2) as u8;
                        waiting.push((Reverse(level), pushed));
                        queue.push(delivery(pushed, level));
                    }
                    2 => {
                        queue.shed(next(3) as usize);
                    }
                    3 => out.extend(take(&mut queue)),
                    4 => {
                        let of = next(2) as usize;
                        out.extend(search(&mut queue, &mut scanned, of, &mut looks));
                    }
                    _ if !out.is_empty() => {
                        let at = next(out.len() as u64) as usize;
                        let (turn, delivery) = out.swap_remove(at);
                        queue.put_back(turn, delivery);
                    }
                    _ => {}
                }
            }
            for (_, delivery) in &out {
                waiting.retain(|(_, seq)| Some(*seq) != delivery.seq);
            }
            waiting.sort_unstable();
            assert_eq!(queue.len(), waiting.len());
            for of in [0, 1] {
                let mut got = Vec::new();
                while let Some((_, it)) = search(&mut queue, &mut scanned, of, &mut looks) {
                    got.extend(it.seq);
                }
                assert!(!queue.has_ahead(&mut scanned[of]));
                let (wanted, rest): (Vec<_>, Vec<_>) = waiting
                    .into_iter()
                    .partition(|(_, seq)| seq % 3 == of as u64);
                let wanted: Vec<u64> = wanted.into_iter().map(|(_, seq)| seq).collect();
                assert_eq!(got, wanted, "seed {seed}, consumer {of}");
                waiting = rest;
            }
            let rest = core::iter::from_fn(|| take(&mut queue));
            let rest: Vec<u64> = rest.filter_map(|(_, it)| it.seq).collect();
            let waiting: Vec<u64> = waiting.into_iter().map(|(_, seq)| seq).collect();
            assert_eq!(rest, waiting, "seed {seed}");
            assert_eq!((queue.bytes(), queue.len()), (0, 0));
        }
    }

    #[test]
    fn no_message_is_looked_at_twice_by_one_consumer() {
        let mut queue = Queue::default();
        for seq in 0..10_000 {
            queue.push(delivery(3 * seq + 2, 0));
        }
        let (mut scanned, mut looks) = ([Scanned::default(), Scanned::default()], 0);
        for _ in 0..100 {
            assert!(search(&mut queue, &mut scanned, 0, &mut looks).is_none());
            queue.push(delivery(2, 0));
        }
        assert_eq!(looks, 10_099);
        // What comes back to where it has looked is looked at once more.
        let (turn, first) = queue.take().expect("the first");
        assert_eq!(first.seq, Some(2));
        queue.put_back(turn, first);
        assert!(search(&mut queue, &mut scanned, 0, &mut looks).is_none());
        assert_eq!(looks, 10_099 + 2);
    }

    #[test]
    fn few_of_those_passed_over_stay_in_memory() {
        let mut queue = Queue::default();
        for seq in 0..5_000 {
            queue.push(delivery(3 * seq + 2, 0));
        }
        let bytes = queue.bytes() / 5_000;
        let (mut scanned, mut looks) = ([Scanned::default(), Scanned::default()], 0);
        assert!(search(&mut queue, &mut scanned, 1, &mut looks).is_none());
        assert_eq!(queue.bytes(), HELD_MAX * bytes);
        assert!(queue.shed(0) > 0);
        assert_eq!((queue.bytes(), queue.len()), (0, 5_000));
        assert_eq!(queue.passed_bytes(), 5_000 * PASSED_BYTES);
        let all = core::iter::from_fn(|| take(&mut queue));
        assert!(
            all.map(|(_, it)| it.seq)
                .eq((0..5_000).map(|seq| Some(3 * seq + 2)))
        );
        assert_eq!(queue.passed_bytes(), 0);
    }
}
