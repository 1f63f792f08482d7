//! What a shard keeps of a session, connected or not.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use dunlin_base::{Instant, QoS, StreamId, Text};
use dunlin_mqtt::codec::{SubscribeOptions, Version};
use dunlin_mqtt::server::{Identifiers, Inbound, Outbound};
use dunlin_store::{SessionKey, SessionRecord, StoredWill};

use crate::flow_state::FlowState;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::routing::Subscribed;
use crate::timers::Alarm;

/// One subscription of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription {
    pub(crate) options: SubscribeOptions,
    pub(crate) identifier: Option<u32>,
    pub(crate) stream: StreamId,
    /// The flow that it was made on; 0: none.
    pub(crate) flow: u64,
}

impl Subscription {
    /// What the tree keeps of it.
    pub(crate) fn value(&self) -> Subscribed {
        Subscribed {
            options: self.options.to_byte(),
            identifier: self.identifier.unwrap_or(0),
            stream: self.stream,
        }
    }
}

/// Retained messages still to be delivered for a new subscription. The walk
/// is resumed as the session drains, so that a `#` over a million retained
/// messages needs no memory.
#[derive(Clone, Debug)]
pub(crate) struct RetainedWalk {
    pub(crate) filter: Text,
    pub(crate) after: Option<Text>,
    pub(crate) qos: QoS,
    pub(crate) identifiers: Identifiers,
    pub(crate) stream: StreamId,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) client_id: Text,
    pub(crate) user: Option<Text>,
    pub(crate) version: Version,
    pub(crate) expiry_secs: u32,
    pub(crate) conn: Option<ConnIdx>,
    pub(crate) subscriptions: BTreeMap<Text, Subscription>,
    pub(crate) walks: VecDeque<RetainedWalk>,
    /// Flows by identifier; bounded by `FLOWS_MAX`.
    pub(crate) flows: BTreeMap<u64, FlowState>,
    pub(crate) outbound: Outbound,
    pub(crate) inbound: Inbound,
    /// Publishes of this client not yet given to the store, in order; empty
    /// while nothing waits for other shards. Bounded by the Receive Maximum.
    pub(crate) preparing: VecDeque<u64>,
    pub(crate) will: Option<Box<StoredWill>>,
    /// When the will is to be published, once the connection is gone.
    pub(crate) will_due: Option<Instant>,
    pub(crate) disconnected_at: Option<Instant>,
    pub(crate) alarm: Alarm,
    /// The store has a record of it.
    pub(crate) stored: bool,
}

impl Session {
    pub(crate) fn new(key: SessionKey, client_id: Text, version: Version) -> Self {
        Self {
            key,
            client_id,
            user: None,
            version,
            expiry_secs: 0,
            conn: None,
            subscriptions: BTreeMap::new(),
            walks: VecDeque::new(),
            flows: BTreeMap::new(),
            outbound: Outbound::default(),
            inbound: Inbound::default(),
            preparing: VecDeque::new(),
            will: None,
            will_due: None,
            disconnected_at: None,
            alarm: Alarm::default(),
            stored: false,
        }
    }

    /// Whether its state outlives the connection, and so belongs in the store.
    pub(crate) const fn is_persistent(&self) -> bool {
        self.expiry_secs > 0
    }

    /// When a disconnected session ends.
    pub(crate) fn expires_at(&self) -> Option<Instant> {
        let since = self.disconnected_at?;
        if self.expiry_secs == u32::MAX {
            return None;
        }
        Some(since + core::time::Duration::from_secs(u64::from(self.expiry_secs)))
    }

    /// This session, whose place is `at`, for later.
    pub(crate) const fn reference(&self, at: SessionIdx) -> SessionRef {
        SessionRef { key: self.key, at }
    }

    /// The record that the store keeps.
    pub(crate) fn record(&self) -> SessionRecord {
        SessionRecord {
            client_id: self.client_id.clone(),
            version: match self.version {
                Version::V311 => 4,
                Version::V5 => 5,
            },
            expiry_interval_secs: self.expiry_secs,
            disconnected_at: self.disconnected_at,
            will: self.will.as_deref().cloned(),
            user_name: self.user.clone(),
        }
    }
}
