//! Packet identifiers in use towards the server: which PUBLISH, SUBSCRIBE and
//! UNSUBSCRIBE wait for which answer, in which order they go again after a
//! reconnection, and how many more the server allows. Knows no payload.

use alloc::collections::VecDeque;

use dunlin_base::QoS;
use dunlin_mqtt_codec::{Ack, PacketId, SubAck, UnsubAck};

use super::error::PeerError;
use super::event::Event;
use crate::packet_ids::PacketIds;
use crate::quota::Quota;

/// What a packet identifier is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A PUBLISH of this QoS, not acknowledged.
    Publish(QoS),
    /// A PUBREL, not acknowledged.
    Release,
    /// A SUBSCRIBE, not acknowledged.
    Subscribe,
    /// An UNSUBSCRIBE, not acknowledged.
    Unsubscribe,
}

impl Use {
    const fn is_request(self) -> bool {
        matches!(self, Self::Subscribe | Self::Unsubscribe)
    }
}

#[derive(Clone, Copy, Debug)]
struct Exchange {
    used_for: Use,
    /// Its packet went out on the current connection.
    sent: bool,
}

/// The exchanges that this client began.
#[derive(Debug)]
pub(super) struct Outbound {
    ids: PacketIds<Exchange>,
    /// Most identifiers in use at a time.
    max: u16,
    /// SUBSCRIBEs and UNSUBSCRIBEs among them.
    requests: usize,
    /// PUBLISHes to send again on this connection, oldest first.
    resume: VecDeque<PacketId>,
    /// PUBRELs to send, in the order of their PUBRECs.
    releases: VecDeque<PacketId>,
    /// PUBRELs of a session that the server lost.
    lost_releases: VecDeque<PacketId>,
    /// Requests that an earlier connection took with it, oldest first.
    stale_requests: VecDeque<PacketId>,
    /// How many more PUBLISHes of QoS 1 and 2 the server takes now.
    quota: Quota,
}

/// Identifiers that PUBLISHes leave free, so that a subscription can always be
/// made or ended.
const REQUEST_IDS_MIN: usize = 1;

impl Outbound {
    /// At most `max` identifiers in use.
    pub(super) fn new(max: u16) -> Self {
        Self {
            ids: PacketIds::default(),
            max,
            requests: 0,
            resume: VecDeque::new(),
            releases: VecDeque::new(),
            lost_releases: VecDeque::new(),
            stale_requests: VecDeque::new(),
            quota: Quota::default(),
        }
    }

    /// PUBLISHes and PUBRELs without their acknowledgement.
    pub(super) fn in_flight(&self) -> u16 {
        let in_flight = self.ids.len().saturating_sub(self.requests);
        u16::try_from(in_flight).unwrap_or(u16::MAX)
    }

    /// Whether a PUBLISH of QoS 1 or 2 can go now. While older ones wait to be
    /// sent again it cannot, because order would be lost [MQTT-4.6.0-1].
    pub(super) fn can_publish(&self) -> bool {
        let used = self.ids.len() + REQUEST_IDS_MIN;
        self.quota.is_open() && self.resume.is_empty() && used < usize::from(self.max)
    }

    /// Whether PUBLISHes wait to be sent again.
    pub(super) fn is_resuming(&self) -> bool {
        !self.resume.is_empty()
    }

    /// Whether a message of an earlier connection waits to be sent again.
    pub(super) fn has_unsent(&self) -> bool {
        !(self.resume.is_empty() && self.releases.is_empty())
    }

    /// The identifier for the next packet.
    pub(super) fn next_free(&self) -> Option<PacketId> {
        let has_room = self.ids.len() < usize::from(self.max);
        self.ids.next_free().filter(|_| has_room)
    }

    /// A packet was sent under the identifier that [`Outbound::next_free`]
    /// showed.
    pub(super) fn sent(&mut self, id: PacketId, used_for: Use) {
        self.requests += usize::from(used_for.is_request());
        if let Use::Publish(_) = used_for {
            self.quota.take();
        }
        let sent = true;
        self.ids.insert(id, Exchange { used_for, sent });
    }

    pub(super) fn used_for(&self, id: PacketId) -> Option<Use> {
        self.ids.get(id).map(|exchange| exchange.used_for)
    }

    /// Frees an identifier.
    pub(super) fn release(&mut self, id: PacketId) {
        let Some(exchange) = self.ids.remove(id) else {
            return;
        };
        self.requests -= usize::from(exchange.used_for.is_request());
        if exchange.sent {
            return;
        }
        match exchange.used_for {
            Use::Publish(_) => self.resume.retain(|other| *other != id),
            Use::Release => {
                self.releases.retain(|other| *other != id);
                self.lost_releases.retain(|other| *other != id);
            }
            Use::Subscribe | Use::Unsubscribe => self.stale_requests.retain(|other| *other != id),
        }
    }

    /// Frees the identifier of a message whose exchange is over, and counts it
    /// against the server's Receive Maximum no longer (section 4.9).
    fn complete(&mut self, id: PacketId) {
        self.release(id);
        self.quota.restore();
    }

    pub(super) fn handle_puback<'e>(&mut self, ack: Ack<'e>) -> Result<Event<'e>, PeerError> {
        match self.used_for(ack.packet_id) {
            Some(Use::Publish(QoS::AtLeastOnce)) => {
                self.complete(ack.packet_id);
                Ok(Event::Published(ack))
            }
            None => Ok(Event::Nothing),
            Some(_) => Err(PeerError::WrongAcknowledgement),
        }
    }

    /// A PUBREC came; `None` if its identifier is not in use and the server
    /// waits for a PUBREL all the same.
    pub(super) fn handle_pubrec<'e>(
        &mut self,
        ack: Ack<'e>,
    ) -> Result<Option<Event<'e>>, PeerError> {
        let id = ack.packet_id;
        match self.used_for(id) {
            // [MQTT-4.4.0-2]: refused is acknowledged.
            Some(Use::Publish(QoS::ExactlyOnce)) if ack.reason.is_error() => {
                self.complete(id);
                Ok(Some(Event::Published(ack)))
            }
            Some(Use::Publish(QoS::ExactlyOnce)) => {
                self.received(id);
                Ok(Some(Event::Recorded(id)))
            }
            Some(Use::Release) => {
                self.received(id);
                Ok(Some(Event::Nothing))
            }
            None if ack.reason.is_error() => Ok(Some(Event::Nothing)),
            None => Ok(None),
            Some(_) => Err(PeerError::WrongAcknowledgement),
        }
    }

    pub(super) fn handle_pubcomp<'e>(&mut self, ack: Ack<'e>) -> Result<Event<'e>, PeerError> {
        match self.used_for(ack.packet_id) {
            Some(Use::Release) => {
                self.complete(ack.packet_id);
                Ok(Event::Published(ack))
            }
            None => Ok(Event::Nothing),
            Some(_) => Err(PeerError::WrongAcknowledgement),
        }
    }

    pub(super) fn handle_suback<'e>(&mut self, suback: SubAck<'e>) -> Result<Event<'e>, PeerError> {
        match self.used_for(suback.packet_id) {
            Some(Use::Subscribe) => {
                self.release(suback.packet_id);
                Ok(Event::Subscribed(suback))
            }
            None => Ok(Event::Nothing),
            Some(_) => Err(PeerError::WrongAcknowledgement),
        }
    }

    pub(super) fn handle_unsuback<'e>(
        &mut self,
        unsuback: UnsubAck<'e>,
    ) -> Result<Event<'e>, PeerError> {
        match self.used_for(unsuback.packet_id) {
            Some(Use::Unsubscribe) => {
                self.release(unsuback.packet_id);
                Ok(Event::Unsubscribed(unsuback))
            }
            None => Ok(Event::Nothing),
            Some(_) => Err(PeerError::WrongAcknowledgement),
        }
    }

    /// A PUBREC came: the PUBREL is due, after those of earlier PUBRECs
    /// [MQTT-4.6.0-4].
    fn received(&mut self, id: PacketId) {
        let Some(exchange) = self.ids.get_mut(id) else {
            return;
        };
        if !exchange.sent {
            self.resume.retain(|other| *other != id);
            self.releases.retain(|other| *other != id);
            self.lost_releases.retain(|other| *other != id);
        }
        *exchange = Exchange {
            used_for: Use::Release,
            sent: false,
        };
        self.ids.move_to_end(id);
        self.releases.push_back(id);
    }

    /// The PUBREL to write now.
    pub(super) fn release_due(&self) -> Option<PacketId> {
        self.releases.front().copied()
    }

    /// The PUBREL that [`Outbound::release_due`] showed is written.
    pub(super) fn release_sent(&mut self) {
        if let Some(id) = self.releases.pop_front()
            && let Some(exchange) = self.ids.get_mut(id)
        {
            exchange.sent = true;
        }
    }

    /// A CONNACK came. What went out on this connection already counts against
    /// the quota; everything older is to be sent again. If the session is
    /// lost, PUBRELs mean nothing to the server any more.
    pub(super) fn start(&mut self, receive_maximum: u16, session_present: bool) {
        if !session_present {
            self.lost_releases = core::mem::take(&mut self.releases);
        }
        self.quota = Quota::new(receive_maximum);
        let is_publish = |exchange: &&Exchange| matches!(exchange.used_for, Use::Publish(_));
        let sent = self.ids.values().filter(is_publish);
        for _ in sent.filter(|exchange| exchange.sent) {
            self.quota.take();
        }
    }

    /// The quota while CONNACK has not come yet.
    pub(super) fn start_early(&mut self, publishes: u16) {
        self.quota = Quota::new(publishes);
    }

    /// The connection is gone: nothing counts as sent.
    pub(super) fn stop(&mut self) {
        self.quota = Quota::default();
        self.lost_releases.clear();
        for exchange in self.ids.values_mut() {
            exchange.sent = false;
        }
        let ids = &self.ids;
        let in_order = |wanted: fn(Use) -> bool| {
            let ids = ids.in_order(|exchange| wanted(exchange.used_for));
            VecDeque::from(ids)
        };
        self.resume = in_order(|used_for| matches!(used_for, Use::Publish(_)));
        self.releases = in_order(|used_for| used_for == Use::Release);
        self.stale_requests = in_order(Use::is_request);
    }

    /// The oldest PUBLISH to send again, if the quota allows one.
    pub(super) fn resume_due(&self) -> Option<PacketId> {
        self.resume
            .front()
            .copied()
            .filter(|_| self.quota.is_open())
    }

    /// The PUBLISH that [`Outbound::resume_due`] showed is written.
    pub(super) fn resume_sent(&mut self) {
        if let Some(id) = self.resume.pop_front()
            && let Some(exchange) = self.ids.get_mut(id)
        {
            exchange.sent = true;
            self.quota.take();
        }
    }

    /// Frees and returns one PUBREL of a session that the server lost.
    pub(super) fn pop_lost_release(&mut self) -> Option<PacketId> {
        let id = self.lost_releases.pop_front()?;
        self.release(id);
        Some(id)
    }

    /// Frees and returns one SUBSCRIBE or UNSUBSCRIBE that an earlier
    /// connection took with it.
    pub(super) fn pop_stale_request(&mut self) -> Option<PacketId> {
        let id = self.stale_requests.pop_front()?;
        self.release(id);
        Some(id)
    }

    /// Whether [`Outbound::pop_stale_request`] would return one.
    pub(super) fn has_stale_requests(&self) -> bool {
        !self.stale_requests.is_empty()
    }
}
