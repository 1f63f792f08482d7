//! How many sessions each user has, on all shards. Counted only where there is
//! a limit; each shard tells the others of its own, so that a limit may be
//! exceeded by what is under way between them.

use alloc::vec::Vec;

use dunlin_base::{ShardId, Text};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// Sessions by user.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// 0: no limit.
    max: usize,
    by_user: HashMap<Text, OfUser>,
    /// Users whose number on this shard the others do not know yet.
    changed: Vec<Text>,
}

#[derive(Debug, Default)]
struct OfUser {
    here: usize,
    changed: bool,
    elsewhere: SmallVec<[(ShardId, usize); 1]>,
}

impl OfUser {
    fn all(&self) -> usize {
        let elsewhere = self.elsewhere.iter().map(|(_, sessions)| sessions);
        self.here + elsewhere.sum::<usize>()
    }

    fn is_known(&self) -> bool {
        self.changed || self.here > 0 || !self.elsewhere.is_empty()
    }
}

impl Users {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// Whether a user may have one session more.
    pub(crate) fn has_room(&self, user: &Text) -> bool {
        let all = self.by_user.get(user.as_bytes()).map_or(0, OfUser::all);
        self.max == 0 || all < self.max
    }

    /// A session that belonged to one user belongs to another.
    pub(crate) fn moved(&mut self, from: Option<&Text>, to: Option<&Text>) {
        if self.max == 0 || from == to {
            return;
        }
        if let Some(user) = from {
            self.change(user, |here| here.saturating_sub(1));
        }
        if let Some(user) = to {
            self.change(user, |here| here.saturating_add(1));
        }
    }

    fn change(&mut self, user: &Text, change: impl FnOnce(usize) -> usize) {
        let entry = self.by_user.entry(user.clone()).or_default();
        entry.here = change(entry.here);
        if !core::mem::replace(&mut entry.changed, true) {
            self.changed.push(user.clone());
        }
    }

    /// What the other shards do not know yet: users and their sessions here.
    pub(crate) fn take_changes(&mut self) -> Vec<(Text, usize)> {
        let mut changes = Vec::new();
        for user in core::mem::take(&mut self.changed) {
            let Some(entry) = self.by_user.get_mut(user.as_bytes()) else {
                continue;
            };
            entry.changed = false;
            let (here, known) = (entry.here, entry.is_known());
            if !known {
                self.by_user.remove(user.as_bytes());
            }
            changes.push((user, here));
        }
        changes
    }

    /// Another shard has reported how many sessions users have there.
    pub(crate) fn handle_changes(&mut self, from: ShardId, changes: Vec<(Text, usize)>) {
        for (user, sessions) in changes {
            let entry = self.by_user.entry(user.clone()).or_default();
            entry.elsewhere.retain(|(shard, _)| *shard != from);
            if sessions > 0 {
                entry.elsewhere.push((from, sessions));
            }
            if !entry.is_known() {
                self.by_user.remove(user.as_bytes());
            }
        }
    }

    /// Users with sessions.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_user.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_a_user_are_counted_on_all_shards() {
        let (a, b) = (Text::from_static("a"), Text::from_static("b"));
        let mut users = Users::new(2);
        users.moved(None, Some(&a));
        users.moved(None, Some(&a));
        assert!(!users.has_room(&a) && users.has_room(&b));
        users.moved(Some(&a), Some(&b));
        assert!(users.has_room(&a));
        let mut changes = users.take_changes();
        changes.sort();
        assert_eq!(changes, [(a.clone(), 1), (b.clone(), 1)]);
        assert!(users.take_changes().is_empty());
        users.handle_changes(ShardId(1), alloc::vec![(a.clone(), 1)]);
        assert!(!users.has_room(&a));
        users.handle_changes(ShardId(1), alloc::vec![(a.clone(), 0)]);
        assert!(users.has_room(&a));
        users.moved(Some(&a), None);
        users.moved(Some(&b), None);
        assert_eq!(users.take_changes().len(), 2);
        assert_eq!(users.len(), 0);
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let a = Text::from_static("a");
        let mut users = Users::new(0);
        (0..9).for_each(|_| users.moved(None, Some(&a)));
        assert!(users.has_room(&a) && users.len() == 0);
    }
}
