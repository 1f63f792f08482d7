//! Who gets a message: its receivers of this shard, with overlapping
//! subscriptions merged, and the shards that it goes to.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{QoS, ShardId, StreamId, Text};
use dunlin_queue::Identifiers;
use dunlin_router::SharedMatch;
use dunlin_store::SessionKey;

use super::is_leaving;
use crate::ids::SessionIdx;
use crate::owners::groups::Groups;
use crate::owners::members::Homes;
use crate::owners::subscribers::{Subscribed, Subscriber};

/// No Local in the options byte of a subscription.
pub(crate) const NO_LOCAL: u8 = 0b0100;

/// Retain As Published, likewise.
pub(crate) const RETAIN_AS_PUBLISHED: u8 = 0b1000;

/// The session has filters of its own, which see more than the topic. Reserved in
/// MQTT.
pub(crate) const FILTERED: u8 = 0b1000_0000;

/// Identifiers of one copy among which a further one is looked for; more are
/// sorted in the end.
const IDENTIFIERS_SCANNED_MAX: usize = 16;

/// A session that a message goes to, overlapping subscriptions merged.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) session: SessionIdx,
    pub(crate) options: u8,
    pub(crate) identifiers: Identifiers,
    pub(crate) stream: StreamId,
    pub(crate) share: Option<Arc<str>>,
    /// The queue of the group in the store, if it has one.
    pub(crate) queue: Option<SessionKey>,
}

/// What a member of a shared subscription is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// It can take a message now.
    pub(crate) available: bool,
    /// Its session is in the store.
    pub(crate) durable: bool,
}

/// Whether another shard can be lent a message for a member there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// It has room for one.
    pub(super) any: bool,
    /// It has so much that it gets one rather than another member.
    pub(super) preferred: bool,
}

impl Hit {
    /// Whether filters of the session have to be asked.
    pub(crate) const fn is_filtered(&self) -> bool {
        self.options & FILTERED != 0
    }

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
            queue: None,
        }
    }

    /// The QoS that its subscriptions ask for at most.
    pub(crate) fn qos(&self) -> QoS {
        QoS::from_u8(self.options & 3).unwrap_or_default()
    }

    /// Whether RETAIN stays as its publisher set it.
    pub(crate) const fn retain_as_published(&self) -> bool {
        self.options & RETAIN_AS_PUBLISHED != 0
    }

    /// Overlapping subscriptions of one session give one copy, with the highest
    /// QoS and all identifiers [MQTT-3.3.4-2, MQTT-3.3.4-4].
    fn merge(&mut self, value: &Subscribed) {
        let (old, new) = (self.options, value.options);
        let qos = (old & 3).max(new & 3);
        // Retain As Published if any wants it.
        let retain_as_published = (old | new) & RETAIN_AS_PUBLISHED;
        self.options = qos | retain_as_published;
        let many = self.has_many_identifiers();
        if value.identifier != 0 && (many || !self.identifiers.contains(&value.identifier)) {
            self.identifiers.push(value.identifier);
        }
    }

    pub(super) fn has_many_identifiers(&self) -> bool {
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
    /// The topic is the address of a queue that lives there.
    pub(crate) queue: bool,
}

impl Wanted {
    /// Whether it wants nothing of it.
    pub(crate) const fn is_empty(&self) -> bool {
        !(self.plain || self.retain || self.queue) && self.shares.is_empty()
    }
}

/// How a message goes to shared subscriptions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    /// Its QoS is 2.
    pub(crate) exact: bool,
    /// These choose who gets it, each for the groups whose home it is.
    pub(crate) homes: Option<Homes>,
}

/// Who gets a message.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    pub(crate) hits: Vec<Hit>,
    /// Shards that it goes to.
    pub(crate) forwards: Vec<(ShardId, Wanted)>,
    /// `$share` filters of the scope without a member here.
    pub(crate) missed: Vec<Text>,
}

/// What a forwarded message may be delivered to.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) plain: bool,
    pub(crate) shares: &'a [Text],
}

/// The last message that matched a session, and where it is in the list of
/// hits, to merge overlapping subscriptions without a search.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    message: u64,
    hit: u32,
}

/// The `$share` filter of a match.
#[derive(Clone, Copy)]
pub(super) struct Share<'a> {
    text: &'a Text,
    queue: Option<SessionKey>,
}

/// Collects the receivers of one message.
pub(super) struct Finder<'a, A, R> {
    pub(super) found: Matches,
    pub(super) marks: &'a mut Vec<Mark>,
    pub(super) message: u64,
    /// Session of the publisher.
    pub(super) origin: Option<SessionIdx>,
    /// Other shards are not wanted.
    pub(super) local: bool,
    /// Some copy has many subscription identifiers.
    pub(super) many: bool,
    pub(super) way: Way,
    pub(super) groups: &'a Groups,
    pub(super) leaving: &'a BTreeSet<u32>,
    pub(super) room: &'a dyn Fn(ShardId) -> Room,
    pub(super) member: A,
    pub(super) may_receive: R,
}

impl<A: Fn(SessionIdx) -> Member, R: Fn(SessionIdx) -> bool> Finder<'_, A, R> {
    pub(super) fn add(&mut self, key: Subscriber, value: &Subscribed, share: Option<Share<'_>>) {
        match key {
            Subscriber::Shard(to) if !self.local => {
                let forward = self.forward(to);
                match share {
                    Some(share) => forward.shares.push(share.text.clone()),
                    None => forward.plain = true,
                }
            }
            Subscriber::Shard(_) => {}
            Subscriber::Session(_) if is_leaving(self.leaving, key) => {}
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
        let queue = share.and_then(|share| share.queue);
        self.found.hits.push(Hit { queue, ..hit });
    }

    /// One member, in turn: one that can take it now, else any. In a group with
    /// durable members, others get no message that is delivered exactly once:
    /// after a crash they have either lost it or could not say that they have it.
    pub(super) fn add_shared(&mut self, shared: &SharedMatch<'_, Subscriber, Subscribed>) {
        let text = alloc::format!("$share/{}/{}", shared.group(), shared.filter());
        let text = Text::from(text);
        if let Some(homes) = self.way.homes {
            return self.forward(homes.of(&text)).shares.push(text);
        }
        let (local, groups, room) = (self.local, self.groups, self.room);
        let leaving = self.leaving;
        let queue = groups.queue(&text);
        let exact = self.way.exact && queue.is_some();
        let fits = |key: &Subscriber, value: &Subscribed| match key {
            Subscriber::Session(s) => {
                !exact || value.options & 3 < 2 || (self.member)(*s as usize).durable
            }
            Subscriber::Shard(to) => {
                !local && room(*to).any && (!exact || groups.of(&text, *to).is_some())
            }
        };
        let available = |key: &Subscriber| match key {
            Subscriber::Session(s) => (self.member)(*s as usize).available,
            Subscriber::Shard(to) => room(*to).preferred,
        };
        let of_scope = |key: &Subscriber| !local || matches!(key, Subscriber::Session(_));
        let is_there = |key: &Subscriber| !is_leaving(leaving, *key);
        let fits = |key: &Subscriber, value: &Subscribed| is_there(key) && fits(key, value);
        let chosen = shared
            .select(|key, value| fits(key, value) && available(key))
            .or_else(|| shared.select(fits))
            .or_else(|| shared.select(|key, _| is_there(key) && of_scope(key)));
        if let Some((key, value)) = chosen {
            let text = &text;
            self.add(key, value, Some(Share { text, queue }));
        }
    }
}
