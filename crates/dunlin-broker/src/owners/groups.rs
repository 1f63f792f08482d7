//! Where the messages of shared subscriptions are in the store. A group with a
//! durable member has a queue of its own there: what its members were given and have
//! not acknowledged is in it, so that neither a crash nor the end of a session takes
//! it from the others.

use dunlin_base::{ShardId, Text};
use dunlin_store::{SessionKey, SessionRecord};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// Protocol of a group's queue in its record.
pub(crate) const PROTOCOL: u8 = 11;

/// Groups that have, or had, a durable member.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_share: HashMap<Text, Group>,
}

#[derive(Debug, Default)]
struct Group {
    /// Shards with a durable member, and the queue that they use; this shard first.
    durable: SmallVec<[(ShardId, SessionKey); 1]>,
    /// Queues that this shard made, or found after a restart, and removes.
    own: SmallVec<[SessionKey; 1]>,
    /// One of them that the store has.
    ready: Option<SessionKey>,
    /// A durable member on this shard.
    witness: Option<SessionKey>,
    /// Messages in the queue that no member had room for.
    left_behind: usize,
}

/// What follows when a group has its first durable member on this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// Its queue is there.
    Ready(SessionKey),
    /// The store is being asked for it.
    Making,
    /// It has none.
    Without,
}

impl Groups {
    /// The queue that durable members of a group on this shard use.
    pub(crate) fn of(&self, share: &str, shard: ShardId) -> Option<SessionKey> {
        let durable = &self.by_share.get(share.as_bytes())?.durable;
        let found = durable.iter().find(|(of, _)| *of == shard);
        found.map(|(_, queue)| *queue)
    }

    /// The queue for a message of a group that has durable members, on any shard.
    pub(crate) fn queue(&self, share: &str) -> Option<SessionKey> {
        if self.by_share.is_empty() {
            return None;
        }
        let durable = &self.by_share.get(share.as_bytes())?.durable;
        durable.first().map(|(_, queue)| *queue)
    }

    /// Durable members of a group on another shard use this queue, or there are none.
    pub(crate) fn set(&mut self, share: &Text, shard: ShardId, queue: Option<SessionKey>) {
        if queue.is_none() && !self.by_share.contains_key(share.as_bytes()) {
            return;
        }
        let group = self.by_share.entry(share.clone()).or_default();
        group.durable.retain(|(of, _)| *of != shard);
        group.durable.extend(queue.map(|queue| (shard, queue)));
        if group.durable.is_empty() && group.own.is_empty() && group.witness.is_none() {
            self.by_share.remove(share.as_bytes());
        }
    }

    /// As [`Groups::set`], of this shard.
    fn set_here(&mut self, share: &Text, here: ShardId, queue: Option<SessionKey>) {
        self.set(share, here, queue);
        if let Some(group) = self.by_share.get_mut(share.as_bytes()) {
            group.durable.rotate_right(usize::from(queue.is_some()));
        }
    }

    /// A durable member on this shard, as long as there is one.
    pub(crate) fn witness(&self, share: &str) -> Option<SessionKey> {
        self.by_share.get(share.as_bytes())?.witness
    }

    /// Another durable member on this shard is the witness.
    pub(crate) fn set_witness(&mut self, share: &Text, member: SessionKey) {
        self.by_share.entry(share.clone()).or_default().witness = Some(member);
    }

    /// The first durable member on this shard has joined.
    pub(crate) fn handle_joined(
        &mut self,
        share: &Text,
        here: ShardId,
        member: SessionKey,
    ) -> Joined {
        let group = self.by_share.entry(share.clone()).or_default();
        group.witness = Some(member);
        match (group.ready, group.own.is_empty()) {
            (Some(queue), _) => {
                self.set_here(share, here, Some(queue));
                Joined::Ready(queue)
            }
            (None, false) => Joined::Making,
            (None, true) => Joined::Without,
        }
    }

    /// As [`Groups::handle_joined`], of a group whose queue was found after a restart.
    pub(crate) fn adopt(
        &mut self,
        share: &Text,
        here: ShardId,
        member: SessionKey,
        queue: SessionKey,
    ) {
        self.set_witness(share, member);
        self.set_here(share, here, Some(queue));
    }

    /// The last durable member on this shard has left. The queue stays: others may
    /// have messages that are in it.
    pub(crate) fn handle_left(&mut self, share: &Text, here: ShardId) {
        if let Some(group) = self.by_share.get_mut(share.as_bytes()) {
            group.witness = None;
        }
        self.set(share, here, None);
    }

    /// This shard has a queue for a group, of which the store may not know yet.
    pub(crate) fn add_own(&mut self, share: &Text, queue: SessionKey) {
        let group = self.by_share.entry(share.clone()).or_default();
        group.own.push(queue);
    }

    /// Whether a queue of this shard is still wanted.
    pub(crate) fn is_own(&self, share: &Text, queue: SessionKey) -> bool {
        let group = self.by_share.get(share.as_bytes());
        group.is_some_and(|group| group.own.contains(&queue))
    }

    /// The store has a queue of this shard; whether durable members here use it from
    /// now on.
    pub(crate) fn handle_stored(&mut self, share: &Text, here: ShardId, queue: SessionKey) -> bool {
        let group = self.by_share.get_mut(share.as_bytes());
        let Some(group) = group.filter(|group| group.own.contains(&queue)) else {
            return false;
        };
        group.ready = Some(queue);
        let wanted = group.witness.is_some();
        if wanted {
            self.set_here(share, here, Some(queue));
        }
        wanted
    }

    /// A message stays in the queue of a group although no member takes it; `false`:
    /// there are too many such, or the group has no queue.
    pub(crate) fn leave_behind(&mut self, share: &str, max: usize) -> bool {
        let group = self.by_share.get_mut(share.as_bytes());
        let group = group.filter(|group| group.left_behind < max);
        group.map(|group| group.left_behind += 1).is_some()
    }

    /// A group has no members any more; queues of this shard that go come out.
    pub(crate) fn remove(&mut self, share: &str) -> SmallVec<[SessionKey; 1]> {
        let group = self.by_share.remove(share.as_bytes());
        group.unwrap_or_default().own
    }
}

/// The record of a group's queue.
pub(crate) fn record(share: &Text) -> SessionRecord {
    SessionRecord {
        client_id: share.clone(),
        version: PROTOCOL,
        expiry_interval_secs: u32::MAX,
        ..SessionRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ShardId = ShardId(0);
    const B: ShardId = ShardId(1);
    const SHARE: Text = Text::from_static("$share/g/t");

    #[test]
    fn a_group_uses_the_queue_of_a_shard_with_a_durable_member() {
        let mut groups = Groups::default();
        assert_eq!(groups.queue(&SHARE), None);
        groups.set(&SHARE, B, Some(SessionKey(3)));
        assert_eq!(groups.of(&SHARE, A), None);
        assert_eq!(groups.queue(&SHARE), Some(SessionKey(3)));
        let joined = groups.handle_joined(&SHARE, A, SessionKey(7));
        assert_eq!(joined, Joined::Without);
        groups.add_own(&SHARE, SessionKey(8));
        assert_eq!(groups.queue(&SHARE), Some(SessionKey(3)), "not stored yet");
        assert!(groups.handle_stored(&SHARE, A, SessionKey(8)));
        assert_eq!(groups.queue(&SHARE), Some(SessionKey(8)));
        assert_eq!(groups.of(&SHARE, B), Some(SessionKey(3)));
        groups.handle_left(&SHARE, A);
        assert_eq!(groups.queue(&SHARE), Some(SessionKey(3)));
        groups.set(&SHARE, B, None);
        assert_eq!(groups.queue(&SHARE), None);
        assert_eq!(groups.remove(&SHARE)[..], [SessionKey(8)]);
        assert!(groups.by_share.is_empty());
        groups.set(&SHARE, B, None);
        assert!(groups.by_share.is_empty());
    }

    #[test]
    fn a_queue_is_made_once_and_used_again() {
        let mut groups = Groups::default();
        let join = |groups: &mut Groups| groups.handle_joined(&SHARE, A, SessionKey(1));
        assert_eq!(join(&mut groups), Joined::Without);
        groups.add_own(&SHARE, SessionKey(2));
        groups.handle_left(&SHARE, A);
        assert!(!groups.handle_stored(&SHARE, A, SessionKey(2)), "no member");
        assert_eq!(groups.queue(&SHARE), None);
        assert_eq!(join(&mut groups), Joined::Ready(SessionKey(2)));
        assert_eq!(groups.queue(&SHARE), Some(SessionKey(2)));
        assert!(groups.leave_behind(&SHARE, 1));
        assert!(!groups.leave_behind(&SHARE, 1), "too many");
        groups.remove(&SHARE);
        assert!(!groups.leave_behind(&SHARE, 1), "no queue");
        assert!(!groups.handle_stored(&SHARE, A, SessionKey(2)), "gone");
    }
}
