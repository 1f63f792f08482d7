//! Packet identifiers in use towards the server: which PUBLISH, SUBSCRIBE and
//! UNSUBSCRIBE wait for which answer, in which order they go again after a
//! reconnection, and how many more the server allows. Knows no payload.

use dunlin_base::QoS;
use dunlin_mqtt_codec::PacketId;

use super::list::{Linked, Links, List};

/// Memory for one packet identifier in use towards the server.
#[derive(Clone, Copy, Debug)]
pub struct OutSlot {
    links: Links,
    state: OutState,
    /// Its PUBLISH or PUBREL went out on the current connection.
    sent: bool,
}

impl OutSlot {
    /// An unused slot.
    pub const FREE: Self = Self {
        links: Links::UNLINKED,
        state: OutState::Free,
        sent: false,
    };
}

impl Default for OutSlot {
    fn default() -> Self {
        Self::FREE
    }
}

impl Linked for OutSlot {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// What a packet identifier is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutState {
    /// Nothing.
    Free,
    /// A PUBLISH of this QoS, not acknowledged.
    Publish(QoS),
    /// A PUBREL, not acknowledged.
    Release,
    /// A SUBSCRIBE, not acknowledged.
    Subscribe,
    /// An UNSUBSCRIBE, not acknowledged.
    Unsubscribe,
}

/// The table: slot `i` is packet identifier `i + 1`, so that finding one is
/// indexing, and freed identifiers rest as long as possible before reuse.
pub(super) struct Outbound<S> {
    slots: S,
    free: List,
    /// Unacknowledged PUBLISHes in the order they were sent first.
    publishes: List,
    /// Unacknowledged PUBRELs in the order of their PUBRECs.
    releases: List,
    /// SUBSCRIBEs and UNSUBSCRIBEs.
    requests: List,
    /// First of `publishes` to send again on this connection.
    resume_at: Option<u16>,
    /// First of `releases` to send on this connection.
    release_at: Option<u16>,
    /// How many of `releases`, from the first, belong to a session that the
    /// server lost.
    lost_releases: u16,
    /// How many more PUBLISHes of QoS 1 and 2 the server takes now.
    quota: u16,
    /// What `quota` began with and never exceeds (section 4.9).
    quota_max: u16,
}

/// Slots that PUBLISHes leave free, so that a subscription can always be made
/// or ended.
const REQUEST_SLOTS_MIN: u16 = 1;

impl<S: AsRef<[OutSlot]> + AsMut<[OutSlot]>> Outbound<S> {
    /// Uses at most 65,535 slots.
    pub(super) fn new(slots: S) -> Self {
        let mut table = Self {
            slots,
            free: List::EMPTY,
            publishes: List::EMPTY,
            releases: List::EMPTY,
            requests: List::EMPTY,
            resume_at: None,
            release_at: None,
            lost_releases: 0,
            quota: 0,
            quota_max: 0,
        };
        table.clear();
        table
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        (self.publishes, self.releases) = (List::EMPTY, List::EMPTY);
        (self.requests, self.free) = (List::EMPTY, List::EMPTY);
        (self.resume_at, self.release_at) = (None, None);
        self.lost_releases = 0;
        let slots = self.slots.as_mut();
        slots.fill(OutSlot::FREE);
        let len = u16::try_from(slots.len()).unwrap_or(u16::MAX);
        for index in 0..len {
            self.free.push_back(slots, index);
        }
    }

    /// PUBLISHes and PUBRELs without their acknowledgement.
    pub(super) fn in_flight(&self) -> u16 {
        self.publishes.len() + self.releases.len()
    }

    /// Whether nothing is kept that a resumed session would need.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight() == 0
    }

    /// Whether a PUBLISH of QoS 1 or 2 can go now. While older ones wait to be
    /// sent again it cannot, because order would be lost [MQTT-4.6.0-1].
    pub(super) fn can_publish(&self) -> bool {
        self.quota > 0 && self.resume_at.is_none() && self.free.len() > REQUEST_SLOTS_MIN
    }

    /// Whether PUBLISHes wait to be sent again on this connection.
    pub(super) fn is_resuming(&self) -> bool {
        self.resume_at.is_some()
    }

    /// Whether something of an earlier connection waits to be sent again.
    pub(super) fn has_unsent(&self) -> bool {
        // New PUBLISHes are behind the old ones, so the first one tells.
        let slots = self.slots.as_ref();
        let unsent = |list: &List| {
            let head = list.head().and_then(|index| slots.get(usize::from(index)));
            head.is_some_and(|slot| !slot.sent)
        };
        unsent(&self.publishes) || unsent(&self.releases)
    }

    /// The identifier that [`Outbound::take`] gives next.
    pub(super) fn peek_free(&self) -> Option<PacketId> {
        self.free.head().and_then(id_of)
    }

    /// Takes the identifier that [`Outbound::peek_free`] showed into use.
    pub(super) fn take(&mut self, state: OutState) -> Option<PacketId> {
        let slots = self.slots.as_mut();
        let index = self.free.pop_front(slots)?;
        let list = match state {
            OutState::Publish(_) => &mut self.publishes,
            OutState::Release => &mut self.releases,
            OutState::Free | OutState::Subscribe | OutState::Unsubscribe => &mut self.requests,
        };
        list.push_back(slots, index);
        if let Some(slot) = slots.get_mut(usize::from(index)) {
            slot.state = state;
            slot.sent = true;
        }
        if matches!(state, OutState::Publish(_)) {
            self.quota = self.quota.saturating_sub(1);
        }
        id_of(index)
    }

    pub(super) fn state(&self, id: PacketId) -> OutState {
        let slot = self.slots.as_ref().get(usize::from(index_of(id)));
        slot.map_or(OutState::Free, |slot| slot.state)
    }

    /// Frees an identifier.
    pub(super) fn release(&mut self, id: PacketId) {
        let index = index_of(id);
        self.unlink(index);
        let slots = self.slots.as_mut();
        if let Some(slot) = slots.get_mut(usize::from(index)) {
            *slot = OutSlot::FREE;
            self.free.push_back(slots, index);
        }
    }

    /// Frees the identifier of a message whose exchange is over, and counts it
    /// against the server's Receive Maximum no longer (section 4.9).
    pub(super) fn complete(&mut self, id: PacketId) {
        self.release(id);
        self.quota = self.quota.saturating_add(1).min(self.quota_max);
    }

    /// A PUBREC came: the PUBREL is due, after those of earlier PUBRECs
    /// [MQTT-4.6.0-4].
    pub(super) fn received(&mut self, id: PacketId) {
        let index = index_of(id);
        self.unlink(index);
        let slots = self.slots.as_mut();
        self.releases.push_back(slots, index);
        if let Some(slot) = slots.get_mut(usize::from(index)) {
            slot.state = OutState::Release;
            slot.sent = false;
        }
        self.release_at = self.release_at.or(Some(index));
    }

    /// The PUBREL to write now.
    pub(super) fn release_due(&self) -> Option<PacketId> {
        self.release_at.and_then(id_of)
    }

    /// The PUBREL that [`Outbound::release_due`] showed is written.
    pub(super) fn release_sent(&mut self) {
        if let Some(index) = self.release_at {
            let slots = self.slots.as_mut();
            if let Some(slot) = slots.get_mut(usize::from(index)) {
                slot.sent = true;
            }
            self.release_at = List::next(slots, index);
        }
    }

    /// A CONNACK came. What went out on this connection already counts against
    /// the quota; everything older is to be sent again. If the session is
    /// lost, PUBRELs mean nothing to the server any more.
    pub(super) fn start(&mut self, receive_maximum: u16, session_present: bool) {
        self.quota_max = receive_maximum;
        self.quota = receive_maximum;
        (self.resume_at, self.release_at) = (None, self.releases.head());
        if !session_present {
            self.release_at = None;
            self.lost_releases = self.releases.len();
        }
        let slots = self.slots.as_mut();
        let mut at = self.publishes.head();
        while let Some(index) = at {
            if slots.get(usize::from(index)).is_some_and(|slot| slot.sent) {
                self.quota = self.quota.saturating_sub(1);
            } else {
                self.resume_at = self.resume_at.or(Some(index));
            }
            at = List::next(slots, index);
        }
    }

    /// The quota while CONNACK has not come yet.
    pub(super) fn start_early(&mut self, publishes: u16) {
        (self.quota, self.quota_max) = (publishes, publishes);
    }

    /// The connection is gone: nothing counts as sent.
    pub(super) fn stop(&mut self) {
        (self.quota, self.quota_max) = (0, 0);
        (self.resume_at, self.release_at) = (None, None);
        self.lost_releases = 0;
        for slot in self.slots.as_mut() {
            slot.sent = false;
        }
    }

    /// The oldest PUBLISH to send again, if the quota allows one.
    pub(super) fn resume_due(&self) -> Option<PacketId> {
        self.resume_at.filter(|_| self.quota > 0).and_then(id_of)
    }

    /// The PUBLISH that [`Outbound::resume_due`] showed is written.
    pub(super) fn resume_sent(&mut self) {
        let Some(index) = self.resume_at else {
            return;
        };
        let slots = self.slots.as_mut();
        if let Some(slot) = slots.get_mut(usize::from(index)) {
            slot.sent = true;
        }
        self.quota = self.quota.saturating_sub(1);
        self.resume_at = next_unsent(slots, index);
    }

    /// Frees and returns one PUBREL of a session that the server lost. They
    /// are before those of this connection.
    pub(super) fn pop_lost_release(&mut self) -> Option<PacketId> {
        self.lost_releases = self.lost_releases.checked_sub(1)?;
        let id = self.releases.head().and_then(id_of)?;
        self.release(id);
        Some(id)
    }

    /// Frees and returns one SUBSCRIBE or UNSUBSCRIBE that an earlier
    /// connection took with it.
    pub(super) fn pop_stale_request(&mut self) -> Option<PacketId> {
        let slots = self.slots.as_mut();
        let mut at = self.requests.head();
        while let Some(index) = at {
            if slots.get(usize::from(index)).is_some_and(|slot| !slot.sent) {
                let id = id_of(index)?;
                self.release(id);
                return Some(id);
            }
            at = List::next(slots, index);
        }
        None
    }

    /// Whether [`Outbound::pop_stale_request`] would return one: those of this
    /// connection are behind it.
    pub(super) fn has_stale_requests(&self) -> bool {
        let head = self.requests.head();
        let slot = head.and_then(|index| self.slots.as_ref().get(usize::from(index)));
        slot.is_some_and(|slot| !slot.sent)
    }

    fn unlink(&mut self, index: u16) {
        let slots = self.slots.as_mut();
        let Some(slot) = slots.get(usize::from(index)) else {
            return;
        };
        match slot.state {
            OutState::Free => self.free.remove(slots, index),
            OutState::Publish(_) => {
                if self.resume_at == Some(index) {
                    self.resume_at = next_unsent(slots, index);
                }
                self.publishes.remove(slots, index);
            }
            OutState::Release => {
                if self.release_at == Some(index) {
                    self.release_at = List::next(slots, index);
                }
                self.releases.remove(slots, index);
            }
            OutState::Subscribe | OutState::Unsubscribe => self.requests.remove(slots, index),
        }
    }
}

/// PUBLISHes sent before CONNACK follow the older ones in the list and are not
/// sent twice on one connection.
fn next_unsent(slots: &mut [OutSlot], index: u16) -> Option<u16> {
    let next = List::next(slots, index)?;
    let unsent = slots.get(usize::from(next)).is_some_and(|slot| !slot.sent);
    unsent.then_some(next)
}

fn id_of(index: u16) -> Option<PacketId> {
    PacketId::new(index.checked_add(1)?)
}

fn index_of(id: PacketId) -> u16 {
    id.get() - 1
}
