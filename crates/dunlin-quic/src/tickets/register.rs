//! All tickets of the process: bounded, expiring, and struck off on use.

use core::fmt;
use core::hash::BuildHasher;
use core::time::Duration;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::RandomState;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_base::ShardId;
use smallvec::SmallVec;

use super::kept::Kept;
use super::{Refusal, Scope, TICKET_KEY_BYTES, TicketKey};

/// A session that needs more than this gets no ticket: the chain of a client
/// certificate can be long.
const SESSION_BYTES_MAX: usize = 16 << 10;
/// What a ticket costs besides its session, roughly.
const ENTRY_BYTES: usize = 160;
/// Used tickets remembered, so that replays are distinguished from tickets that were
/// never ours. Only counters depend on it.
const USED_MAX: usize = 65_536;
/// Entries of the order of issue that may be stale, beyond one for each
/// ticket held, before the order is rebuilt.
const STALE_MAX: usize = 1024;
/// As announced to clients by the TLS library.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Bounds of a [`TicketRegister`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TicketLimits {
    /// Tickets held at most; the oldest goes first. Default 65,536.
    pub tickets_max: usize,
    /// Bytes held at most; the oldest ticket goes first. Default 32 MiB.
    pub bytes_max: usize,
    /// How long a ticket is good. Default and maximum 24 h, which is what
    /// clients learn.
    pub lifetime: Duration,
    /// Tickets given to a client on each connection. Default 2, so that one
    /// connection that fails does not cost the client its next early data.
    pub per_connection: usize,
    /// Changes that may wait to be kept; beyond it no ticket is issued and no
    /// early data taken. Default 16,384.
    pub pending_max: usize,
}

impl Default for TicketLimits {
    fn default() -> Self {
        Self {
            tickets_max: 65_536,
            bytes_max: 32 << 20,
            lifetime: LIFETIME_MAX,
            per_connection: 2,
            pending_max: 16_384,
        }
    }
}

/// Number of one use of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StrikeId(pub u64);

/// A change that its owner keeps, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TicketChange {
    /// A new ticket. Nothing waits for it.
    Put {
        /// Its name.
        key: TicketKey,
        /// What to give back to [`TicketRegister::load`].
        value: Vec<u8>,
    },
    /// A ticket was used. `Net::handle_struck` of that shard must be
    /// called when this is kept for good, or cannot be.
    Strike {
        /// Its name.
        key: TicketKey,
        /// Which use.
        strike: StrikeId,
        /// Where.
        shard: ShardId,
    },
    /// A ticket is of no use any more. Nothing waits for it.
    Drop {
        /// Its name.
        key: TicketKey,
    },
}

type Keep = dyn Fn(TicketChange) + Send + Sync;
type Seconds = dyn Fn() -> u64 + Send + Sync;

/// All tickets of the process, shared by the loops of all shards.
pub struct TicketRegister {
    limits: TicketLimits,
    /// Called with the lock held, so that changes keep their order; `None`:
    /// tickets end with the process.
    keep: Option<Box<Keep>>,
    seconds: Box<Seconds>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    tickets: HashMap<TicketKey, Kept>,
    /// Names in the order of issue, those of used tickets among them.
    order: VecDeque<TicketKey>,
    bytes: usize,
    used: HashSet<TicketKey>,
    used_order: VecDeque<TicketKey>,
    next_strike: u64,
    pending: usize,
}

impl TicketRegister {
    /// A register whose tickets end with the process.
    #[must_use]
    pub fn in_memory(limits: TicketLimits) -> Self {
        Self::with_clock(limits, None, Box::new(wall_seconds))
    }

    /// A register whose changes are kept: `keep` takes them in order, without
    /// blocking, and [`TicketRegister::kept`] follows for each.
    #[must_use]
    pub fn kept_by(limits: TicketLimits, keep: Box<Keep>) -> Self {
        Self::with_clock(limits, Some(keep), Box::new(wall_seconds))
    }

    /// As either, with the time from elsewhere, in seconds since 1970.
    #[must_use]
    pub fn with_clock(
        limits: TicketLimits,
        keep: Option<Box<Keep>>,
        seconds: Box<Seconds>,
    ) -> Self {
        let limits = TicketLimits {
            lifetime: limits.lifetime.min(LIFETIME_MAX),
            ..limits
        };
        Self {
            limits,
            keep,
            seconds,
            inner: Mutex::new(Inner {
                // An answer for a register before this one must not be taken for one of this.
                next_strike: random(),
                ..Inner::default()
            }),
        }
    }

    /// Takes back what was kept, in any order; before the first connection.
    pub fn load(&self, kept: impl IntoIterator<Item = (TicketKey, Vec<u8>)>) {
        let mut found = Vec::new();
        for (key, value) in kept {
            match Kept::decode(&value) {
                Some(ticket) => found.push((key, ticket)),
                None => self.tell(&mut self.lock(), TicketChange::Drop { key }),
            }
        }
        found.sort_by_key(|(_, ticket)| ticket.issued);
        let mut inner = self.lock();
        for (key, ticket) in found {
            self.insert(&mut inner, key, ticket);
        }
    }

    /// Takes a ticket that another process has issued, under the same settings, and keeps it
    /// as if it was issued here. `value`: as [`TicketChange::Put`] has it. Whether it did.
    pub fn adopt(&self, key: TicketKey, value: &[u8]) -> bool {
        let mut inner = self.lock();
        let Some(ticket) = Kept::decode(value).filter(|it| it.session.len() <= SESSION_BYTES_MAX)
        else {
            return false;
        };
        if inner.used.contains(&key) || self.is_behind(&inner) {
            return false;
        }
        let value = value.to_vec();
        self.tell(&mut inner, TicketChange::Put { key, value });
        self.insert(&mut inner, key, ticket);
        true
    }

    /// Takes a copy of a ticket that another process keeps. Its use has to be allowed there:
    /// [`TicketChange::Strike`] asks.
    pub fn copy(&self, key: TicketKey, value: &[u8]) {
        let mut inner = self.lock();
        let ticket = Kept::decode(value).filter(|it| it.session.len() <= SESSION_BYTES_MAX);
        if let Some(ticket) = ticket.filter(|_| !inner.used.contains(&key)) {
            self.insert(&mut inner, key, ticket);
        }
    }

    /// The process that keeps a ticket has struck it off, or given it up.
    pub fn forget(&self, key: &TicketKey) {
        let mut inner = self.lock();
        inner.remove(key);
        inner.remember_used(*key);
    }

    /// Strikes a ticket off for another process, which holds a copy: `strike` and `shard`
    /// are that one's, and come back by [`TicketChange::Strike`]. `false`: it is not there, or
    /// not to be used any more, and nothing follows.
    pub fn strike_for(&self, key: TicketKey, strike: StrikeId, shard: ShardId) -> bool {
        let mut inner = self.lock();
        let is_good = inner
            .tickets
            .get(&key)
            .is_some_and(|it| !self.is_expired(it));
        if !is_good || self.is_behind(&inner) {
            return false;
        }
        inner.remove(&key);
        inner.remember_used(key);
        self.tell(&mut inner, TicketChange::Strike { key, strike, shard });
        true
    }

    /// The names of all tickets, oldest first; perhaps of some that are gone.
    #[must_use]
    pub fn names(&self) -> VecDeque<TicketKey> {
        self.lock().order.clone()
    }

    /// Of these tickets those that are there, each as [`TicketChange::Put`] has it. The register
    /// is locked meanwhile: ask for few.
    pub fn held(&self, names: impl Iterator<Item = TicketKey>) -> Vec<(TicketKey, Vec<u8>)> {
        let inner = self.lock();
        let held = |key: TicketKey| Some((key, inner.tickets.get(&key)?.encode()));
        names.filter_map(held).collect()
    }

    /// This many changes have been dealt with.
    pub fn kept(&self, changes: usize) {
        let mut inner = self.lock();
        inner.pending = inner.pending.saturating_sub(changes);
    }

    /// Tickets held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().tickets.len()
    }

    /// Whether no ticket is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) const fn limits(&self) -> &TicketLimits {
        &self.limits
    }

    /// Whether a strike has to be kept before it counts.
    pub(crate) const fn is_kept(&self) -> bool {
        self.keep.is_some()
    }

    /// Issues a ticket; returns how many others had to go, or `None` when it
    /// is not issued.
    pub(super) fn put(&self, key: &[u8], session: Vec<u8>, scope: Scope) -> Option<u64> {
        let key = <TicketKey>::try_from(key).ok()?;
        let mut inner = self.lock();
        if session.len() > SESSION_BYTES_MAX || self.is_behind(&inner) {
            return None;
        }
        let ticket = Kept {
            issued: (self.seconds)(),
            scope,
            session: SmallVec::from_slice(&session),
        };
        if self.keep.is_some() {
            let value = ticket.encode();
            self.tell(&mut inner, TicketChange::Put { key, value });
        }
        Some(self.insert(&mut inner, key, ticket))
    }

    /// Strikes a ticket off and returns its session.
    pub(super) fn take(
        &self,
        key: &[u8],
        scope: &Scope,
        shard: ShardId,
    ) -> Result<(StrikeId, Vec<u8>), Refusal> {
        let key = <TicketKey>::try_from(key).map_err(|_| Refusal::Unknown)?;
        let mut inner = self.lock();
        let Some(ticket) = inner.tickets.get(&key) else {
            let used = inner.used.contains(&key);
            return Err(if used {
                Refusal::Used
            } else {
                Refusal::Unknown
            });
        };
        if self.is_expired(ticket) {
            inner.remove(&key);
            self.tell(&mut inner, TicketChange::Drop { key });
            return Err(Refusal::Expired);
        }
        // It stays good for the listener that issued it.
        if ticket.scope != *scope {
            return Err(Refusal::Scope);
        }
        if self.is_behind(&inner) {
            return Err(Refusal::Overflow);
        }
        let session = inner.remove(&key).map(|ticket| ticket.session.into_vec());
        inner.remember_used(key);
        inner.next_strike = inner.next_strike.wrapping_add(1);
        let strike = StrikeId(inner.next_strike);
        self.tell(&mut inner, TicketChange::Strike { key, strike, shard });
        Ok((strike, session.unwrap_or_default()))
    }

    fn insert(&self, inner: &mut Inner, key: TicketKey, ticket: Kept) -> u64 {
        inner.remove(&key);
        inner.bytes += cost(&ticket);
        inner.tickets.insert(key, ticket);
        inner.order.push_back(key);
        self.trim(inner)
    }

    /// Lets go of the oldest tickets until the bounds hold; returns how many
    /// were still good.
    fn trim(&self, inner: &mut Inner) -> u64 {
        let mut evicted = 0;
        while let Some(key) = inner.order.front().copied() {
            let over = inner.tickets.len() > self.limits.tickets_max
                || inner.bytes > self.limits.bytes_max;
            // Those that are not there have been used.
            if let Some(ticket) = inner.tickets.get(&key) {
                let expired = self.is_expired(ticket);
                if !expired && !over {
                    break;
                }
                evicted += u64::from(!expired);
                inner.remove(&key);
                self.tell(inner, TicketChange::Drop { key });
            }
            inner.order.pop_front();
        }
        if inner.order.len() > 2 * inner.tickets.len() + STALE_MAX {
            let tickets = &inner.tickets;
            inner.order.retain(|key| tickets.contains_key(key));
        }
        evicted
    }

    fn is_expired(&self, ticket: &Kept) -> bool {
        let age = (self.seconds)().saturating_sub(ticket.issued);
        age >= self.limits.lifetime.as_secs()
    }

    fn is_behind(&self, inner: &Inner) -> bool {
        inner.pending >= self.limits.pending_max
    }

    fn tell(&self, inner: &mut Inner, change: TicketChange) {
        if let Some(keep) = &self.keep {
            inner.pending += 1;
            keep(change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves the tables whole: no step in between is
        // seen by others.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn remove(&mut self, key: &TicketKey) -> Option<Kept> {
        let ticket = self.tickets.remove(key)?;
        self.bytes = self.bytes.saturating_sub(cost(&ticket));
        Some(ticket)
    }

    fn remember_used(&mut self, key: TicketKey) {
        if self.used_order.len() >= USED_MAX
            && let Some(oldest) = self.used_order.pop_front()
        {
            self.used.remove(&oldest);
        }
        if self.used.insert(key) {
            self.used_order.push_back(key);
        }
    }
}

impl fmt::Debug for TicketRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketRegister")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn cost(ticket: &Kept) -> usize {
    ticket.session.len() + ENTRY_BYTES
}

fn random() -> u64 {
    // Keys of hash tables differ for each, too.
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(0))
}

fn wall_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

const _: () = assert!(TICKET_KEY_BYTES == 32, "as rustls makes them");

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    const SHARD: ShardId = ShardId(0);
    const SCOPE: Scope = [1; 32];

    fn key(n: u64) -> TicketKey {
        let mut key = [0; TICKET_KEY_BYTES];
        key[..8].copy_from_slice(&n.to_be_bytes());
        key
    }

    fn take(register: &TicketRegister, n: u64) -> Result<Vec<u8>, Refusal> {
        let taken = register.take(&key(n), &SCOPE, SHARD);
        taken.map(|(_, session)| session)
    }

    #[test]
    fn a_ticket_is_good_once_and_only_where_it_was_issued() {
        let register = TicketRegister::in_memory(TicketLimits::default());
        assert_eq!(register.put(&key(1), b"one".to_vec(), SCOPE), Some(0));
        let elsewhere = register.take(&key(1), &[2; 32], SHARD);
        assert_eq!(elsewhere, Err(Refusal::Scope));
        assert_eq!(take(&register, 1), Ok(b"one".to_vec()));
        assert_eq!(take(&register, 1), Err(Refusal::Used));
        assert_eq!(take(&register, 2), Err(Refusal::Unknown));
        assert_eq!(
            register.take(b"short", &SCOPE, SHARD),
            Err(Refusal::Unknown)
        );
        assert_eq!(register.put(b"short", b"one".to_vec(), SCOPE), None);
    }

    #[test]
    fn the_oldest_tickets_go_when_there_is_no_room() {
        let limits = TicketLimits {
            tickets_max: 3,
            ..TicketLimits::default()
        };
        let register = TicketRegister::in_memory(limits);
        let evicted: u64 = (0..5)
            .filter_map(|n| register.put(&key(n), b"x".to_vec(), SCOPE))
            .sum();
        assert_eq!((register.len(), evicted), (3, 2));
        assert_eq!(take(&register, 1), Err(Refusal::Unknown));
        assert_eq!(take(&register, 2), Ok(b"x".to_vec()));
        let limits = TicketLimits {
            bytes_max: 10_000,
            ..TicketLimits::default()
        };
        let register = TicketRegister::in_memory(limits);
        for n in 0..10 {
            register.put(&key(n), vec![0; 4000], SCOPE);
        }
        assert_eq!(register.len(), 2);
        let long = vec![0; SESSION_BYTES_MAX + 1];
        assert_eq!(register.put(&key(99), long, SCOPE), None);
    }

    #[test]
    fn the_order_of_issue_does_not_grow_with_use() {
        let register = TicketRegister::in_memory(TicketLimits::default());
        register.put(&key(u64::MAX), b"x".to_vec(), SCOPE);
        for n in 0..10 * STALE_MAX as u64 {
            register.put(&key(n), b"x".to_vec(), SCOPE);
            take(&register, n).unwrap();
        }
        assert!(register.lock().order.len() <= STALE_MAX + 4);
        assert_eq!(register.lock().bytes, 1 + ENTRY_BYTES);
    }

    #[test]
    fn changes_come_in_order_and_a_slow_keeper_stops_the_issue() {
        let (sender, changes) = channel();
        let limits = TicketLimits {
            pending_max: 3,
            ..TicketLimits::default()
        };
        let keep = move |change| sender.send(change).unwrap();
        let register = TicketRegister::kept_by(limits.clone(), Box::new(keep));
        register.put(&key(1), b"one".to_vec(), SCOPE);
        register.put(&key(2), b"two".to_vec(), SCOPE);
        take(&register, 1).unwrap();
        assert_eq!(register.put(&key(3), b"x".to_vec(), SCOPE), None);
        assert_eq!(take(&register, 2), Err(Refusal::Overflow));
        register.kept(3);
        let seen: Vec<_> = changes.try_iter().collect();
        let [
            TicketChange::Put { key: a, value },
            TicketChange::Put { .. },
            TicketChange::Strike { key: b, .. },
        ] = seen.as_slice()
        else {
            panic!("{seen:?}");
        };
        assert_eq!((a, b), (&key(1), &key(1)));
        // What was kept is taken back by another process.
        let again = TicketRegister::in_memory(limits);
        again.load([(*a, value.clone()), (key(7), b"damaged".to_vec())]);
        assert_eq!(again.len(), 1);
        assert_eq!(take(&again, 1), Ok(b"one".to_vec()));
        assert_eq!(take(&again, 7), Err(Refusal::Unknown));
        assert_eq!(take(&register, 2), Ok(b"two".to_vec()));
    }

    /// A copy at each of two processes, and one that keeps the tickets.
    #[test]
    fn of_copies_of_a_ticket_one_may_be_used() {
        let kept = || {
            let (sender, changes) = channel();
            let keep = move |change| sender.send(change).unwrap();
            let register = TicketRegister::kept_by(TicketLimits::default(), Box::new(keep));
            (register, changes)
        };
        let (home, at_home) = kept();
        let edges = [kept(), kept()];
        edges[0].0.put(&key(1), b"one".to_vec(), SCOPE);
        let Ok(TicketChange::Put { key: name, value }) = edges[0].1.try_recv() else {
            panic!("it is said");
        };
        assert!(home.adopt(name, &value));
        let put = TicketChange::Put {
            key: name,
            value: value.clone(),
        };
        assert_eq!(at_home.try_recv(), Ok(put));
        assert_eq!(home.names(), [name]);
        let held = home.held([key(9), name].into_iter());
        assert_eq!(held, [(name, value.clone())]);
        for (edge, changes) in &edges {
            edge.copy(name, &value);
            assert_eq!(changes.try_recv().ok(), None, "the home keeps it");
        }
        // Both take it, and ask.
        for (at, (edge, changes)) in edges.iter().enumerate() {
            assert_eq!(take(edge, 1), Ok(b"one".to_vec()));
            let asked = changes.try_recv();
            let Ok(TicketChange::Strike { key, strike, .. }) = asked else {
                panic!("{asked:?}");
            };
            let shard = ShardId(64 * (at as u16 + 1));
            assert_eq!(home.strike_for(key, strike, shard), at == 0);
        }
        let struck = at_home.try_iter().collect::<Vec<_>>();
        let [TicketChange::Strike { shard, .. }] = struck[..] else {
            panic!("{struck:?}");
        };
        assert_eq!(shard, ShardId(64));
        // What comes late has no effect.
        edges[1].0.copy(name, &value);
        assert_eq!(take(&edges[1].0, 1), Err(Refusal::Used));
        assert!(!home.adopt(name, &value));
        assert!(!home.adopt(key(2), b"no ticket"));
        edges[0].0.forget(&key(3));
        edges[0].0.copy(key(3), &value);
        assert_eq!(take(&edges[0].0, 3), Err(Refusal::Used));
    }

    /// The edge began again, and what was asked before is answered.
    #[test]
    fn uses_of_two_registers_have_different_numbers() {
        let first = || {
            let register = TicketRegister::in_memory(TicketLimits::default());
            register.put(&key(1), b"one".to_vec(), SCOPE);
            let (strike, _) = register.take(&key(1), &SCOPE, SHARD).unwrap();
            strike.0
        };
        let (before, after) = (first(), first());
        assert!(before.abs_diff(after) > 1 << 20, "{before} {after}");
    }

    #[test]
    fn tickets_expire() {
        let clock = Arc::new(AtomicU64::new(5));
        let ours = Arc::clone(&clock);
        let limits = TicketLimits {
            lifetime: Duration::from_secs(100),
            ..TicketLimits::default()
        };
        let seconds = move || ours.load(Ordering::Relaxed);
        let register = TicketRegister::with_clock(limits, None, Box::new(seconds));
        register.put(&key(1), b"x".to_vec(), SCOPE);
        clock.store(105, Ordering::Relaxed);
        assert_eq!(take(&register, 1), Err(Refusal::Expired));
        register.put(&key(2), b"x".to_vec(), SCOPE);
        clock.store(205, Ordering::Relaxed);
        assert_eq!(register.put(&key(3), b"x".to_vec(), SCOPE), Some(0));
        assert_eq!(register.len(), 1, "the expired one went without a look");
    }
}
