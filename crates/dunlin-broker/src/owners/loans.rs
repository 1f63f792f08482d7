//! Messages of shared subscriptions that members on edges have. The home that gave one
//! keeps it until that member is done with it, so that another gets it when the edge is
//! gone; the edge gives one back when it has no member for it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, ShardId, Text};

use crate::io::BusMessage;
use crate::owners::outbox::Outbox;
use crate::owners::pending::Passed;

/// Messages that one edge may have; further ones go to other members.
pub(crate) const LENT_MAX: usize = 65_536;

/// Messages that an edge may have before other members are preferred.
const LENT_PREFERRED_MAX: usize = 1024;

/// Messages that wait here since no member had room for them; further ones are dropped or
/// stay in the store.
const KEPT_MAX: usize = 65_536;

/// Both sides of it; a shard has one of them.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    /// What edges have, by their tokens.
    lent: BTreeMap<(ShardId, u64), Passed>,
    /// How many of them each has.
    counts: BTreeMap<ShardId, usize>,
    /// Homes with other stores that are away.
    away: BTreeSet<ShardId>,
    /// Bytes of all of them.
    bytes: usize,
    /// What no member had room for, until there is some.
    kept: VecDeque<Passed>,
    /// There is a reminder of them.
    pub(crate) is_due: bool,
    /// Groups without a durable member of this store, with what their queues had when this
    /// home began: members elsewhere are not known yet.
    orphans: Vec<(Text, Vec<Passed>)>,
    /// Messages that are being loaded for edges, and for this shard, by their places in the store.
    /// One message of several groups has one place.
    loading: BTreeMap<u64, Vec<(ShardId, Passed)>>,
    /// What this edge has, by the number that stands for a place in the store: the home,
    /// and its token.
    borrowed: BTreeMap<u64, (ShardId, u64)>,
    last: u64,
}

impl Loans {
    /// An edge gets a message.
    pub(crate) fn lend(&mut self, to: ShardId, token: u64, passed: Passed) {
        self.bytes += passed.delivery.held_cost();
        self.lent.insert((to, token), passed);
        *self.counts.entry(to).or_default() += 1;
    }

    /// An edge does not have a message any more.
    pub(crate) fn end(&mut self, of: ShardId, token: u64) -> Option<Passed> {
        let passed = self.lent.remove(&(of, token))?;
        self.bytes = self.bytes.saturating_sub(passed.delivery.held_cost());
        if let Some(count) = self.counts.get_mut(&of) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&of);
            }
        }
        Some(passed)
    }

    /// An edge is gone: what it had.
    pub(crate) fn end_all(&mut self, of: ShardId) -> Vec<Passed> {
        self.counts.remove(&of);
        let of = (of, 0)..=(of, u64::MAX);
        let all = self.lent.extract_if(of, |_, _| true);
        let all: Vec<Passed> = all.map(|(_, passed)| passed).collect();
        let bytes: usize = all.iter().map(|it| it.delivery.held_cost()).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        all
    }

    /// No member has room for a message now. It comes out when too many wait already.
    pub(crate) fn keep(&mut self, passed: Passed) -> Option<Passed> {
        if self.kept.len() >= KEPT_MAX {
            return Some(passed);
        }
        self.bytes += held_bytes(&passed);
        self.kept.push_back(passed);
        None
    }

    /// The first that waits, to be given to a member once more.
    pub(crate) fn take_kept(&mut self) -> Option<Passed> {
        let passed = self.kept.pop_front()?;
        self.bytes = self.bytes.saturating_sub(held_bytes(&passed));
        Some(passed)
    }

    /// A group has a queue of this home and no durable member of this store.
    pub(crate) fn add_orphans(&mut self, share: &Text, orphans: Vec<Passed>) {
        self.orphans.push((share.clone(), orphans));
    }

    /// Takes what the queues of those had.
    pub(crate) fn take_orphans(&mut self) -> Vec<(Text, Vec<Passed>)> {
        core::mem::take(&mut self.orphans)
    }

    /// How many wait.
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// A message for an edge is being loaded.
    pub(crate) fn begin_loading(&mut self, seq: u64, to: ShardId, passed: Passed) {
        self.loading.entry(seq).or_default().push((to, passed));
    }

    /// It is there, or lost: for whom it was loaded.
    pub(crate) fn end_loading(&mut self, seq: u64) -> Vec<(ShardId, Passed)> {
        self.loading.remove(&seq).unwrap_or_default()
    }

    /// Places of those that are being loaded.
    pub(crate) fn loading(&self) -> impl Iterator<Item = u64> {
        self.loading.keys().copied()
    }

    /// Whether an edge may get another message.
    pub(crate) fn has_room(&self, of: ShardId) -> bool {
        self.count(of) < LENT_MAX
    }

    /// Whether it may rather than another member.
    pub(crate) fn is_preferred(&self, of: ShardId) -> bool {
        self.count(of) < LENT_PREFERRED_MAX && !self.away.contains(&of)
    }

    /// A home with another store is away, or there: one that is away gets a message only
    /// where no other member can take it.
    pub(crate) fn set_away(&mut self, home: ShardId, away: bool) {
        match away {
            true => _ = self.away.insert(home),
            false => _ = self.away.remove(&home),
        }
    }

    fn count(&self, of: ShardId) -> usize {
        self.counts.get(&of).copied().unwrap_or(0)
    }

    /// This edge gets a message, which has this number here.
    pub(crate) fn borrow(&mut self, from: ShardId, token: u64) -> u64 {
        self.last += 1;
        self.borrowed.insert(self.last, (from, token));
        self.last
    }

    /// This edge is done with a message that a home has lent it or, if not, has no member
    /// for it.
    pub(crate) fn give_back(&mut self, outbox: &mut Outbox, number: u64, over: bool) {
        if let Some((home, token)) = self.borrowed.remove(&number) {
            outbox.bus(home, BusMessage::Returned { token, over });
        }
    }

    /// Messages that edges have, or no member had room for.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let all = self.lent.values().chain(&self.kept);
        all.filter_map(|it| it.delivery.held())
    }

    /// Bytes of these.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages that edges have or no member had room for, and those that this one has.
    pub(crate) fn len(&self) -> usize {
        let loading: usize = self.loading.values().map(Vec::len).sum();
        self.lent.len() + self.kept.len() + loading + self.borrowed.len()
    }
}

/// Bytes of a message, if it is in memory.
fn held_bytes(passed: &Passed) -> usize {
    passed.delivery.held().map_or(0, |message| message.cost())
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use dunlin_base::{QoS, StreamId};
    use dunlin_queue::{Content, Delivery, Identifiers};

    use super::*;
    use crate::messages::shared::NONE;

    fn passed(share: &str) -> Passed {
        let delivery = Delivery {
            content: Content::Held(Arc::new(Message::default())),
            seq: Some(5),
            qos: QoS::AtLeastOnce,
            retain: false,
            identifiers: Identifiers::new(),
            share: Some(Arc::from(share)),
            stream: StreamId::CONTROL,
            level: 0,
            maybe_sent: false,
            failed: 0,
            added: None,
        };
        Passed {
            delivery,
            queue: None,
            old: NONE,
            ends: true,
            returned: false,
        }
    }

    #[test]
    fn two_groups_have_one_message_at_one_place_in_the_store() {
        let mut loans = Loans::default();
        for share in ["$share/g/t", "$share/h/t"] {
            loans.begin_loading(5, ShardId(64), passed(share));
        }
        assert_eq!((loans.len(), loans.loading().count()), (2, 1));
        let loaded = loans.end_loading(5).into_iter();
        let shares: Vec<_> = loaded.filter_map(|(_, it)| it.delivery.share).collect();
        assert_eq!(shares, [Arc::from("$share/g/t"), Arc::from("$share/h/t")]);
        assert_eq!(loans.len(), 0);
    }
}
