//! Which shards there are. Homes own what is durable, and each name has one of them.
//! Those that share the store of this shard are there as long as it is. All others come
//! and go: edges, and homes that have another store.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use dunlin_base::ShardId;

use crate::random::home_shard;

/// The numbers of the homes: so many from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes {
    /// The lowest one.
    pub first: ShardId,
    /// How many there are; at least 1.
    pub count: u16,
}

impl Homes {
    /// The home of a client identifier, an address or a topic.
    #[must_use]
    pub fn of(self, name: &str) -> ShardId {
        let at = home_shard(name, self.count);
        ShardId(self.first.0.wrapping_add(at))
    }

    /// Whether a shard is one of them.
    #[must_use]
    pub fn contains(self, shard: ShardId) -> bool {
        shard.0.wrapping_sub(self.first.0) < self.count.max(1)
    }

    /// All of them, in order.
    pub fn iter(self) -> impl Iterator<Item = ShardId> {
        (0..self.count.max(1)).map(move |at| ShardId(self.first.0.wrapping_add(at)))
    }

    /// Those that have one store with `home`, where each store has so many, one after the
    /// other; with 0, and for a shard that is no home, all.
    fn with_store_of(self, home: ShardId, per_store: u16) -> Self {
        if per_store == 0 || !self.contains(home) {
            return self;
        }
        let at = home.0.wrapping_sub(self.first.0);
        let before = at - at % per_store;
        Self {
            first: ShardId(self.first.0.wrapping_add(before)),
            count: per_store.min(self.count - before),
        }
    }
}

/// The shards of a broker, as one of them knows them.
#[derive(Debug)]
pub(crate) struct Members {
    here: ShardId,
    homes: Homes,
    /// Those of them that share the store of this shard; of an edge, all.
    together: Homes,
    /// Whether this one is a home.
    is_home: bool,
    /// All but this one, in order.
    others: Vec<ShardId>,
    /// How many answers are due from a shard that may go, by the token of what waits
    /// for them. Bounded by what can be in flight.
    due: BTreeMap<(ShardId, u64), u32>,
    /// Shards that this one has to hear everything from before it may serve. `None`: it
    /// may.
    unheard: Option<BTreeSet<ShardId>>,
    /// Shards that are to be given what they have to know, the first one at the moment.
    newcomers: VecDeque<ShardId>,
}

impl Members {
    /// The homes of one store, so many each (0: there is one store), are there from the
    /// start for each other. One with other stores beside its own may serve when it has
    /// heard everything from all homes of those.
    pub(crate) fn new(here: ShardId, homes: Homes, per_store: u16) -> Self {
        let is_home = homes.contains(here);
        let together = homes.with_store_of(here, per_store);
        let others = together.iter().filter(|shard| is_home && *shard != here);
        let apart = homes.iter().filter(|shard| !together.contains(*shard));
        let unheard: BTreeSet<ShardId> = apart.collect();
        Self {
            here,
            homes,
            together,
            is_home,
            others: others.collect(),
            due: BTreeMap::new(),
            unheard: (!is_home || !unheard.is_empty()).then_some(unheard),
            newcomers: VecDeque::new(),
        }
    }

    /// A shard is to be given what it has to know: whether it is its turn.
    pub(crate) fn introduce(&mut self, shard: ShardId) -> bool {
        self.newcomers.push_back(shard);
        self.newcomers.len() == 1
    }

    /// A shard was given that, or is gone: whose turn it is.
    pub(crate) fn introduced(&mut self, shard: ShardId) -> Option<ShardId> {
        if self.newcomers.front() != Some(&shard) {
            return None;
        }
        self.newcomers.pop_front();
        self.newcomers.front().copied()
    }

    /// The homes.
    pub(crate) const fn homes(&self) -> Homes {
        self.homes
    }

    /// The home of a client identifier, an address or a topic.
    pub(crate) fn home(&self, name: &str) -> ShardId {
        self.homes.of(name)
    }

    /// Whether that is this shard.
    pub(crate) fn is_home_of(&self, name: &str) -> bool {
        self.homes.of(name) == self.here
    }

    /// The homes that share the store of this shard; of an edge, all.
    pub(crate) const fn together(&self) -> Homes {
        self.together
    }

    /// Whether there are homes that have another store than this one.
    pub(crate) fn has_apart(&self) -> bool {
        self.together != self.homes
    }

    /// Whether a shard is a home that has another store than this one.
    pub(crate) fn is_apart(&self, shard: ShardId) -> bool {
        !self.together.contains(shard) && self.homes.contains(shard)
    }

    /// Whether this shard has not heard yet what it has to know before it may serve.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.unheard.is_some()
    }

    /// Whether this shard comes and goes.
    pub(crate) const fn is_edge(&self) -> bool {
        !self.is_home
    }

    /// Whether a shard comes and goes.
    pub(crate) fn may_go(&self, shard: ShardId) -> bool {
        !self.together.contains(shard)
    }

    /// Whether a shard is in another process than this one.
    pub(crate) fn is_far(&self, shard: ShardId) -> bool {
        !self.is_home || self.may_go(shard)
    }

    /// All but this one.
    pub(crate) fn others(&self) -> impl ExactSizeIterator<Item = ShardId> + use<'_> {
        self.others.iter().copied()
    }

    /// All of them.
    pub(crate) const fn len(&self) -> usize {
        self.others.len() + 1
    }

    /// Whether a shard is there.
    pub(crate) fn has(&self, shard: ShardId) -> bool {
        shard == self.here || self.others.binary_search(&shard).is_ok()
    }

    /// A shard is there; `false`: it was before.
    pub(crate) fn join(&mut self, shard: ShardId) -> bool {
        let place = self.others.binary_search(&shard);
        let (Err(at), true) = (place, shard != self.here) else {
            return false;
        };
        self.others.insert(at, shard);
        if let Some(unheard) = &mut self.unheard {
            unheard.insert(shard);
        }
        true
    }

    /// A shard is gone; `false`: it was not there.
    pub(crate) fn leave(&mut self, shard: ShardId) -> bool {
        let Ok(at) = self.others.binary_search(&shard) else {
            return false;
        };
        self.others.remove(at);
        // The first one is waited for, and let go by that.
        let mut is_first = true;
        let waits = |other: &ShardId| core::mem::take(&mut is_first) || *other != shard;
        self.newcomers.retain(waits);
        true
    }

    /// A shard has said everything, or is gone: whether this one may serve from now on.
    pub(crate) fn hear(&mut self, shard: ShardId) -> bool {
        let Some(unheard) = &mut self.unheard else {
            return false;
        };
        let is_new = unheard.remove(&shard);
        let is_ready = is_new && unheard.is_empty();
        if is_ready {
            self.unheard = None;
        }
        is_ready
    }

    /// Something under this token waits for the answer of a shard.
    pub(crate) fn expect(&mut self, shard: ShardId, token: u64) {
        if self.may_go(shard) {
            *self.due.entry((shard, token)).or_default() += 1;
        }
    }

    /// A shard has answered; `false`: it was not asked.
    pub(crate) fn answer(&mut self, shard: ShardId, token: u64) -> bool {
        if !self.may_go(shard) {
            return true;
        }
        let Some(due) = self.due.get_mut(&(shard, token)) else {
            return false;
        };
        *due -= 1;
        if *due == 0 {
            self.due.remove(&(shard, token));
        }
        true
    }

    /// Takes what waits for a shard that is gone: tokens, and how many answers each.
    pub(crate) fn take_due(&mut self, shard: ShardId) -> Vec<(u64, u32)> {
        let of = (shard, 0)..=(shard, u64::MAX);
        let due = self.due.extract_if(of, |_, _| true);
        due.map(|((_, token), due)| (token, due)).collect()
    }

    /// Answers that are due from shards that may go.
    pub(crate) fn due(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOMES: Homes = Homes {
        first: ShardId(64),
        count: 2,
    };

    #[test]
    fn every_name_has_a_home_wherever_it_is_asked_for() {
        let numbers: Vec<u16> = HOMES.iter().map(|shard| shard.0).collect();
        assert_eq!(numbers, [64, 65]);
        let [home, edge] = [65, 128].map(|here| Members::new(ShardId(here), HOMES, 0));
        let names = ["a", "b", "sensor-7", "/queues/orders"];
        let at: Vec<ShardId> = names.iter().map(|name| home.home(name)).collect();
        assert!(at.iter().all(|shard| HOMES.contains(*shard)), "{at:?}");
        for (name, at) in names.iter().zip(at) {
            assert_eq!(edge.home(name), at, "{name}");
            assert_eq!(home.is_home_of(name), at == ShardId(65), "{name}");
            assert!(!edge.is_home_of(name), "{name}");
        }
        for shard in [0, 63, 66, 128] {
            assert!(home.may_go(ShardId(shard)), "{shard}");
        }
        assert!(edge.is_edge() && edge.is_far(ShardId(64)));
        assert!(!home.is_edge() && !home.is_far(ShardId(64)) && home.is_far(ShardId(128)));
    }

    #[test]
    fn shards_come_and_go() {
        let mut home = Members::new(ShardId(64), HOMES, 0);
        assert_eq!(home.others().collect::<Vec<_>>(), [ShardId(65)]);
        assert!(home.join(ShardId(3)) && !home.join(ShardId(3)) && !home.join(ShardId(64)));
        assert_eq!((home.len(), home.has(ShardId(3))), (3, true));
        assert!(home.leave(ShardId(3)) && !home.leave(ShardId(3)));
        assert!(!home.has(ShardId(3)) && home.has(ShardId(64)));
        assert!(!home.hear(ShardId(65)), "a home serves from the start");
    }

    #[test]
    fn a_newcomer_waits_for_all_that_were_there() {
        let mut edge = Members::new(ShardId(128), HOMES, 0);
        assert_eq!(edge.len(), 1);
        for shard in [64, 65, 192] {
            edge.join(ShardId(shard));
        }
        assert!(!edge.hear(ShardId(64)) && !edge.hear(ShardId(64)));
        assert!(!edge.hear(ShardId(65)));
        assert!(edge.hear(ShardId(192)));
        edge.join(ShardId(256));
        assert!(!edge.hear(ShardId(256)), "it serves already");
    }

    #[test]
    fn homes_that_have_another_store_come_and_go() {
        let homes = Homes {
            first: ShardId(64),
            count: 5,
        };
        let mut home = Members::new(ShardId(67), homes, 2);
        let together: Vec<u16> = home.together().iter().map(|shard| shard.0).collect();
        assert_eq!(together, [66, 67]);
        assert_eq!(home.others().collect::<Vec<_>>(), [ShardId(66)]);
        let apart = [64, 65, 68].map(ShardId);
        for shard in apart {
            assert!(home.is_apart(shard) && home.may_go(shard) && home.is_far(shard));
        }
        for shard in [66, 67] {
            let shard = ShardId(shard);
            assert!(!home.is_apart(shard) && !home.may_go(shard) && !home.is_far(shard));
        }
        let edge = ShardId(128);
        assert!(home.may_go(edge) && !home.is_apart(edge));
        // All of them have to say what they want, also those that come later.
        home.join(apart[0]);
        assert!(!home.hear(apart[0]) && home.leave(apart[0]) && home.is_waiting());
        assert!(!home.hear(apart[2]) && home.hear(apart[1]) && !home.is_waiting());
        // The last store has fewer; an edge and a home of the only store have no other.
        let last = Members::new(ShardId(68), homes, 2);
        assert_eq!(
            (last.together().count, last.is_apart(ShardId(67))),
            (1, true)
        );
        let [edge, home] = [(edge, 2), (ShardId(64), 0)]
            .map(|(here, per_store)| Members::new(here, homes, per_store));
        assert!(!edge.has_apart() && !home.has_apart() && !home.is_waiting());
        assert!(!edge.is_apart(ShardId(64)) && !edge.may_go(ShardId(68)));
    }

    #[test]
    fn newcomers_have_their_turn_one_after_the_other() {
        let mut home = Members::new(ShardId(64), HOMES, 0);
        let [a, b, c] = [128, 192, 256].map(ShardId);
        assert!(home.introduce(a) && !home.introduce(b) && !home.introduce(c));
        assert_eq!(home.introduced(b), None, "it is not its turn");
        assert_eq!(home.introduced(a), Some(b));
        assert_eq!(home.introduced(b), Some(c));
        assert_eq!(home.introduced(c), None);
        assert!(home.introduce(a) && !home.introduce(b) && !home.introduce(c));
        for shard in [a, b, c] {
            home.join(shard);
        }
        assert!(home.leave(b) && home.leave(a));
        assert_eq!(
            home.introduced(a),
            Some(c),
            "its turn is over when it is gone"
        );
    }

    #[test]
    fn answers_are_due_from_who_may_go() {
        let mut home = Members::new(ShardId(64), HOMES, 0);
        let (edge, other) = (ShardId(128), ShardId(192));
        home.expect(ShardId(65), 7);
        home.expect(edge, 7);
        home.expect(edge, 7);
        home.expect(edge, 8);
        home.expect(other, 7);
        assert!(home.answer(ShardId(65), 7) && home.answer(edge, 7));
        assert!(!home.answer(edge, 9), "it was not asked");
        assert_eq!(home.take_due(edge), [(7, 1), (8, 1)]);
        assert!(!home.answer(edge, 8) && home.answer(other, 7));
        assert_eq!(home.due(), 0);
    }
}
