//! Messages that wait to be written: higher priorities first, those of
//! one topic in their order. Knows no engine and no stream.

use std::collections::{HashMap, VecDeque};

use dunlin_base::{Instant, Text};

use crate::streams::Priority;

/// Levels of [`Priority`].
const LEVELS: usize = Priority::HIGHEST.level() as usize + 1;

/// Something that waits.
pub(crate) trait Waiting {
    /// Messages of one topic keep their order.
    fn topic(&self) -> &Text;
    /// The same for all messages of a topic.
    fn priority(&self) -> Priority;
    /// When it is of no use any more.
    fn obsolete_at(&self) -> Option<Instant>;
}

/// The messages. Bounded by what the client may have in flight.
pub(crate) struct Outbox<T> {
    levels: [VecDeque<T>; LEVELS],
    /// Messages whose topic must wait, by topic.
    parked: HashMap<Text, VecDeque<T>>,
    /// No message is obsolete before.
    obsolete_from: Option<Instant>,
}

impl<T: Waiting> Outbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            levels: core::array::from_fn(|_| VecDeque::new()),
            parked: HashMap::new(),
            obsolete_from: None,
        }
    }

    /// Whether nothing waits that could be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.iter().all(VecDeque::is_empty)
    }

    /// Whether nothing waits at all.
    pub(crate) fn is_clear(&self) -> bool {
        self.parked.is_empty() && self.is_empty()
    }

    /// Takes a message to the end.
    pub(crate) fn push(&mut self, message: T) {
        self.note_age(&message);
        if !self.parked.is_empty()
            && let Some(parked) = self.parked.get_mut(message.topic().as_bytes())
        {
            return parked.push_back(message);
        }
        if let Some(level) = self.level(message.priority()) {
            level.push_back(message);
        }
    }

    /// The next message.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let mut levels = self.levels.iter_mut().rev();
        levels.find_map(VecDeque::pop_front)
    }

    /// Puts back what [`Outbox::pop`] gave.
    pub(crate) fn unpop(&mut self, message: T) {
        if let Some(level) = self.level(message.priority()) {
            level.push_front(message);
        }
    }

    /// The message that [`Outbox::pop`] gave must wait, and with it all of its
    /// topic, until [`Outbox::release`].
    pub(crate) fn park(&mut self, message: T) {
        let topic = message.topic().clone();
        let Some(level) = self.level(message.priority()) else {
            return;
        };
        let mut waiting: VecDeque<T> = VecDeque::new();
        let mut others = VecDeque::with_capacity(level.len());
        for other in level.drain(..) {
            match *other.topic() == topic {
                true => waiting.push_back(other),
                false => others.push_back(other),
            }
        }
        *level = others;
        waiting.push_front(message);
        self.parked.insert(topic, waiting);
    }

    /// A topic need not wait any more: its messages go first in their level.
    pub(crate) fn release(&mut self, topic: &Text) {
        let Some(parked) = self.parked.remove(topic.as_bytes()) else {
            return;
        };
        for message in parked.into_iter().rev() {
            self.unpop(message);
        }
    }

    /// No topic need wait any more.
    pub(crate) fn release_all(&mut self) {
        let topics: Vec<Text> = self.parked.keys().cloned().collect();
        for topic in topics {
            self.release(&topic);
        }
    }

    /// When to call [`Outbox::take_obsolete`].
    pub(crate) fn obsolete_from(&self) -> Option<Instant> {
        self.obsolete_from
    }

    /// Takes out what is of no use any more.
    pub(crate) fn take_obsolete(&mut self, now: Instant) -> Vec<T> {
        let mut taken = Vec::new();
        if self.obsolete_from.is_none_or(|from| from > now) {
            return taken;
        }
        let mut next: Option<Instant> = None;
        for queue in self.levels.iter_mut().chain(self.parked.values_mut()) {
            let is_old = |message: &T| message.obsolete_at().is_some_and(|at| at <= now);
            if queue.iter().any(is_old) {
                let (old, young) = core::mem::take(queue).into_iter().partition(is_old);
                *queue = young;
                taken.extend::<VecDeque<T>>(old);
            }
            let ages = queue.iter().filter_map(Waiting::obsolete_at);
            next = ages.chain(next).min();
        }
        self.parked.retain(|_, queue| !queue.is_empty());
        self.obsolete_from = next;
        taken
    }

    /// Takes out everything.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.release_all();
        self.obsolete_from = None;
        let levels = self.levels.iter_mut().rev();
        levels.flat_map(core::mem::take)
    }

    fn note_age(&mut self, message: &T) {
        let ages = self.obsolete_from.into_iter().chain(message.obsolete_at());
        self.obsolete_from = ages.min();
    }

    fn level(&mut self, priority: Priority) -> Option<&mut VecDeque<T>> {
        self.levels.get_mut(usize::from(priority.level()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Message(Text, u64, u8, Option<u64>);

    impl Waiting for Message {
        fn topic(&self) -> &Text {
            &self.0
        }
        fn priority(&self) -> Priority {
            Priority::new(self.2)
        }
        fn obsolete_at(&self) -> Option<Instant> {
            self.3.map(Instant::from_micros)
        }
    }

    fn message(topic: &'static str, n: u64, level: u8) -> Message {
        Message(Text::from_static(topic), n, level, None)
    }

    fn numbers(messages: impl IntoIterator<Item = Message>) -> Vec<u64> {
        messages.into_iter().map(|message| message.1).collect()
    }

    fn filled(messages: impl IntoIterator<Item = Message>) -> Outbox<Message> {
        let mut outbox = Outbox::new();
        for message in messages {
            outbox.push(message);
        }
        outbox
    }

    #[test]
    fn what_matters_more_goes_first_and_equals_in_turn() {
        let mut outbox = filled([
            message("t", 1, 3),
            message("u", 2, 3),
            message("alarm", 3, 7),
            message("bulk", 4, 0),
            message("t", 5, 3),
        ]);
        let order = core::iter::from_fn(|| outbox.pop());
        assert_eq!(numbers(order), [3, 1, 2, 5, 4]);
        assert!(outbox.is_clear());
    }

    #[test]
    fn a_waiting_topic_lets_others_pass_and_keeps_its_order() {
        let mut outbox = filled((1..=6).map(|n| message(["a", "b"][n as usize % 2], n, 3)));
        let first = outbox.pop().expect("a message");
        assert_eq!(first.1, 1);
        outbox.park(first);
        outbox.push(message("b", 7, 3));
        assert_eq!(outbox.pop().expect("a message").1, 2);
        outbox.release(&Text::from_static("b"));
        let order = core::iter::from_fn(|| outbox.pop());
        assert_eq!(numbers(order), [1, 3, 5, 7, 4, 6]);
    }

    #[test]
    fn what_is_too_old_is_taken_out_wherever_it_waits() {
        let mut outbox = Outbox::new();
        for (n, age) in [(1, Some(5)), (2, None), (3, Some(9)), (4, Some(5))] {
            let topic = Text::from_static(["a", "b"][n as usize % 2]);
            outbox.push(Message(topic, n, 3, age));
        }
        let first = outbox.pop().expect("a message");
        outbox.park(first);
        assert_eq!(outbox.obsolete_from(), Some(Instant::from_micros(5)));
        assert!(outbox.take_obsolete(Instant::from_micros(4)).is_empty());
        let mut old = numbers(outbox.take_obsolete(Instant::from_micros(5)));
        old.sort_unstable();
        assert_eq!(old, [1, 4]);
        assert_eq!(outbox.obsolete_from(), Some(Instant::from_micros(9)));
        assert_eq!(numbers(outbox.take_obsolete(Instant::from_micros(9))), [3]);
        // A topic with nothing left does not hold up what comes later.
        outbox.push(message("b", 8, 3));
        assert_eq!(numbers(core::iter::from_fn(|| outbox.pop())), [2, 8]);
        assert_eq!(outbox.obsolete_from(), None);
    }

    #[test]
    fn draining_gives_everything_in_order() {
        let mut outbox = filled((1..=4).map(|n| message(["a", "b"][n as usize % 2], n, 3)));
        let first = outbox.pop().expect("a message");
        outbox.park(first);
        let mut drained = numbers(outbox.drain());
        assert!(drained.iter().position(|n| *n == 1) < drained.iter().position(|n| *n == 3));
        drained.sort_unstable();
        assert_eq!(drained, [1, 2, 3, 4]);
        assert!(outbox.is_clear());
    }
}
