//! Which session in the store keeps the messages of a shared subscription that
//! members without a place in the store are given: a crash must not take them.

use dunlin_base::{ShardId, Text};
use dunlin_store::SessionKey;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// One durable member of each group on each shard that has one.
#[derive(Debug, Default)]
pub(crate) struct Keepers {
    by_share: HashMap<Text, SmallVec<[(ShardId, SessionKey); 1]>>,
}

impl Keepers {
    /// A durable member of a group on a shard, or none any more.
    pub(crate) fn set(&mut self, share: &Text, shard: ShardId, keeper: Option<SessionKey>) {
        let all = self.by_share.entry(share.clone()).or_default();
        all.retain(|(of, _)| *of != shard);
        all.extend(keeper.map(|key| (shard, key)));
        if all.is_empty() {
            self.by_share.remove(share.as_bytes());
        }
    }

    /// A durable member of a group on this shard.
    pub(crate) fn of(&self, share: &str, shard: ShardId) -> Option<SessionKey> {
        let all = self.by_share.get(share.as_bytes())?;
        let found = all.iter().find(|(of, _)| *of == shard);
        found.map(|(_, key)| *key)
    }

    /// A durable member of a group on any shard.
    pub(crate) fn any(&self, share: &str) -> Option<SessionKey> {
        if self.by_share.is_empty() {
            return None;
        }
        let all = self.by_share.get(share.as_bytes())?;
        all.first().map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_one_keeper_a_shard() {
        let mut keepers = Keepers::default();
        let share = Text::from_static("$share/g/t");
        let (a, b) = (ShardId(0), ShardId(1));
        assert_eq!(keepers.any(&share), None);
        keepers.set(&share, a, Some(SessionKey(1)));
        keepers.set(&share, a, Some(SessionKey(2)));
        keepers.set(&share, b, Some(SessionKey(3)));
        assert_eq!(keepers.of(&share, a), Some(SessionKey(2)));
        assert_eq!(keepers.of(&share, b), Some(SessionKey(3)));
        keepers.set(&share, a, None);
        assert_eq!(keepers.any(&share), Some(SessionKey(3)));
        keepers.set(&share, b, None);
        assert!(keepers.by_share.is_empty());
    }
}
