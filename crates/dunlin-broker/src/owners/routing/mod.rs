//! The third owner of a shard: who gets a message. It has the subscription
//! tree, with the interest of other shards in it, and the index of retained
//! messages. It knows sessions and shards by number only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use dunlin_base::topic::Filter;
use dunlin_base::{ShardId, StreamId, Text};
use dunlin_router::{Interest, Match};

use crate::ids::SessionIdx;
use crate::io::InterestChange;
use crate::owners::groups::Groups;
use crate::owners::loans::Loans;
use crate::owners::missing::Missing;
use crate::owners::subscribers::Subscribers;
pub(crate) use crate::owners::subscribers::{Subscribed, Subscriber};

mod hits;
mod retained;
mod suspects;

pub(crate) use hits::{
    FILTERED, Hit, Matches, Member, NO_LOCAL, RETAIN_AS_PUBLISHED, Scope, Wanted, Way,
};
use hits::{Finder, Mark, Room};
pub(crate) use retained::Ended;
use retained::Retained;
use suspects::Suspects;

/// Shared subscriptions whose members are counted for one look at who gets a message.
pub(crate) const GROUPS_MAX: usize = 1024;

/// Sessions that have ended whose subscriptions are left out of such a count. There are more
/// for milliseconds only, after many have ended at once.
const LEAVING_LOOKED_MAX: usize = 16;

/// What [`Routing::visit`] has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visited {
    /// Subscriptions of this shard's sessions.
    pub(crate) count: usize,
    /// Shared subscriptions behind the first [`GROUPS_MAX`], whose members are not counted.
    pub(crate) groups_left_out: usize,
}

/// Subscriptions, interest and retained messages.
#[derive(Debug)]
pub(crate) struct Routing {
    subscribers: Subscribers,
    interest: Interest,
    /// Subscriptions in the tree of this shard's sessions.
    subscribed: usize,
    pub(crate) retained: Retained,
    pub(crate) groups: Groups,
    pub(crate) loans: Loans,
    /// Shards whose interest is, or was, in the tree.
    interested: BTreeSet<ShardId>,
    /// What the sessions want of shards that may go.
    others: BTreeMap<ShardId, BTreeSet<Text>>,
    suspects: Suspects,
    /// Sessions that have ended, with subscriptions in the tree: they get nothing.
    leaving: BTreeSet<u32>,
    /// By session.
    marks: Vec<Mark>,
    messages: u64,
    /// Empty lists, kept for their room.
    spare: Matches,
    /// Filters that were checked before and are none.
    pub(crate) missing: Missing,
    #[cfg(test)]
    searches: core::cell::Cell<u64>,
}

impl Routing {
    pub(crate) fn new(hash_key: u64) -> Self {
        Self {
            subscribers: Subscribers::new(hash_key),
            interest: Interest::new(),
            subscribed: 0,
            retained: Retained::new(),
            groups: Groups::default(),
            loans: Loans::default(),
            interested: BTreeSet::new(),
            others: BTreeMap::new(),
            suspects: Suspects::default(),
            leaving: BTreeSet::new(),
            marks: Vec::new(),
            messages: 0,
            spare: Matches::default(),
            missing: Missing::default(),
            #[cfg(test)]
            searches: core::cell::Cell::default(),
        }
    }

    /// Who gets a message of a topic that `origin` published. With a scope:
    /// only what another shard asked for.
    pub(crate) fn find(
        &mut self,
        topic: &str,
        origin: Option<SessionIdx>,
        scope: Option<&Scope<'_>>,
        way: Way,
        member: impl Fn(SessionIdx) -> Member,
        may_receive: impl Fn(SessionIdx) -> bool,
    ) -> Matches {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.messages += 1;
        let loans = &self.loans;
        let room = |shard| Room {
            any: loans.has_room(shard),
            preferred: loans.is_preferred(shard),
        };
        let mut finder = Finder {
            found: core::mem::take(&mut self.spare),
            marks: &mut self.marks,
            message: self.messages,
            origin,
            local: scope.is_some(),
            many: false,
            way,
            groups: &self.groups,
            leaving: &self.leaving,
            room: &room,
            member,
            may_receive,
        };
        if scope.is_none_or(|scope| scope.plain) {
            self.subscribers.matches(topic, |found| match found {
                Match::Subscriber { key, value } => finder.add(key, value, None),
                Match::Shared(shared) if scope.is_none() => finder.add_shared(&shared),
                _ => {}
            });
        }
        for share in scope.map_or(&[][..], |scope| scope.shares) {
            let before = finder.found.hits.len();
            if let Some((group, filter)) = split_share(share)
                && let Some(shared) = self.subscribers.tree().shared_group(group, filter)
            {
                finder.add_shared(&shared);
            }
            if finder.found.hits.len() == before {
                finder.found.missed.push(share.clone());
            }
        }
        if finder.many {
            let hits = finder.found.hits.iter_mut();
            for hit in hits.filter(|hit| hit.has_many_identifiers()) {
                hit.identifiers.sort_unstable();
                hit.identifiers.dedup();
            }
        }
        finder.found
    }

    /// Empty lists, with the room of earlier ones.
    pub(crate) fn take_spare(&mut self) -> Matches {
        core::mem::take(&mut self.spare)
    }

    /// Takes back lists for their room.
    pub(crate) fn recycle(&mut self, mut found: Matches) {
        // Mostly taken out by who used them.
        if !found.hits.is_empty() {
            found.hits.clear();
        }
        if !found.forwards.is_empty() {
            found.forwards.clear();
        }
        self.spare = found;
    }

    /// A member of a shared subscription: one that `prefers` chooses, else one
    /// that `accepts` does.
    pub(crate) fn choose(
        &self,
        share: &str,
        mut prefers: impl FnMut(Subscriber, &Subscribed) -> bool,
        mut accepts: impl FnMut(Subscriber, &Subscribed) -> bool,
    ) -> Option<(Subscriber, Subscribed)> {
        let (group, filter) = split_share(share)?;
        let shared = self.subscribers.tree().shared_group(group, filter)?;
        let is_there = |key: &Subscriber| !is_leaving(&self.leaving, *key);
        let chosen = shared
            .select(|key, value| is_there(key) && prefers(*key, value))
            .or_else(|| shared.select(|key, value| is_there(key) && accepts(*key, value)));
        chosen.map(|(key, value)| (key, *value))
    }

    /// Whether a shared subscription has such a member. Whose turn it is stays.
    pub(crate) fn has_such(
        &self,
        share: &str,
        mut is_such: impl FnMut(Subscriber, &Subscribed) -> bool,
    ) -> bool {
        let group = split_share(share);
        group.is_some_and(|(group, filter)| {
            let shared = self.subscribers.tree().shared_group(group, filter);
            let mut members = shared.iter().flat_map(|shared| shared.members());
            members.any(|it| !is_leaving(&self.leaving, it.key) && is_such(it.key, it.value))
        })
    }

    /// Whether a shared subscription has members, on any shard.
    pub(crate) fn has_members(&self, share: &str) -> bool {
        let group = split_share(share);
        group.is_some_and(|(group, filter)| {
            let shared = self.subscribers.tree().shared_group(group, filter);
            shared.is_some()
        })
    }

    /// Whether a shared subscription has members on another shard.
    pub(crate) fn has_member_on(&self, share: &str, shard: ShardId) -> bool {
        let group = split_share(share);
        group.is_some_and(|(group, filter)| {
            let shared = self.subscribers.tree().shared_group(group, filter);
            shared.is_some_and(|shared| shared.get(Subscriber::Shard(shard)).is_some())
        })
    }

    /// Sessions of this shard in a shared subscription.
    pub(crate) fn members(&self, share: &str) -> impl Iterator<Item = SessionIdx> + use<'_> {
        let group = split_share(share);
        let group =
            group.and_then(|(group, filter)| self.subscribers.tree().shared_group(group, filter));
        let members = group.into_iter().flat_map(|group| group.members());
        let members = members.filter(|member| !is_leaving(&self.leaving, member.key));
        members.filter_map(|member| session(member.key))
    }

    /// A session has ended; its subscriptions leave the tree later.
    pub(crate) fn begin_leaving(&mut self, s: SessionIdx) {
        self.leaving.insert(s as u32);
    }

    /// They are out of it.
    pub(crate) fn end_leaving(&mut self, s: SessionIdx) {
        self.leaving.remove(&(s as u32));
    }

    /// Such sessions with a shared subscription.
    pub(crate) fn leaving_members(&self, share: &str) -> Vec<SessionIdx> {
        if self.leaving.is_empty() {
            return Vec::new();
        }
        let group = split_share(share);
        let group =
            group.and_then(|(group, filter)| self.subscribers.tree().shared_group(group, filter));
        let Some(group) = group else {
            return Vec::new();
        };
        // The smaller of both is walked: this is asked for each message of a group elsewhere.
        if group.member_count() < self.leaving.len() {
            let members = group.members().map(|member| member.key);
            let leaving = members.filter(|member| is_leaving(&self.leaving, *member));
            return leaving.filter_map(session).collect();
        }
        let leaving = self.leaving.iter();
        let members = leaving.filter(|s| group.get(Subscriber::Session(**s)).is_some());
        members.map(|s| *s as usize).collect()
    }

    /// Adds a session's subscription, or replaces its options; says what that
    /// changes for other shards.
    pub(crate) fn insert(
        &mut self,
        s: SessionIdx,
        text: &str,
        value: Subscribed,
    ) -> Option<InterestChange> {
        let filter = self.missing.checked(Filter::parse(text).ok())?;
        let key = Subscriber::Session(s as u32);
        let Some(group) = filter.share else {
            let is_new = self
                .subscribers
                .tree_mut()
                .insert(filter.filter, key, value)
                .is_none();
            self.subscribed += usize::from(is_new);
            let first = is_new && self.interest.add(filter.filter);
            return first.then(|| InterestChange::Add(Text::from(text)));
        };
        let old = self
            .subscribers
            .tree_mut()
            .insert_shared(group, filter.filter, key, value, 1);
        self.subscribed += usize::from(old.is_none());
        old.is_none().then(|| {
            let members = self.interest.add_shared(group, filter.filter);
            InterestChange::Share(Text::from(text), members)
        })
    }

    /// Removes a session's subscription; says what that changes for other
    /// shards.
    pub(crate) fn remove(&mut self, s: SessionIdx, text: &str) -> Option<InterestChange> {
        let filter = self.missing.checked(Filter::parse(text).ok())?;
        let key = Subscriber::Session(s as u32);
        let Some(group) = filter.share else {
            self.subscribers.tree_mut().remove(filter.filter, key)?;
            self.subscribed -= 1;
            let last = self.interest.remove(filter.filter);
            return last.then(|| InterestChange::Remove(Text::from(text)));
        };
        self.subscribers
            .tree_mut()
            .remove_shared(group, filter.filter, key)?;
        self.subscribed -= 1;
        let members = self.interest.remove_shared(group, filter.filter);
        let members = members.unwrap_or(0);
        Some(InterestChange::Share(Text::from(text), members))
    }

    /// What the sessions of another shard want has changed.
    pub(crate) fn handle_interest(&mut self, from: ShardId, change: &InterestChange) {
        let key = Subscriber::Shard(from);
        self.interested.insert(from);
        let value = Subscribed {
            options: 0,
            restricted: false,
            identifier: 0,
            stream: StreamId::CONTROL,
        };
        match change {
            InterestChange::Add(filter) => {
                self.subscribers.tree_mut().insert(filter, key, value);
            }
            InterestChange::Remove(filter) => {
                self.subscribers.tree_mut().remove(filter, key);
            }
            InterestChange::Queue(text, queue) => self.groups.set(text, from, *queue),
            InterestChange::Share(text, members) => {
                let Some((group, filter)) = self.missing.checked(split_share(text)) else {
                    return;
                };
                if *members == 0 {
                    self.subscribers
                        .tree_mut()
                        .remove_shared(group, filter, key);
                } else {
                    self.subscribers
                        .tree_mut()
                        .insert_shared(group, filter, key, value, *members);
                }
            }
        }
    }

    /// As [`Routing::handle_interest`], of a shard that may go.
    pub(crate) fn handle_interest_of_edge(&mut self, from: ShardId, change: &InterestChange) {
        self.handle_interest(from, change);
        self.suspects.clear_interest(from, change);
        let known = self.others.entry(from).or_default();
        match change {
            InterestChange::Add(filter) => _ = known.insert(filter.clone()),
            InterestChange::Share(share, members) if *members > 0 => {
                known.insert(share.clone());
            }
            InterestChange::Remove(filter) | InterestChange::Share(filter, _) => {
                known.remove(filter.as_bytes());
            }
            InterestChange::Queue(..) => {}
        }
        if known.is_empty() {
            self.others.remove(&from);
        }
    }

    /// A shard is gone, and its interest with it; the `$share` filters of that come out.
    pub(crate) fn forget(&mut self, shard: ShardId) -> Vec<Text> {
        let known = self.others.remove(&shard).unwrap_or_default();
        let mut shares = Vec::new();
        for filter in known {
            if filter.starts_with("$share/") {
                self.handle_interest(shard, &InterestChange::Queue(filter.clone(), None));
                self.handle_interest(shard, &InterestChange::Share(filter.clone(), 0));
                shares.push(filter);
            } else {
                self.handle_interest(shard, &InterestChange::Remove(filter));
            }
        }
        self.interested.remove(&shard);
        shares
    }

    /// Filters that sessions here want, from `after` on: at most `max`.
    pub(crate) fn wanted_after(&self, after: Option<&str>, max: usize) -> Vec<Text> {
        let filters = self.interest.filters_after(after);
        filters.take(max).map(Text::from).collect()
    }

    /// As [`Routing::wanted_after`], of shared subscriptions: group, filter, members.
    pub(crate) fn groups_after(
        &self,
        after: Option<(&str, &str)>,
        max: usize,
    ) -> Vec<(Text, Text, u32)> {
        let groups = self.interest.groups_after(after).take(max);
        groups
            .map(|(group, filter, members)| (group.into(), filter.into(), members))
            .collect()
    }

    /// Calls `visit` with the first `max` sessions that have subscribed to a topic, without
    /// giving shared subscriptions their turn; with the `$share` filter of those.
    pub(crate) fn visit(
        &self,
        topic: &str,
        max: usize,
        mut visit: impl FnMut(u32, &Subscribed, Option<&Text>),
    ) -> Visited {
        let (mut seen, mut rows, mut groups) = (Visited::default(), max, GROUPS_MAX);
        let shards = || {
            self.interested
                .iter()
                .map(|shard| Subscriber::Shard(*shard))
        };
        let leaving = self.leaving.iter().take(LEAVING_LOOKED_MAX);
        let leaving = || leaving.clone().map(|s| Subscriber::Session(*s));
        let others = || shards().chain(leaving());
        let here = |it: &(Subscriber, _)| !is_leaving(&self.leaving, it.0);
        self.subscribers.tree().matched_filters(topic, |found| {
            let others_len = others().filter(|other| found.has_plain(*other)).count();
            seen.count += found.plain_len() - others_len;
            for (s, value) in sessions(found.plain().filter(here)).take(rows) {
                rows -= 1;
                visit(s, value, None);
            }
            seen.groups_left_out += found.groups_len().saturating_sub(groups);
            for shared in found.groups().take(groups) {
                groups -= 1;
                let others = others().filter(|other| shared.get(*other).is_some());
                seen.count += shared.member_count() - others.count();
                let share = alloc::format!("$share/{}/{}", shared.group(), shared.filter());
                let share = Text::from(share);
                let members = shared.members().map(|it| (it.key, it.value));
                for (s, value) in sessions(members.filter(here)).take(rows) {
                    rows -= 1;
                    visit(s, value, Some(&share));
                }
            }
        });
        seen
    }

    /// Whether a session wants messages of this topic.
    pub(crate) fn is_wanted(&self, topic: &str) -> bool {
        let mut wanted = false;
        let tree = self.subscribers.tree();
        tree.matched_filters(topic, |_| wanted = true);
        wanted
    }

    /// Subscriptions, those of other shards included.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscribers.tree().subscription_count()
    }

    /// Those of this shard's sessions.
    pub(crate) const fn subscribed(&self) -> usize {
        self.subscribed
    }

    /// Gives back what the tables hold beyond their use.
    pub(crate) fn shrink(&mut self) {
        self.spare = Matches::default();
        self.marks = Vec::new();
    }

    /// Searches since the last call.
    #[cfg(test)]
    pub(crate) fn take_searches(&self) -> u64 {
        self.searches.take()
    }
}

/// Whether this is a session that has ended.
#[inline]
fn is_leaving(leaving: &BTreeSet<u32>, key: Subscriber) -> bool {
    !leaving.is_empty() && matches!(key, Subscriber::Session(s) if leaving.contains(&s))
}

/// The session of this shard that it is.
fn session(key: Subscriber) -> Option<SessionIdx> {
    match key {
        Subscriber::Session(s) => Some(s as usize),
        Subscriber::Shard(_) => None,
    }
}

/// Those of this shard.
fn sessions<'t>(
    all: impl Iterator<Item = (Subscriber, &'t Subscribed)>,
) -> impl Iterator<Item = (u32, &'t Subscribed)> {
    all.filter_map(|(key, value)| match key {
        Subscriber::Session(s) => Some((s, value)),
        Subscriber::Shard(_) => None,
    })
}

/// The name and the filter of `$share/NAME/FILTER`.
fn split_share(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix("$share/")?.split_once('/')
}

#[cfg(test)]
mod tests;
