//! A session with what the front of its protocol keeps of it. Another protocol is a
//! variant here and a room beside `mqtt` and `amqp`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use dunlin_base::{Instant, Message, QoS, Text};
use dunlin_queue::{Delivery, Queue};
use dunlin_store::StoreOp;

#[cfg(feature = "amqp")]
use crate::amqp::state::AmqpLink;
use crate::config::Config;
#[cfg(feature = "mqtt")]
use crate::mqtt::session::MqttSession;
use crate::owners::common::SessionCore;
use crate::owners::kind::SessionKind as _;
use crate::owners::leaving::LeavingFilters;
use crate::owners::node::Node;
use crate::owners::subscribers::Subscribed;

/// What a shard keeps of a session, connected or not.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most are of MQTT, and are found without another step"
)]
pub(crate) enum Session {
    /// Of a client identifier.
    #[cfg(feature = "mqtt")]
    Mqtt(MqttSession),
    /// One link of a connection.
    #[cfg(feature = "amqp")]
    Amqp(Box<AmqpLink>),
    /// What links attach to.
    Node(Box<Node>),
}

/// Asks the front of a session.
macro_rules! ask {
    ($session:expr, $it:ident => $do:expr) => {
        match $session {
            #[cfg(feature = "mqtt")]
            Session::Mqtt($it) => $do,
            #[cfg(feature = "amqp")]
            Session::Amqp($it) => $do,
            Session::Node($it) => $do,
        }
    };
}

impl Deref for Session {
    type Target = SessionCore;

    fn deref(&self) -> &SessionCore {
        ask!(self, it => it)
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut SessionCore {
        ask!(self, it => it)
    }
}

/// The version of sessions of MQTT 3.1.1.
const MQTT_3_1_1: u8 = 4;

impl Session {
    pub(crate) fn node(&self) -> Option<&Node> {
        match self {
            Self::Node(node) => Some(node),
            _ => None,
        }
    }

    pub(crate) fn node_mut(&mut self) -> Option<&mut Node> {
        match self {
            Self::Node(node) => Some(node),
            _ => None,
        }
    }
}

/// As [`SessionKind`](crate::owners::kind::SessionKind) says.
impl Session {
    pub(crate) fn queue(&self) -> &Queue {
        ask!(self, it => it.queue())
    }

    pub(crate) fn queue_mut(&mut self) -> &mut Queue {
        ask!(self, it => it.queue_mut())
    }

    pub(crate) fn push(&mut self, delivery: Delivery, now: Instant) {
        ask!(self, it => it.push(delivery, now));
    }

    pub(crate) fn keeps_back(&self, message: &Message, now: Instant) -> Option<Instant> {
        ask!(self, it => it.keeps_back(message, now))
    }

    pub(crate) fn has_room(
        &self,
        copies: usize,
        cost: usize,
        messages_max: usize,
        bytes_max: usize,
    ) -> bool {
        ask!(self, it => it.has_room(copies, cost, messages_max, bytes_max))
    }

    pub(crate) fn held_bytes(&self) -> usize {
        ask!(self, it => it.held_bytes())
    }

    pub(crate) fn place_bytes(&self) -> usize {
        ask!(self, it => it.place_bytes())
    }

    pub(crate) fn visit_held(&self, visit: impl FnMut(&Arc<Message>)) {
        ask!(self, it => it.visit_held(visit));
    }

    pub(crate) fn visit_deliveries(&self, visit: impl FnMut(&Delivery)) {
        ask!(self, it => it.visit_deliveries(visit));
    }

    pub(crate) fn in_flight(&self) -> usize {
        ask!(self, it => it.in_flight())
    }

    pub(crate) fn take_shared(&mut self, with_in_flight: bool) -> Vec<Delivery> {
        ask!(self, it => it.take_shared(with_in_flight))
    }

    pub(crate) fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) {
        ask!(self, it => it.handle_loaded(messages));
    }

    pub(crate) fn subscription(&self, filter: &str) -> Option<Subscribed> {
        ask!(self, it => it.subscription(filter))
    }

    pub(crate) fn subscriptions(&self) -> Vec<(Text, Subscribed)> {
        ask!(self, it => it.subscriptions())
    }

    pub(crate) fn subscriptions_after(&self, after: &str, max: usize) -> Vec<(Text, Subscribed)> {
        ask!(self, it => it.subscriptions_after(after, max))
    }

    pub(crate) fn take_subscriptions(&mut self) -> Box<dyn LeavingFilters> {
        ask!(self, it => it.take_subscriptions())
    }

    pub(crate) fn is_named(&self) -> bool {
        ask!(self, it => it.is_named())
    }

    pub(crate) fn is_persistent(&self) -> bool {
        ask!(self, it => it.is_persistent())
    }

    pub(crate) fn rank(&self, usual: u8, message: &Message) -> (u8, Option<u8>) {
        ask!(self, it => it.rank(usual, message))
    }

    pub(crate) fn refuses(&self, config: &Config, qos: QoS) -> bool {
        ask!(self, it => it.refuses(config, qos))
    }

    pub(crate) fn receipt(&self, token: u64) -> Option<StoreOp> {
        ask!(self, it => it.receipt(token))
    }

    pub(crate) fn kept_bytes(&self) -> usize {
        ask!(self, it => it.kept_bytes())
    }

    pub(crate) fn subscription_bytes(&self) -> usize {
        ask!(self, it => it.subscription_bytes())
    }

    pub(crate) fn will_bytes(&self) -> usize {
        ask!(self, it => it.will_bytes())
    }

    pub(crate) fn receiving(&self) -> usize {
        ask!(self, it => it.receiving())
    }

    /// Whether its client has no way to hear of a refusal: cut off, it sends the same again,
    /// and what it has sent since.
    pub(crate) fn is_mute(&self) -> bool {
        self.version() == MQTT_3_1_1
    }

    pub(crate) fn version(&self) -> u8 {
        ask!(self, it => it.version())
    }

    pub(crate) fn expiry_secs(&self) -> u32 {
        ask!(self, it => it.expiry_secs())
    }

    pub(crate) fn subscriptions_len(&self) -> usize {
        ask!(self, it => it.subscriptions_len())
    }

    pub(crate) fn wants(&self, message: &Message, now: Instant) -> bool {
        ask!(self, it => it.wants(message, now))
    }
}
