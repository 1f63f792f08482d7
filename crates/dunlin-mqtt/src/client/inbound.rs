//! Packet identifiers in use by the server: which received messages wait for
//! which acknowledgement, in the order of their arrival, and how many more the
//! server may send. Knows no payload.

use alloc::collections::VecDeque;

use dunlin_mqtt_codec::{PacketId, ReasonCode};
use hashbrown::HashMap;

use crate::quota::Quota;

/// A claim on an acknowledgement: comes with a received message and goes back
/// when the application has taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the server waits for the acknowledgement"]
pub struct Receipt {
    id: PacketId,
    /// Tells it from one for a later message with the same identifier.
    number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Exchange {
    exactly_once: bool,
    /// Its PUBLISH came on this connection and counts against the quota.
    counted: bool,
    number: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The application has the message. `pending`: it arrived on this
    /// connection, and its turn to be acknowledged is noted.
    Held { pending: bool },
    /// The application is done with the message.
    Done { pending: bool, reason: ReasonCode },
    /// QoS 2: PUBREC is written, PUBREL has not come.
    Recorded,
    /// QoS 2: PUBREL has come, PUBCOMP is due.
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

/// The exchanges that the server began.
#[derive(Debug)]
pub(super) struct Inbound {
    exchanges: HashMap<PacketId, Exchange>,
    /// Most exchanges at a time.
    max: u16,
    /// Messages of this connection without PUBACK or PUBREC, in the order of
    /// their arrival [MQTT-4.6.0-2], [MQTT-4.6.0-3].
    pending: VecDeque<PacketId>,
    /// PUBCOMPs to write.
    completions: VecDeque<PacketId>,
    /// `None`: no limit (3.1.1).
    quota: Option<Quota>,
    next_number: u64,
}

impl Inbound {
    /// At most `max` exchanges.
    pub(super) fn new(max: u16) -> Self {
        Self {
            exchanges: HashMap::new(),
            max,
            pending: VecDeque::new(),
            completions: VecDeque::new(),
            quota: None,
            next_number: 0,
        }
    }

    pub(super) fn max(&self) -> u16 {
        self.max
    }

    /// Forgets everything; receipts handed out before acknowledge nothing.
    pub(super) fn clear(&mut self) {
        self.exchanges.clear();
        self.pending.clear();
        self.completions.clear();
    }

    /// Whether nothing is kept that a resumed session would need.
    pub(super) fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// A connection begins.
    pub(super) fn start(&mut self, receive_maximum: Option<u16>) {
        self.quota = receive_maximum.map(Quota::new);
    }

    /// The connection is gone. The server sends again what was not
    /// acknowledged, so nothing is due until then. A QoS 1 message that the
    /// server did not send again during a whole connection is forgotten.
    pub(super) fn stop(&mut self) {
        self.pending.clear();
        self.completions.clear();
        self.exchanges.retain(|_, exchange| {
            exchange.counted = false;
            match &mut exchange.state {
                State::Held { pending } | State::Done { pending, .. } => {
                    let was_pending = core::mem::replace(pending, false);
                    exchange.exactly_once || was_pending
                }
                // PUBREL comes again and finds it.
                State::Released | State::Recorded => {
                    exchange.state = State::Recorded;
                    true
                }
            }
        });
    }

    /// A PUBLISH of QoS 1 or 2 came.
    pub(super) fn publish(&mut self, id: PacketId, exactly_once: bool, dup: bool) -> Arrival {
        let known = self.exchanges.get_mut(&id);
        // A repetition on one connection is not a second message.
        let counted = known.as_ref().is_some_and(|known| known.counted);
        if !counted && self.quota.as_mut().is_some_and(|quota| !quota.take()) {
            return Arrival::OverQuota;
        }
        let Some(known) = known else {
            return self.insert(id, exactly_once);
        };
        known.counted = true;
        if known.exactly_once != exactly_once {
            return Arrival::InUse;
        }
        match &mut known.state {
            // Not a repetition: the server dropped the old message and used
            // the identifier again.
            State::Held { pending: false } if !dup => return self.insert(id, exactly_once),
            State::Done { pending: false, .. } if !(dup || exactly_once) => {
                return self.insert(id, exactly_once);
            }
            State::Held { pending } | State::Done { pending, .. } if !*pending => *pending = true,
            State::Held { .. } | State::Done { .. } if dup || exactly_once => {
                return Arrival::Duplicate;
            }
            // Until PUBREL, the same identifier is the same message
            // [MQTT-4.3.3-10].
            State::Recorded => {
                known.state = State::Done {
                    pending: true,
                    reason: ReasonCode::Success,
                };
            }
            State::Held { .. } | State::Done { .. } | State::Released => return Arrival::InUse,
        }
        self.pending.push_back(id);
        Arrival::Duplicate
    }

    /// The application is done with a message; `false` if the claim lapsed.
    pub(super) fn acknowledge(&mut self, receipt: Receipt, reason: ReasonCode) -> bool {
        match self.exchanges.get_mut(&receipt.id) {
            Some(exchange) if exchange.number == receipt.number => {
                let State::Held { pending } = exchange.state else {
                    return false;
                };
                exchange.state = State::Done { pending, reason };
                true
            }
            _ => false,
        }
    }

    /// A PUBREL came; `false` if the identifier is unknown.
    pub(super) fn release_received(&mut self, id: PacketId) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            return false;
        };
        match exchange.state {
            State::Recorded => {
                exchange.state = State::Released;
                self.completions.push_back(id);
                true
            }
            State::Released => true,
            State::Held { .. } | State::Done { .. } => false,
        }
    }

    /// The acknowledgement to write now.
    pub(super) fn due(&self) -> Option<Due> {
        if let Some(id) = self.completions.front() {
            return Some(Due::Comp(*id));
        }
        let id = *self.pending.front()?;
        let exchange = self.exchanges.get(&id)?;
        match exchange.state {
            State::Done { reason, .. } if exchange.exactly_once => Some(Due::Rec(id, reason)),
            State::Done { reason, .. } => Some(Due::Ack(id, reason)),
            _ => None,
        }
    }

    /// What [`Inbound::due`] showed is written.
    pub(super) fn written(&mut self, due: Due) {
        match due {
            Due::Comp(id) => {
                self.completions.pop_front();
                self.complete(id);
            }
            Due::Rec(id, reason) if !reason.is_error() => {
                self.pending.pop_front();
                if let Some(exchange) = self.exchanges.get_mut(&id) {
                    exchange.state = State::Recorded;
                }
            }
            Due::Ack(id, _) | Due::Rec(id, _) => {
                self.pending.pop_front();
                self.complete(id);
            }
        }
    }

    fn complete(&mut self, id: PacketId) {
        self.exchanges.remove(&id);
        if let Some(quota) = &mut self.quota {
            quota.restore();
        }
    }

    /// A message that is new to the application, in the place of one that the
    /// server dropped, if there is one.
    fn insert(&mut self, id: PacketId, exactly_once: bool) -> Arrival {
        let is_known = self.exchanges.contains_key(&id);
        if !is_known && self.exchanges.len() >= usize::from(self.max) {
            return Arrival::OverQuota;
        }
        let number = self.next_number;
        self.next_number += 1;
        let exchange = Exchange {
            exactly_once,
            counted: true,
            number,
            state: State::Held { pending: true },
        };
        self.exchanges.insert(id, exchange);
        self.pending.push_back(id);
        Arrival::New(Receipt { id, number })
    }
}
