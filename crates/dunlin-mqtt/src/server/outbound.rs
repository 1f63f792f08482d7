//! The sending half of a session: the queue of messages that wait, the packet
//! identifiers in flight, and QoS 1 and 2 towards the client (MQTT 5.0 section
//! 4.3). It holds messages or, when memory is short, only their place in the
//! store; it never encodes.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::{Instant, Message, QoS, StreamId};
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::queue::Queue;

/// Subscription identifiers that a delivery carries; most carry none or one.
pub type Identifiers = SmallVec<[u32; 2]>;

/// A message in memory, or where to load it from.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory, shared with every other receiver.
    Held(Arc<Message>),
    /// In the store under the delivery's sequence number.
    Stored {
        /// Bytes it will cost when held.
        cost: u32,
        /// When it expires.
        expires: Option<Instant>,
    },
}

/// One message on its way to one session, with QoS 1 or 2.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message.
    pub content: Content,
    /// Its place in the store, if it is durable for this session.
    pub seq: Option<u64>,
    /// QoS of this delivery: the lower of publisher's and subscription's.
    pub qos: QoS,
    /// RETAIN flag of this delivery.
    pub retain: bool,
    /// Subscription identifiers of all matching subscriptions.
    pub identifiers: Identifiers,
    /// The `$share` filter that it came through, if any.
    pub share: Option<Arc<str>>,
    /// Stream of the SUBSCRIBE.
    pub stream: StreamId,
    /// Priority: it is sent before those of a lower level that wait. All
    /// messages of a topic have the same, or their order would be lost.
    pub level: u8,
    /// An earlier process may have sent it: the first transmission of this one
    /// carries DUP.
    pub maybe_sent: bool,
}

impl Delivery {
    /// Lets go of the message, if the store has it.
    pub fn shed(&mut self) {
        if let (Content::Held(message), Some(_)) = (&self.content, self.seq) {
            self.content = Content::Stored {
                cost: u32::try_from(message.cost()).unwrap_or(u32::MAX),
                expires: message.expires,
            };
        }
    }

    const fn is_stored(&self) -> bool {
        matches!(self.content, Content::Stored { .. })
    }

    fn cost(&self) -> usize {
        match &self.content {
            Content::Held(message) => message.cost(),
            Content::Stored { .. } => 0,
        }
    }

    fn is_expired(&self, now: Instant) -> bool {
        match &self.content {
            Content::Held(message) => message.is_expired(now),
            Content::Stored { expires, .. } => expires.is_some_and(|at| at <= now),
        }
    }
}

/// What to do next for the client.
#[derive(Debug)]
pub enum Outgoing {
    /// Send PUBLISH; [`Outbound::delivery`] has the message.
    Publish {
        /// Packet identifier.
        packet_id: NonZeroU16,
        /// DUP flag.
        dup: bool,
    },
    /// Send PUBREL.
    Release {
        /// Packet identifier.
        packet_id: NonZeroU16,
        /// Stream of the PUBLISH.
        stream: StreamId,
    },
    /// Write the packet identifier of this durable QoS 2 message to the store;
    /// [`Outbound::handle_stored`] then lets it leave.
    Store {
        /// Packet identifier.
        packet_id: NonZeroU16,
        /// The message.
        seq: u64,
    },
    /// Load the messages that [`Outbound::stored_at_front`] names.
    Load,
    /// The message expired before it left; forget it in the store too.
    Expired(Delivery),
}

/// Outcome of an acknowledgement from the client.
#[derive(Debug)]
pub enum Received {
    /// The delivery is complete.
    Done {
        /// Its place in the store, still to be removed.
        seq: Option<u64>,
        /// Whether a packet identifier is in the store, to be removed.
        id_stored: bool,
    },
    /// PUBREC of a durable message: store that it was received, then call
    /// [`Outbound::handle_release_stored`].
    StoreRelease {
        /// Its place in the store, no longer needed.
        seq: u64,
    },
    /// Send PUBREL now.
    Release,
    /// The store is being told already.
    Pending,
    /// No such packet identifier in this state.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The store is being told of the packet identifier.
    Storing,
    /// The store knows it; an earlier one holds it back.
    Stored,
    /// PUBLISH is due or was sent.
    Published,
    /// PUBREC arrived; the store is being told.
    Releasing,
    /// PUBREL is due or was sent.
    Released,
}

#[derive(Debug)]
struct Inflight {
    state: State,
    sent: bool,
    id_stored: bool,
    order: u64,
    stream: StreamId,
    /// Gone once PUBREC arrived.
    delivery: Option<Delivery>,
}

/// The sending half of one session.
#[derive(Debug, Default)]
pub struct Outbound {
    queue: Queue,
    /// From the front of the queue: their streams take nothing now.
    aside: VecDeque<Delivery>,
    queue_bytes: usize,
    reserved: usize,
    reserved_bytes: usize,
    inflight: HashMap<NonZeroU16, Inflight>,
    /// Identifiers whose PUBLISH or PUBREL must be sent (again).
    due: VecDeque<NonZeroU16>,
    /// Identifiers that the store is being told of, in order.
    storing: VecDeque<NonZeroU16>,
    last_id: u16,
    next_order: u64,
    loading: bool,
}

impl Outbound {
    /// Whether a message of `cost` bytes fits, given limits in messages and in
    /// bytes for queue and reservations together.
    #[must_use]
    pub fn has_room(&self, cost: usize, messages_max: usize, bytes_max: usize) -> bool {
        self.queued() + self.reserved < messages_max
            && self.queue_bytes + self.reserved_bytes + cost <= bytes_max
    }

    /// Keeps room for a message that is being stored.
    pub fn reserve(&mut self, cost: usize) {
        self.reserved += 1;
        self.reserved_bytes += cost;
    }

    /// Gives back what [`Outbound::reserve`] kept.
    pub fn unreserve(&mut self, cost: usize) {
        self.reserved = self.reserved.saturating_sub(1);
        self.reserved_bytes = self.reserved_bytes.saturating_sub(cost);
    }

    /// Queues a delivery behind all of its level and of higher ones. The caller
    /// has checked [`Outbound::has_room`].
    pub fn push(&mut self, delivery: Delivery) {
        self.queue_bytes += delivery.cost();
        self.queue.push(delivery);
    }

    /// The level of the message that is sent next.
    #[must_use]
    pub fn next_level(&self) -> u8 {
        match self.due.is_empty() {
            true => self.queue.front().map_or(0, |next| next.level),
            false => 0,
        }
    }

    /// Messages waiting, not in flight.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len() + self.aside.len()
    }

    /// Messages waiting or about to.
    #[must_use]
    pub fn expected(&self) -> usize {
        self.queued() + self.reserved
    }

    /// Bytes of waiting messages held in memory.
    #[must_use]
    pub const fn queue_bytes(&self) -> usize {
        self.queue_bytes
    }

    /// Messages in flight.
    #[must_use]
    pub fn inflight(&self) -> usize {
        self.inflight.len()
    }

    /// Whether nothing waits and nothing is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queued() == 0 && self.inflight.is_empty()
    }

    /// The message that [`Outbound::poll`] would send next, if it is new and
    /// in memory.
    #[must_use]
    pub fn next_new(&self) -> Option<(&Delivery, &Message)> {
        let next = self.queue.front().filter(|_| self.due.is_empty())?;
        match &next.content {
            Content::Held(message) => Some((next, message)),
            Content::Stored { .. } => None,
        }
    }

    /// Passes over the message at the front, so that others need not wait for
    /// its stream; `false` if there are `max` such already. Whoever passes over
    /// one passes over all later ones of its topic, or their order is lost.
    pub fn set_aside(&mut self, max: usize) -> bool {
        if self.aside.len() >= max {
            return false;
        }
        self.aside.extend(self.queue.pop_front());
        true
    }

    /// Queues what was set aside in front of everything of its level.
    pub fn take_back(&mut self) {
        while let Some(delivery) = self.aside.pop_back() {
            self.queue.push_front(delivery);
        }
        self.aside = VecDeque::new();
    }

    /// Starts a connection with Session Present: everything in flight is due
    /// again, in its order [MQTT-4.4.0-1]; deliveries go to control.
    pub fn handle_resumed(&mut self) {
        self.take_back();
        let mut ids: Vec<_> = self
            .inflight
            .iter()
            .filter(|(_, f)| matches!(f.state, State::Published | State::Released))
            .map(|(&id, f)| (f.order, id))
            .collect();
        ids.sort_unstable();
        self.due = ids.into_iter().map(|(_, id)| id).collect();
        for entry in self.inflight.values_mut() {
            entry.stream = StreamId::CONTROL;
            if let Some(delivery) = &mut entry.delivery {
                delivery.stream = StreamId::CONTROL;
            }
        }
        self.queue.forget_streams();
    }

    /// What to send next while fewer than `window` messages are in flight.
    pub fn poll(&mut self, now: Instant, window: u16) -> Option<Outgoing> {
        if let Some(outgoing) = self.poll_due() {
            return Some(outgoing);
        }
        // A message in flight is being loaded; nothing may overtake it.
        if !self.due.is_empty() {
            return None;
        }
        if self.inflight.len() >= usize::from(window) {
            return None;
        }
        let front = self.queue.front()?;
        if front.is_expired(now) {
            return self.pop_front().map(Outgoing::Expired);
        }
        if front.is_stored() {
            if self.loading {
                return None;
            }
            self.loading = true;
            return Some(Outgoing::Load);
        }
        let packet_id = self.allocate_id()?;
        let delivery = self.pop_front()?;
        let order = self.next_order;
        self.next_order += 1;
        let must_store = delivery.qos == QoS::ExactlyOnce && delivery.seq.is_some();
        let dup = delivery.maybe_sent && !must_store;
        let seq = delivery.seq;
        if must_store {
            self.storing.push_back(packet_id);
        }
        self.inflight.insert(
            packet_id,
            Inflight {
                state: if must_store {
                    State::Storing
                } else {
                    State::Published
                },
                sent: !must_store,
                id_stored: must_store,
                order,
                stream: delivery.stream,
                delivery: Some(delivery),
            },
        );
        match seq {
            Some(seq) if must_store => Some(Outgoing::Store { packet_id, seq }),
            _ => Some(Outgoing::Publish { packet_id, dup }),
        }
    }

    fn poll_due(&mut self) -> Option<Outgoing> {
        while let Some(packet_id) = self.due.pop_front() {
            let Some(entry) = self.inflight.get_mut(&packet_id) else {
                continue;
            };
            if entry.state == State::Published
                && entry.delivery.as_ref().is_some_and(Delivery::is_stored)
            {
                self.due.push_front(packet_id);
                let idle = !core::mem::replace(&mut self.loading, true);
                return idle.then_some(Outgoing::Load);
            }
            match entry.state {
                State::Published => {
                    let dup = core::mem::replace(&mut entry.sent, true);
                    return Some(Outgoing::Publish { packet_id, dup });
                }
                State::Released => {
                    let stream = entry.stream;
                    return Some(Outgoing::Release { packet_id, stream });
                }
                State::Storing | State::Stored | State::Releasing => {}
            }
        }
        None
    }

    /// The PUBLISH under this identifier left on this stream: its PUBREL goes
    /// there too.
    pub fn note_stream(&mut self, packet_id: NonZeroU16, stream: StreamId) {
        if let Some(entry) = self.inflight.get_mut(&packet_id) {
            entry.stream = stream;
        }
    }

    /// The message in flight under this identifier.
    #[must_use]
    pub fn delivery(&self, packet_id: NonZeroU16) -> Option<&Delivery> {
        self.inflight.get(&packet_id)?.delivery.as_ref()
    }

    /// The store has the identifier of a durable QoS 2 message, which leaves
    /// when all earlier ones have: the store may have refused one of them for
    /// a while.
    pub fn handle_stored(&mut self, packet_id: NonZeroU16) {
        if let Some(entry) = self.inflight.get_mut(&packet_id)
            && entry.state == State::Storing
        {
            entry.state = State::Stored;
        }
        while let Some(first) = self.storing.front() {
            match self.inflight.get_mut(first) {
                Some(entry) if entry.state == State::Storing => return,
                Some(entry) if entry.state == State::Stored => {
                    entry.state = State::Published;
                    self.due.push_back(*first);
                }
                _ => {}
            }
            self.storing.pop_front();
        }
    }

    /// A PUBACK arrived.
    pub fn handle_puback(&mut self, packet_id: NonZeroU16) -> Received {
        self.finish(packet_id, |state, qos| {
            state == State::Published && qos == Some(QoS::AtLeastOnce)
        })
    }

    /// A PUBREC with an error arrived, or the message cannot be sent at all:
    /// the delivery ends.
    pub fn handle_refused(&mut self, packet_id: NonZeroU16) -> Received {
        self.finish(packet_id, |state, _| state == State::Published)
    }

    /// A PUBREC without error arrived.
    pub fn handle_pubrec(&mut self, packet_id: NonZeroU16) -> Received {
        let Some(entry) = self.inflight.get_mut(&packet_id) else {
            return Received::Unknown;
        };
        match entry.state {
            State::Storing | State::Stored => Received::Unknown,
            State::Releasing => Received::Pending,
            State::Released => Received::Release,
            State::Published => match entry.delivery.take() {
                Some(delivery) if delivery.qos == QoS::ExactlyOnce => {
                    if let Some(seq) = delivery.seq {
                        entry.state = State::Releasing;
                        return Received::StoreRelease { seq };
                    }
                    entry.state = State::Released;
                    Received::Release
                }
                other => {
                    entry.delivery = other;
                    Received::Unknown
                }
            },
        }
    }

    /// The store knows that PUBREC arrived: PUBREL is due.
    pub fn handle_release_stored(&mut self, packet_id: NonZeroU16) {
        if let Some(entry) = self.inflight.get_mut(&packet_id)
            && entry.state == State::Releasing
        {
            entry.state = State::Released;
            self.due.push_back(packet_id);
        }
    }

    /// A PUBCOMP arrived.
    pub fn handle_pubcomp(&mut self, packet_id: NonZeroU16) -> Received {
        self.finish(packet_id, |state, _| state == State::Released)
    }

    /// Sequence numbers to load, at most `max` and for about `bytes_max`, but
    /// at least one: of what is in flight and due again, else from the front
    /// of the queue.
    #[must_use]
    pub fn stored_at_front(&self, max: usize, bytes_max: usize) -> Vec<u64> {
        let due = self.due.iter().filter_map(|id| self.delivery(*id));
        let due = first_stored(due.filter(|d| d.is_stored()), max, bytes_max);
        match due.is_empty() {
            true => first_stored(self.queue.iter(), max, bytes_max),
            false => due,
        }
    }

    /// Messages arrived from the store; those that are gone are dropped.
    pub fn handle_loaded(&mut self, loaded: &[(u64, Option<Arc<Message>>)]) {
        self.loading = false;
        let mut inflight = self.inflight.values();
        let for_inflight = inflight.any(|entry| {
            let delivery = entry.delivery.as_ref();
            delivery.is_some_and(Delivery::is_stored)
        });
        for (seq, message) in loaded {
            if for_inflight && self.handle_loaded_inflight(*seq, message.as_ref()) {
                continue;
            }
            match message {
                Some(message) => {
                    if let Some(delivery) = self.queue.find_mut(*seq) {
                        self.queue_bytes += message.cost();
                        delivery.content = Content::Held(Arc::clone(message));
                    }
                }
                None => {
                    self.queue.remove(*seq);
                }
            }
        }
    }

    /// A message in flight came back from the store; a message that is gone
    /// ends its delivery.
    fn handle_loaded_inflight(&mut self, seq: u64, message: Option<&Arc<Message>>) -> bool {
        let of_seq = |d: &Delivery| d.seq == Some(seq) && d.is_stored();
        let mut all = self.inflight.iter_mut();
        let Some((&packet_id, entry)) =
            all.find(|(_, entry)| entry.delivery.as_ref().is_some_and(of_seq))
        else {
            return false;
        };
        match (message, &mut entry.delivery) {
            (Some(message), Some(delivery)) => {
                delivery.content = Content::Held(Arc::clone(message));
            }
            _ => {
                self.inflight.remove(&packet_id);
            }
        }
        true
    }

    /// Lets go of the messages of durable deliveries beyond the first
    /// `keep`, which are then loaded again when their turn comes. Returns the
    /// bytes set free.
    pub fn shed(&mut self, keep: usize) -> usize {
        self.take_back();
        let before = self.queue_bytes;
        let mut bytes = before;
        self.queue.filter(|place, mut delivery| {
            if place >= keep {
                let cost = delivery.cost();
                delivery.shed();
                bytes = bytes.saturating_sub(cost - delivery.cost());
            }
            Some(delivery)
        });
        self.queue_bytes = bytes;
        before - self.queue_bytes
    }

    /// Restores a message in flight from the store.
    pub fn restore_inflight(&mut self, packet_id: NonZeroU16, delivery: Option<Delivery>) {
        let order = self.next_order;
        self.next_order += 1;
        self.inflight.insert(
            packet_id,
            Inflight {
                state: if delivery.is_some() {
                    State::Published
                } else {
                    State::Released
                },
                sent: true,
                id_stored: true,
                order,
                stream: StreamId::CONTROL,
                delivery,
            },
        );
    }

    /// Takes deliveries that came through a shared subscription and that the
    /// client has not answered, so that another member can have them: queued
    /// ones, and in flight those of QoS 1 [MQTT-4.8.2-5 forbids it for QoS 2].
    pub fn take_shared(&mut self, include_inflight: bool) -> Vec<Delivery> {
        self.take_back();
        let mut taken = Vec::new();
        if include_inflight {
            let mut ids: Vec<_> = self
                .inflight
                .iter()
                .filter(|(_, f)| {
                    f.delivery
                        .as_ref()
                        .is_some_and(|d| d.share.is_some() && d.qos == QoS::AtLeastOnce)
                })
                .map(|(&id, f)| (f.order, id))
                .collect();
            ids.sort_unstable();
            for (_, id) in ids {
                taken.extend(self.inflight.remove(&id).and_then(|f| f.delivery));
            }
        }
        let mut bytes = self.queue_bytes;
        self.queue.filter(|_, delivery| {
            if delivery.share.is_none() {
                return Some(delivery);
            }
            bytes = bytes.saturating_sub(delivery.cost());
            taken.push(delivery);
            None
        });
        self.queue_bytes = bytes;
        taken
    }

    fn pop_front(&mut self) -> Option<Delivery> {
        let delivery = self.queue.pop_front()?;
        self.queue_bytes = self.queue_bytes.saturating_sub(delivery.cost());
        Some(delivery)
    }

    fn finish(
        &mut self,
        packet_id: NonZeroU16,
        allowed: impl FnOnce(State, Option<QoS>) -> bool,
    ) -> Received {
        let Some(entry) = self.inflight.get(&packet_id) else {
            return Received::Unknown;
        };
        if !allowed(entry.state, entry.delivery.as_ref().map(|d| d.qos)) {
            return Received::Unknown;
        }
        let entry = self.inflight.remove(&packet_id);
        if self.inflight.is_empty() {
            self.inflight.shrink_to_fit();
        }
        Received::Done {
            seq: entry.as_ref().and_then(|e| e.delivery.as_ref()?.seq),
            id_stored: entry.is_some_and(|e| e.id_stored),
        }
    }

    /// The next identifier that is not in use [MQTT-2.2.1-4].
    fn allocate_id(&mut self) -> Option<NonZeroU16> {
        for _ in 0..=self.inflight.len() {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            let id = NonZeroU16::new(self.last_id)?;
            if !self.inflight.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }
}

/// The first deliveries that have to be loaded.
fn first_stored<'a>(
    deliveries: impl Iterator<Item = &'a Delivery>,
    max: usize,
    bytes_max: usize,
) -> Vec<u64> {
    let mut seqs = Vec::new();
    let mut bytes = 0;
    for delivery in deliveries.take(max) {
        let (Content::Stored { cost, .. }, Some(seq)) = (&delivery.content, delivery.seq) else {
            break;
        };
        bytes += *cost as usize;
        if bytes > bytes_max && !seqs.is_empty() {
            break;
        }
        seqs.push(seq);
    }
    seqs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(qos: QoS, seq: Option<u64>) -> Delivery {
        Delivery {
            content: Content::Held(Arc::new(Message::default())),
            seq,
            qos,
            retain: false,
            identifiers: Identifiers::new(),
            share: None,
            stream: StreamId::CONTROL,
            level: 0,
            maybe_sent: false,
        }
    }

    fn publish(out: &mut Outbound, window: u16) -> Option<(u16, bool)> {
        match out.poll(Instant::ZERO, window) {
            Some(Outgoing::Publish { packet_id, dup }) => Some((packet_id.get(), dup)),
            None => None,
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn what_is_set_aside_comes_back_in_front_of_its_level() {
        let mut out = Outbound::default();
        for (seq, level) in [(1, 0), (2, 0), (3, 0), (4, 5), (5, 5)] {
            let level = Delivery {
                level,
                ..delivery(QoS::AtLeastOnce, Some(seq))
            };
            out.push(level);
        }
        let next = |out: &Outbound| out.next_new().and_then(|(d, _)| d.seq);
        assert_eq!(next(&out), Some(4));
        assert!(out.set_aside(2));
        assert!(out.poll(Instant::ZERO, 10).is_some());
        assert!(out.set_aside(2));
        assert!(!out.set_aside(2));
        assert_eq!((next(&out), out.queued()), (Some(2), 4));
        let bytes = out.queue_bytes();
        out.take_back();
        let order: Vec<_> = out.queue.iter().filter_map(|d| d.seq).collect();
        assert_eq!(order, [4, 1, 2, 3]);
        assert_eq!(out.queue_bytes(), bytes);
    }

    #[test]
    fn the_window_bounds_what_is_in_flight() {
        //= mqtt5#[MQTT-3.3.4-7] type=test
        let mut out = Outbound::default();
        for _ in 0..3 {
            out.push(delivery(QoS::AtLeastOnce, None));
        }
        assert_eq!(publish(&mut out, 2), Some((1, false)));
        assert_eq!(publish(&mut out, 2), Some((2, false)));
        assert_eq!(publish(&mut out, 2), None);
        let id = NonZeroU16::new(1).expect("not zero");
        assert!(matches!(out.handle_puback(id), Received::Done { .. }));
        assert!(matches!(out.handle_puback(id), Received::Unknown));
        //= mqtt5#[MQTT-2.2.1-4] type=test
        assert_eq!(publish(&mut out, 2), Some((3, false)));
    }

    #[test]
    fn a_resumed_session_repeats_in_order_with_the_same_ids_and_dup() {
        //= mqtt5#[MQTT-4.4.0-1] type=test
        //= mqtt5#[MQTT-3.3.1-1] type=test
        //= mqtt5#[MQTT-4.6.0-1] type=test
        let mut out = Outbound::default();
        for _ in 0..4 {
            out.push(delivery(QoS::ExactlyOnce, None));
        }
        for id in 1..=3 {
            assert_eq!(publish(&mut out, 3), Some((id, false)));
        }
        let id = NonZeroU16::new(2).expect("not zero");
        assert!(matches!(out.handle_pubrec(id), Received::Release));
        out.handle_resumed();
        assert_eq!(publish(&mut out, 3), Some((1, true)));
        assert!(matches!(
            out.poll(Instant::ZERO, 3),
            Some(Outgoing::Release { packet_id, .. }) if packet_id == id
        ));
        assert_eq!(publish(&mut out, 3), Some((3, true)));
        assert_eq!(publish(&mut out, 3), None);
        assert!(matches!(out.handle_pubcomp(id), Received::Done { .. }));
        assert_eq!(publish(&mut out, 3), Some((4, false)));
    }

    #[test]
    fn a_durable_qos_2_message_leaves_after_its_id_is_stored() {
        let mut out = Outbound::default();
        out.push(delivery(QoS::ExactlyOnce, Some(9)));
        let Some(Outgoing::Store { packet_id, seq: 9 }) = out.poll(Instant::ZERO, 5) else {
            panic!("must be stored first");
        };
        assert_eq!(publish(&mut out, 5), None);
        out.handle_stored(packet_id);
        assert_eq!(publish(&mut out, 5), Some((1, false)));
        assert!(matches!(
            out.handle_pubrec(packet_id),
            Received::StoreRelease { seq: 9 }
        ));
        assert!(matches!(out.handle_pubrec(packet_id), Received::Pending));
        out.handle_release_stored(packet_id);
        assert!(matches!(
            out.poll(Instant::ZERO, 5),
            Some(Outgoing::Release { .. })
        ));
        assert!(matches!(
            out.handle_pubcomp(packet_id),
            Received::Done {
                seq: None,
                id_stored: true
            }
        ));
        assert!(out.is_idle());
    }

    #[test]
    fn shed_messages_are_loaded_when_their_turn_comes() {
        let mut out = Outbound::default();
        for seq in 0..3 {
            out.push(delivery(QoS::AtLeastOnce, Some(seq)));
        }
        assert!(out.shed(1) > 0);
        assert_eq!(publish(&mut out, 10), Some((1, false)));
        assert!(matches!(out.poll(Instant::ZERO, 10), Some(Outgoing::Load)));
        assert!(out.poll(Instant::ZERO, 10).is_none(), "one load at a time");
        assert_eq!(out.stored_at_front(10, usize::MAX), [1, 2]);
        let message = Arc::new(Message::default());
        out.handle_loaded(&[(1, None), (2, Some(message))]);
        assert_eq!(publish(&mut out, 10), Some((2, false)));
        assert_eq!(out.queued(), 0);
    }

    #[test]
    fn higher_levels_overtake_what_waits_and_keep_their_own_order() {
        let mut out = Outbound::default();
        let levels = [0, 0, 7, 3, 7, 0, 3, 9];
        for (seq, level) in levels.into_iter().enumerate() {
            out.push(Delivery {
                level,
                ..delivery(QoS::AtLeastOnce, Some(seq as u64))
            });
        }
        let mut order = Vec::new();
        while let Some((id, _)) = publish(&mut out, 100) {
            let id = NonZeroU16::new(id).expect("not zero");
            order.push(out.delivery(id).and_then(|d| d.seq).expect("durable"));
        }
        assert_eq!(order, [7, 2, 4, 3, 6, 0, 1, 5]);
    }

    #[test]
    fn shared_deliveries_can_be_taken_back_but_not_qos_2_in_flight() {
        //= mqtt5#[MQTT-4.8.2-5] type=test
        let mut out = Outbound::default();
        let shared = |qos| Delivery {
            share: Some(Arc::from("$share/g/t")),
            ..delivery(qos, None)
        };
        out.push(shared(QoS::AtLeastOnce));
        out.push(shared(QoS::ExactlyOnce));
        out.push(delivery(QoS::AtLeastOnce, None));
        assert!(publish(&mut out, 2).is_some() && publish(&mut out, 2).is_some());
        out.push(shared(QoS::ExactlyOnce));
        assert_eq!(out.take_shared(true).len(), 2);
        assert_eq!((out.inflight(), out.queued()), (1, 1));
    }
}
