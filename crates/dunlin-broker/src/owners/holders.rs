//! What each user, and each address, has on all shards: sessions, and bytes of the
//! memory budget. Counted only where there is a limit; each shard tells the
//! others of its own, so that a limit may be exceeded by what is under way between
//! them.

use alloc::vec::Vec;
use core::net::IpAddr;

use dunlin_base::{ShardId, Text};
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::memory::Memory;
use crate::owners::missing::Missing;

/// What has not been reported is at most this part of a limit, all shards together.
const GRAIN: usize = 64;

/// Who has something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A user.
    User(Text),
    /// All clients of an address.
    Address(IpAddr),
}

/// What one has on one shard, or on all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holding {
    /// Sessions of a user.
    pub sessions: usize,
    /// Bytes of the memory budget.
    pub bytes: usize,
}

/// Whom the bytes of a session or a connection belong to, as counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charge {
    pub(crate) user: Option<Text>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) bytes: usize,
    /// Bytes that are not: of messages that are charged to the first that got them.
    pub(crate) copies: usize,
}

impl Charge {
    fn holders(&self) -> impl Iterator<Item = Holder> {
        let user = self.user.clone().map(Holder::User);
        user.into_iter().chain(self.address.map(Holder::Address))
    }
}

/// Holders of a broker.
#[derive(Debug)]
pub(crate) struct Holders {
    /// 0: no limit.
    sessions_max: usize,
    /// Some users have another limit.
    counts_sessions: bool,
    user_bytes_max: usize,
    address_bytes_max: usize,
    shards: usize,
    all: HashMap<Holder, Entry>,
    /// Those that have something here of which the others do not know yet.
    changed: Vec<Holder>,
    /// How many have all the bytes that they may have.
    full: usize,
    pub(crate) missing: Missing,
}

#[derive(Debug, Default)]
struct Entry {
    here: Holding,
    reported: Holding,
    is_listed: bool,
    is_full: bool,
    elsewhere: SmallVec<[(ShardId, Holding); 1]>,
}

impl Entry {
    fn sum(&self, part: impl Fn(&Holding) -> usize) -> usize {
        let elsewhere = self.elsewhere.iter().map(|(_, holding)| part(holding));
        elsewhere.fold(part(&self.here), usize::saturating_add)
    }

    fn is_known(&self) -> bool {
        let nothing = Holding::default();
        self.is_listed
            || self.here != nothing
            || self.reported != nothing
            || !self.elsewhere.is_empty()
    }
}

impl Holders {
    pub(crate) fn new(memory: &Memory, shards: usize, counts_sessions: bool) -> Self {
        Self {
            sessions_max: memory.sessions_per_user_max,
            counts_sessions: counts_sessions || memory.sessions_per_user_max > 0,
            user_bytes_max: memory.user_bytes_max,
            address_bytes_max: memory.address_bytes_max,
            shards: shards.max(1),
            all: HashMap::new(),
            changed: Vec::new(),
            full: 0,
            missing: Missing::default(),
        }
    }

    /// Other limits are in force, for users and addresses whose bytes are counted; these
    /// stay counted.
    pub(crate) fn set_bytes(&mut self, memory: &Memory) {
        for (max, new) in [
            (&mut self.user_bytes_max, memory.user_bytes_max),
            (&mut self.address_bytes_max, memory.address_bytes_max),
        ] {
            if *max < usize::MAX {
                *max = new.min(usize::MAX - 1);
            }
        }
        let known: Vec<Holder> = self.all.keys().cloned().collect();
        for holder in known {
            // What was too little to be reported may count under a lower limit.
            if let Some(entry) = self.all.get_mut(&holder)
                && entry.here.bytes != entry.reported.bytes
                && self.shards > 1
                && !core::mem::replace(&mut entry.is_listed, true)
            {
                self.changed.push(holder.clone());
            }
            let max = self.bytes_max(&holder);
            self.check(&holder, max);
        }
    }

    /// There are so many shards from now on.
    pub(crate) const fn set_shards(&mut self, shards: usize) {
        self.shards = shards;
    }

    /// What all holders have here, for a shard that knows nothing of it. What the others
    /// do not know exactly is reported to all, so that each later change is measured
    /// from the same count.
    pub(crate) fn introduce(&mut self) -> Vec<(Holder, Holding)> {
        for (holder, entry) in &mut self.all {
            if entry.here != entry.reported && !core::mem::replace(&mut entry.is_listed, true) {
                self.changed.push(holder.clone());
            }
        }
        let here = self
            .all
            .iter()
            .map(|(holder, it)| (holder.clone(), it.here));
        let mut here: Vec<_> = here.filter(|(_, it)| *it != Holding::default()).collect();
        here.sort_unstable();
        here
    }

    /// A shard is gone, and what holders had there.
    pub(crate) fn forget(&mut self, shard: ShardId) {
        let there = |entry: &Entry| entry.elsewhere.iter().any(|(of, _)| *of == shard);
        let known = self.all.iter().filter(|(_, entry)| there(entry));
        let gone = known.map(|(holder, _)| (holder.clone(), Holding::default()));
        self.handle_changes(shard, gone.collect());
    }

    /// Whether bytes are counted.
    pub(crate) const fn counts_bytes(&self) -> bool {
        self.user_bytes_max < usize::MAX || self.address_bytes_max < usize::MAX
    }

    const fn bytes_max(&self, holder: &Holder) -> usize {
        match holder {
            Holder::User(_) => self.user_bytes_max,
            Holder::Address(_) => self.address_bytes_max,
        }
    }

    /// Whether a user may have one session more; 0: as many as all users.
    pub(crate) fn has_room(&self, user: &Text, sessions_max: usize) -> bool {
        self.has_room_beside(user, sessions_max, 0)
    }

    /// The same, where so many of its sessions are about to end.
    pub(crate) fn has_room_beside(&self, user: &Text, sessions_max: usize, ending: usize) -> bool {
        let max = match sessions_max {
            0 => self.sessions_max,
            max => max,
        };
        let entry = match max {
            0 => None,
            _ => self.all.get(&Holder::User(user.clone())),
        };
        entry.is_none_or(|entry| entry.sum(|holding| holding.sessions) < max.saturating_add(ending))
    }

    /// Which of two has all the bytes that it may have.
    pub(crate) fn full(&self, user: Option<&Text>, address: Option<IpAddr>) -> Option<Holder> {
        if self.full == 0 {
            return None;
        }
        let user = user.map(|user| Holder::User(user.clone()));
        let mut both = user.into_iter().chain(address.map(Holder::Address));
        both.find(|holder| self.all.get(holder).is_some_and(|entry| entry.is_full))
    }

    /// A session that belonged to one user belongs to another.
    pub(crate) fn moved(&mut self, from: Option<&Text>, to: Option<&Text>) {
        if !self.counts_sessions || from == to {
            return;
        }
        if let Some(user) = from {
            self.change(Holder::User(user.clone()), |here| {
                here.sessions = here.sessions.saturating_sub(1);
            });
        }
        if let Some(user) = to {
            self.change(Holder::User(user.clone()), |here| {
                here.sessions = here.sessions.saturating_add(1);
            });
        }
    }

    /// What was charged becomes `now`.
    pub(crate) fn charge(&mut self, charge: &mut Charge, now: usize) {
        let before = core::mem::replace(&mut charge.bytes, now);
        for holder in charge.holders() {
            if before != now && self.bytes_max(&holder) < usize::MAX {
                self.change(holder, |here| {
                    here.bytes = here.bytes.saturating_add(now).saturating_sub(before);
                });
            }
        }
    }

    fn change(&mut self, holder: Holder, change: impl FnOnce(&mut Holding)) {
        let max = self.bytes_max(&holder);
        let entry = self.all.entry(holder.clone()).or_default();
        change(&mut entry.here);
        let more = entry.here.bytes.abs_diff(entry.reported.bytes);
        let is_news = more > max / GRAIN / self.shards
            || entry.here.sessions != entry.reported.sessions
            || entry.here.bytes == 0 && entry.reported.bytes > 0;
        if is_news && self.shards > 1 && !core::mem::replace(&mut entry.is_listed, true) {
            self.changed.push(holder.clone());
        }
        self.check(&holder, max);
    }

    /// Notes whether a holder has all that it may have, and forgets one that has
    /// nothing.
    fn check(&mut self, holder: &Holder, max: usize) {
        let Some(entry) = self.missing.checked(self.all.get_mut(holder)) else {
            return;
        };
        let is_full = entry.sum(|holding| holding.bytes) >= max;
        match (core::mem::replace(&mut entry.is_full, is_full), is_full) {
            (false, true) => self.full += 1,
            (true, false) => self.full -= 1,
            _ => {}
        }
        if !entry.is_known() {
            self.all.remove(holder);
        }
    }

    /// What the other shards do not know yet.
    pub(crate) fn take_changes(&mut self) -> Vec<(Holder, Holding)> {
        let mut changes = Vec::new();
        for holder in core::mem::take(&mut self.changed) {
            let entry = self.all.get_mut(&holder);
            if let Some(entry) = self.missing.checked(entry) {
                entry.is_listed = false;
                entry.reported = entry.here;
                let here = entry.here;
                let max = self.bytes_max(&holder);
                self.check(&holder, max);
                changes.push((holder, here));
            }
        }
        changes
    }

    /// Another shard has reported what holders have there.
    pub(crate) fn handle_changes(&mut self, from: ShardId, changes: Vec<(Holder, Holding)>) {
        for (holder, there) in changes {
            let entry = self.all.entry(holder.clone()).or_default();
            entry.elsewhere.retain(|(shard, _)| *shard != from);
            if there != Holding::default() {
                entry.elsewhere.push((from, there));
            }
            let max = self.bytes_max(&holder);
            self.check(&holder, max);
        }
    }

    /// Bytes by which a count is wrong that is the sum of these charges.
    pub(crate) fn miscounted<'a>(&self, charges: impl Iterator<Item = &'a Charge>) -> usize {
        let mut sums: HashMap<Holder, usize> = HashMap::new();
        for charge in charges {
            let limited = |holder: &Holder| self.bytes_max(holder) < usize::MAX;
            for holder in charge.holders().filter(limited) {
                *sums.entry(holder).or_default() += charge.bytes;
            }
        }
        let known = self.all.iter().map(|(holder, entry)| {
            let sum = sums.remove(holder).unwrap_or(0);
            entry.here.bytes.abs_diff(sum)
        });
        let wrong: usize = known.sum();
        wrong + sums.values().sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(sessions: usize, bytes: usize) -> Holders {
        let memory = Memory {
            sessions_per_user_max: sessions,
            user_bytes_max: bytes,
            address_bytes_max: bytes,
            ..Memory::default()
        };
        Holders::new(&memory, 2, false)
    }

    #[test]
    fn sessions_of_a_user_are_counted_on_all_shards() {
        let (a, b) = (Text::from_static("a"), Text::from_static("b"));
        let (of_a, of_b) = (Holder::User(a.clone()), Holder::User(b.clone()));
        let mut users = holders(2, usize::MAX);
        users.moved(None, Some(&a));
        users.moved(None, Some(&a));
        assert!(!users.has_room(&a, 0) && users.has_room(&b, 0));
        assert!(users.has_room(&a, 3) && !users.has_room(&a, 1));
        users.moved(Some(&a), Some(&b));
        assert!(users.has_room(&a, 0));
        let sessions = |sessions| Holding { sessions, bytes: 0 };
        let mut changes = users.take_changes();
        changes.sort();
        assert_eq!(changes, [(of_a.clone(), sessions(1)), (of_b, sessions(1))]);
        assert!(users.take_changes().is_empty());
        users.handle_changes(ShardId(1), alloc::vec![(of_a.clone(), sessions(1))]);
        assert!(!users.has_room(&a, 0));
        users.handle_changes(ShardId(1), alloc::vec![(of_a, sessions(0))]);
        assert!(users.has_room(&a, 0));
        users.moved(Some(&a), None);
        users.moved(Some(&b), None);
        assert_eq!(users.take_changes().len(), 2);
        assert_eq!(users.all.len(), 0);
    }

    #[test]
    fn bytes_of_a_user_and_an_address_are_counted_on_all_shards() {
        let mut holders = holders(0, 6400);
        let (user, address) = (Text::from_static("a"), IpAddr::from([10, 0, 0, 1]));
        let full = |holders: &Holders| holders.full(Some(&user), Some(address));
        let mut charge = Charge {
            user: Some(user.clone()),
            address: Some(address),
            ..Charge::default()
        };
        holders.charge(&mut charge, 40);
        assert!(holders.take_changes().is_empty(), "a grain is not reported");
        holders.charge(&mut charge, 6000);
        assert_eq!(holders.take_changes().len(), 2);
        assert_eq!(full(&holders), None);
        let there = Holding {
            sessions: 0,
            bytes: 400,
        };
        let of_address = Holder::Address(address);
        holders.handle_changes(ShardId(1), alloc::vec![(of_address.clone(), there)]);
        assert_eq!(full(&holders), Some(of_address.clone()));
        assert_eq!(holders.full(Some(&user), None), None);
        assert_eq!(holders.miscounted([&charge].into_iter()), 0);
        holders.charge(&mut charge, 0);
        assert_eq!((full(&holders), holders.full), (None, 0));
        holders.handle_changes(ShardId(1), alloc::vec![(of_address, Holding::default())]);
        assert_eq!(holders.take_changes().len(), 2);
        assert_eq!(holders.all.len(), 0);
    }

    #[test]
    fn a_newcomer_hears_of_what_a_single_shard_has_less() {
        let a = Text::from_static("a");
        let of_a = Holder::User(a.clone());
        let mut users = holders(2, usize::MAX);
        users.set_shards(1);
        users.moved(None, Some(&a));
        users.set_shards(2);
        let one = Holding {
            sessions: 1,
            bytes: 0,
        };
        assert_eq!(users.introduce(), [(of_a.clone(), one)]);
        assert_eq!(users.take_changes(), [(of_a.clone(), one)]);
        users.moved(Some(&a), None);
        assert_eq!(users.take_changes(), [(of_a, Holding::default())]);
        assert!(users.all.is_empty());
    }

    #[test]
    fn limits_change_where_something_is_counted() {
        let address = IpAddr::from([10, 0, 0, 1]);
        let user = Text::from_static("a");
        let memory = |user_bytes_max, address_bytes_max| Memory {
            user_bytes_max,
            address_bytes_max,
            ..Memory::default()
        };
        let mut holders = Holders::new(&memory(1000, usize::MAX), 2, false);
        let mut charge = Charge {
            user: Some(user.clone()),
            address: Some(address),
            ..Charge::default()
        };
        holders.charge(&mut charge, 500);
        let full = |holders: &Holders| holders.full(Some(&user), Some(address));
        assert_eq!(holders.take_changes().len(), 1);
        holders.charge(&mut charge, 505);
        assert!(holders.take_changes().is_empty(), "a grain is not reported");
        holders.set_bytes(&memory(400, 400));
        let changes = holders.take_changes();
        let bytes: Vec<usize> = changes.iter().map(|(_, here)| here.bytes).collect();
        assert_eq!(bytes, [505], "by the lower limit it is");
        assert_eq!(full(&holders), Some(Holder::User(user.clone())));
        holders.set_bytes(&memory(usize::MAX, 400));
        assert_eq!(full(&holders), None);
        // It is still counted.
        holders.set_bytes(&memory(400, 400));
        assert_eq!(full(&holders), Some(Holder::User(user.clone())));
        holders.charge(&mut charge, 0);
        assert_eq!((full(&holders), holders.full), (None, 0));
        assert_eq!(holders.miscounted([&charge].into_iter()), 0);
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let a = Text::from_static("a");
        let mut holders = holders(0, usize::MAX);
        (0..9).for_each(|_| holders.moved(None, Some(&a)));
        let mut charge = Charge {
            user: Some(a.clone()),
            ..Charge::default()
        };
        holders.charge(&mut charge, 9);
        assert!(holders.has_room(&a, 0) && holders.all.is_empty());
    }
}
