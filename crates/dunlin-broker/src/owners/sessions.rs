//! The second owner of a shard: its sessions, connected or not.

use alloc::boxed::Box;
use alloc::vec::Vec;
#[cfg(test)]
use core::cell::Cell;

use dunlin_base::{ShardId, Text};
use dunlin_store::SessionKey;
use hashbrown::HashMap;

use crate::ids::{SessionIdx, SessionRef};
use crate::owners::elsewhere::{Claimant, Elsewhere, Forgetting, Free, Place};
use crate::owners::leaving::Rest;
use crate::owners::missing::Missing;
use crate::owners::node::Node;
use crate::owners::places::Places;
use crate::owners::session::Session;

/// The sessions of a shard.
#[derive(Debug)]
pub(crate) struct Sessions {
    shard: ShardId,
    pub(crate) places: Places,
    by_client: HashMap<Text, SessionIdx>,
    /// Nodes, by address.
    nodes: HashMap<Text, SessionIdx>,
    /// How many nodes each user has made.
    nodes_of: HashMap<Text, usize>,
    /// Sessions of other shards whose home is here.
    elsewhere: HashMap<Text, Elsewhere>,
    /// By client, until the store has forgotten them.
    forgetting: HashMap<Text, Forgetting>,
    last_key: u64,
    missing: Missing,
    #[cfg(test)]
    searches: Cell<u64>,
}

/// Keys of one incarnation of a shard: what is said of a session of an earlier one means
/// none of this one.
const INCARNATION_BITS: u32 = 32;

impl Sessions {
    pub(crate) fn new(shard: ShardId, incarnation: u16) -> Self {
        Self {
            shard,
            places: Places::default(),
            by_client: HashMap::new(),
            nodes: HashMap::new(),
            nodes_of: HashMap::new(),
            elsewhere: HashMap::new(),
            forgetting: HashMap::new(),
            last_key: (u64::from(incarnation) << INCARNATION_BITS) + 1,
            missing: Missing::default(),
            #[cfg(test)]
            searches: Cell::default(),
        }
    }

    /// The session of a client identifier.
    pub(crate) fn find(&self, client_id: &str) -> Option<SessionIdx> {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.by_client.get(client_id.as_bytes()).copied()
    }

    /// A session by reference, if it has not ended.
    pub(crate) fn resolve(&self, session: SessionRef) -> Option<SessionIdx> {
        let entry = self.peek(session.at)?;
        (entry.key == session.key).then_some(session.at)
    }

    /// As [`Sessions::resolve`], the session itself.
    pub(crate) fn resolve_mut(&mut self, session: SessionRef) -> Option<&mut Session> {
        let entry = self.places.get_mut(session.at)?;
        (entry.key == session.key).then_some(entry)
    }

    /// A session that must be there; it is a bug, and counted, if not.
    pub(crate) fn get(&self, s: SessionIdx) -> Option<&Session> {
        self.missing.checked(self.peek(s))
    }

    /// As [`Sessions::get`].
    pub(crate) fn get_mut(&mut self, s: SessionIdx) -> Option<&mut Session> {
        self.missing.checked(self.places.get_mut(s))
    }

    /// Counts it if an entry is not there that must be.
    pub(crate) fn checked<T>(&self, found: Option<T>) -> Option<T> {
        self.missing.checked(found)
    }

    /// As [`Sessions::checked`], of one kind.
    pub(crate) fn checked_mut<T>(
        &mut self,
        s: SessionIdx,
        kind: impl FnOnce(&mut Session) -> Option<&mut T>,
    ) -> Option<&mut T> {
        self.missing.checked(self.places.get_mut(s).and_then(kind))
    }

    /// A session that may have ended.
    pub(crate) fn peek(&self, s: SessionIdx) -> Option<&Session> {
        self.places.get(s)
    }

    /// A key for a new session: the shard in the low bits, so that shards need not
    /// ask each other.
    pub(crate) fn next_key(&mut self) -> SessionKey {
        self.last_key += 1;
        SessionKey((self.last_key << 16) | u64::from(self.shard.0))
    }

    /// Adds a session that no client identifier names.
    pub(crate) fn insert_unnamed(&mut self, session: Session) -> SessionIdx {
        self.places.insert(session)
    }

    /// The node with this address.
    pub(crate) fn find_node(&self, address: &str) -> Option<SessionIdx> {
        self.nodes.get(address.as_bytes()).copied()
    }

    /// All nodes, by address, in no order.
    pub(crate) fn all_nodes(&self) -> impl Iterator<Item = (&Text, SessionIdx)> {
        self.nodes.iter().map(|(address, s)| (address, *s))
    }

    /// A node that must be there; it is a bug, and counted, if not.
    pub(crate) fn node_mut(&mut self, s: SessionIdx) -> Option<&mut Node> {
        self.checked_mut(s, Session::node_mut)
    }

    pub(crate) fn insert_node(&mut self, node: Box<Node>) -> SessionIdx {
        let address = node.address.clone();
        if let Some(user) = &node.user {
            *self.nodes_of.entry(user.clone()).or_default() += 1;
        }
        let s = self.places.insert(Session::Node(node));
        self.nodes.insert(address, s);
        s
    }

    /// Nodes, and how many of them this user has made.
    pub(crate) fn nodes(&self, user: Option<&Text>) -> (usize, usize) {
        let of = user.and_then(|user| self.nodes_of.get(user.as_bytes()));
        (self.nodes.len(), of.copied().unwrap_or(0))
    }

    fn forget_node(&mut self, node: &Node) {
        self.nodes.remove(node.address.as_bytes());
        let Some(user) = &node.user else {
            return;
        };
        let nodes = self.nodes_of.get_mut(user.as_bytes());
        if let Some(nodes) = self.missing.checked(nodes) {
            *nodes -= 1;
            if *nodes == 0 {
                self.nodes_of.remove(user.as_bytes());
            }
        }
    }

    /// Adds the session of a client identifier.
    pub(crate) fn insert(&mut self, session: Session) -> SessionIdx {
        let client_id = session.client_id.clone();
        let s = self.places.insert(session);
        self.by_client.insert(client_id, s);
        s
    }

    /// Takes out a session that has ended, of which this is left.
    pub(crate) fn remove(&mut self, s: SessionIdx, rest: Option<Rest>) -> Option<Session> {
        let session = self.places.remove(s, rest)?;
        if let Some(node) = session.node() {
            self.forget_node(node);
        } else if session.is_named() {
            self.by_client.remove(session.client_id.as_bytes());
        }
        Some(session)
    }

    /// The session of a client on another shard.
    pub(crate) fn elsewhere(&self, client_id: &str) -> Option<&Elsewhere> {
        self.elsewhere.get(client_id.as_bytes())
    }

    /// As [`Sessions::elsewhere`].
    pub(crate) fn elsewhere_mut(&mut self, client_id: &str) -> Option<&mut Elsewhere> {
        self.elsewhere.get_mut(client_id.as_bytes())
    }

    pub(crate) fn insert_elsewhere(&mut self, client_id: Text, entry: Elsewhere) {
        self.elsewhere.insert(client_id, entry);
    }

    pub(crate) fn remove_elsewhere(&mut self, client_id: &str) -> Option<Elsewhere> {
        self.elsewhere.remove(client_id.as_bytes())
    }

    /// A shard is gone and claims nothing more. The client identifiers of its sessions come
    /// out, in order.
    pub(crate) fn take_claimants(&mut self, shard: ShardId) -> Vec<Text> {
        let mut of_shard = Vec::new();
        for (client_id, entry) in &mut self.elsewhere {
            let is_there = |it: &Claimant| matches!(it.at, Place::There(at, _) if at == shard);
            entry.waiting.retain(|claimant| !is_there(claimant));
            if entry.shard == shard {
                of_shard.push(client_id.clone());
            }
        }
        of_shard.sort_unstable();
        of_shard
    }

    /// A session with a record has ended; [`Sessions::end_forget`] follows.
    pub(crate) fn begin_forget(&mut self, client_id: &Text) {
        let entry = self.forgetting.entry(client_id.clone()).or_default();
        entry.records += 1;
    }

    /// The store has forgotten a session of a client: what may be said then.
    pub(crate) fn end_forget(&mut self, client_id: &str) -> Vec<Free> {
        let entry = self.forgetting.get_mut(client_id.as_bytes());
        let Some(entry) = self.missing.checked(entry) else {
            return Vec::new();
        };
        entry.records -= 1;
        if entry.records > 0 {
            return Vec::new();
        }
        let entry = self.forgetting.remove(client_id.as_bytes());
        entry.unwrap_or_default().then
    }

    /// Keeps something until the store has forgotten the sessions of a client;
    /// gives it back if there is none.
    pub(crate) fn when_forgotten(&mut self, client_id: &str, free: Free) -> Option<Free> {
        let Some(entry) = self.forgetting.get_mut(client_id.as_bytes()) else {
            return Some(free);
        };
        entry.then.push(free);
        None
    }

    /// Sessions of other shards whose home is here.
    pub(crate) fn elsewhere_len(&self) -> usize {
        self.elsewhere.len()
    }

    /// Keys up to this one were given before a restart.
    pub(crate) fn skip_keys(&mut self, next: u64) {
        self.last_key = self.last_key.max((next >> 16) + 1);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionIdx, &Session)> {
        self.places.iter()
    }

    /// The places from this one on, and what is there.
    pub(crate) fn from(
        &self,
        at: SessionIdx,
    ) -> impl Iterator<Item = (SessionIdx, Option<&Session>)> {
        let places = at..self.places.capacity();
        places.map(|s| (s, self.peek(s)))
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Entries that were missing since the last call.
    pub(crate) fn take_missing(&self) -> u64 {
        self.missing.take()
    }

    /// Gives back what the tables hold beyond their use.
    pub(crate) fn shrink(&mut self) {
        self.places.shrink();
        self.by_client.shrink_to_fit();
        self.nodes.shrink_to_fit();
        self.elsewhere.shrink_to_fit();
    }

    /// Searches since the last call.
    #[cfg(test)]
    pub(crate) fn take_searches(&self) -> u64 {
        self.searches.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_base::ConnId;

    const SHARD: ShardId = ShardId(3);

    #[test]
    fn home_knows_where_a_session_lives() {
        let mut sessions = Sessions::new(SHARD, 0);
        let entry = Elsewhere {
            shard: ShardId(1),
            token: 7,
            user: None,
            granted: true,
            waiting: [Claimant {
                user: None,
                at: Place::Here(ConnId::new(SHARD, 1)),
            }]
            .into(),
        };
        sessions.insert_elsewhere(Text::from_static("a"), entry);
        assert!(sessions.find("a").is_none() && sessions.elsewhere("a").is_some());
        assert_eq!((sessions.elsewhere_len(), sessions.len()), (1, 0));
        let entry = sessions.remove_elsewhere("a").expect("an entry");
        assert_eq!((entry.token, entry.waiting.len()), (7, 1));
        assert!(sessions.elsewhere_mut("a").is_none());
    }

    #[test]
    fn what_waits_for_the_store_waits_for_all_sessions_of_a_client() {
        let mut sessions = Sessions::new(SHARD, 0);
        let client = Text::from_static("a");
        let free = || Free::Granted(ShardId(1), 7);
        assert!(sessions.when_forgotten("a", free()).is_some());
        sessions.begin_forget(&client);
        sessions.begin_forget(&client);
        assert!(sessions.when_forgotten("a", free()).is_none());
        assert!(sessions.end_forget("a").is_empty());
        assert_eq!(sessions.end_forget("a").len(), 1);
        assert!(sessions.end_forget("a").is_empty());
    }
}
