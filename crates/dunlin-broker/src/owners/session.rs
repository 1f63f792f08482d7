//! What a shard keeps of a session, connected or not.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use dunlin_base::{Message, Text};
use dunlin_mqtt::codec::Version;
use dunlin_mqtt::server::{self, AckToken};
use dunlin_queue::{Delivery, Queue};
use dunlin_store::{SessionKey, SessionRecord, StoreOp, StoredWill};

use crate::owners::amqp::AmqpLink;
use crate::owners::common::SessionCore;
pub(crate) use crate::owners::common::Standing;
use crate::owners::subscribers::Subscribed;

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
#[allow(
    clippy::large_enum_variant,
    reason = "most are of MQTT, and are found without another step"
)]
pub(crate) enum Session {
    /// Of a client identifier.
    Mqtt(MqttSession),
    /// One link of a connection.
    Amqp(Box<AmqpLink>),
}

impl Deref for Session {
    type Target = SessionCore;

    fn deref(&self) -> &SessionCore {
        match self {
            Self::Mqtt(session) => session,
            Self::Amqp(link) => link,
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut SessionCore {
        match self {
            Self::Mqtt(session) => session,
            Self::Amqp(link) => link,
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

impl Session {
    pub(crate) fn amqp_mut(&mut self) -> Option<&mut AmqpLink> {
        match self {
            Self::Amqp(link) => Some(link),
            Self::Mqtt(_) => None,
        }
    }

    pub(crate) const fn mqtt(&self) -> Option<&MqttSession> {
        match self {
            Self::Mqtt(session) => Some(session),
            Self::Amqp(_) => None,
        }
    }

    pub(crate) const fn mqtt_mut(&mut self) -> Option<&mut MqttSession> {
        match self {
            Self::Mqtt(session) => Some(session),
            Self::Amqp(_) => None,
        }
    }

    /// Whether its state outlives the connection, and so belongs in the store.
    pub(crate) const fn is_persistent(&self) -> bool {
        match self {
            Self::Mqtt(session) => session.is_persistent(),
            Self::Amqp(_) => false,
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
            Self::Amqp(_) => None,
        }
    }

    /// What waits for it.
    pub(crate) const fn queue(&self) -> &Queue {
        match self {
            Self::Mqtt(session) => &session.mqtt.outbound.queue,
            Self::Amqp(link) => &link.queue,
        }
    }

    /// As [`Session::queue`].
    pub(crate) const fn queue_mut(&mut self) -> &mut Queue {
        match self {
            Self::Mqtt(session) => &mut session.mqtt.outbound.queue,
            Self::Amqp(link) => &mut link.queue,
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
            Self::Amqp(link) => {
                let bytes_max = bytes_max.saturating_sub(link.consumer.bytes());
                link.queue.has_room(copies, cost, messages_max, bytes_max)
            }
        }
    }

    /// Bytes of messages held in memory, those in flight included.
    pub(crate) const fn held_bytes(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.held_bytes(),
            Self::Amqp(link) => link.queue.bytes() + link.consumer.bytes(),
        }
    }

    /// These messages.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let (mqtt, amqp) = match self {
            Self::Mqtt(session) => (Some(session.mqtt.outbound.held()), None),
            Self::Amqp(link) => (None, Some(link.queue.held().chain(link.consumer.held()))),
        };
        mqtt.into_iter().flatten().chain(amqp.into_iter().flatten())
    }

    /// Bytes that its subscriptions take.
    pub(crate) const fn subscription_bytes(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.mqtt.subscriptions.bytes(),
            Self::Amqp(_) => 0,
        }
    }

    /// Bytes that its will takes.
    pub(crate) fn will_bytes(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.will.as_ref().map_or(0, |w| w.message.cost()),
            Self::Amqp(_) => 0,
        }
    }

    /// Messages that it has and has not settled.
    pub(crate) const fn in_flight(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.inflight(),
            Self::Amqp(link) => link.consumer.len(),
        }
    }

    /// Takes what came through a shared subscription and has not been answered,
    /// so that another member of its group can have it.
    pub(crate) fn take_shared(&mut self, with_in_flight: bool) -> Vec<Delivery> {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.take_shared(with_in_flight),
            Self::Amqp(link) => {
                let mut taken = match with_in_flight {
                    true => link.consumer.release_shared(),
                    false => Vec::new(),
                };
                taken.append(&mut link.queue.take_shared());
                taken
            }
        }
    }

    /// Messages that were loaded for it, or are lost.
    pub(crate) fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.handle_loaded(messages),
            Self::Amqp(link) => link.consumer.handle_loaded(&mut link.queue, messages),
        }
    }

    /// The subscription to a filter, as the tree keeps it.
    pub(crate) fn subscription(&self, filter: &str) -> Option<Subscribed> {
        match self {
            Self::Mqtt(session) => session.mqtt.subscriptions.get(filter).map(Subscribed::of),
            Self::Amqp(link) => link.subscription().map(|(_, subscribed)| *subscribed),
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
            Self::Amqp(link) => {
                let it = link.subscription();
                it.map(|(filter, it)| (filter.clone(), *it))
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Takes the filters of all subscriptions.
    pub(crate) fn take_subscriptions(&mut self) -> Vec<Text> {
        match self {
            Self::Mqtt(session) => session.mqtt.subscriptions.take().collect(),
            Self::Amqp(link) => {
                let filter = link.subscription().map(|(filter, _)| filter.clone());
                filter.into_iter().collect()
            }
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
