//! A receiver of deliveries: takes from a queue within its credit, and keeps
//! what is not settled. It holds messages or, when memory is short, only their
//! place in the store; it never encodes.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Instant, Message, QoS, StreamId};

use crate::delivery::{Content, Delivery, Identifiers};
use crate::queue::{Queue, first_stored};
use crate::state::{Event, Outcome, State, Step};
use crate::window::{Key, Window};

#[cfg(test)]
mod tests;

/// A message to be sent, with what its packet needs.
#[derive(Clone, Debug)]
pub struct Transfer<K> {
    /// Key of the delivery until it is settled.
    pub key: K,
    /// It may have been sent before.
    pub again: bool,
    /// It was sent before with this key (DUP).
    pub repeated: bool,
    /// Attempts to deliver it that failed.
    pub failed: u16,
    /// What its receivers have added to it.
    pub added: Option<Arc<[u8]>>,
    /// The message.
    pub message: Arc<Message>,
    /// QoS of this delivery.
    pub qos: QoS,
    /// RETAIN flag of this delivery.
    pub retain: bool,
    /// Subscription identifiers.
    pub identifiers: Identifiers,
    /// Stream to send it on. If it leaves on another one,
    /// [`Consumer::note_stream`] has to know.
    pub stream: StreamId,
}

/// What to do next for the receiver.
#[derive(Debug)]
pub enum Next<K> {
    /// Send the message.
    Send(Transfer<K>),
    /// Ask the receiver to forget the key (PUBREL).
    Settle {
        /// Key of the delivery.
        key: K,
        /// Stream that the message left on.
        stream: StreamId,
    },
    /// Have the store record the key of this durable delivery;
    /// [`Consumer::handle_stored`] then lets it leave.
    Store {
        /// Key of the delivery.
        key: K,
        /// The message.
        seq: u64,
    },
    /// Load the messages that [`Consumer::stored_at_front`] names.
    Load,
    /// The message expired before it left; forget it in the store too.
    Expired(Delivery),
}

/// What follows when the receiver has a message and keeps its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Have the store record it, then call
    /// [`Consumer::handle_receipt_stored`].
    Store {
        /// The message's place in the store, no longer needed.
        seq: u64,
    },
    /// Ask the receiver to forget the key now.
    Settle,
    /// The store is being asked already.
    Pending,
    /// No such key in this state.
    Unknown,
}

/// What follows when a delivery leaves its consumer.
#[derive(Debug)]
pub enum Settled {
    /// It is over.
    Done {
        /// Its place in the store, still to be removed.
        seq: Option<u64>,
        /// Whether its key is in the store, to be removed.
        key_stored: bool,
    },
    /// It waits in its queue again.
    Requeued {
        /// Whether its key is in the store, to be removed.
        key_stored: bool,
    },
    /// Another receiver has to be found: one of its group, or any other. If
    /// there is none, [`Outcome::Released`] means to queue it again and
    /// [`Outcome::Modified`] that it is over.
    Returned {
        /// The delivery.
        delivery: Delivery,
        /// Whether its key is in the store, to be removed.
        key_stored: bool,
    },
    /// No such key in this state.
    Unknown,
}

/// A delivery that is not settled.
#[derive(Debug)]
struct Unsettled {
    state: State,
    qos: QoS,
    sent: bool,
    key_stored: bool,
    /// Its key is in [`Held`].
    held: bool,
    /// When it was taken first, among all of its queue.
    turn: u64,
    stream: StreamId,
    /// Gone once the receiver has it and keeps only its key; none of what was
    /// sent without being kept.
    delivery: Option<Delivery>,
}

impl Unsettled {
    /// Whether its message has to be loaded before it is sent.
    fn lacks_message(&self) -> bool {
        self.delivery.as_ref().is_some_and(Delivery::is_stored)
    }

    /// Whether its receiver settles it in one step.
    fn is_in_one_step(&self) -> bool {
        self.qos != QoS::ExactlyOnce
    }

    fn cost(&self) -> usize {
        self.delivery.as_ref().map_or(0, Delivery::cost)
    }

    /// It leaves its consumer.
    fn end(&mut self, outcome: Outcome) -> Settled {
        let key_stored = self.key_stored;
        let returns = matches!(outcome, Outcome::Released | Outcome::Modified { .. });
        if returns && let Some(mut delivery) = self.delivery.take() {
            if matches!(outcome, Outcome::Modified { failed: true, .. }) {
                delivery.maybe_sent = true;
                delivery.failed = delivery.failed.saturating_add(1);
            }
            return Settled::Returned {
                delivery,
                key_stored,
            };
        }
        let seq = self.delivery.as_ref().and_then(|delivery| delivery.seq);
        Settled::Done { seq, key_stored }
    }
}

/// Keys that an earlier process has recorded, of messages that it has perhaps not sent: one
/// before them whose key the store refused was to leave first. It is in the queue again.
#[derive(Debug)]
struct Held<K> {
    /// In their order. Bounded by what was in flight.
    keys: VecDeque<K>,
}

/// What leaves next of what is held and of the queue.
enum Turn<K> {
    /// The message under this key.
    Held(K),
    /// The first of the queue.
    Queue,
    /// Nothing now.
    Nothing,
}

/// A receiver of deliveries, with keys of the protocol's choice.
///
/// Call [`Consumer::poll`] until it has nothing, after a delivery was queued,
/// credit was given, and after each of the `handle_` methods, [`settle`] and
/// [`complete`].
///
/// [`settle`]: Consumer::settle
/// [`complete`]: Consumer::complete
#[derive(Debug)]
pub struct Consumer<K> {
    unsettled: Window<K, Unsettled>,
    /// Keys whose message, or whose second step, must be sent (again).
    due: VecDeque<K>,
    /// Keys that the store is being asked to record, in order, and whether it
    /// has.
    acquired: VecDeque<(K, bool)>,
    /// What was restored and is sent behind what the store had before it.
    held: Option<Box<Held<K>>>,
    /// Of the messages in `unsettled`.
    bytes: usize,
    /// Keys of all durable deliveries are recorded.
    records: bool,
    /// It and its queue keep some memory when they are empty.
    keeps: bool,
}

impl<K> Default for Consumer<K> {
    fn default() -> Self {
        Self {
            unsettled: Window::default(),
            due: VecDeque::new(),
            acquired: VecDeque::new(),
            held: None,
            bytes: 0,
            records: false,
            keeps: false,
        }
    }
}

impl<K: Key> Consumer<K> {
    /// One that is seldom idle for long: it keeps the memory of so many deliveries, and
    /// its queue that of some, when there are none.
    #[must_use]
    pub fn keeping(places: usize) -> Self {
        Self {
            unsettled: Window::keeping(places),
            keeps: true,
            ..Self::default()
        }
    }

    /// Whether the receiver names what it has by its key after a restart: the key of
    /// each durable delivery is recorded before it is sent.
    pub const fn set_recording(&mut self, records: bool) {
        self.records = records;
    }

    /// Deliveries that are not settled.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.unsettled.len()
    }

    /// Bytes of messages held in memory for deliveries that are not settled.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages in memory of deliveries that are not settled.
    pub fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let open = self.unsettled.iter();
        open.filter_map(|(_, entry)| entry.delivery.as_ref()?.held())
    }

    /// Deliveries that are not settled, until their receiver has them.
    pub fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        let open = self.unsettled.iter();
        open.filter_map(|(_, entry)| entry.delivery.as_ref())
    }

    /// Whether all deliveries are settled.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// Whether something must be sent (again) before anything new is taken.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.due.is_empty() || self.held.is_some()
    }

    /// Whether it has all that is to be sent again, and settles some of it later.
    #[must_use]
    pub fn awaits_outcomes(&self) -> bool {
        !self.is_behind() && !self.is_empty()
    }

    /// Whether a delivery that is not settled has this key.
    #[must_use]
    pub fn contains(&self, key: K) -> bool {
        self.unsettled.contains(key)
    }

    /// Keys of the deliveries that are not settled.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.unsettled.iter().map(|(key, _)| key)
    }

    /// The delivery under this key, until its receiver has it.
    #[must_use]
    pub fn delivery(&self, key: K) -> Option<&Delivery> {
        self.unsettled.get(key)?.delivery.as_ref()
    }

    /// State of the delivery under this key.
    #[must_use]
    pub fn state(&self, key: K) -> Option<State> {
        Some(self.unsettled.get(key)?.state)
    }

    /// What to send next; of new deliveries at most `credit` more. `next_key`
    /// names the next one with a key that [`Consumer::contains`] not.
    pub fn poll(
        &mut self,
        queue: &mut Queue,
        now: Instant,
        credit: usize,
        next_key: impl FnOnce(&Self) -> Option<K>,
    ) -> Option<Next<K>> {
        if let Some(next) = self.poll_due(queue) {
            return Some(next);
        }
        // A message that is due is being loaded; nothing may overtake it.
        if !self.due.is_empty() {
            return None;
        }
        if self.held.is_some() {
            match self.take_turn(queue, credit) {
                Turn::Held(key) => {
                    self.due.push_front(key);
                    return self.poll_due(queue);
                }
                Turn::Queue => {}
                Turn::Nothing => return None,
            }
        }
        if credit == 0 {
            return None;
        }
        if queue.is_front_expired(now) {
            return queue.take().map(|(_, delivery)| Next::Expired(delivery));
        }
        if queue.front()?.is_stored() {
            return queue.begin_loading().then_some(Next::Load);
        }
        let key = next_key(self)?;
        let (turn, delivery) = queue.take()?;
        self.take(key, turn, delivery)
    }

    /// Takes a delivery that came out of the queue, in this turn.
    pub fn take(&mut self, key: K, turn: u64, delivery: Delivery) -> Option<Next<K>> {
        let seq = delivery.seq;
        let bytes = delivery.cost();
        let twice = delivery.qos == QoS::ExactlyOnce;
        let record = seq.is_some() && (twice || self.records);
        let Step::To(state) = State::Waiting.after(Event::Take { record }) else {
            return None;
        };
        let entry = Unsettled {
            state,
            qos: delivery.qos,
            sent: !record,
            key_stored: record,
            held: false,
            turn,
            stream: delivery.stream,
            delivery: Some(delivery),
        };
        self.bytes += bytes;
        let entry = self.unsettled.insert(key, entry)?;
        match seq {
            Some(seq) if record => {
                self.acquired.push_back((key, false));
                Some(Next::Store { key, seq })
            }
            _ => {
                let delivery = entry.delivery.as_ref()?;
                let transfer = transfer(key, delivery)?;
                Some(Next::Send(transfer))
            }
        }
    }

    /// Whether what is held leaves next, or what the store had in the queue before it: that
    /// was perhaps to leave first.
    fn take_turn(&mut self, queue: &mut Queue, credit: usize) -> Turn<K> {
        let Some(held) = &mut self.held else {
            return Turn::Queue;
        };
        while let Some(&key) = held.keys.front() {
            let open = self.unsettled.len();
            let entry = self.unsettled.get_mut(key);
            if let Some(entry) = entry.filter(|entry| entry.held) {
                if !self.acquired.is_empty() {
                    return Turn::Nothing;
                }
                let of = |delivery: &Delivery| Some((delivery.level, delivery.seq?));
                let first = queue.front().and_then(of);
                let own = entry.delivery.as_ref().and_then(of);
                let waits = matches!((first, own), (Some((level, first)), Some((own_level, own)))
                    if level == own_level && first < own);
                if waits && credit > 0 {
                    return Turn::Queue;
                }
                // What is with the receiver gives credit back.
                if waits && open > held.keys.len() {
                    return Turn::Nothing;
                }
                // Sent again after another connection, it stays behind them.
                (entry.held, entry.turn) = (false, queue.next_turn());
                held.keys.pop_front();
                if held.keys.is_empty() {
                    self.held = None;
                }
                return Turn::Held(key);
            }
            held.keys.pop_front();
        }
        self.held = None;
        Turn::Queue
    }

    fn poll_due(&mut self, queue: &mut Queue) -> Option<Next<K>> {
        while let Some(key) = self.due.pop_front() {
            let Some(entry) = self.unsettled.get_mut(key) else {
                continue;
            };
            match (entry.state, &entry.delivery) {
                (State::Sent, Some(delivery)) => {
                    let Some(transfer) = transfer(key, delivery) else {
                        self.due.push_front(key);
                        return queue.begin_loading().then_some(Next::Load);
                    };
                    let repeated = core::mem::replace(&mut entry.sent, true);
                    return Some(Next::Send(Transfer {
                        again: repeated,
                        repeated,
                        ..transfer
                    }));
                }
                (State::Settling, _) => {
                    let stream = entry.stream;
                    return Some(Next::Settle { key, stream });
                }
                _ => {}
            }
        }
        None
    }

    /// The QoS of what a key is in use for. What is left of a delivery whose
    /// receiver has it is settled in two steps.
    #[must_use]
    pub fn qos(&self, key: K) -> Option<QoS> {
        Some(self.unsettled.get(key)?.qos)
    }

    /// A message was sent under this key at once, in front of which nothing waits,
    /// and is not kept: its receiver settles it, or ends and never comes back.
    pub fn note_sent(&mut self, queue: &mut Queue, key: K, qos: QoS, stream: StreamId) {
        let entry = Unsettled {
            state: State::Sent,
            qos,
            sent: true,
            key_stored: false,
            held: false,
            turn: queue.next_turn(),
            stream,
            delivery: None,
        };
        self.unsettled.insert(key, entry);
    }

    /// The message under this key left on this stream: its second step goes
    /// there too.
    pub fn note_stream(&mut self, key: K, stream: StreamId) {
        if let Some(entry) = self.unsettled.get_mut(key) {
            entry.stream = stream;
        }
    }

    /// The store has recorded the key of a durable delivery, which leaves when
    /// all earlier ones have: the store may have refused one of them for a
    /// while.
    pub fn handle_stored(&mut self, key: K) {
        let mut waiting = self.acquired.iter_mut();
        if let Some((_, stored)) = waiting.find(|(acquired, _)| *acquired == key) {
            *stored = true;
        }
        while let Some(&(key, stored)) = self.acquired.front() {
            if let Some(entry) = self.unsettled.get_mut(key)
                && let Step::To(state) = entry.state.after(Event::KeyStored)
            {
                if !stored {
                    return;
                }
                entry.state = state;
                self.due.push_back(key);
            }
            self.acquired.pop_front();
        }
    }

    /// What the receivers of a delivery that is not settled have added to it.
    pub fn add(&mut self, key: K, added: Arc<[u8]>) {
        let entry = self.unsettled.get_mut(key);
        if let Some(delivery) = entry.and_then(|entry| entry.delivery.as_mut()) {
            delivery.added = Some(added);
        }
    }

    /// The receiver settles a delivery in one step, or its end does. One that
    /// settles in two steps is accepted by [`Consumer::handle_received`] and
    /// [`Consumer::complete`] only.
    pub fn settle(&mut self, queue: &mut Queue, key: K, outcome: Outcome) -> Settled {
        let event = Event::Settle(outcome);
        let bytes = &mut self.bytes;
        let turn = self.unsettled.get(key).map_or(0, |entry| entry.turn);
        let ended = self.unsettled.remove_with(key, |entry| {
            let may_end = entry.is_in_one_step() || outcome != Outcome::Accepted;
            match entry.state.after(event) {
                Step::End(outcome) if may_end => {
                    *bytes = bytes.saturating_sub(entry.cost());
                    Some(entry.end(outcome))
                }
                _ => None,
            }
        });
        let elsewhere = matches!(
            outcome,
            Outcome::Modified {
                undeliverable_here: true,
                ..
            }
        );
        self.release_if_idle(queue);
        match ended {
            None => Settled::Unknown,
            Some(Settled::Returned {
                delivery,
                key_stored,
            }) if delivery.share.is_none() && !elsewhere => {
                queue.put_back(turn, delivery);
                Settled::Requeued { key_stored }
            }
            Some(settled) => settled,
        }
    }

    /// The receiver has a message and keeps its key for the second step.
    pub fn handle_received(&mut self, key: K) -> Receipt {
        let Some(entry) = self.unsettled.get_mut(key) else {
            return Receipt::Unknown;
        };
        let in_one_step = entry.is_in_one_step();
        let seq = entry.delivery.as_ref().and_then(|delivery| delivery.seq);
        let record = seq.is_some();
        let Step::To(state) = entry.state.after(Event::Received { record }) else {
            return Receipt::Unknown;
        };
        if in_one_step {
            return Receipt::Unknown;
        }
        entry.state = state;
        if core::mem::take(&mut entry.held)
            && let Some(held) = &mut self.held
        {
            held.keys.retain(|it| *it != key);
        }
        self.bytes = self.bytes.saturating_sub(entry.cost());
        entry.delivery = None;
        match (state, seq) {
            (State::Received, Some(seq)) => Receipt::Store { seq },
            (State::Received, None) => Receipt::Pending,
            _ => Receipt::Settle,
        }
    }

    /// The store has recorded that the receiver has it: the second step is due.
    pub fn handle_receipt_stored(&mut self, key: K) {
        if let Some(entry) = self.unsettled.get_mut(key)
            && let Step::To(state) = entry.state.after(Event::ReceiptStored)
        {
            entry.state = state;
            self.due.push_back(key);
        }
    }

    /// The receiver has settled in the second step.
    pub fn complete(&mut self, queue: &mut Queue, key: K) -> Settled {
        let bytes = &mut self.bytes;
        let ended =
            self.unsettled
                .remove_with(key, |entry| match entry.state.after(Event::Complete) {
                    Step::End(outcome) => {
                        *bytes = bytes.saturating_sub(entry.cost());
                        Some(entry.end(outcome))
                    }
                    _ => None,
                });
        self.release_if_idle(queue);
        ended.unwrap_or(Settled::Unknown)
    }

    /// An idle session keeps no memory.
    fn release_if_idle(&self, queue: &mut Queue) {
        if !self.keeps && self.is_empty() && queue.is_empty() {
            queue.release();
        }
    }

    /// The receiver is back: everything that is not settled is due again, in
    /// its order [MQTT-4.4.0-1], and goes to the control stream.
    pub fn handle_resumed(&mut self, queue: &mut Queue) {
        let open = self.unsettled.iter();
        let due = open.filter(|(_, entry)| {
            let again = matches!(entry.state, State::Sent | State::Settling);
            again && !entry.held
        });
        let mut keys: Vec<_> = due.map(|(key, entry)| (entry.turn, key)).collect();
        keys.sort_unstable_by_key(|(turn, _)| *turn);
        self.due = keys.into_iter().map(|(_, key)| key).collect();
        for (_, entry) in self.unsettled.iter_mut() {
            entry.stream = StreamId::CONTROL;
            if let Some(delivery) = &mut entry.delivery {
                delivery.stream = StreamId::CONTROL;
            }
        }
        queue.handle_resumed();
    }

    /// The receiver wants a message once more that it has not settled.
    pub fn resend(&mut self, key: K) {
        if self.state(key) == Some(State::Sent) {
            self.due.push_back(key);
        }
    }

    /// The receiver is gone for now: nothing is due before it is back.
    pub fn rest(&mut self) {
        self.due.clear();
    }

    /// Restores from the store what was sent, or whose second step was due,
    /// when an earlier process ended.
    pub fn restore(&mut self, queue: &mut Queue, key: K, delivery: Option<Delivery>) {
        let state = match delivery {
            Some(_) => State::Sent,
            None => State::Settling,
        };
        let entry = Unsettled {
            state,
            qos: delivery.as_ref().map_or(QoS::ExactlyOnce, |d| d.qos),
            sent: true,
            key_stored: true,
            held: false,
            turn: queue.next_turn(),
            stream: StreamId::CONTROL,
            delivery,
        };
        self.bytes += entry.cost();
        self.unsettled.insert(key, entry);
    }

    /// As [`Consumer::restore`], for a message whose key was recorded, in the order of their
    /// places in the store. The receiver has perhaps not been sent it: it is due behind all
    /// that its queue has from before it, for which there is credit.
    pub fn restore_recorded(&mut self, queue: &mut Queue, key: K, delivery: Delivery) {
        self.restore(queue, key, Some(delivery));
        if let Some(entry) = self.unsettled.get_mut(key) {
            entry.held = true;
        }
        let none = || {
            let keys = VecDeque::new();
            Box::new(Held { keys })
        };
        self.held.get_or_insert_with(none).keys.push_back(key);
    }

    /// Sequence numbers to load, at most `max` and for about `bytes_max`, but
    /// at least one: of what is due again, else from the front of the queue; and
    /// their bytes.
    #[must_use]
    pub fn stored_at_front(
        &self,
        queue: &Queue,
        max: usize,
        bytes_max: usize,
    ) -> (Vec<u64>, usize) {
        // What is held follows what is due, unless the queue comes first.
        let held = self.held.iter().filter(|_| !self.due.is_empty());
        let held = held.flat_map(|held| &held.keys);
        let due = self.due.iter().chain(held);
        let due = due.filter_map(|key| self.delivery(*key));
        let due = first_stored(due.filter(|d| d.is_stored()), max, bytes_max);
        match due.0.is_empty() {
            true => queue.stored_at_front(max, bytes_max),
            false => due,
        }
    }

    /// Messages arrived from the store; those that are gone are dropped.
    pub fn handle_loaded(&mut self, queue: &mut Queue, loaded: &[(u64, Option<Arc<Message>>)]) {
        queue.end_loading();
        let any_due = self.unsettled.iter().any(|(_, e)| e.lacks_message());
        for (seq, message) in loaded {
            if !(any_due && self.handle_loaded_due(*seq, message.as_ref())) {
                queue.handle_loaded(*seq, message.as_ref());
            }
        }
    }

    /// A message that is due came back from the store; one that is gone ends
    /// its delivery. `false`: none of this consumer has it.
    pub fn handle_loaded_due(&mut self, seq: u64, message: Option<&Arc<Message>>) -> bool {
        let of_seq = |d: &Delivery| d.seq == Some(seq) && d.is_stored();
        let found = |entry: &Unsettled| entry.delivery.as_ref().is_some_and(of_seq);
        let Some((key, _)) = self.unsettled.iter().find(|(_, entry)| found(entry)) else {
            return false;
        };
        let Some(message) = message else {
            self.unsettled.remove(key);
            return true;
        };
        let entry = self.unsettled.get_mut(key);
        if let Some(delivery) = entry.and_then(|entry| entry.delivery.as_mut()) {
            delivery.content = Content::Held(Arc::clone(message));
            self.bytes += message.cost();
        }
        true
    }

    /// Releases what came through a shared subscription, was sent and has no
    /// outcome, so that other members of the group can have it: deliveries
    /// that settle in one step only [MQTT-4.8.2-5].
    pub fn release_shared(&mut self) -> Vec<Delivery> {
        let may_leave = |entry: &Unsettled| {
            let shared = entry.delivery.as_ref().is_some_and(|d| d.share.is_some());
            shared && entry.state == State::Sent && entry.qos == QoS::AtLeastOnce
        };
        let open = self.unsettled.iter().filter(|(_, entry)| may_leave(entry));
        let mut keys: Vec<_> = open.map(|(key, entry)| (entry.turn, key)).collect();
        keys.sort_unstable_by_key(|(turn, _)| *turn);
        let ended = keys.into_iter().filter_map(|(_, key)| {
            self.unsettled
                .remove_with(key, |entry| entry.delivery.take())
        });
        let ended: Vec<_> = ended.collect();
        let bytes: usize = ended.iter().map(Delivery::cost).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        ended
    }
}

/// What sending a delivery needs; `None` if its message is not in memory.
#[inline]
fn transfer<K>(key: K, delivery: &Delivery) -> Option<Transfer<K>> {
    let Content::Held(message) = &delivery.content else {
        return None;
    };
    Some(Transfer {
        key,
        again: delivery.maybe_sent,
        repeated: false,
        failed: delivery.failed,
        added: delivery.added.clone(),
        message: Arc::clone(message),
        qos: delivery.qos,
        retain: delivery.retain,
        identifiers: Identifiers::from_slice(&delivery.identifiers),
        stream: delivery.stream,
    })
}
