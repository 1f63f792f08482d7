//! Clients of the broker itself: the local ends of its bridges. They come through a
//! listener that no socket leads to; no other client has their names, and their queues
//! have limits of their own. Knows no remote broker.

use alloc::vec::Vec;

use dunlin_base::Text;
use dunlin_base::transport::Peer;

use crate::queues::options::Overflow;

/// What client identifiers and users of bridges begin with. Other clients have no such
/// names.
pub const BRIDGE_PREFIX: &str = "$bridge:";

/// Whether a client identifier or a user name is one of a bridge.
#[must_use]
pub fn is_bridge_name(name: &str) -> bool {
    name.starts_with(BRIDGE_PREFIX)
}

/// How much waits at most for one receiver, and what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most messages.
    pub messages_max: usize,
    /// Most bytes of them in memory.
    pub bytes_max: usize,
    /// When it is full.
    pub overflow: Overflow,
}

/// The session of a bridge, whose queue keeps what waits for the other broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSession {
    /// Its client identifier.
    pub client_id: Text,
    /// Of its queue.
    pub bounds: Bounds,
}

/// The bridges of this broker.
#[derive(Clone, Debug, Default)]
pub struct Bridges {
    /// Number of the listener that only they come through.
    pub listener: Option<u16>,
    /// Their sessions.
    pub sessions: Vec<BridgeSession>,
}

impl Bridges {
    /// Whether a peer is one of them.
    pub(crate) fn is_own(&self, peer: &Peer) -> bool {
        self.listener == Some(peer.listener)
    }

    /// What bounds the queue of this client, if that is a bridge.
    pub(crate) fn bounds_of(&self, client_id: &str) -> Option<Bounds> {
        // Most brokers have none, and are spared the look at the name.
        if self.sessions.is_empty() || !is_bridge_name(client_id) {
            return None;
        }
        let mut sessions = self.sessions.iter();
        let found = sessions.find(|session| session.client_id.as_str() == client_id);
        found.map(|session| session.bounds)
    }
}
