//! The sending half of a session: a queue, and the client as its consumer
//! under packet identifiers, with QoS 1 and 2 (MQTT 5.0 section 4.3).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::{Instant, Message, QoS, StreamId};
use dunlin_queue::{Consumer, Content, Delivery, Next, Outcome, Queue, Receipt, Settled};

use crate::packet_ids::PacketIdCounter;

/// What to do next for the client: the key of a delivery is its packet
/// identifier, [`Next::Send`] is PUBLISH and [`Next::Settle`] PUBREL.
pub type Outgoing = Next<NonZeroU16>;

/// What follows from an acknowledgement of the client.
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
    /// The store is being asked already.
    Pending,
    /// No such packet identifier in this state.
    Unknown,
}

impl From<Settled> for Received {
    fn from(settled: Settled) -> Self {
        match settled {
            Settled::Done { seq, key_stored } => Self::Done {
                seq,
                id_stored: key_stored,
            },
            // MQTT has no outcome that gives a message back.
            Settled::Requeued { .. } | Settled::Returned { .. } | Settled::Unknown => Self::Unknown,
        }
    }
}

/// The sending half of one session.
#[derive(Debug, Default)]
pub struct Outbound {
    /// What waits.
    pub queue: Queue,
    consumer: Consumer<NonZeroU16>,
    /// Packet identifier given out last.
    ids: PacketIdCounter,
}

impl Outbound {
    /// Whether so many copies of a message of `cost` bytes fit, given limits in
    /// messages for queue and reservations, and in bytes for these and what is in
    /// flight together.
    #[must_use]
    pub fn has_room(
        &self,
        copies: usize,
        cost: usize,
        messages_max: usize,
        bytes_max: usize,
    ) -> bool {
        let bytes_max = bytes_max.saturating_sub(self.consumer.bytes());
        self.queue.has_room(copies, cost, messages_max, bytes_max)
    }

    /// The level of the message that is sent next.
    #[must_use]
    pub fn next_level(&self) -> u8 {
        match self.consumer.is_behind() {
            true => 0,
            false => self.queue.front().map_or(0, |next| next.level),
        }
    }

    /// Bytes of messages held in memory, those in flight and those for which room is
    /// kept included, and those that come from the store.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let queue = &self.queue;
        queue.expected_bytes() + queue.loading_bytes() + self.consumer.bytes()
    }

    /// These messages.
    pub fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.queue.held().chain(self.consumer.held())
    }

    /// What waits, as far as it is in memory, and what is in flight.
    pub fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.queue.browse().chain(self.consumer.deliveries())
    }

    /// Messages in flight.
    #[must_use]
    pub const fn inflight(&self) -> usize {
        self.consumer.len()
    }

    /// Whether messages are in flight, and none of them has to be sent again.
    #[must_use]
    pub fn awaits_outcomes(&self) -> bool {
        self.consumer.awaits_outcomes()
    }

    /// Whether nothing waits and nothing is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.consumer.is_empty()
    }

    /// The message that [`Outbound::poll`] would send next, if it is new and
    /// in memory.
    #[must_use]
    pub fn next_new(&self) -> Option<(&Delivery, &Message)> {
        let next = self.queue.front().filter(|_| !self.consumer.is_behind())?;
        match &next.content {
            Content::Held(message) => Some((next, message)),
            Content::Stored { .. } => None,
        }
    }

    /// Starts a connection with Session Present: everything in flight is due
    /// again, in its order [MQTT-4.4.0-1]; deliveries go to control.
    pub fn handle_resumed(&mut self) {
        self.consumer.handle_resumed(&mut self.queue);
    }

    /// What to send next while fewer than `window` messages are in flight.
    pub fn poll(&mut self, now: Instant, window: u16) -> Option<Outgoing> {
        let credit = usize::from(window).saturating_sub(self.consumer.len());
        let ids = &mut self.ids;
        self.consumer.poll(&mut self.queue, now, credit, |used| {
            let id = ids.next_free(used.len(), |id| used.contains(id))?;
            ids.take(id);
            Some(id)
        })
    }

    /// Takes a packet identifier for a message that goes out at once: nothing waits
    /// in front of it, and fewer than `window` messages are in flight.
    #[must_use]
    pub fn take_id_at_once(&mut self, window: u16) -> Option<NonZeroU16> {
        let used = &self.consumer;
        let waits = !self.queue.is_empty() || used.is_behind();
        if waits || used.len() >= usize::from(window) {
            return None;
        }
        let id = self.ids.next_free(used.len(), |id| used.contains(id))?;
        self.ids.take(id);
        Some(id)
    }

    /// A PUBLISH left under the identifier of [`Outbound::take_id_at_once`], and its
    /// message is not kept: the session ends with its connection, so that it is
    /// never sent again.
    pub fn note_sent(&mut self, packet_id: NonZeroU16, qos: QoS, stream: StreamId) {
        self.consumer
            .note_sent(&mut self.queue, packet_id, qos, stream);
    }

    /// The PUBLISH under this identifier left on another stream than it was to:
    /// its PUBREL goes there too.
    pub fn note_stream(&mut self, packet_id: NonZeroU16, stream: StreamId) {
        self.consumer.note_stream(packet_id, stream);
    }

    /// The message in flight under this identifier.
    #[must_use]
    pub fn delivery(&self, packet_id: NonZeroU16) -> Option<&Delivery> {
        self.consumer.delivery(packet_id)
    }

    /// The QoS of what an identifier is in use for.
    #[must_use]
    pub fn qos(&self, packet_id: NonZeroU16) -> Option<QoS> {
        self.consumer.qos(packet_id)
    }

    /// The store has the identifier of a durable QoS 2 message, which leaves
    /// when all earlier ones have: the store may have refused one of them for
    /// a while.
    pub fn handle_stored(&mut self, packet_id: NonZeroU16) {
        self.consumer.handle_stored(packet_id);
    }

    /// A PUBACK arrived.
    pub fn handle_puback(&mut self, packet_id: NonZeroU16) -> Received {
        self.settle(packet_id, Outcome::Accepted)
    }

    /// A PUBREC with an error arrived, or the message cannot be sent at all:
    /// the delivery ends.
    pub fn handle_refused(&mut self, packet_id: NonZeroU16) -> Received {
        self.settle(packet_id, Outcome::Rejected)
    }

    /// A PUBREC without error arrived.
    pub fn handle_pubrec(&mut self, packet_id: NonZeroU16) -> Received {
        match self.consumer.handle_received(packet_id) {
            Receipt::Store { seq } => Received::StoreRelease { seq },
            Receipt::Settle => Received::Release,
            Receipt::Pending => Received::Pending,
            Receipt::Unknown => Received::Unknown,
        }
    }

    /// The store knows that PUBREC arrived: PUBREL is due.
    pub fn handle_release_stored(&mut self, packet_id: NonZeroU16) {
        self.consumer.handle_receipt_stored(packet_id);
    }

    /// A PUBCOMP arrived.
    pub fn handle_pubcomp(&mut self, packet_id: NonZeroU16) -> Received {
        self.consumer.complete(&mut self.queue, packet_id).into()
    }

    /// Sequence numbers to load, at most `max` and for about `bytes_max`, but
    /// at least one: of what is in flight and due again, else from the front
    /// of the queue; and their bytes.
    #[must_use]
    pub fn stored_at_front(&self, max: usize, bytes_max: usize) -> (Vec<u64>, usize) {
        self.consumer.stored_at_front(&self.queue, max, bytes_max)
    }

    /// Messages arrived from the store; those that are gone are dropped.
    pub fn handle_loaded(&mut self, loaded: &[(u64, Option<Arc<Message>>)]) {
        self.consumer.handle_loaded(&mut self.queue, loaded);
    }

    /// Restores a message in flight from the store, in the order of their places there. A
    /// message is sent again behind those that the store had before it and that wait: see
    /// [`Outbound::handle_stored`].
    pub fn restore_inflight(&mut self, packet_id: NonZeroU16, delivery: Option<Delivery>) {
        let (consumer, queue) = (&mut self.consumer, &mut self.queue);
        match delivery {
            Some(delivery) => consumer.restore_recorded(queue, packet_id, delivery),
            None => consumer.restore(queue, packet_id, None),
        }
    }

    /// Takes deliveries that came through a shared subscription and that the
    /// client has not answered, so that another member can have them: queued
    /// ones, and in flight those of QoS 1 [MQTT-4.8.2-5 forbids it for QoS 2].
    pub fn take_shared(&mut self, include_inflight: bool) -> Vec<Delivery> {
        let mut taken = match include_inflight {
            true => self.consumer.release_shared(),
            false => Vec::new(),
        };
        taken.append(&mut self.queue.take_shared());
        taken
    }

    fn settle(&mut self, packet_id: NonZeroU16, outcome: Outcome) -> Received {
        let settled = self.consumer.settle(&mut self.queue, packet_id, outcome);
        settled.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_queue::Identifiers;

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
            failed: 0,
            added: None,
        }
    }

    fn publish(out: &mut Outbound, window: u16) -> Option<(u16, bool)> {
        match out.poll(Instant::ZERO, window) {
            Some(Outgoing::Send(publish)) => Some((publish.key.get(), publish.repeated)),
            None => None,
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn the_window_bounds_what_is_in_flight() {
        //= mqtt5#[MQTT-3.3.4-7] type=test
        let mut out = Outbound::default();
        for _ in 0..3 {
            out.queue.push(delivery(QoS::AtLeastOnce, None));
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
            out.queue.push(delivery(QoS::ExactlyOnce, None));
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
            Some(Outgoing::Settle { key, .. }) if key == id
        ));
        assert_eq!(publish(&mut out, 3), Some((3, true)));
        assert_eq!(publish(&mut out, 3), None);
        assert!(matches!(out.handle_pubcomp(id), Received::Done { .. }));
        assert_eq!(publish(&mut out, 3), Some((4, false)));
    }

    #[test]
    fn a_durable_qos_2_message_leaves_after_its_id_is_stored() {
        let mut out = Outbound::default();
        out.queue.push(delivery(QoS::ExactlyOnce, Some(9)));
        let Some(Outgoing::Store {
            key: packet_id,
            seq: 9,
        }) = out.poll(Instant::ZERO, 5)
        else {
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
            Some(Outgoing::Settle { .. })
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
    fn what_is_sent_at_once_is_acknowledged_as_any_other() {
        let mut out = Outbound::default();
        let id = |number| NonZeroU16::new(number).expect("not zero");
        for (number, qos) in [(1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce)] {
            assert_eq!(out.take_id_at_once(2), Some(id(number)));
            out.note_sent(id(number), qos, StreamId(4));
            assert_eq!(out.qos(id(number)), Some(qos));
        }
        assert_eq!((out.take_id_at_once(2), out.held_bytes()), (None, 0));
        // Nothing overtakes what waits.
        out.queue.push(delivery(QoS::AtLeastOnce, None));
        assert_eq!(out.take_id_at_once(9), None);
        assert_eq!(publish(&mut out, 9), Some((3, false)));
        assert!(matches!(out.handle_puback(id(2)), Received::Unknown));
        assert!(matches!(
            out.handle_puback(id(1)),
            Received::Done {
                seq: None,
                id_stored: false
            }
        ));
        assert!(matches!(out.handle_pubrec(id(2)), Received::Release));
        assert!(matches!(out.handle_pubcomp(id(2)), Received::Done { .. }));
        assert_eq!(out.take_id_at_once(2), Some(id(4)));
    }

    #[test]
    fn shared_deliveries_can_be_taken_back_but_not_qos_2_in_flight() {
        //= mqtt5#[MQTT-4.8.2-5] type=test
        let mut out = Outbound::default();
        let shared = |qos| Delivery {
            share: Some(Arc::from("$share/g/t")),
            ..delivery(qos, None)
        };
        out.queue.push(shared(QoS::AtLeastOnce));
        out.queue.push(shared(QoS::ExactlyOnce));
        out.queue.push(delivery(QoS::AtLeastOnce, None));
        assert!(publish(&mut out, 2).is_some() && publish(&mut out, 2).is_some());
        out.queue.push(shared(QoS::ExactlyOnce));
        assert_eq!(out.take_shared(true).len(), 2);
        assert_eq!((out.inflight(), out.queue.len()), (1, 1));
    }
}
