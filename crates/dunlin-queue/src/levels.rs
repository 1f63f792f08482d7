//! The messages that wait, by level: those of a higher level leave first,
//! those of one level in their order. What is far from its turn and in the
//! store is kept packed.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use dunlin_base::StreamId;

use crate::delivery::Delivery;
use crate::packed::Packed;
use crate::passed::Place;

/// Deliveries at the front of a level that are not packed: as many as are
/// loaded at a time.
const FRONT_MAX: usize = 256;

/// Places for which memory is kept when all deliveries have been taken: the
/// next one comes soon, as long as others are not settled.
const KEPT_MAX: usize = 16;

/// Deliveries that wait.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    /// Highest first, none of them empty but one that is alone. Most sessions
    /// of a fleet have none.
    levels: Vec<Level>,
    len: usize,
}

#[derive(Debug, Default)]
struct Level {
    level: u8,
    /// Empty only with the level.
    front: VecDeque<Delivery>,
    /// Turns of the first ones of the front, which were taken before and came
    /// back, in order.
    returned: VecDeque<u64>,
    /// Everything behind the front, none of them empty.
    rest: VecDeque<Segment>,
}

#[derive(Debug)]
enum Segment {
    Plain(VecDeque<Delivery>),
    Packed(Packed),
}

impl Segment {
    fn len(&self) -> usize {
        match self {
            Self::Plain(plain) => plain.len(),
            Self::Packed(packed) => packed.len(),
        }
    }
}

impl Level {
    fn push(&mut self, delivery: Delivery) {
        if self.rest.is_empty() && self.front.len() < FRONT_MAX {
            self.front.push_back(delivery);
            return;
        }
        let packs = Packed::takes(&delivery);
        match self.rest.back_mut() {
            Some(Segment::Packed(packed)) if packs => {
                if let Err(delivery) = packed.push(delivery) {
                    self.push_segment(delivery);
                }
            }
            Some(Segment::Plain(plain)) if !packs => plain.push_back(delivery),
            _ => self.push_segment(delivery),
        }
    }

    fn push_segment(&mut self, delivery: Delivery) {
        let mut packed = Packed::default();
        self.rest.push_back(match packed.push(delivery) {
            Ok(()) => Segment::Packed(packed),
            Err(delivery) => Segment::Plain(VecDeque::from([delivery])),
        });
    }

    /// Fills an empty front; `false` if nothing is left.
    fn refill(&mut self) -> bool {
        while self.front.is_empty() {
            match self.rest.front_mut() {
                None => return false,
                Some(Segment::Plain(plain)) => self.front = core::mem::take(plain),
                Some(Segment::Packed(packed)) => {
                    while self.front.len() < FRONT_MAX
                        && let Some(delivery) = packed.pop(self.level)
                    {
                        self.front.push_back(delivery);
                    }
                }
            }
            if self.rest.front().is_some_and(|next| next.len() == 0) {
                self.rest.pop_front();
            }
        }
        true
    }

    /// Every delivery that is not packed goes through `visit`, with the number
    /// of those in front of it, and stays if it is given back.
    fn filter(
        self,
        before: usize,
        visit: &mut impl FnMut(usize, Delivery) -> Option<Delivery>,
    ) -> Self {
        let mut kept = Self {
            level: self.level,
            ..Self::default()
        };
        let mut returned = self.returned.into_iter();
        let mut place = before;
        let front = core::iter::once(Segment::Plain(self.front));
        for segment in front.chain(self.rest) {
            let len = segment.len();
            match segment {
                Segment::Packed(packed) => kept.rest.push_back(Segment::Packed(packed)),
                Segment::Plain(plain) => {
                    let stay = plain.into_iter().enumerate();
                    for (index, delivery) in stay {
                        let turn = returned.next();
                        if let Some(delivery) = visit(place + index, delivery) {
                            kept.push(delivery);
                            kept.returned.extend(turn.filter(|_| kept.rest.is_empty()));
                        }
                    }
                }
            }
            place += len;
        }
        kept
    }

    fn len(&self) -> usize {
        self.front.len() + self.rest.iter().map(Segment::len).sum::<usize>()
    }
}

impl Levels {
    /// Deliveries for which it has memory at its highest level.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        let first = self.levels.first();
        first.map_or(0, |level| level.front.capacity())
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The message that leaves next.
    pub(crate) fn front(&self) -> Option<&Delivery> {
        self.levels.first()?.front.front()
    }

    /// Where it is among what was taken before.
    pub(crate) fn front_place(&self) -> Option<Place> {
        let first = self.levels.first()?;
        first.front.front()?;
        Some(Place::new(first.level, first.returned.front().copied()))
    }

    /// Queues behind all of its level.
    pub(crate) fn push(&mut self, delivery: Delivery) {
        self.add(delivery.level, |level| level.push(delivery));
    }

    /// Queues in front of all of its level that were never taken.
    pub(crate) fn push_front(&mut self, delivery: Delivery) {
        self.add(delivery.level, |level| {
            let place = level.returned.len().min(level.front.len());
            level.front.insert(place, delivery);
        });
    }

    /// Queues what was taken in this turn, where it was.
    pub(crate) fn put_back(&mut self, turn: u64, delivery: Delivery) {
        self.add(delivery.level, |level| {
            let place = level.returned.partition_point(|other| *other < turn);
            level.returned.insert(place, turn);
            level.front.insert(place, delivery);
        });
    }

    /// Takes the delivery at the front, and its turn if it was taken before.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<(Option<u64>, Delivery)> {
        let first = self.levels.first_mut()?;
        let delivery = first.front.pop_front()?;
        let turn = first.returned.pop_front();
        self.len -= 1;
        if !first.refill() && (self.len > 0 || first.front.capacity() > KEPT_MAX) {
            self.levels.remove(0);
        }
        Some((turn, delivery))
    }

    /// From the front on, as far as that is known without unpacking.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Delivery> {
        let open = self.levels.iter().take_while(|level| level.rest.is_empty());
        let known = (open.count() + 1).min(self.levels.len());
        self.levels.iter().take(known).flat_map(|l| &l.front)
    }

    /// All that are not packed, those of a higher level first, each level in its
    /// order.
    pub(crate) fn unpacked(&self) -> impl Iterator<Item = &Delivery> {
        let levels = self.levels.iter();
        levels.flat_map(|level| {
            let rest = level.rest.iter().filter_map(|segment| match segment {
                Segment::Plain(plain) => Some(plain),
                Segment::Packed(_) => None,
            });
            level.front.iter().chain(rest.flatten())
        })
    }

    /// A delivery near the front by its sequence number.
    pub(crate) fn find_mut(&mut self, seq: u64) -> Option<&mut Delivery> {
        let mut fronts = self.levels.iter_mut().flat_map(|level| &mut level.front);
        fronts.find(|delivery| delivery.seq == Some(seq))
    }

    /// Removes a delivery near the front by its sequence number.
    pub(crate) fn remove(&mut self, seq: u64) -> Option<Delivery> {
        for (place, level) in self.levels.iter_mut().enumerate() {
            let mut places = level.front.iter();
            let Some(index) = places.position(|d| d.seq == Some(seq)) else {
                continue;
            };
            let removed = level.front.remove(index);
            if index < level.returned.len() {
                level.returned.remove(index);
            }
            if !level.refill() {
                self.levels.remove(place);
            }
            self.len -= 1;
            return removed;
        }
        None
    }

    /// Has everything go to the control stream.
    pub(crate) fn forget_streams(&mut self) {
        for level in &mut self.levels {
            let mut all = level.front.iter_mut();
            all.by_ref().for_each(|d| d.stream = StreamId::CONTROL);
            for segment in &mut level.rest {
                match segment {
                    Segment::Packed(packed) => packed.forget_streams(),
                    Segment::Plain(plain) => {
                        plain.iter_mut().for_each(|d| d.stream = StreamId::CONTROL);
                    }
                }
            }
        }
    }

    /// Every delivery that is not packed goes through `visit`, with the number
    /// of those in front of it, and stays if it is given back.
    pub(crate) fn filter(&mut self, mut visit: impl FnMut(usize, Delivery) -> Option<Delivery>) {
        let mut place = 0;
        for level in core::mem::take(&mut self.levels) {
            let len = level.len();
            let mut level = level.filter(place, &mut visit);
            if level.refill() {
                self.levels.push(level);
            }
            place += len;
        }
        self.len = self.levels.iter().map(Level::len).sum();
    }

    /// Frees the memory of a queue without deliveries.
    pub(crate) fn release(&mut self) {
        if self.len == 0 {
            self.levels = Vec::new();
        }
    }

    /// Adds one delivery to a level.
    fn add(&mut self, level: u8, add: impl FnOnce(&mut Level)) {
        if self.len == 0
            && let Some(empty) = self.levels.first_mut()
        {
            empty.level = level;
        }
        let place = self.levels.partition_point(|l| l.level > level);
        if self.levels.get(place).is_none_or(|l| l.level != level) {
            let new = Level {
                level,
                ..Level::default()
            };
            // Most have one level; a vector that grows by itself begins with four.
            if self.levels.is_empty() {
                self.levels.reserve_exact(1);
            }
            self.levels.insert(place, new);
        }
        if let Some(level) = self.levels.get_mut(place) {
            add(level);
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::{Content, Identifiers};
    use alloc::sync::Arc;
    use dunlin_base::{Message, QoS};

    fn delivery(seq: u64, level: u8, stored: bool) -> Delivery {
        let mut delivery = Delivery {
            content: Content::Held(Arc::new(Message::default())),
            seq: Some(seq),
            qos: QoS::AtLeastOnce,
            retain: false,
            identifiers: Identifiers::new(),
            share: None,
            stream: StreamId(4),
            level,
            maybe_sent: false,
            failed: 0,
            added: None,
        };
        if stored {
            delivery.shed();
        }
        delivery
    }

    fn is_packed(queue: &Levels) -> bool {
        let mut segments = queue.levels.iter().flat_map(|level| &level.rest);
        segments.any(|segment| matches!(segment, Segment::Packed(_)))
    }

    /// The same operations on a plain list, sorted by level.
    #[derive(Default)]
    struct Model(Vec<(u64, u8)>);

    impl Model {
        fn push(&mut self, seq: u64, level: u8) {
            let at = self.0.partition_point(|(_, l)| *l >= level);
            self.0.insert(at, (seq, level));
        }

        fn push_front(&mut self, seq: u64, level: u8) {
            let at = self.0.partition_point(|(_, l)| *l > level);
            self.0.insert(at, (seq, level));
        }
    }

    #[test]
    fn it_is_a_list_sorted_by_level_packed_or_not() {
        const OPERATIONS: u64 = 60_000;
        let mut queue = Levels::default();
        let mut model = Model::default();
        let mut random = 1_u64;
        let mut was_packed = false;
        for seq in 0..OPERATIONS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seq | 1);
            let draw = random >> 33;
            let level = (draw >> 8) as u8 % 3;
            // Long phases in which it grows, then shrinks.
            let grows = seq % 10_000 < 6_000;
            match draw % 64 {
                0 => {
                    queue.push_front(delivery(seq, level, draw & 64 != 0));
                    model.push_front(seq, level);
                }
                1 if draw & 0xfc0 == 0 => {
                    let keep = draw as usize % 1000;
                    queue.filter(|place, mut delivery| {
                        if place >= keep {
                            delivery.shed();
                        }
                        Some(delivery)
                    });
                }
                2 => {
                    let near = queue.iter().nth(draw as usize % 300).and_then(|d| d.seq);
                    if let Some(near) = near {
                        assert!(queue.find_mut(near).is_some());
                        assert_eq!(queue.remove(near).and_then(|d| d.seq), Some(near));
                        model.0.retain(|(seq, _)| *seq != near);
                    }
                }
                draw if (draw < 48) == grows => {
                    queue.push(delivery(seq, level, draw % 8 != 0));
                    model.push(seq, level);
                }
                _ if !model.0.is_empty() => {
                    let popped = queue.pop_front().map(|(_, d)| (d.seq, d.level));
                    let (seq, level) = model.0.remove(0);
                    assert_eq!(popped, Some((Some(seq), level)));
                }
                _ => assert!(queue.pop_front().is_none()),
            }
            was_packed |= is_packed(&queue);
            assert_eq!(queue.len(), model.0.len());
            let front = queue.front().and_then(|d| d.seq);
            assert_eq!(front, model.0.first().map(|(seq, _)| *seq));
        }
        assert!(was_packed);
        let mut left = core::iter::from_fn(|| queue.pop_front());
        assert!(
            model
                .0
                .iter()
                .all(|(seq, _)| left.next().and_then(|(_, d)| d.seq) == Some(*seq))
        );
        assert!(left.next().is_none());
        queue.release();
        assert!(queue.levels.is_empty());
    }

    #[test]
    fn streams_are_forgotten_everywhere() {
        let mut queue = Levels::default();
        for seq in 0..2000 {
            queue.push(delivery(seq, 0, seq % 500 != 0));
        }
        assert!(is_packed(&queue));
        queue.forget_streams();
        queue.push(delivery(2000, 0, true));
        let mut streams = core::iter::from_fn(|| queue.pop_front().map(|(_, d)| d.stream.0));
        assert!(streams.by_ref().take(2000).all(|stream| stream == 0));
        assert_eq!(streams.next(), Some(4));
    }

    #[test]
    fn what_is_filtered_out_is_gone_and_places_count_what_is_packed() {
        let mut queue = Levels::default();
        for seq in 0..1000 {
            queue.push(delivery(seq, 0, seq != 900));
        }
        assert!(is_packed(&queue));
        queue.filter(|place, delivery| {
            assert_eq!(delivery.seq, Some(place as u64));
            (place >= FRONT_MAX && place != 900).then_some(delivery)
        });
        assert_eq!(queue.len(), 1000 - FRONT_MAX - 1);
        assert_eq!(queue.front().and_then(|d| d.seq), Some(FRONT_MAX as u64));
    }
}
