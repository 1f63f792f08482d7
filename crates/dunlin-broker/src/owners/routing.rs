//! The third owner of a shard: who gets a message. It has the subscription
//! tree, with the interest of other shards in it, and the index of retained
//! messages. It knows sessions and shards by number only.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use dunlin_base::topic::Filter;
use dunlin_base::{Message, ShardId, StreamId, Text};
use dunlin_mqtt::server::Identifiers;
use dunlin_router::{Interest, Match, Page, RetainedTree, SharedMatch};
use dunlin_store::SessionKey;
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::ids::SessionIdx;
use crate::io::InterestChange;
use crate::owners::keepers::Keepers;
use crate::owners::subscribers::Subscribers;
pub(crate) use crate::owners::subscribers::{Subscribed, Subscriber};

/// No Local in the options byte of a subscription.
const NO_LOCAL: u8 = 0b0100;

/// Retained messages taken from the index at a time.
const PAGE_MAX: usize = 128;

/// Bytes after which no more are taken at a time: well below what a QoS 0
/// message needs to be dropped for a slow client.
const PAGE_BYTES: usize = 64 * 1024;

/// Identifiers of one copy among which a further one is looked for; more are
/// sorted in the end.
const IDENTIFIERS_SCANNED_MAX: usize = 16;

/// Topics looked at for one page.
const STEPS_MAX: usize = 4096;

/// A session that a message goes to, overlapping subscriptions merged.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) session: SessionIdx,
    pub(crate) options: u8,
    pub(crate) identifiers: Identifiers,
    pub(crate) stream: StreamId,
    pub(crate) share: Option<Arc<str>>,
    /// A durable session of the same group, if there is one.
    pub(crate) keeper: Option<SessionKey>,
}

/// What a member of a shared subscription is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// It can take a message now.
    pub(crate) available: bool,
    /// Its session is in the store.
    pub(crate) durable: bool,
}

impl Hit {
    pub(crate) fn new(session: SessionIdx, value: &Subscribed, share: Option<&str>) -> Self {
        let mut identifiers = Identifiers::new();
        if value.identifier != 0 {
            identifiers.push(value.identifier);
        }
        Self {
            session,
            options: value.options,
            identifiers,
            stream: value.stream,
            share: share.map(Arc::from),
            keeper: None,
        }
    }

    /// Overlapping subscriptions of one session give one copy, with the highest
    /// QoS and all identifiers [MQTT-3.3.4-2, MQTT-3.3.4-4].
    fn merge(&mut self, value: &Subscribed) {
        let (old, new) = (self.options, value.options);
        let qos = (old & 3).max(new & 3);
        // Retain As Published if any wants it.
        let retain_as_published = (old | new) & 0b1000;
        self.options = qos | retain_as_published;
        let many = self.has_many_identifiers();
        if value.identifier != 0 && (many || !self.identifiers.contains(&value.identifier)) {
            self.identifiers.push(value.identifier);
        }
    }

    fn has_many_identifiers(&self) -> bool {
        self.identifiers.len() >= IDENTIFIERS_SCANNED_MAX
    }
}

/// What another shard wants of a message.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Delivery to all matching plain subscriptions.
    pub(crate) plain: bool,
    /// Delivery to one member of each of these `$share` filters.
    pub(crate) shares: Vec<Text>,
    /// It owns the retained message of the topic and sets it.
    pub(crate) retain: bool,
}

/// Shards that a message goes to.
pub(crate) type Forwards = SmallVec<[(ShardId, Wanted); 2]>;

/// Who gets a message.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    pub(crate) hits: Vec<Hit>,
    pub(crate) forwards: Forwards,
    /// `$share` filters of the scope without a member here.
    pub(crate) missed: Vec<Text>,
}

/// What a forwarded message may be delivered to.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) plain: bool,
    pub(crate) shares: &'a [Text],
}

/// Changes of one topic's retained message.
#[derive(Debug, Default)]
struct TopicChanges {
    /// How many wait for the store.
    waiting: usize,
    /// Place of the last.
    last: u64,
}

/// The last message that matched a session, and where it is in the list of
/// hits, to merge overlapping subscriptions without a search.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    message: u64,
    hit: u32,
}

/// Subscriptions, interest and retained messages.
#[derive(Debug)]
pub(crate) struct Routing {
    subscribers: Subscribers,
    interest: Interest,
    retained: RetainedTree<Arc<Message>>,
    pub(crate) keepers: Keepers,
    /// Topics with a retained message on its way to the store.
    changes: HashMap<Text, TopicChanges>,
    last_change: u64,
    /// By session.
    marks: Vec<Mark>,
    messages: u64,
    /// A list of hits, kept for its room.
    spare: Vec<Hit>,
    #[cfg(test)]
    searches: core::cell::Cell<u64>,
}

impl Routing {
    pub(crate) fn new(hash_key: u64) -> Self {
        Self {
            subscribers: Subscribers::new(hash_key),
            interest: Interest::new(),
            retained: RetainedTree::new(),
            keepers: Keepers::default(),
            changes: HashMap::new(),
            last_change: 0,
            marks: Vec::new(),
            messages: 0,
            spare: Vec::new(),
            #[cfg(test)]
            searches: core::cell::Cell::default(),
        }
    }

    /// Who gets a message of a topic that `origin` published. With a scope:
    /// only what another shard asked for. With `exact`: its QoS is 2.
    pub(crate) fn find(
        &mut self,
        topic: &str,
        origin: Option<SessionIdx>,
        scope: Option<&Scope<'_>>,
        exact: bool,
        member: impl Fn(SessionIdx) -> Member,
        may_receive: impl Fn(SessionIdx) -> bool,
    ) -> Matches {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.messages += 1;
        let mut finder = Finder {
            found: Matches {
                hits: core::mem::take(&mut self.spare),
                ..Matches::default()
            },
            marks: &mut self.marks,
            message: self.messages,
            origin,
            local: scope.is_some(),
            many: false,
            exact,
            keepers: &self.keepers,
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

    /// Takes back a list of hits for its room.
    pub(crate) fn recycle(&mut self, mut hits: Vec<Hit>) {
        hits.clear();
        self.spare = hits;
    }

    /// A member of a shared subscription: one that `prefers` chooses, else one
    /// that `accepts` does.
    pub(crate) fn choose(
        &self,
        share: &str,
        mut prefers: impl FnMut(Subscriber) -> bool,
        mut accepts: impl FnMut(Subscriber) -> bool,
    ) -> Option<(Subscriber, Subscribed)> {
        let (group, filter) = split_share(share)?;
        let shared = self.subscribers.tree().shared_group(group, filter)?;
        let chosen = shared
            .select(|key, _| prefers(*key))
            .or_else(|| shared.select(|key, _| accepts(*key)));
        chosen.map(|(key, value)| (key, *value))
    }

    /// Sessions of this shard in a shared subscription.
    pub(crate) fn members(&self, share: &str) -> impl Iterator<Item = SessionIdx> + use<'_> {
        let group = split_share(share);
        let group =
            group.and_then(|(group, filter)| self.subscribers.tree().shared_group(group, filter));
        let members = group.into_iter().flat_map(|group| group.members());
        members.filter_map(|member| match member.key {
            Subscriber::Session(s) => Some(s as usize),
            Subscriber::Shard(_) => None,
        })
    }

    /// Adds a session's subscription, or replaces its options; says what that
    /// changes for other shards.
    pub(crate) fn insert(
        &mut self,
        s: SessionIdx,
        text: &str,
        value: Subscribed,
    ) -> Option<InterestChange> {
        let filter = Filter::parse(text).ok()?;
        let key = Subscriber::Session(s as u32);
        let Some(group) = filter.share else {
            let is_new = self
                .subscribers
                .tree_mut()
                .insert(filter.filter, key, value)
                .is_none();
            let first = is_new && self.interest.add(filter.filter);
            return first.then(|| InterestChange::Add(Text::from(text)));
        };
        let old = self
            .subscribers
            .tree_mut()
            .insert_shared(group, filter.filter, key, value, 1);
        old.is_none().then(|| {
            let members = self.interest.add_shared(group, filter.filter);
            InterestChange::Share(Text::from(text), members)
        })
    }

    /// Removes a session's subscription; says what that changes for other
    /// shards.
    pub(crate) fn remove(&mut self, s: SessionIdx, text: &str) -> Option<InterestChange> {
        let filter = Filter::parse(text).ok()?;
        let key = Subscriber::Session(s as u32);
        let Some(group) = filter.share else {
            self.subscribers.tree_mut().remove(filter.filter, key)?;
            let last = self.interest.remove(filter.filter);
            return last.then(|| InterestChange::Remove(Text::from(text)));
        };
        self.subscribers
            .tree_mut()
            .remove_shared(group, filter.filter, key)?;
        let members = self.interest.remove_shared(group, filter.filter);
        let members = members.unwrap_or(0);
        Some(InterestChange::Share(Text::from(text), members))
    }

    /// What the sessions of another shard want has changed.
    pub(crate) fn handle_interest(&mut self, from: ShardId, change: &InterestChange) {
        let key = Subscriber::Shard(from);
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
            InterestChange::Keeper(text, keeper) => self.keepers.set(text, from, *keeper),
            InterestChange::Share(text, members) => {
                let Some((group, filter)) = split_share(text) else {
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

    /// Whether a session wants messages of this topic.
    pub(crate) fn is_wanted(&self, topic: &str) -> bool {
        let mut wanted = false;
        self.subscribers.tree().matches(topic, |_| wanted = true);
        wanted
    }

    /// Subscriptions, those of other shards included.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscribers.tree().subscription_count()
    }

    /// Puts a retained message into the index, or takes one with an empty
    /// payload out.
    pub(crate) fn retain(&mut self, message: &Arc<Message>) {
        if message.payload.is_empty() {
            self.retained.remove(&message.topic);
        } else {
            //= mqtt5#[MQTT-3.3.1-5]
            self.retained.set(&message.topic, Arc::clone(message));
        }
    }

    /// The retained message of a topic.
    pub(crate) fn retained(&self, topic: &str) -> Option<&Arc<Message>> {
        self.retained.get(topic)
    }

    /// Retained messages.
    pub(crate) fn retained_len(&self) -> usize {
        self.retained.len()
    }

    /// Gives a change of a retained message its place in the order of its
    /// topic. With `waits`, [`Routing::end_change`] follows.
    pub(crate) fn begin_change(&mut self, topic: &Text, waits: bool) -> u64 {
        self.last_change += 1;
        let order = self.last_change;
        if waits {
            let changes = self.changes.entry(topic.clone()).or_default();
            changes.waiting += 1;
            changes.last = order;
        } else if let Some(changes) = self.changes.get_mut(topic.as_bytes()) {
            changes.last = order;
        }
        order
    }

    /// A change was stored or refused; whether it is the last of its topic.
    pub(crate) fn end_change(&mut self, topic: &Text, order: u64) -> bool {
        let Some(changes) = self.changes.get_mut(topic.as_bytes()) else {
            return true;
        };
        let is_last = order == changes.last;
        changes.waiting -= 1;
        if changes.waiting == 0 {
            self.changes.remove(topic.as_bytes());
        }
        is_last
    }

    /// Topics whose retained message is on its way to the store.
    pub(crate) fn changing(&self) -> usize {
        self.changes.len()
    }

    /// One page of retained messages that match a filter, from `after` on, and
    /// where the next page begins.
    pub(crate) fn page(
        &self,
        filter: &str,
        after: Option<&str>,
    ) -> (Vec<Arc<Message>>, Option<Text>) {
        let mut page: Vec<Arc<Message>> = Vec::new();
        let mut bytes = 0;
        let end = self
            .retained
            .visit_steps(filter, after, STEPS_MAX, |_, message| {
                page.push(Arc::clone(message));
                bytes += message.cost();
                if page.len() < PAGE_MAX && bytes < PAGE_BYTES {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
        let next = match end {
            Page::Stopped => page.last().map(|message| message.topic.clone()),
            Page::Paused { after } => Some(Text::from(after)),
            _ => None,
        };
        (page, next)
    }

    /// Gives back what the tables hold beyond their use.
    pub(crate) fn shrink(&mut self) {
        self.spare = Vec::new();
        self.marks = Vec::new();
    }

    /// Searches since the last call.
    #[cfg(test)]
    pub(crate) fn take_searches(&self) -> u64 {
        self.searches.take()
    }
}

/// The `$share` filter of a match.
#[derive(Clone, Copy)]
struct Share<'a> {
    text: &'a Text,
    keeper: Option<SessionKey>,
}

/// Collects the receivers of one message.
struct Finder<'a, A, R> {
    found: Matches,
    marks: &'a mut Vec<Mark>,
    message: u64,
    /// Session of the publisher.
    origin: Option<SessionIdx>,
    /// Other shards are not wanted.
    local: bool,
    /// Some copy has many subscription identifiers.
    many: bool,
    /// Its QoS is 2.
    exact: bool,
    keepers: &'a Keepers,
    member: A,
    may_receive: R,
}

impl<A: Fn(SessionIdx) -> Member, R: Fn(SessionIdx) -> bool> Finder<'_, A, R> {
    fn add(&mut self, key: Subscriber, value: &Subscribed, share: Option<Share<'_>>) {
        match key {
            Subscriber::Shard(to) if !self.local => {
                let forward = self.forward(to);
                match share {
                    Some(share) => forward.shares.push(share.text.clone()),
                    None => forward.plain = true,
                }
            }
            Subscriber::Shard(_) => {}
            Subscriber::Session(s) => self.add_session(s as usize, value, share),
        }
    }

    fn forward(&mut self, to: ShardId) -> &mut Wanted {
        let forwards = &mut self.found.forwards;
        let at = match forwards.iter().position(|(shard, _)| *shard == to) {
            Some(at) => at,
            None => {
                forwards.push((to, Wanted::default()));
                forwards.len() - 1
            }
        };
        // Just found or pushed.
        #[allow(clippy::indexing_slicing)]
        &mut forwards[at].1
    }

    fn add_session(&mut self, s: SessionIdx, value: &Subscribed, share: Option<Share<'_>>) {
        //= mqtt5#[MQTT-3.8.3-3]
        if value.options & NO_LOCAL != 0 && self.origin == Some(s) {
            return;
        }
        if value.restricted && !(self.may_receive)(s) {
            return;
        }
        // A shared subscription delivers besides any plain one.
        if share.is_none() {
            if self.marks.len() <= s {
                self.marks.resize(s + 1, Mark::default());
            }
            let Some(mark) = self.marks.get_mut(s) else {
                return;
            };
            if mark.message == self.message
                && let Some(hit) = self.found.hits.get_mut(mark.hit as usize)
            {
                hit.merge(value);
                self.many |= hit.has_many_identifiers();
                return;
            }
            *mark = Mark {
                message: self.message,
                hit: self.found.hits.len() as u32,
            };
        }
        let text = share.map(|share| share.text.as_str());
        let hit = Hit::new(s, value, text);
        let keeper = share.and_then(|share| share.keeper);
        self.found.hits.push(Hit { keeper, ..hit });
    }

    /// One member, in turn: one that can take it now, else any. In a group with
    /// durable members, others get no message that is delivered exactly once:
    /// after a crash they have either lost it or could not say that they have it.
    fn add_shared(&mut self, shared: &SharedMatch<'_, Subscriber, Subscribed>) {
        let text = alloc::format!("$share/{}/{}", shared.group(), shared.filter());
        let text = Text::from(text);
        let keeper = self.keepers.any(&text);
        let (local, keepers) = (self.local, self.keepers);
        let exact = self.exact && keeper.is_some();
        let fits = |key: &Subscriber, value: &Subscribed| match key {
            Subscriber::Session(s) => {
                !exact || value.options & 3 < 2 || (self.member)(*s as usize).durable
            }
            Subscriber::Shard(to) => !local && (!exact || keepers.of(&text, *to).is_some()),
        };
        let available = |key: &Subscriber| match key {
            Subscriber::Session(s) => (self.member)(*s as usize).available,
            Subscriber::Shard(_) => true,
        };
        let of_scope = |key: &Subscriber| !local || matches!(key, Subscriber::Session(_));
        let chosen = shared
            .select(|key, value| fits(key, value) && available(key))
            .or_else(|| shared.select(fits))
            .or_else(|| shared.select(|key, _| of_scope(key)));
        if let Some((key, value)) = chosen {
            let text = &text;
            self.add(key, value, Some(Share { text, keeper }));
        }
    }
}

/// The name and the filter of `$share/NAME/FILTER`.
fn split_share(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix("$share/")?.split_once('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options byte: QoS, No Local, Retain As Published.
    fn value(options: u8, identifier: u32) -> Subscribed {
        Subscribed {
            options,
            restricted: false,
            identifier,
            stream: StreamId::CONTROL,
        }
    }

    const READY: Member = Member {
        available: true,
        durable: false,
    };

    fn find(routing: &mut Routing, origin: Option<usize>) -> Matches {
        routing.find("a/b", origin, None, false, |_| READY, |_| true)
    }

    #[test]
    fn overlapping_subscriptions_of_a_session_are_one_hit() {
        let mut routing = Routing::new(1);
        routing.insert(0, "a/b", value(0, 7));
        routing.insert(0, "a/#", value(0b1010, 8));
        routing.insert(0, "+/b", value(0b0100, 7));
        routing.insert(1, "a/b", value(1, 0));
        let found = find(&mut routing, None);
        let hits: Vec<_> = found
            .hits
            .iter()
            .map(|hit| (hit.session, hit.options))
            .collect();
        assert_eq!(hits.len(), 2);
        let merged = found.hits.iter().find(|hit| hit.session == 0);
        let merged = merged.expect("a hit");
        assert_eq!(merged.options, 0b1010);
        let mut identifiers = merged.identifiers.to_vec();
        identifiers.sort_unstable();
        assert_eq!(identifiers, [7, 8]);
        // The next message begins with none.
        assert_eq!(find(&mut routing, None).hits.len(), 2);
    }

    #[test]
    fn no_local_keeps_a_message_from_its_publisher_only() {
        let mut routing = Routing::new(1);
        routing.insert(0, "a/b", value(NO_LOCAL, 0));
        assert!(find(&mut routing, Some(0)).hits.is_empty());
        assert_eq!(find(&mut routing, Some(1)).hits.len(), 1);
    }

    #[test]
    fn another_shard_is_one_forward_however_many_filters_match() {
        let mut routing = Routing::new(1);
        for filter in ["a/b", "a/+"] {
            let change = InterestChange::Add(Text::from(filter));
            routing.handle_interest(ShardId(1), &change);
        }
        let share = Text::from_static("$share/g/a/#");
        routing.handle_interest(ShardId(1), &InterestChange::Share(share.clone(), 2));
        let found = find(&mut routing, None);
        assert_eq!((found.hits.len(), found.forwards.len()), (0, 1));
        let (to, wanted) = &found.forwards[0];
        assert_eq!((to.0, wanted.plain, wanted.shares.len()), (1, true, 1));
        // A message from there goes to sessions of this shard only.
        let scope = Scope {
            plain: true,
            shares: core::slice::from_ref(&share),
        };
        let found = routing.find("a/b", None, Some(&scope), false, |_| READY, |_| true);
        assert!(found.hits.is_empty() && found.forwards.is_empty());
        assert_eq!(found.missed, [share]);
        routing.handle_interest(ShardId(1), &InterestChange::Remove(Text::from("a/b")));
        routing.handle_interest(ShardId(1), &InterestChange::Remove(Text::from("a/+")));
        assert!(!find(&mut routing, None).forwards[0].1.plain);
    }

    #[test]
    fn interest_changes_at_the_first_and_the_last_subscriber() {
        let mut routing = Routing::new(1);
        let text = "a/b";
        let add = Some(InterestChange::Add(Text::from(text)));
        let subscribe = |routing: &mut Routing, s| routing.insert(s, text, value(0, 0));
        assert_eq!(subscribe(&mut routing, 0), add);
        assert_eq!(subscribe(&mut routing, 0), None);
        assert_eq!(subscribe(&mut routing, 1), None);
        assert_eq!(routing.remove(0, text), None);
        let gone = Some(InterestChange::Remove(Text::from(text)));
        assert_eq!(routing.remove(1, text), gone);
        assert!(!routing.is_wanted(text));
    }

    #[test]
    fn a_group_takes_turns_and_prefers_who_is_available() {
        let mut routing = Routing::new(1);
        for s in 0..3 {
            routing.insert(s, "$share/g/a/b", value(1, 0));
        }
        let mut turns = |available: fn(usize) -> bool| -> Vec<usize> {
            let member = |s| Member {
                available: available(s),
                ..READY
            };
            let mut next = || routing.find("a/b", None, None, false, member, |_| true);
            (0..3).map(|_| next().hits[0].session).collect()
        };
        let mut all = turns(|_| true);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert_eq!(turns(|s| s == 1), [1, 1, 1]);
        // Some member gets it even if none is available.
        assert_eq!(turns(|_| false).len(), 3);
    }

    #[test]
    fn exactly_once_is_for_durable_members_where_there_are_some() {
        let mut routing = Routing::new(1);
        for s in 0..3 {
            routing.insert(s, "$share/g/a/b", value(2, 0));
        }
        // The durable one cannot take it now.
        let member = |s| Member {
            available: s != 1,
            durable: s == 1,
        };
        let share = Text::from_static("$share/g/a/b");
        let take = |routing: &mut Routing, exact| -> Vec<(usize, bool)> {
            let mut next = || routing.find("a/b", None, None, exact, member, |_| true);
            (0..4)
                .map(|_| next().hits.remove(0))
                .map(|hit| (hit.session, hit.keeper.is_some()))
                .collect()
        };
        assert!(!take(&mut routing, true).contains(&(1, false)));
        routing.keepers.set(&share, ShardId(0), Some(SessionKey(9)));
        assert_eq!(take(&mut routing, true), [(1, true); 4]);
        assert!(!take(&mut routing, false).contains(&(1, true)));
        let members: Vec<_> = routing.members(&share).collect();
        assert_eq!(members, [0, 1, 2]);
    }

    #[test]
    fn only_the_last_change_of_a_retained_message_counts() {
        let mut routing = Routing::new(1);
        let topic = Text::from_static("t");
        let (first, second) = (
            routing.begin_change(&topic, true),
            routing.begin_change(&topic, true),
        );
        assert_eq!(routing.changing(), 1);
        assert!(!routing.end_change(&topic, first));
        assert!(routing.end_change(&topic, second));
        assert_eq!(routing.changing(), 0);
    }
}
