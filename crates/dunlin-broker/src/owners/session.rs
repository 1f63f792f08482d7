//! What a shard keeps of a session, connected or not.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use dunlin_base::{Message, Text};
use dunlin_mqtt::codec::Version;
use dunlin_mqtt::server::{self, AckToken};
use dunlin_queue::{Delivery, Queue};
use dunlin_store::{SessionKey, SessionRecord, StoreOp, StoredWill};

use crate::access::{Access, Action};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::owners::subscribers::Subscribed;
use crate::owners::timers::Alarm;
use crate::owners::walks::Walks;
use crate::owners::weigh::Weight;

/// Who vouches for the user name of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A certificate; or there is no name.
    #[default]
    Open,
    /// The password file.
    Listed,
    /// The password file, which has the user no longer: nothing is allowed.
    Gone,
}

/// Topics that a session was last allowed to publish to, so that the access
/// list is not asked for each message.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    topics: [Text; ALLOWED_MAX],
    next: usize,
}

/// Topics in [`Allowed`].
const ALLOWED_MAX: usize = 4;

impl Allowed {
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.topics.iter().any(|known| *known == *topic)
    }

    pub(crate) fn add(&mut self, topic: &str) {
        if let Some(place) = self.topics.get_mut(self.next) {
            *place = Text::from(topic);
        }
        self.next = (self.next + 1) % ALLOWED_MAX;
    }
}

/// What every session has: its place among the others of this shard.
#[derive(Debug)]
pub(crate) struct SessionCore {
    pub(crate) key: SessionKey,
    pub(crate) client_id: Text,
    /// Whom it belongs to.
    pub(crate) user: Option<Text>,
    pub(crate) standing: Standing,
    pub(crate) allowed: Option<Box<Allowed>>,
    /// What waits or is in flight may come from a time of other rules.
    pub(crate) recheck: bool,
    pub(crate) conn: Option<ConnIdx>,
    pub(crate) walks: Walks,
    /// Publishes of this client not yet given to the store, in order; empty
    /// while nothing waits for other shards. Bounded by what its front lets it
    /// send without an answer.
    pub(crate) preparing: VecDeque<u64>,
    pub(crate) alarm: Alarm,
    /// What the budget counts for it.
    pub(crate) weight: Weight,
    /// Its queue is full, and the log has it.
    pub(crate) full: bool,
}

/// A session of MQTT.
#[derive(Debug)]
pub(crate) struct MqttSession {
    core: SessionCore,
    pub(crate) mqtt: server::Session,
    pub(crate) will: Option<Box<StoredWill>>,
    /// Its last will is on its way to the store, under this token, and its
    /// record is written with it.
    pub(crate) will_under_way: Option<u64>,
    /// The token under which its home granted its client identifier; 0: its
    /// home is here.
    pub(crate) claim: u64,
    /// It was reported that too many of its subscriptions overlap.
    pub(crate) overlapping: bool,
    /// The store has a record of it.
    pub(crate) stored: bool,
}

/// A session with what the front of its protocol keeps of it.
#[derive(Debug)]
pub(crate) enum Session {
    /// Of a client identifier.
    Mqtt(MqttSession),
}

impl Deref for Session {
    type Target = SessionCore;

    fn deref(&self) -> &SessionCore {
        match self {
            Self::Mqtt(session) => session,
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut SessionCore {
        match self {
            Self::Mqtt(session) => session,
        }
    }
}

impl Deref for MqttSession {
    type Target = SessionCore;

    fn deref(&self) -> &SessionCore {
        &self.core
    }
}

impl DerefMut for MqttSession {
    fn deref_mut(&mut self) -> &mut SessionCore {
        &mut self.core
    }
}

impl SessionCore {
    pub(crate) fn new(key: SessionKey, client_id: Text) -> Self {
        Self {
            key,
            client_id,
            user: None,
            standing: Standing::Open,
            allowed: None,
            recheck: false,
            conn: None,
            walks: Walks::default(),
            preparing: VecDeque::new(),
            alarm: Alarm::default(),
            weight: Weight::default(),
            full: false,
        }
    }

    /// Whether the rules let it do this.
    pub(crate) fn may(&self, access: &Access, action: Action, topic: &str) -> bool {
        self.standing != Standing::Gone
            && access
                .acl
                .as_ref()
                .is_none_or(|acl| acl.allows(self.user.as_deref(), &self.client_id, action, topic))
    }

    /// This session, whose place is `at`, for later.
    pub(crate) const fn reference(&self, at: SessionIdx) -> SessionRef {
        SessionRef { key: self.key, at }
    }
}

impl Session {
    pub(crate) const fn mqtt(&self) -> Option<&MqttSession> {
        match self {
            Self::Mqtt(session) => Some(session),
        }
    }

    pub(crate) const fn mqtt_mut(&mut self) -> Option<&mut MqttSession> {
        match self {
            Self::Mqtt(session) => Some(session),
        }
    }

    /// Whether its state outlives the connection, and so belongs in the store.
    pub(crate) const fn is_persistent(&self) -> bool {
        match self {
            Self::Mqtt(session) => session.is_persistent(),
        }
    }

    /// What the store keeps of a message that came exactly once, whose publish
    /// has this token.
    pub(crate) fn receipt(&self, token: u64) -> Option<StoreOp> {
        match self {
            Self::Mqtt(session) => {
                let packet_id = session.mqtt.inbound.packet_id(AckToken(token));
                let packet_id = packet_id.filter(|_| session.is_persistent())?;
                Some(StoreOp::PutInbound {
                    session: session.key,
                    packet_id: packet_id.get(),
                })
            }
        }
    }

    /// What waits for it.
    pub(crate) const fn queue(&self) -> &Queue {
        match self {
            Self::Mqtt(session) => &session.mqtt.outbound.queue,
        }
    }

    /// As [`Session::queue`].
    pub(crate) const fn queue_mut(&mut self) -> &mut Queue {
        match self {
            Self::Mqtt(session) => &mut session.mqtt.outbound.queue,
        }
    }

    /// Whether so many copies of a message of `cost` bytes fit, given limits in
    /// messages and in bytes, for what waits and what is not settled.
    pub(crate) fn has_room(
        &self,
        copies: usize,
        cost: usize,
        messages_max: usize,
        bytes_max: usize,
    ) -> bool {
        match self {
            Self::Mqtt(session) => {
                let outbound = &session.mqtt.outbound;
                outbound.has_room(copies, cost, messages_max, bytes_max)
            }
        }
    }

    /// Bytes of messages held in memory, those in flight included.
    pub(crate) const fn held_bytes(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.held_bytes(),
        }
    }

    /// These messages.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.held(),
        }
    }

    /// Bytes that its subscriptions take.
    pub(crate) const fn subscription_bytes(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.mqtt.subscriptions.bytes(),
        }
    }

    /// Bytes that its will takes.
    pub(crate) fn will_bytes(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.will.as_ref().map_or(0, |w| w.message.cost()),
        }
    }

    /// Messages that it has and has not settled.
    pub(crate) const fn in_flight(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.inflight(),
        }
    }

    /// Takes what came through a shared subscription and has not been answered,
    /// so that another member of its group can have it.
    pub(crate) fn take_shared(&mut self, with_in_flight: bool) -> Vec<Delivery> {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.take_shared(with_in_flight),
        }
    }

    /// Messages that were loaded for it, or are lost.
    pub(crate) fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.handle_loaded(messages),
        }
    }

    /// The subscription to a filter, as the tree keeps it.
    pub(crate) fn subscription(&self, filter: &str) -> Option<Subscribed> {
        match self {
            Self::Mqtt(session) => session.mqtt.subscriptions.get(filter).map(Subscribed::of),
        }
    }

    /// All subscriptions, as the tree keeps them.
    pub(crate) fn subscriptions(&self) -> Vec<(Text, Subscribed)> {
        match self {
            Self::Mqtt(session) => {
                let all = session.mqtt.subscriptions.iter();
                all.map(|(filter, it)| (filter.clone(), Subscribed::of(it)))
                    .collect()
            }
        }
    }

    /// Takes the filters of all subscriptions.
    pub(crate) fn take_subscriptions(&mut self) -> Vec<Text> {
        match self {
            Self::Mqtt(session) => session.mqtt.subscriptions.take().collect(),
        }
    }
}

impl MqttSession {
    pub(crate) fn new(key: SessionKey, client_id: Text, version: Version) -> Self {
        Self {
            core: SessionCore::new(key, client_id),
            mqtt: server::Session::new(version),
            will: None,
            will_under_way: None,
            claim: 0,
            overlapping: false,
            stored: false,
        }
    }

    /// Whether its state outlives the connection, and so belongs in the store.
    pub(crate) const fn is_persistent(&self) -> bool {
        self.mqtt.lifetime.is_persistent()
    }

    /// Its protocol version as CONNECT says it.
    pub(crate) const fn level(&self) -> u8 {
        match self.mqtt.version {
            Version::V311 => 4,
            Version::V5 => 5,
        }
    }

    /// The record that the store keeps.
    pub(crate) fn record(&self) -> SessionRecord {
        SessionRecord {
            client_id: self.client_id.clone(),
            version: self.level(),
            expiry_interval_secs: self.mqtt.lifetime.expiry_secs(),
            disconnected_at: self.mqtt.lifetime.disconnected_at(),
            will: self.will.as_deref().cloned(),
            user_name: self.user.clone(),
            owner: match self.standing {
                Standing::Open => Text::new(),
                Standing::Listed | Standing::Gone => self.user.clone().unwrap_or_default(),
            },
        }
    }
}
