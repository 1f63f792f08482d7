//! Packet identifiers in use by the server: which PUBLISHes wait for the
//! application, which acknowledgements are due in which order, and which QoS 2
//! identifiers must not be delivered again. Knows no payload.

use core::num::NonZeroU16;

use dunlin_mqtt_codec::{PacketId, ReasonCode};

use super::list::{Linked, Links, List, NIL};

/// Memory for one packet identifier in use by the server.
#[derive(Clone, Copy, Debug)]
pub struct InSlot {
    links: Links,
    /// Next slot of the same hash bucket.
    chain: u16,
    /// First slot of the hash bucket with this slot's number.
    bucket: u16,
    id: Option<NonZeroU16>,
    state: InState,
    /// Its PUBLISH came on this connection and counts against the quota.
    counted: bool,
    /// Tells an old [`Receipt`] from one for a later use of the slot.
    generation: u32,
}

impl InSlot {
    /// An unused slot.
    pub const FREE: Self = Self {
        links: Links::UNLINKED,
        chain: NIL,
        bucket: NIL,
        id: None,
        state: InState::Free,
        counted: false,
        generation: 0,
    };
}

impl Default for InSlot {
    fn default() -> Self {
        Self::FREE
    }
}

impl Linked for InSlot {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// A claim on an acknowledgement: comes with a received message and goes back
/// when the application has taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the server waits for the acknowledgement"]
pub struct Receipt {
    slot: u16,
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InState {
    Free,
    /// The application has the message. `turn`: it arrived on this connection
    /// and is in the `pending` list.
    Held {
        exactly_once: bool,
        turn: bool,
    },
    /// The application is done with the message.
    Done {
        exactly_once: bool,
        turn: bool,
        reason: ReasonCode,
    },
    /// QoS 2: PUBREC is written, PUBREL has not come.
    Recorded,
    /// QoS 2: PUBREL has come; in the `completions` list.
    Released,
}

/// What became of a PUBLISH with a packet identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The application has not seen it.
    New(Receipt),
    /// It has; an acknowledgement follows without it.
    Duplicate,
    /// The server sent more than it was allowed [MQTT-3.3.4-9].
    OverQuota,
    /// The identifier is in use for another message.
    InUse,
}

/// An acknowledgement to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Ack(PacketId, ReasonCode),
    Rec(PacketId, ReasonCode),
    Comp(PacketId),
}

/// The table: a hash table over the identifiers, with lists for the order.
pub(super) struct Inbound<S> {
    slots: S,
    free: List,
    /// Messages of this connection without PUBACK or PUBREC, in the order of
    /// their arrival [MQTT-4.6.0-2], [MQTT-4.6.0-3].
    pending: List,
    /// PUBCOMPs to write.
    completions: List,
    /// How many more PUBLISHes the server may send; `None`: no limit (3.1.1).
    quota: Option<u16>,
    quota_max: u16,
    used: u16,
}

impl<S: AsRef<[InSlot]> + AsMut<[InSlot]>> Inbound<S> {
    /// Uses at most 65,535 slots.
    pub(super) fn new(slots: S) -> Self {
        let mut table = Self {
            slots,
            free: List::EMPTY,
            pending: List::EMPTY,
            completions: List::EMPTY,
            quota: None,
            quota_max: 0,
            used: 0,
        };
        table.clear();
        table
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.as_ref().len()
    }

    /// Forgets everything; receipts handed out before acknowledge nothing.
    pub(super) fn clear(&mut self) {
        (self.pending, self.completions) = (List::EMPTY, List::EMPTY);
        self.free = List::EMPTY;
        self.used = 0;
        let slots = self.slots.as_mut();
        let len = u16::try_from(slots.len()).unwrap_or(u16::MAX);
        for index in 0..len {
            if let Some(slot) = slots.get_mut(usize::from(index)) {
                *slot = InSlot {
                    generation: slot.generation.wrapping_add(1),
                    ..InSlot::FREE
                };
            }
            self.free.push_back(slots, index);
        }
    }

    /// Whether nothing is kept that a resumed session would need.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// A connection begins.
    pub(super) fn start(&mut self, receive_maximum: Option<u16>) {
        self.quota = receive_maximum;
        self.quota_max = receive_maximum.unwrap_or(u16::MAX);
    }

    /// The connection is gone. The server sends again what was not
    /// acknowledged, so nothing is due until then. A QoS 1 message that the
    /// server did not send again during a whole connection is forgotten.
    pub(super) fn stop(&mut self) {
        for index in 0..self.capacity() {
            let Ok(index) = u16::try_from(index) else {
                break;
            };
            match self.slot(index).map_or(InState::Free, |slot| slot.state) {
                InState::Held {
                    exactly_once: false,
                    turn: false,
                }
                | InState::Done {
                    exactly_once: false,
                    turn: false,
                    ..
                } => self.release(index),
                InState::Held { exactly_once, .. } => {
                    let turn = false;
                    self.set(index, InState::Held { exactly_once, turn });
                }
                InState::Done {
                    exactly_once,
                    reason,
                    ..
                } => {
                    let turn = false;
                    self.set(
                        index,
                        InState::Done {
                            exactly_once,
                            turn,
                            reason,
                        },
                    );
                }
                // PUBREL comes again and finds it.
                InState::Released => self.set(index, InState::Recorded),
                InState::Free | InState::Recorded => {}
            }
        }
        let slots = self.slots.as_mut();
        for slot in slots.iter_mut() {
            slot.counted = false;
        }
        while self.pending.pop_front(slots).is_some() {}
        while self.completions.pop_front(slots).is_some() {}
    }

    /// A PUBLISH of QoS 1 or 2 came.
    pub(super) fn publish(&mut self, id: PacketId, exactly_once: bool, dup: bool) -> Arrival {
        let found = self.find(id);
        // A repetition on one connection is not a second message.
        let counted = found
            .and_then(|index| self.slot(index))
            .is_some_and(|slot| slot.counted);
        if !counted {
            match self.quota {
                Some(0) => return Arrival::OverQuota,
                Some(quota) => self.quota = Some(quota - 1),
                None => {}
            }
        }
        let Some(index) = found else {
            return self.insert(id, exactly_once);
        };
        if let Some(slot) = self.slots.as_mut().get_mut(usize::from(index)) {
            slot.counted = true;
        }
        match self.slot(index).map_or(InState::Free, |slot| slot.state) {
            InState::Held {
                exactly_once: q,
                turn: false,
            } if q == exactly_once => {
                if !dup {
                    // Not a repetition: the server dropped the old message
                    // and used the identifier again.
                    self.release(index);
                    return self.insert(id, exactly_once);
                }
                let turn = true;
                self.set(index, InState::Held { exactly_once, turn });
                self.pending.push_back(self.slots.as_mut(), index);
                Arrival::Duplicate
            }
            InState::Done {
                exactly_once: q,
                turn: false,
                reason,
            } if q == exactly_once => {
                if !dup && !exactly_once {
                    self.release(index);
                    return self.insert(id, exactly_once);
                }
                self.done(index, exactly_once, reason);
                Arrival::Duplicate
            }
            InState::Held {
                exactly_once: q, ..
            }
            | InState::Done {
                exactly_once: q, ..
            } if q == exactly_once && (dup || exactly_once) => Arrival::Duplicate,
            // Until PUBREL, the same identifier is the same message
            // [MQTT-4.3.3-10].
            InState::Recorded if exactly_once => {
                self.done(index, true, ReasonCode::Success);
                Arrival::Duplicate
            }
            _ => Arrival::InUse,
        }
    }

    /// The application is done with a message; `false` if the claim lapsed.
    pub(super) fn acknowledge(&mut self, receipt: Receipt, reason: ReasonCode) -> bool {
        let Some(slot) = self.slot(receipt.slot) else {
            return false;
        };
        let InState::Held { exactly_once, turn } = slot.state else {
            return false;
        };
        if slot.generation != receipt.generation {
            return false;
        }
        self.set(
            receipt.slot,
            InState::Done {
                exactly_once,
                turn,
                reason,
            },
        );
        true
    }

    /// A PUBREL came; `false` if the identifier is unknown.
    pub(super) fn release_received(&mut self, id: PacketId) -> bool {
        let Some(index) = self.find(id) else {
            return false;
        };
        let state = self.slot(index).map_or(InState::Free, |slot| slot.state);
        match state {
            InState::Recorded => {
                self.set(index, InState::Released);
                self.completions.push_back(self.slots.as_mut(), index);
                true
            }
            InState::Released => true,
            _ => false,
        }
    }

    /// The acknowledgement to write now.
    pub(super) fn due(&self) -> Option<Due> {
        if let Some(slot) = self.completions.head().and_then(|index| self.slot(index)) {
            return slot.id.map(Due::Comp);
        }
        let slot = self.pending.head().and_then(|index| self.slot(index))?;
        let id = slot.id?;
        match slot.state {
            InState::Done {
                exactly_once: false,
                reason,
                ..
            } => Some(Due::Ack(id, reason)),
            InState::Done { reason, .. } => Some(Due::Rec(id, reason)),
            _ => None,
        }
    }

    /// What [`Inbound::due`] showed is written.
    pub(super) fn written(&mut self, due: Due) {
        let slots = self.slots.as_mut();
        match due {
            Due::Comp(_) => {
                if let Some(index) = self.completions.pop_front(slots) {
                    self.release(index);
                    self.restore_quota();
                }
            }
            Due::Rec(_, reason) if !reason.is_error() => {
                if let Some(index) = self.pending.pop_front(slots) {
                    self.set(index, InState::Recorded);
                }
            }
            Due::Ack(..) | Due::Rec(..) => {
                if let Some(index) = self.pending.pop_front(slots) {
                    self.release(index);
                    self.restore_quota();
                }
            }
        }
    }

    fn restore_quota(&mut self) {
        let max = self.quota_max;
        self.quota = self.quota.map(|quota| quota.saturating_add(1).min(max));
    }

    fn insert(&mut self, id: PacketId, exactly_once: bool) -> Arrival {
        let bucket = self.bucket_of(id);
        let slots = self.slots.as_mut();
        let Some(index) = self.free.pop_front(slots) else {
            return Arrival::OverQuota;
        };
        let Some(head) = slots.get_mut(bucket) else {
            return Arrival::OverQuota;
        };
        let chain = core::mem::replace(&mut head.bucket, index);
        let mut generation = 0;
        if let Some(slot) = slots.get_mut(usize::from(index)) {
            slot.generation = slot.generation.wrapping_add(1);
            slot.id = Some(id);
            slot.counted = true;
            slot.chain = chain;
            let turn = true;
            slot.state = InState::Held { exactly_once, turn };
            generation = slot.generation;
        }
        self.used += 1;
        self.pending.push_back(slots, index);
        Arrival::New(Receipt {
            slot: index,
            generation,
        })
    }

    /// Moves a slot outside all lists to the end of those to acknowledge.
    fn done(&mut self, index: u16, exactly_once: bool, reason: ReasonCode) {
        let turn = true;
        self.set(
            index,
            InState::Done {
                exactly_once,
                turn,
                reason,
            },
        );
        self.pending.push_back(self.slots.as_mut(), index);
    }

    /// Frees a slot that is in no list.
    fn release(&mut self, index: u16) {
        let Some(id) = self.slot(index).and_then(|slot| slot.id) else {
            return;
        };
        let bucket = self.bucket_of(id);
        let slots = self.slots.as_mut();
        let chain = slots.get(usize::from(index)).map_or(NIL, |slot| slot.chain);
        let mut at = slots.get(bucket).map_or(NIL, |slot| slot.bucket);
        if at == index {
            if let Some(head) = slots.get_mut(bucket) {
                head.bucket = chain;
            }
        } else {
            while let Some(slot) = slots.get_mut(usize::from(at)) {
                if slot.chain == index {
                    slot.chain = chain;
                    break;
                }
                at = slot.chain;
            }
        }
        if let Some(slot) = slots.get_mut(usize::from(index)) {
            slot.id = None;
            slot.counted = false;
            slot.chain = NIL;
            slot.state = InState::Free;
        }
        self.used = self.used.saturating_sub(1);
        self.free.push_back(slots, index);
    }

    fn find(&self, id: PacketId) -> Option<u16> {
        let slots = self.slots.as_ref();
        let mut at = slots.get(self.bucket_of(id))?.bucket;
        loop {
            let slot = slots.get(usize::from(at))?;
            if slot.id == Some(id) {
                return Some(at);
            }
            at = slot.chain;
        }
    }

    /// Servers count identifiers upwards, so the remainder spreads them.
    fn bucket_of(&self, id: PacketId) -> usize {
        usize::from(id.get()) % self.capacity().max(1)
    }

    fn slot(&self, index: u16) -> Option<&InSlot> {
        self.slots.as_ref().get(usize::from(index))
    }

    fn set(&mut self, index: u16, state: InState) {
        if let Some(slot) = self.slots.as_mut().get_mut(usize::from(index)) {
            slot.state = state;
        }
    }
}
