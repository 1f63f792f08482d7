//! The receiving half of a session: which QoS 2 identifiers are open, which
//! acknowledgements are due and in which order, and the receive quota.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::{QoS, StreamId};
use dunlin_mqtt_codec::ReasonCode;
use hashbrown::HashMap;

use crate::quota::Quota;

/// Names the work that an acknowledgement waits for; the shard chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckToken(pub u64);

/// An acknowledgement that may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Stream that the PUBLISH came on.
    pub stream: StreamId,
    /// Its packet identifier.
    pub packet_id: NonZeroU16,
    /// QoS 1 is answered with PUBACK, QoS 2 with PUBREC.
    pub qos: QoS,
    /// Outcome.
    pub reason: ReasonCode,
}

/// What a PUBLISH with QoS 1 or 2 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Not seen before: route it.
    New,
    /// QoS 2, already routed: its PUBREC is due again, do not route
    /// [MQTT-4.3.3-10].
    Duplicate,
    /// QoS 2, routing is under way: its PUBREC will come.
    Pending,
    /// The client overran the server's Receive Maximum [MQTT-3.3.4-9].
    QuotaExceeded,
}

/// What a PUBREL is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Forget the identifier, in the store too, then call
    /// [`Inbound::handle_released`].
    Begin,
    /// That is under way.
    Pending,
    /// No such identifier, or its PUBREC has not left: PUBCOMP says so.
    Unknown,
}

#[derive(Debug)]
struct Waiting {
    ack: Ack,
    token: AckToken,
    ready: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Qos2 {
    /// Routing has ended and PUBREC is due or was sent.
    received: bool,
    /// Counts against the quota of this connection.
    counted: bool,
    /// What routing waits for.
    work: AckToken,
    /// PUBREL came, and the store is being asked.
    releasing: bool,
    /// Where PUBCOMP is due when the store knows.
    asked: Option<StreamId>,
    /// Its stream has ended, and control goes on with it.
    adopted: bool,
}

/// The receiving half of one session.
#[derive(Debug, Default)]
pub struct Inbound {
    /// QoS 2 identifiers between PUBLISH and PUBREL. Bounded by the quota on
    /// this connection plus what earlier connections of the session left, which
    /// the same quota bounded.
    qos2: HashMap<(StreamId, NonZeroU16), Qos2>,
    /// Due acknowledgements in order of arrival; bounded by the quota.
    waiting: VecDeque<Waiting>,
    quota: Quota,
}

impl Inbound {
    /// Starts a connection on which the server announced this Receive Maximum:
    /// the quota is whole, and acknowledgements that
    /// were due on the old one are forgotten, since the client sends those
    /// messages again and is answered then.
    pub fn handle_connected(&mut self, receive_maximum: u16) {
        self.quota = Quota::new(receive_maximum);
        for waiting in core::mem::take(&mut self.waiting) {
            if waiting.ready {
                self.settle(
                    (waiting.ack.stream, waiting.ack.packet_id),
                    waiting.ack.reason,
                );
            }
        }
        // Data streams end with their connection: the client goes on, on
        // control, with what they carried.
        let open: Vec<_> = self.qos2.drain().collect();
        for ((_, packet_id), mut state) in open {
            state.counted = false;
            state.asked = None;
            let entry = self.qos2.entry((StreamId::CONTROL, packet_id));
            entry.or_insert(state).received |= state.received;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Restores a QoS 2 identifier from the store.
    pub fn restore(&mut self, packet_id: NonZeroU16) {
        let state = Qos2 {
            received: true,
            counted: false,
            work: AckToken(0),
            releasing: false,
            asked: None,
            adopted: false,
        };
        self.qos2.insert((StreamId::CONTROL, packet_id), state);
    }

    /// Registers a PUBLISH with QoS 1 or 2 under the work it will wait for.
    pub fn handle_publish(&mut self, ack: Ack, token: AckToken) -> Receipt {
        let key = (ack.stream, ack.packet_id);
        if ack.qos == QoS::ExactlyOnce
            && let Some(open) = self.qos2.get_mut(&key)
        {
            if !core::mem::replace(&mut open.counted, true) && !self.quota.take() {
                return Receipt::QuotaExceeded;
            }
            let (ready, token) = (open.received, open.work);
            let mut waiting = self.waiting.iter();
            if !waiting.any(|w| (w.ack.stream, w.ack.packet_id) == key) {
                self.waiting.push_back(Waiting { ack, token, ready });
            }
            return match ready {
                true => Receipt::Duplicate,
                false => Receipt::Pending,
            };
        }
        if !self.quota.take() {
            return Receipt::QuotaExceeded;
        }
        if ack.qos == QoS::ExactlyOnce {
            let state = Qos2 {
                received: false,
                counted: true,
                work: token,
                releasing: false,
                asked: None,
                adopted: false,
            };
            self.qos2.insert(key, state);
        }
        self.waiting.push_back(Waiting {
            ack,
            token,
            ready: false,
        });
        Receipt::New
    }

    /// The packet identifier that waits under `token`.
    #[must_use]
    pub fn packet_id(&self, token: AckToken) -> Option<NonZeroU16> {
        // The newest is asked for, so look from the back.
        let mut newest_first = self.waiting.iter().rev();
        newest_first
            .find(|w| w.token == token)
            .map(|w| w.ack.packet_id)
    }

    /// The packet identifier of a message of QoS 2 that waits under `token`, also when its
    /// client has not asked on this connection.
    #[must_use]
    pub fn open_id(&self, token: AckToken) -> Option<NonZeroU16> {
        self.key_of(token).map(|(_, packet_id)| packet_id)
    }

    /// The work behind `token` ended: its acknowledgement may leave once all
    /// earlier ones have [MQTT-4.6.0-2].
    pub fn complete(&mut self, token: AckToken, reason: ReasonCode) {
        if let Some(waiting) = self.waiting.iter_mut().find(|w| w.token == token) {
            waiting.ready = true;
            waiting.ack.reason = reason;
        } else if let Some(key) = self.key_of(token) {
            self.settle(key, reason);
        }
    }

    /// The identifier whose client has not asked on this connection.
    fn key_of(&self, token: AckToken) -> Option<(StreamId, NonZeroU16)> {
        let mut open = self.qos2.iter();
        let (key, _) = open.find(|(_, open)| open.work == token && !open.received)?;
        Some(*key)
    }

    /// Routing has ended for a QoS 2 identifier.
    fn settle(&mut self, key: (StreamId, NonZeroU16), reason: ReasonCode) {
        if reason.is_error() {
            self.end(key);
        } else if let Some(open) = self.qos2.get_mut(&key) {
            open.received = true;
        }
    }

    /// The next acknowledgement that may leave.
    pub fn poll_ack(&mut self) -> Option<Ack> {
        if !self.waiting.front()?.ready {
            return None;
        }
        let ack = self.waiting.pop_front()?.ack;
        let key = (ack.stream, ack.packet_id);
        if ack.qos == QoS::ExactlyOnce {
            self.settle(key, ack.reason);
        } else {
            self.quota.restore();
        }
        Some(ack)
    }

    /// The work behind `token` failed and there is no way to say so: the
    /// client sends the message again, and that counts as the first time.
    pub fn abandon(&mut self, token: AckToken) {
        if let Some(key) = self.key_of(token) {
            self.end(key);
        }
        if let Some(at) = self.waiting.iter().position(|w| w.token == token)
            && let Some(Waiting { ack, .. }) = self.waiting.remove(at)
            && ack.qos == QoS::AtLeastOnce
        {
            self.quota.restore();
        }
    }

    fn end(&mut self, key: (StreamId, NonZeroU16)) {
        if self.qos2.remove(&key).is_some_and(|open| open.counted) {
            self.quota.restore();
        }
    }

    /// A PUBREL [MQTT-4.3.3-11].
    pub fn handle_pubrel(&mut self, stream: StreamId, packet_id: NonZeroU16) -> Release {
        let Some(open) = self.find(stream, packet_id) else {
            return Release::Unknown;
        };
        if !open.received {
            return Release::Unknown;
        }
        open.asked = Some(stream);
        match core::mem::replace(&mut open.releasing, true) {
            false => Release::Begin,
            true => Release::Pending,
        }
    }

    /// Nothing remembers the identifier any more: the stream on which its
    /// PUBCOMP is due, if the client has asked on this connection.
    pub fn handle_released(&mut self, stream: StreamId, packet_id: NonZeroU16) -> Option<StreamId> {
        let asked = self.find(stream, packet_id)?.asked;
        for stream in [stream, StreamId::CONTROL] {
            if self.qos2.contains_key(&(stream, packet_id)) {
                self.end((stream, packet_id));
                break;
            }
        }
        asked
    }

    /// What began on a data stream may go on, on control, and the other way
    /// round, when a session is resumed.
    fn find(&mut self, stream: StreamId, packet_id: NonZeroU16) -> Option<&mut Qos2> {
        let key = match self.qos2.contains_key(&(stream, packet_id)) {
            true => (stream, packet_id),
            false => (StreamId::CONTROL, packet_id),
        };
        self.qos2.get_mut(&key)
    }

    /// Whether acknowledgements are due on a stream.
    #[must_use]
    pub fn awaits(&self, stream: StreamId) -> bool {
        self.waiting.iter().any(|w| w.ack.stream == stream)
    }

    /// What began on one stream goes on, on another.
    pub fn rehome(&mut self, from: StreamId, to: StreamId) {
        if self.qos2.is_empty() && self.waiting.is_empty() {
            return;
        }
        for waiting in self.waiting.iter_mut().filter(|w| w.ack.stream == from) {
            waiting.ack.stream = to;
        }
        let moved = self.qos2.extract_if(|(stream, _), _| *stream == from);
        let moved: Vec<_> = moved.collect();
        for ((_, packet_id), state) in moved {
            let mut state = state;
            // The one that is there counted, too.
            if let Some(there) = self.qos2.get(&(to, packet_id)) {
                state.received |= there.received;
                if there.counted && state.counted {
                    self.quota.restore();
                }
                state.counted |= there.counted;
            }
            self.qos2.insert((to, packet_id), state);
        }
    }

    /// A data stream has ended: what it left open goes on, on control, unless
    /// control has that identifier in use itself.
    pub fn adopt(&mut self, stream: StreamId) {
        let open = self.qos2.keys().filter(|(of, _)| *of == stream);
        let open: Vec<_> = open.copied().collect();
        for key in open {
            if self.qos2.contains_key(&(StreamId::CONTROL, key.1)) {
                self.end(key);
            } else if let Some(state) = self.qos2.get_mut(&key) {
                state.adopted = true;
            }
        }
        self.rehome(stream, StreamId::CONTROL);
    }

    /// Looks at a PUBLISH with QoS 2 before [`Inbound::handle_publish`]. A
    /// repeated one on a data stream may be of one that an earlier stream, or
    /// connection, left open; those wait on control. One that is not repeated
    /// is new, also if an earlier stream left open under its identifier.
    pub fn resume(&mut self, stream: StreamId, packet_id: NonZeroU16, dup: bool) {
        let control = (StreamId::CONTROL, packet_id);
        let Some(open) = self.qos2.get_mut(&control) else {
            return;
        };
        if stream == StreamId::CONTROL {
            if core::mem::take(&mut open.adopted) && !dup {
                self.end(control);
            }
        } else if dup
            && (open.adopted || !open.counted)
            && !self.qos2.contains_key(&(stream, packet_id))
            && let Some(mut open) = self.qos2.remove(&control)
        {
            open.adopted = false;
            self.qos2.insert((stream, packet_id), open);
        }
    }

    /// QoS 2 identifiers between PUBLISH and PUBREL.
    #[must_use]
    pub fn open(&self) -> usize {
        self.qos2.len()
    }

    /// PUBLISH packets of this connection not yet acknowledged in full.
    #[must_use]
    pub const fn used(&self) -> u16 {
        self.quota.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbound(receive_maximum: u16) -> Inbound {
        let mut inbound = Inbound::default();
        inbound.handle_connected(receive_maximum);
        inbound
    }

    fn ack(id: u16, qos: QoS) -> Ack {
        Ack {
            stream: StreamId::CONTROL,
            packet_id: NonZeroU16::new(id).expect("not zero"),
            qos,
            reason: ReasonCode::Success,
        }
    }

    #[test]
    fn acknowledgements_leave_in_order_of_arrival() {
        //= mqtt5#[MQTT-4.6.0-2] type=test
        //= mqtt5#[MQTT-4.6.0-3] type=test
        let mut inbound = inbound(10);
        for id in 1..=3 {
            let qos = if id == 2 {
                QoS::ExactlyOnce
            } else {
                QoS::AtLeastOnce
            };
            let token = AckToken(u64::from(id));
            assert_eq!(inbound.handle_publish(ack(id, qos), token), Receipt::New);
        }
        inbound.complete(AckToken(3), ReasonCode::Success);
        inbound.complete(AckToken(2), ReasonCode::Success);
        assert_eq!(inbound.poll_ack(), None);
        inbound.complete(AckToken(1), ReasonCode::Success);
        let order: Vec<u16> =
            core::iter::from_fn(|| inbound.poll_ack().map(|a| a.packet_id.get())).collect();
        assert_eq!(order, [1, 2, 3]);
    }

    #[test]
    fn a_repeated_qos_2_publish_is_not_routed_again() {
        //= mqtt5#[MQTT-4.3.3-10] type=test
        let mut inbound = inbound(10);
        let publish = ack(7, QoS::ExactlyOnce);
        assert_eq!(inbound.handle_publish(publish, AckToken(1)), Receipt::New);
        assert_eq!(
            inbound.handle_publish(publish, AckToken(2)),
            Receipt::Pending
        );
        inbound.complete(AckToken(1), ReasonCode::Success);
        assert!(inbound.poll_ack().is_some());
        assert_eq!(
            inbound.handle_publish(publish, AckToken(3)),
            Receipt::Duplicate
        );
        assert!(inbound.poll_ack().is_some());
        let id = publish.packet_id;
        assert_eq!(inbound.handle_pubrel(StreamId::CONTROL, id), Release::Begin);
        assert_eq!(
            inbound.handle_pubrel(StreamId::CONTROL, id),
            Release::Pending
        );
        assert_eq!(
            inbound.handle_released(StreamId::CONTROL, id),
            Some(StreamId::CONTROL)
        );
        assert_eq!(
            inbound.handle_pubrel(StreamId::CONTROL, id),
            Release::Unknown
        );
        //= mqtt5#[MQTT-4.3.3-12] type=test
        assert_eq!(inbound.handle_publish(publish, AckToken(4)), Receipt::New);
    }

    #[test]
    fn the_receive_quota_is_per_connection_and_comes_back() {
        //= mqtt5#[MQTT-3.3.4-9] type=test
        let mut inbound = inbound(1);
        assert_eq!(
            inbound.handle_publish(ack(1, QoS::AtLeastOnce), AckToken(1)),
            Receipt::New
        );
        assert_eq!(
            inbound.handle_publish(ack(2, QoS::AtLeastOnce), AckToken(2)),
            Receipt::QuotaExceeded
        );
        inbound.complete(AckToken(1), ReasonCode::Success);
        assert!(inbound.poll_ack().is_some());
        assert_eq!(
            inbound.handle_publish(ack(2, QoS::AtLeastOnce), AckToken(2)),
            Receipt::New
        );
        inbound.handle_connected(1);
        assert_eq!(inbound.used(), 0);
    }
}
