//! How many subscribers of this shard stand behind each filter, so that other
//! shards hear of a filter once when it is first used and once when it is no
//! longer. Knows nothing of who they are.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::ops::Bound;

/// Counts of local subscribers, plain by filter and shared by group and filter.
///
/// The owner calls it beside its changes of the tree and tells other shards
/// what the answers say. Iteration is in order of the text, to tell a shard
/// that comes later everything.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    plain: BTreeMap<Box<str>, u32>,
    shared: BTreeMap<Box<str>, BTreeMap<Box<str>, u32>>,
}

impl Interest {
    /// No interest in anything.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            plain: BTreeMap::new(),
            shared: BTreeMap::new(),
        }
    }

    /// Counts a plain subscription; `true` when it is the filter's first.
    #[must_use = "other shards need to know"]
    pub fn add(&mut self, filter: &str) -> bool {
        increment(&mut self.plain, filter) == 1
    }

    /// Uncounts a plain subscription; `true` when it was the filter's last.
    #[must_use = "other shards need to know"]
    pub fn remove(&mut self, filter: &str) -> bool {
        decrement(&mut self.plain, filter) == Some(0)
    }

    /// Plain subscriptions to this filter.
    #[must_use]
    pub fn count(&self, filter: &str) -> u32 {
        self.plain.get(filter).copied().unwrap_or_default()
    }

    /// Counts a member of a shared group and returns how many there are now:
    /// the weight of this shard in the group.
    #[must_use = "other shards need to know"]
    pub fn add_shared(&mut self, group: &str, filter: &str) -> u32 {
        match self.shared.get_mut(group) {
            Some(filters) => increment(filters, filter),
            None => {
                let filters = BTreeMap::from([(filter.into(), 1)]);
                self.shared.insert(group.into(), filters);
                1
            }
        }
    }

    /// Uncounts a member of a shared group and returns how many are left;
    /// `None` when there was none.
    #[must_use = "other shards need to know"]
    pub fn remove_shared(&mut self, group: &str, filter: &str) -> Option<u32> {
        let filters = self.shared.get_mut(group)?;
        let left = decrement(filters, filter);
        if filters.is_empty() {
            self.shared.remove(group);
        }
        left
    }

    /// Members of a shared group on this filter.
    #[must_use]
    pub fn count_shared(&self, group: &str, filter: &str) -> u32 {
        let count = self.shared.get(group).and_then(|f| f.get(filter));
        count.copied().unwrap_or_default()
    }

    /// All filters with plain subscriptions.
    pub fn filters(&self) -> impl Iterator<Item = &str> {
        self.plain.keys().map(AsRef::as_ref)
    }

    /// As [`Interest::filters`], of those behind `after`, whether that is there or not.
    pub fn filters_after(&self, after: Option<&str>) -> impl Iterator<Item = &str> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let filters = self.plain.range::<str, _>((from, Bound::Unbounded));
        filters.map(|(filter, _)| filter.as_ref())
    }

    /// As [`Interest::groups`], of those behind a group and filter.
    pub fn groups_after(
        &self,
        after: Option<(&str, &str)>,
    ) -> impl Iterator<Item = (&str, &str, u32)> {
        let from = after.map_or(Bound::Unbounded, |(group, _)| Bound::Included(group));
        let groups = self.shared.range::<str, _>((from, Bound::Unbounded));
        groups.flat_map(move |(group, filters)| {
            let behind = after.filter(|(of, _)| *of == group.as_ref());
            let from = behind.map_or(Bound::Unbounded, |(_, filter)| Bound::Excluded(filter));
            let filters = filters.range::<str, _>((from, Bound::Unbounded));
            filters.map(move |(filter, count)| (group.as_ref(), filter.as_ref(), *count))
        })
    }

    /// All shared groups: group, filter, members.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        self.shared.iter().flat_map(|(group, filters)| {
            let filters = filters.iter();
            filters.map(move |(filter, count)| (group.as_ref(), filter.as_ref(), *count))
        })
    }

    /// Whether nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.shared.is_empty()
    }
}

fn increment(counts: &mut BTreeMap<Box<str>, u32>, filter: &str) -> u32 {
    if let Some(count) = counts.get_mut(filter) {
        *count = count.saturating_add(1);
        return *count;
    }
    counts.insert(filter.into(), 1);
    1
}

fn decrement(counts: &mut BTreeMap<Box<str>, u32>, filter: &str) -> Option<u32> {
    let count = counts.get_mut(filter)?;
    *count = count.saturating_sub(1);
    let left = *count;
    if left == 0 {
        counts.remove(filter);
    }
    Some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn first_and_last_use_are_reported_once() {
        let mut interest = Interest::new();
        assert!(interest.add("b/+"));
        assert!(!interest.add("b/+"));
        assert!(interest.add("a"));
        assert_eq!(interest.filters().collect::<Vec<_>>(), ["a", "b/+"]);
        let after = |after| interest.filters_after(after).collect::<Vec<_>>();
        assert_eq!(after(None), ["a", "b/+"]);
        assert_eq!(after(Some("a")), ["b/+"]);
        assert_eq!(after(Some("aa")), ["b/+"]);
        assert!(after(Some("b/+")).is_empty());
        assert!(!interest.remove("b/+"));
        assert!(interest.remove("b/+"));
        assert!(!interest.remove("b/+"), "there was none");
        assert!(interest.remove("a"));
        assert!(interest.is_empty());
    }

    #[test]
    fn group_members_are_counted_by_group_and_filter() {
        let mut interest = Interest::new();
        assert_eq!(interest.add_shared("g", "a"), 1);
        assert_eq!(interest.add_shared("g", "a"), 2);
        assert_eq!(interest.add_shared("g", "b"), 1);
        assert_eq!(interest.add_shared("h", "a"), 1);
        assert_eq!(interest.count_shared("g", "a"), 2);
        let all: Vec<_> = interest.groups().collect();
        assert_eq!(all, vec![("g", "a", 2), ("g", "b", 1), ("h", "a", 1)]);
        for at in 0..all.len() {
            let (group, filter, _) = all[at];
            let rest: Vec<_> = interest.groups_after(Some((group, filter))).collect();
            assert_eq!(rest, all[at + 1..]);
        }
        assert_eq!(interest.groups_after(None).count(), 3);
        let missing: Vec<_> = interest.groups_after(Some(("g", "aa"))).collect();
        assert_eq!(missing, all[1..]);
        assert_eq!(interest.remove_shared("g", "a"), Some(1));
        assert_eq!(interest.remove_shared("g", "a"), Some(0));
        assert_eq!(interest.remove_shared("g", "a"), None);
        assert_eq!(interest.remove_shared("g", "b"), Some(0));
        assert_eq!(interest.remove_shared("h", "a"), Some(0));
        assert!(interest.is_empty());
    }
}
