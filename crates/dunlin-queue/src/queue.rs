//! Messages that wait for a receiver, in order and within limits.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Instant, Message};

use crate::delivery::{Content, Delivery};
use crate::levels::Levels;
use crate::passed::{Passed, Place, Scanned};

/// Deliveries that wait: what is in memory, what is only in the store, and the
/// room kept for what the store is being asked to take.
///
/// Deliveries of a higher level leave first, those of one level in their
/// order.
#[derive(Debug, Default)]
pub struct Queue {
    levels: Levels,
    /// What few queues have.
    off: Option<Box<Off>>,
    bytes: usize,
    reserved: usize,
    reserved_bytes: usize,
    /// How many deliveries were taken for the first time.
    turns: u64,
    /// The store was asked for messages, of this queue or in flight, of so many bytes.
    loading: Option<u32>,
}

/// What is out of line.
#[derive(Debug, Default)]
struct Off {
    /// From the front: their streams take nothing now.
    aside: Vec<Delivery>,
    /// What consumers with filters have gone past.
    passed: Passed,
    /// What the store is to be asked for.
    wanted: Wanted,
}

/// Which messages the store is to be asked for.
#[derive(Clone, Copy, Debug, Default)]
enum Wanted {
    /// Those that leave first.
    #[default]
    First,
    /// Of those that were passed over, from this place on.
    Passed(Place),
    /// Behind those that were passed over.
    Behind,
}

/// What a consumer with a filter comes to next.
#[derive(Debug)]
pub enum Ahead {
    /// A message that it may want: [`Queue::message_at`], then [`Queue::take_at`] or
    /// [`Queue::pass`].
    Message {
        /// Where it is.
        place: Place,
        /// It came back to where others may have scanned: [`Scanned::note_back`].
        back: bool,
    },
    /// Load the messages that [`Queue::stored_at_front`] names.
    Load,
    /// The message is past its time and out of the queue.
    Expired(Delivery),
    /// There is nothing more, or the store has not answered yet.
    Nothing,
}

impl Queue {
    /// Whether so many copies of a message of `cost` bytes fit, given limits in
    /// messages and in bytes for queue and reservations together.
    #[must_use]
    pub fn has_room(
        &self,
        copies: usize,
        cost: usize,
        messages_max: usize,
        bytes_max: usize,
    ) -> bool {
        let bytes = copies.saturating_mul(cost);
        self.expected() + copies <= messages_max
            && (self.bytes + self.reserved_bytes).saturating_add(bytes) <= bytes_max
    }

    /// Keeps room for a message that is being stored.
    pub fn reserve(&mut self, cost: usize) {
        self.reserved += 1;
        self.reserved_bytes += cost;
    }

    /// Gives back what [`Queue::reserve`] kept.
    pub fn unreserve(&mut self, cost: usize) {
        self.reserved = self.reserved.saturating_sub(1);
        self.reserved_bytes = self.reserved_bytes.saturating_sub(cost);
    }

    /// Queues a delivery behind all of its level and of higher ones. The caller
    /// has checked [`Queue::has_room`].
    pub fn push(&mut self, delivery: Delivery) {
        self.bytes += delivery.cost();
        self.levels.push(delivery);
    }

    /// Queues a delivery that was taken in this turn where it was: in front of
    /// all of its level that were taken later or never. Limits do not apply.
    pub(crate) fn put_back(&mut self, turn: u64, delivery: Delivery) {
        self.bytes += delivery.cost();
        self.levels.put_back(turn, delivery);
    }

    /// Queues a delivery that was removed where it was: in front of all of its level that
    /// were never taken. Limits do not apply.
    pub fn put_first(&mut self, delivery: Delivery) {
        self.bytes += delivery.cost();
        self.levels.push_front(delivery);
    }

    /// Deliveries for which it has memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.levels.capacity()
    }

    /// Messages that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        let off = self.off.as_ref();
        self.levels.len() + off.map_or(0, |off| off.aside.len() + off.passed.len())
    }

    /// Whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Messages that wait, and those that room is kept for.
    #[must_use]
    pub fn expected(&self) -> usize {
        self.len() + self.reserved
    }

    /// Bytes of waiting messages held in memory.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// As [`Queue::bytes`], with the room that is kept for messages.
    #[must_use]
    pub const fn expected_bytes(&self) -> usize {
        self.bytes + self.reserved_bytes
    }

    /// Bytes of messages that come from the store.
    #[must_use]
    pub fn loading_bytes(&self) -> usize {
        self.loading.unwrap_or_default() as usize
    }

    /// The store was asked for messages of so many bytes.
    pub fn expect_loaded(&mut self, bytes: usize) {
        if let Some(loading) = &mut self.loading {
            *loading = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// Bytes of what is kept of messages that consumers have passed over, besides the
    /// messages.
    #[must_use]
    pub fn passed_bytes(&self) -> usize {
        self.off.as_ref().map_or(0, |off| off.passed.bytes())
    }

    /// Waiting messages that are in memory.
    pub fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.browse().filter_map(Delivery::held)
    }

    /// Deliveries that are not packed, about in the order in which they leave.
    pub fn browse(&self) -> impl Iterator<Item = &Delivery> {
        let off = self.off.iter();
        let off = off.flat_map(|off| off.aside.iter().chain(off.passed.from(None)));
        off.chain(self.levels.unpacked())
    }

    /// The delivery that is taken next.
    #[must_use]
    pub fn front(&self) -> Option<&Delivery> {
        match self.first_passed() {
            Some((_, delivery)) => Some(delivery),
            None => self.levels.front(),
        }
    }

    /// The first delivery that was passed over, if it leaves before all others.
    fn first_passed(&self) -> Option<(Place, &Delivery)> {
        let first = self.off.as_ref()?.passed.first()?;
        let behind = self.levels.front_place();
        behind
            .is_none_or(|behind| first.0 < behind)
            .then_some(first)
    }

    /// What a consumer comes to next that has looked so far. `buries`: what is past its
    /// time is needed.
    pub fn ahead(&mut self, scanned: &mut Scanned, now: Instant, buries: bool) -> Ahead {
        let off = self.off.get_or_insert_default();
        let passed = off.passed.ahead(scanned);
        let behind = self.levels.front_place();
        let is_passed = match (passed, behind) {
            (Some(passed), Some(behind)) => passed < behind,
            (passed, _) => passed.is_some(),
        };
        let (delivery, wanted) = match passed.filter(|_| is_passed) {
            Some(place) => (off.passed.get(place), Wanted::Passed(place)),
            None => (self.levels.front(), Wanted::Behind),
        };
        let Some(delivery) = delivery else {
            return Ahead::Nothing;
        };
        let expired = delivery.is_expired(now);
        if delivery.is_stored() && (buries || !expired) {
            off.wanted = wanted;
            return match self.loading.is_some() {
                true => Ahead::Nothing,
                false => {
                    self.loading = Some(0);
                    Ahead::Load
                }
            };
        }
        let (place, back) = match passed.filter(|_| is_passed) {
            Some(place) => (place, false),
            None => {
                let Some((turn, delivery)) = self.levels.pop_front() else {
                    return Ahead::Nothing;
                };
                let new = turn.unwrap_or_else(|| {
                    self.turns += 1;
                    self.turns
                });
                let place = Place::new(delivery.level, Some(new));
                off.passed.insert(place, delivery);
                (place, turn.is_some())
            }
        };
        scanned.note(place);
        match expired.then(|| self.take_at(place)).flatten() {
            Some((_, delivery)) => Ahead::Expired(delivery),
            None => Ahead::Message { place, back },
        }
    }

    /// Whether a consumer that has looked so far may find something.
    pub fn has_ahead(&self, scanned: &mut Scanned) -> bool {
        let off = self.off.as_ref();
        self.levels.front().is_some() || off.is_some_and(|off| off.passed.ahead(scanned).is_some())
    }

    /// The message at a place, if it is in memory.
    #[must_use]
    pub fn message_at(&self, place: Place) -> Option<&Arc<Message>> {
        self.delivery_at(place)?.held()
    }

    /// The delivery at a place.
    pub(crate) fn delivery_at(&self, place: Place) -> Option<&Delivery> {
        self.off.as_ref()?.passed.get(place)
    }

    /// Takes the delivery at a place, with its turn.
    pub fn take_at(&mut self, place: Place) -> Option<(u64, Delivery)> {
        let delivery = self.off.as_mut()?.passed.remove(place)?;
        self.bytes = self.bytes.saturating_sub(delivery.cost());
        Some((place.turn(), delivery))
    }

    /// A consumer does not want the delivery at a place.
    pub fn pass(&mut self, place: Place) {
        if let Some(off) = &mut self.off {
            let freed = off.passed.settle(place);
            self.bytes = self.bytes.saturating_sub(freed);
        }
    }

    /// Passes over the delivery at the front, so that others need not wait for
    /// its stream; `false` if there are `max` such already. The caller passes
    /// over all later ones of its topic too, or their order is lost.
    pub fn set_aside(&mut self, max: usize) -> bool {
        let aside = &mut self.off.get_or_insert_default().aside;
        if aside.len() >= max {
            return false;
        }
        aside.extend(self.levels.pop_front().map(|(_, d)| d));
        true
    }

    /// Queues what was set aside in front of everything of its level.
    pub fn take_back(&mut self) {
        let Some(off) = &mut self.off else {
            return;
        };
        while let Some(delivery) = off.aside.pop() {
            self.levels.push_front(delivery);
        }
        if off.passed.len() == 0 {
            self.off = None;
        }
    }

    /// Starts a connection: what was set aside comes back, and streams of an
    /// earlier connection are gone.
    pub fn handle_resumed(&mut self) {
        self.take_back();
        self.levels.forget_streams();
    }

    /// Sequence numbers at the front that have to be loaded, at most `max` and
    /// for about `bytes_max`, but at least one; and their bytes.
    #[must_use]
    pub fn stored_at_front(&self, max: usize, bytes_max: usize) -> (Vec<u64>, usize) {
        let off = self.off.as_ref().map(|off| (&off.passed, off.wanted));
        match off {
            Some((passed, Wanted::Passed(place))) => {
                first_stored(passed.from(Some(place)), max, bytes_max)
            }
            Some((passed, Wanted::First)) if self.first_passed().is_some() => {
                first_stored(passed.from(None), max, bytes_max)
            }
            _ => first_stored(self.levels.iter(), max, bytes_max),
        }
    }

    /// A message came from the store; one that is gone is dropped.
    pub fn handle_loaded(&mut self, seq: u64, message: Option<&Arc<Message>>) {
        let passed = self.off.as_mut().map(|off| &mut off.passed);
        if let Some(bytes) = passed.and_then(|it| it.handle_loaded(seq, message)) {
            self.bytes += bytes;
            return;
        }
        match message {
            Some(message) => {
                if let Some(delivery) = self.levels.find_mut(seq) {
                    self.bytes += message.cost();
                    delivery.content = Content::Held(Arc::clone(message));
                }
            }
            None => {
                self.levels.remove(seq);
            }
        }
    }

    /// Lets go of the messages of durable deliveries beyond the first
    /// `keep`, which are then loaded again when their turn comes. Returns the
    /// bytes set free.
    pub fn shed(&mut self, keep: usize) -> usize {
        self.take_back();
        let before = self.bytes;
        let passed = self.off.as_mut().map(|off| &mut off.passed);
        let (len, freed) = passed.map_or((0, 0), |it| (it.len(), it.shed(keep)));
        let keep = keep.saturating_sub(len);
        let mut bytes = before.saturating_sub(freed);
        self.levels.filter(|place, mut delivery| {
            if place >= keep {
                let cost = delivery.cost();
                delivery.shed();
                bytes = bytes.saturating_sub(cost - delivery.cost());
            }
            Some(delivery)
        });
        self.bytes = bytes;
        before - self.bytes
    }

    /// Takes the delivery at the front out, for good.
    pub fn remove_front(&mut self) -> Option<Delivery> {
        self.take().map(|(_, delivery)| delivery)
    }

    /// Messages arrived from the store; those that are gone are dropped.
    pub fn handle_loads(&mut self, loaded: &[(u64, Option<Arc<Message>>)]) {
        self.end_loading();
        for (seq, message) in loaded {
            self.handle_loaded(*seq, message.as_ref());
        }
    }

    /// Takes the deliveries that came through a shared subscription, so that
    /// another member of their group can have them.
    pub fn take_shared(&mut self) -> Vec<Delivery> {
        self.take_back();
        let mut taken = Vec::new();
        let mut bytes = self.bytes;
        self.levels.filter(|_, delivery| {
            if delivery.share.is_none() {
                return Some(delivery);
            }
            bytes = bytes.saturating_sub(delivery.cost());
            taken.push(delivery);
            None
        });
        self.bytes = bytes;
        taken
    }

    /// Takes the delivery at the front, and its turn among all that were taken:
    /// one that came back keeps the turn that it had.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(u64, Delivery)> {
        if let Some((place, _)) = self.first_passed() {
            return self.take_at(place);
        }
        let (turn, delivery) = self.levels.pop_front()?;
        self.bytes = self.bytes.saturating_sub(delivery.cost());
        Some((turn.unwrap_or_else(|| self.next_turn()), delivery))
    }

    /// The turn of what is taken next.
    pub(crate) const fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Whether the message of the delivery at the front has to be loaded now: it is in
    /// the store, which was not asked for messages yet.
    pub fn must_load_front(&mut self) -> bool {
        self.front().is_some_and(Delivery::is_stored) && self.begin_loading()
    }

    /// Whether the delivery at the front is past its expiry.
    #[must_use]
    pub fn is_front_expired(&self, now: Instant) -> bool {
        self.front().is_some_and(|front| front.is_expired(now))
    }

    /// Nothing is expected soon: memory that is kept for it is freed.
    pub(crate) fn release(&mut self) {
        self.off = None;
        self.levels.release();
    }

    /// The store is asked for the messages that leave first: `false` if it was asked
    /// already.
    pub fn begin_loading(&mut self) -> bool {
        if self.loading.is_some() {
            return false;
        }
        if let Some(off) = &mut self.off {
            off.wanted = Wanted::First;
        }
        self.loading = Some(0);
        true
    }

    /// The store has answered.
    pub const fn end_loading(&mut self) {
        self.loading = None;
    }
}

/// The first deliveries that have to be loaded.
pub(crate) fn first_stored<'a>(
    deliveries: impl Iterator<Item = &'a Delivery>,
    max: usize,
    bytes_max: usize,
) -> (Vec<u64>, usize) {
    let (mut seqs, mut bytes) = (Vec::new(), 0);
    for delivery in deliveries.take(max) {
        let (Content::Stored { cost, .. }, Some(seq)) = (&delivery.content, delivery.seq) else {
            break;
        };
        let more = bytes + *cost as usize;
        if more > bytes_max && !seqs.is_empty() {
            break;
        }
        bytes = more;
        seqs.push(seq);
    }
    (seqs, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::Identifiers;
    use dunlin_base::{QoS, StreamId};

    fn delivery(seq: u64, level: u8) -> Delivery {
        Delivery {
            content: Content::Held(Arc::new(Message::default())),
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

    #[test]
    fn what_is_set_aside_comes_back_in_front_of_its_level() {
        let mut queue = Queue::default();
        for (seq, level) in [(1, 0), (2, 0), (3, 0), (4, 5), (5, 5)] {
            queue.push(delivery(seq, level));
        }
        let front = |queue: &Queue| queue.front().and_then(|d| d.seq);
        assert_eq!(front(&queue), Some(4));
        assert!(queue.set_aside(2));
        assert_eq!(queue.take().and_then(|(_, d)| d.seq), Some(5));
        assert!(queue.set_aside(2));
        assert!(!queue.set_aside(2));
        assert_eq!((front(&queue), queue.len()), (Some(2), 4));
        let bytes = queue.bytes();
        queue.take_back();
        let order: Vec<_> = queue.levels.iter().filter_map(|d| d.seq).collect();
        assert_eq!(order, [4, 1, 2, 3]);
        assert_eq!(queue.bytes(), bytes);
    }

    #[test]
    fn room_is_counted_in_messages_and_bytes_with_reservations() {
        let cost = Message::default().cost();
        let mut queue = Queue::default();
        queue.reserve(cost);
        queue.push(delivery(1, 0));
        assert!(queue.has_room(1, cost, 3, 3 * cost));
        assert!(!queue.has_room(1, cost, 2, 3 * cost));
        assert!(!queue.has_room(1, cost + 1, 3, 3 * cost));
        queue.unreserve(cost);
        assert!(queue.has_room(1, cost, 2, 2 * cost));
        assert_eq!((queue.expected(), queue.bytes()), (1, cost));
        queue.shed(0);
        assert_eq!((queue.expected(), queue.bytes()), (1, 0));
    }

    #[test]
    fn what_is_loaded_counts_again_and_what_is_gone_is_dropped() {
        let mut queue = Queue::default();
        for seq in 0..3 {
            queue.push(delivery(seq, 0));
        }
        assert!(queue.shed(1) > 0);
        assert_eq!(queue.stored_at_front(10, usize::MAX).0, []);
        queue.take();
        assert_eq!(queue.stored_at_front(10, usize::MAX).0, [1, 2]);
        assert_eq!(queue.stored_at_front(10, 1).0, [1], "at least one");
        let message = Arc::new(Message::default());
        queue.handle_loaded(1, None);
        queue.handle_loaded(2, Some(&message));
        assert_eq!((queue.len(), queue.bytes()), (1, message.cost()));
        assert_eq!(queue.front().and_then(|d| d.seq), Some(2));
    }
}
