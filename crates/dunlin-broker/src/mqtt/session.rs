//! What a shard keeps of a session of MQTT, connected or not.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use dunlin_base::{Message, QoS, Text};
use dunlin_mqtt::codec::Version;
use dunlin_mqtt::server::session::{Subscription, Subscriptions, Will};
use dunlin_mqtt::server::{self, AckToken};
use dunlin_queue::{Delivery, Queue};
use dunlin_store::{SessionKey, SessionRecord, StoreOp, StoredWill};

use crate::access::OwnRules;
use crate::config::Config;
use crate::owners::common::{SessionCore, Standing};
use crate::owners::kind::SessionKind;
use crate::owners::leaving::LeavingFilters;
use crate::owners::subscribers::Subscribed;
use crate::queues::options::Overflow;

/// Between the mount point and the rules of a stored session; in neither.
const RULES: u8 = 0;

/// What the store keeps of a session besides: its mount point and its rules.
fn options(mount: Option<&str>, rules: Option<&OwnRules>) -> Box<[u8]> {
    let mut kept = Vec::from(mount.unwrap_or_default());
    if let Some(rules) = rules {
        kept.push(RULES);
        kept.extend_from_slice(rules.text().as_bytes());
    }
    kept.into()
}

/// The mount point and the rules of a stored session. Rules that cannot be read allow
/// nothing.
pub(crate) fn stored(options: &[u8]) -> (Option<Box<str>>, Option<Arc<OwnRules>>) {
    let mut parts = options.splitn(2, |byte| *byte == RULES);
    let mount = parts.next().and_then(|it| core::str::from_utf8(it).ok());
    let rules = parts.next().map(|text| {
        let text = core::str::from_utf8(text).unwrap_or_default();
        Arc::new(OwnRules::parse(text).unwrap_or_default())
    });
    let mount = mount.filter(|mount| !mount.is_empty());
    (mount.map(Box::from), rules)
}

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
    /// What is in front of its topics.
    pub(crate) mount: Option<Box<str>>,
}

/// What the tree keeps of a subscription.
pub(crate) fn subscribed(subscription: &Subscription) -> Subscribed {
    Subscribed {
        options: subscription.options.to_byte(),
        restricted: false,
        identifier: subscription.identifier.unwrap_or(0),
        stream: subscription.stream,
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
            mount: None,
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
                Standing::Open | Standing::Server | Standing::Unproved => Text::new(),
                Standing::Listed | Standing::Gone => self.user.clone().unwrap_or_default(),
            },
            options: options(self.mount.as_deref(), self.rules.as_deref()),
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

impl SessionKind for MqttSession {
    fn queue(&self) -> &Queue {
        &self.mqtt.outbound.queue
    }

    fn queue_mut(&mut self) -> &mut Queue {
        &mut self.mqtt.outbound.queue
    }

    fn has_room(&self, copies: usize, cost: usize, messages_max: usize, bytes_max: usize) -> bool {
        let outbound = &self.mqtt.outbound;
        outbound.has_room(copies, cost, messages_max, bytes_max)
    }

    fn held_bytes(&self) -> usize {
        self.mqtt.outbound.held_bytes()
    }

    fn visit_deliveries(&self, visit: impl FnMut(&Delivery)) {
        self.mqtt.outbound.deliveries().for_each(visit);
    }

    fn visit_held(&self, visit: impl FnMut(&Arc<Message>)) {
        self.mqtt.outbound.held().for_each(visit);
    }

    fn in_flight(&self) -> usize {
        self.mqtt.outbound.inflight()
    }

    fn take_shared(&mut self, with_in_flight: bool) -> Vec<Delivery> {
        self.mqtt.outbound.take_shared(with_in_flight)
    }

    fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) {
        self.mqtt.outbound.handle_loaded(messages);
    }

    fn subscription(&self, filter: &str) -> Option<Subscribed> {
        self.mqtt.subscriptions.get(filter).map(subscribed)
    }

    fn subscriptions(&self) -> Vec<(Text, Subscribed)> {
        let all = self.mqtt.subscriptions.iter();
        all.map(|(filter, it)| (filter.clone(), subscribed(it)))
            .collect()
    }

    fn subscriptions_after(&self, after: &str, max: usize) -> Vec<(Text, Subscribed)> {
        let page = self.mqtt.subscriptions.after(after).take(max);
        page.map(|(filter, it)| (filter.clone(), subscribed(it)))
            .collect()
    }

    fn take_subscriptions(&mut self) -> Box<dyn LeavingFilters> {
        Box::new(core::mem::take(&mut self.mqtt.subscriptions))
    }

    fn is_named(&self) -> bool {
        true
    }

    fn is_persistent(&self) -> bool {
        Self::is_persistent(self)
    }

    fn refuses(&self, config: &Config, qos: QoS) -> bool {
        let kept = qos != QoS::AtMostOnce && self.is_persistent();
        kept && config.overflow_of(&self.client_id) == Overflow::Reject
    }

    fn receipt(&self, token: u64) -> Option<StoreOp> {
        let packet_id = self.mqtt.inbound.packet_id(AckToken(token));
        let packet_id = packet_id.filter(|_| self.is_persistent())?;
        Some(StoreOp::PutInbound {
            session: self.key,
            packet_id: packet_id.get(),
        })
    }

    fn kept_bytes(&self) -> usize {
        self.mount.as_ref().map_or(0, |mount| mount.len())
    }

    fn subscription_bytes(&self) -> usize {
        self.mqtt.subscriptions.bytes()
    }

    fn will_bytes(&self) -> usize {
        let will = self.mqtt.lifetime.will();
        will.map_or(0, |will| will.message.cost())
    }

    fn version(&self) -> u8 {
        self.level()
    }

    fn expiry_secs(&self) -> u32 {
        self.mqtt.lifetime.expiry_secs()
    }

    fn subscriptions_len(&self) -> usize {
        self.mqtt.subscriptions.len()
    }

    fn receiving(&self) -> usize {
        self.mqtt.inbound.open()
    }
}

impl LeavingFilters for Subscriptions {
    fn take(&mut self, max: usize) -> Vec<Text> {
        Self::take(self, max)
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
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
