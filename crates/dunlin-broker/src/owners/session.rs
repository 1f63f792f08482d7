//! What a shard keeps of a session, connected or not.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use dunlin_amqp::filter::Filters;
use dunlin_base::{Message, QoS, Text};
use dunlin_mqtt::codec::Version;
use dunlin_mqtt::server::session::Will;
use dunlin_mqtt::server::{self, AckToken};
use dunlin_queue::{Delivery, Queue};
use dunlin_store::{SessionKey, SessionRecord, StoreOp, StoredWill};

use crate::config::{Config, QueueFull};
use crate::owners::amqp::AmqpLink;
use crate::owners::common::SessionCore;
pub(crate) use crate::owners::common::Standing;
use crate::owners::node::Node;
use crate::owners::subscribers::Subscribed;
use crate::queues::options::Overflow;

/// A session of MQTT.
#[derive(Debug)]
pub(crate) struct MqttSession {
    core: SessionCore,
    pub(crate) mqtt: server::Session,
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
    /// What links attach to.
    Node(Box<Node>),
}

impl Deref for Session {
    type Target = SessionCore;

    fn deref(&self) -> &SessionCore {
        match self {
            Self::Mqtt(session) => session,
            Self::Amqp(link) => link,
            Self::Node(node) => node,
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut SessionCore {
        match self {
            Self::Mqtt(session) => session,
            Self::Amqp(link) => link,
            Self::Node(node) => node,
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
            Self::Mqtt(_) | Self::Node(_) => None,
        }
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        match self {
            Self::Node(node) => Some(node),
            Self::Mqtt(_) | Self::Amqp(_) => None,
        }
    }

    pub(crate) fn node_mut(&mut self) -> Option<&mut Node> {
        match self {
            Self::Node(node) => Some(node),
            Self::Mqtt(_) | Self::Amqp(_) => None,
        }
    }

    pub(crate) const fn mqtt(&self) -> Option<&MqttSession> {
        match self {
            Self::Mqtt(session) => Some(session),
            Self::Amqp(_) | Self::Node(_) => None,
        }
    }

    pub(crate) const fn mqtt_mut(&mut self) -> Option<&mut MqttSession> {
        match self {
            Self::Mqtt(session) => Some(session),
            Self::Amqp(_) | Self::Node(_) => None,
        }
    }

    /// Whether its state outlives the connection, and so belongs in the store.
    pub(crate) const fn is_persistent(&self) -> bool {
        match self {
            Self::Mqtt(session) => session.is_persistent(),
            Self::Amqp(_) => false,
            Self::Node(node) => node.kept.options.durable,
        }
    }

    /// The level of a message here, of which `usual` is that of its topic, and the
    /// priority that decides on it.
    pub(crate) fn rank(&self, usual: u8, message: &Message) -> (u8, Option<u8>) {
        match self {
            Self::Mqtt(_) | Self::Amqp(_) => (usual, None),
            Self::Node(node) => {
                let priority = message.extra.as_ref().and_then(|extra| extra.priority);
                (node.kept.options.level(priority), priority)
            }
        }
    }

    /// Whether it has the publisher refused for whom its queue has no room, with
    /// this QoS of the delivery.
    pub(crate) fn refuses(&self, config: &Config, qos: QoS) -> bool {
        match self {
            Self::Mqtt(session) => {
                let kept = qos != QoS::AtMostOnce && session.is_persistent();
                kept && config.queue_full == QueueFull::Reject
            }
            Self::Amqp(_) => false,
            Self::Node(node) => node.kept.options.overflow == Overflow::Reject,
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
            Self::Amqp(_) | Self::Node(_) => None,
        }
    }

    /// What waits for it.
    pub(crate) const fn queue(&self) -> &Queue {
        match self {
            Self::Mqtt(session) => &session.mqtt.outbound.queue,
            Self::Amqp(link) => &link.queue,
            Self::Node(node) => &node.queue,
        }
    }

    /// As [`Session::queue`].
    pub(crate) const fn queue_mut(&mut self) -> &mut Queue {
        match self {
            Self::Mqtt(session) => &mut session.mqtt.outbound.queue,
            Self::Amqp(link) => &mut link.queue,
            Self::Node(node) => &mut node.queue,
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
            Self::Node(node) => node.has_room(copies, cost),
        }
    }

    /// Bytes of messages held in memory, those in flight included.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.held_bytes(),
            Self::Amqp(link) => link.queue.bytes() + link.consumer.bytes() + link.handed_bytes(),
            Self::Node(node) => node.held_bytes(),
        }
    }

    /// These messages.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let mqtt = self.mqtt().map(|session| session.mqtt.outbound.held());
        let amqp = match self {
            Self::Amqp(link) => Some(link.held()),
            Self::Mqtt(_) | Self::Node(_) => None,
        };
        let node = self.node().map(Node::held);
        let others = amqp.into_iter().flatten();
        let others = others.chain(node.into_iter().flatten());
        mqtt.into_iter().flatten().chain(others)
    }

    /// Bytes that its subscriptions take.
    pub(crate) fn subscription_bytes(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.mqtt.subscriptions.bytes(),
            Self::Amqp(_) => 0,
            Self::Node(node) => node.binding_bytes(),
        }
    }

    /// Bytes that its will takes.
    pub(crate) fn will_bytes(&self) -> usize {
        match self {
            Self::Mqtt(session) => {
                let will = session.mqtt.lifetime.will();
                will.map_or(0, |will| will.message.cost())
            }
            Self::Amqp(_) | Self::Node(_) => 0,
        }
    }

    /// Messages that it has and has not settled.
    pub(crate) const fn in_flight(&self) -> usize {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.inflight(),
            Self::Amqp(link) => link.consumer.len(),
            Self::Node(node) => node.taken(),
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
            Self::Node(_) => Vec::new(),
        }
    }

    /// Messages that were loaded for it, or are lost.
    pub(crate) fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) {
        match self {
            Self::Mqtt(session) => session.mqtt.outbound.handle_loaded(messages),
            Self::Amqp(link) => link.consumer.handle_loaded(&mut link.queue, messages),
            Self::Node(node) => node.queue.handle_loads(messages),
        }
    }

    /// The subscription to a filter, as the tree keeps it.
    pub(crate) fn subscription(&self, filter: &str) -> Option<Subscribed> {
        match self {
            Self::Mqtt(session) => session.mqtt.subscriptions.get(filter).map(Subscribed::of),
            Self::Amqp(link) => link.subscription().map(|(_, subscribed)| *subscribed),
            Self::Node(node) => node.bindings.get(filter.as_bytes()).copied(),
        }
    }

    /// What it wants of what its subscription matches, if not all.
    pub(crate) fn filters(&self) -> Option<&Filters> {
        match self {
            Self::Mqtt(_) | Self::Node(_) => None,
            Self::Amqp(link) => link.filters(),
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
            Self::Node(node) => {
                let all = node.bindings.iter();
                all.map(|(filter, it)| (filter.clone(), *it)).collect()
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
            Self::Node(node) => core::mem::take(&mut node.bindings).into_keys().collect(),
        }
    }
}

impl MqttSession {
    pub(crate) fn new(key: SessionKey, client_id: Text, version: Version) -> Self {
        Self {
            core: SessionCore::new(key, client_id),
            mqtt: server::Session::new(version),
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
            will: self.mqtt.lifetime.will().map(stored_will),
            user_name: self.user.clone(),
            owner: match self.standing {
                Standing::Open | Standing::Server => Text::new(),
                Standing::Listed | Standing::Gone => self.user.clone().unwrap_or_default(),
            },
            options: Box::default(),
        }
    }
}

/// A will as the store keeps it.
fn stored_will(will: &Will) -> StoredWill {
    StoredWill {
        message: will.message.clone(),
        delay_secs: will.delay_secs,
        message_expiry_secs: will.message_expiry_secs,
    }
}
