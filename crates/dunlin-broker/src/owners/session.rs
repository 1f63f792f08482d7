//! What a shard keeps of a session, connected or not.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use dunlin_base::Text;
use dunlin_mqtt::codec::Version;
use dunlin_mqtt::server;
use dunlin_store::{SessionKey, SessionRecord, StoredWill};

use crate::access::{Access, Action};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
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

/// A session: what MQTT knows of it, and its place among the others of this
/// shard.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) client_id: Text,
    /// Whom it belongs to.
    pub(crate) user: Option<Text>,
    pub(crate) standing: Standing,
    pub(crate) allowed: Option<Box<Allowed>>,
    /// What waits or is in flight may come from a time of other rules.
    pub(crate) recheck: bool,
    pub(crate) conn: Option<ConnIdx>,
    pub(crate) mqtt: server::Session,
    pub(crate) walks: Walks,
    /// Publishes of this client not yet given to the store, in order; empty
    /// while nothing waits for other shards. Bounded by the Receive Maximum.
    pub(crate) preparing: VecDeque<u64>,
    pub(crate) will: Option<Box<StoredWill>>,
    /// Its last will is on its way to the store, under this token, and its
    /// record is written with it.
    pub(crate) will_under_way: Option<u64>,
    pub(crate) alarm: Alarm,
    /// What the budget counts for it.
    pub(crate) weight: Weight,
    /// The token under which its home granted its client identifier; 0: its
    /// home is here.
    pub(crate) claim: u64,
    /// It was reported that too many of its subscriptions overlap.
    pub(crate) overlapping: bool,
    /// Its queue is full, and the log has it.
    pub(crate) full: bool,
    /// The store has a record of it.
    pub(crate) stored: bool,
}

impl Session {
    pub(crate) fn new(key: SessionKey, client_id: Text, version: Version) -> Self {
        Self {
            key,
            client_id,
            user: None,
            standing: Standing::Open,
            allowed: None,
            recheck: false,
            conn: None,
            mqtt: server::Session::new(version),
            walks: Walks::default(),
            preparing: VecDeque::new(),
            will: None,
            will_under_way: None,
            alarm: Alarm::default(),
            weight: Weight::default(),
            claim: 0,
            overlapping: false,
            full: false,
            stored: false,
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

    /// Whether its state outlives the connection, and so belongs in the store.
    pub(crate) const fn is_persistent(&self) -> bool {
        self.mqtt.lifetime.is_persistent()
    }

    /// This session, whose place is `at`, for later.
    pub(crate) const fn reference(&self, at: SessionIdx) -> SessionRef {
        SessionRef { key: self.key, at }
    }

    /// The record that the store keeps.
    pub(crate) fn record(&self) -> SessionRecord {
        SessionRecord {
            client_id: self.client_id.clone(),
            version: match self.mqtt.version {
                Version::V311 => 4,
                Version::V5 => 5,
            },
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
