//! The memory budget of a broker: its parts, their limits, and the totals that
//! shards share. What is counted where is not known here.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A part of the budget. What one part holds never takes room from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Sessions, connected or not.
    Sessions,
    /// Subscriptions and their places in the tree.
    Subscriptions,
    /// Wills that may have to be published.
    Wills,
    /// Retained messages.
    Retained,
    /// Messages that wait for a session or are in flight to its client.
    Queued,
    /// Bytes given to transports and not yet sent.
    Unsent,
    /// Packets that have not come whole, or that wait for CONNACK.
    Unfinished,
}

/// Shares that the budget is divided into.
const SHARES: usize = 16;

impl Part {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Sessions,
        Self::Subscriptions,
        Self::Wills,
        Self::Retained,
        Self::Queued,
        Self::Unsent,
        Self::Unfinished,
    ];

    /// For metrics and the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Subscriptions => "subscriptions",
            Self::Wills => "wills",
            Self::Retained => "retained",
            Self::Queued => "queued",
            Self::Unsent => "unsent",
            Self::Unfinished => "unfinished",
        }
    }

    /// Its part of [`SHARES`].
    const fn share(self) -> usize {
        match self {
            Self::Retained => 4,
            Self::Subscriptions | Self::Queued => 3,
            Self::Sessions | Self::Unsent => 2,
            Self::Wills | Self::Unfinished => 1,
        }
    }
}

/// What clients may make the broker keep, all shards together.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Bytes of all parts.
    pub bytes: usize,
    /// Bytes of [`Part::Retained`]; its share of all when absent.
    pub retained_bytes_max: Option<usize>,
    /// Bytes of [`Part::Wills`]; its share of all when absent.
    pub will_bytes_max: Option<usize>,
    /// Bytes of the subscriptions of one session.
    pub subscription_bytes_max: usize,
    /// Sessions.
    pub sessions_max: usize,
    /// Sessions of one user; 0: no limit.
    pub sessions_per_user_max: usize,
    /// Bytes of one user, in all parts but [`Part::Retained`].
    pub user_bytes_max: usize,
    /// Likewise of the clients of one address (IPv6: one /64).
    pub address_bytes_max: usize,
    /// What the shards of one broker have in common.
    pub totals: Totals,
}

impl Default for Memory {
    /// Without limits.
    fn default() -> Self {
        Self {
            bytes: usize::MAX,
            retained_bytes_max: None,
            will_bytes_max: None,
            subscription_bytes_max: usize::MAX,
            sessions_max: usize::MAX,
            sessions_per_user_max: 0,
            user_bytes_max: usize::MAX,
            address_bytes_max: usize::MAX,
            totals: Totals::default(),
        }
    }
}

impl Memory {
    /// Bytes that a part may have.
    #[must_use]
    pub const fn limit(&self, part: Part) -> usize {
        let given = match part {
            Part::Retained => self.retained_bytes_max,
            Part::Wills => self.will_bytes_max,
            _ => None,
        };
        match given {
            Some(bytes) => bytes,
            None => self.bytes / SHARES * part.share(),
        }
    }
}

/// One value for each part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts<T> {
    sessions: T,
    subscriptions: T,
    wills: T,
    retained: T,
    queued: T,
    unsent: T,
    unfinished: T,
}

impl<T> Parts<T> {
    pub(crate) const fn get(&self, part: Part) -> &T {
        match part {
            Part::Sessions => &self.sessions,
            Part::Subscriptions => &self.subscriptions,
            Part::Wills => &self.wills,
            Part::Retained => &self.retained,
            Part::Queued => &self.queued,
            Part::Unsent => &self.unsent,
            Part::Unfinished => &self.unfinished,
        }
    }

    pub(crate) const fn get_mut(&mut self, part: Part) -> &mut T {
        match part {
            Part::Sessions => &mut self.sessions,
            Part::Subscriptions => &mut self.subscriptions,
            Part::Wills => &mut self.wills,
            Part::Retained => &mut self.retained,
            Part::Queued => &mut self.queued,
            Part::Unsent => &mut self.unsent,
            Part::Unfinished => &mut self.unfinished,
        }
    }
}

/// What all shards of a broker keep, as each of them has last reported it.
#[derive(Clone, Debug, Default)]
pub struct Totals(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Changes with the rest.
    version: AtomicUsize,
    sessions: AtomicUsize,
    bytes: Parts<AtomicUsize>,
}

/// What one shard, or all others, keep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) sessions: usize,
    pub(crate) bytes: Parts<usize>,
}

impl Totals {
    /// A shard keeps `now` and has reported `reported`, which follows where the
    /// difference is more than a grain of a limit. Whether anything was reported.
    pub(crate) fn tell(&self, now: &Kept, reported: &mut Kept, grains: &Parts<usize>) -> bool {
        let mut changed = false;
        for part in Part::ALL {
            let (now, reported) = (*now.bytes.get(part), reported.bytes.get_mut(part));
            if now.abs_diff(*reported) > *grains.get(part) {
                let total = self.0.bytes.get(part);
                total.fetch_add(now.wrapping_sub(*reported), Ordering::Relaxed);
                *reported = now;
                changed = true;
            }
        }
        if now.sessions != reported.sessions {
            let more = now.sessions.wrapping_sub(reported.sessions);
            self.0.sessions.fetch_add(more, Ordering::Relaxed);
            reported.sessions = now.sessions;
            changed = true;
        }
        if changed {
            self.0.version.fetch_add(1, Ordering::Release);
        }
        changed
    }

    /// What the others keep, for a shard that has reported `reported`, unless nothing
    /// has changed since `version`.
    pub(crate) fn others(&self, reported: &Kept, version: &mut usize) -> Option<Kept> {
        let now = self.0.version.load(Ordering::Acquire);
        if core::mem::replace(version, now) == now {
            return None;
        }
        let sessions = self.0.sessions.load(Ordering::Relaxed);
        let mut others = Kept {
            sessions: sessions.wrapping_sub(reported.sessions),
            ..Kept::default()
        };
        for part in Part::ALL {
            let total = self.0.bytes.get(part).load(Ordering::Relaxed);
            *others.bytes.get_mut(part) = total.wrapping_sub(*reported.bytes.get(part));
        }
        Some(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_limits_that_make_up_the_whole() {
        let mut memory = Memory {
            bytes: 16_000,
            ..Memory::default()
        };
        let all = Part::ALL.iter().map(|part| memory.limit(*part));
        assert_eq!(all.sum::<usize>(), 16_000);
        memory.will_bytes_max = Some(7);
        memory.retained_bytes_max = Some(9);
        assert_eq!(memory.limit(Part::Wills), 7);
        assert_eq!(memory.limit(Part::Retained), 9);
        assert_eq!(memory.limit(Part::Queued), 3_000);
    }

    #[test]
    fn shards_see_what_others_have_reported() {
        let totals = Totals::default();
        let mut grains = Parts::default();
        *grains.get_mut(Part::Wills) = 10;
        let (mut now, mut reported, mut version) = (Kept::default(), Kept::default(), 0);
        now.sessions = 2;
        *now.bytes.get_mut(Part::Retained) = 100;
        *now.bytes.get_mut(Part::Wills) = 10;
        assert!(totals.tell(&now, &mut reported, &grains));
        assert!(!totals.tell(&now, &mut reported, &grains));
        let nothing = Kept::default();
        let others = totals.others(&nothing, &mut version).expect("a change");
        assert_eq!(others.sessions, 2);
        assert_eq!(*others.bytes.get(Part::Retained), 100);
        assert_eq!(*others.bytes.get(Part::Wills), 0, "a grain is not reported");
        assert!(totals.others(&nothing, &mut version).is_none());
        let own = totals.others(&reported, &mut 0).expect("first look");
        assert_eq!((own.sessions, *own.bytes.get(Part::Retained)), (0, 0));
        *now.bytes.get_mut(Part::Retained) = 40;
        assert!(totals.tell(&now, &mut reported, &grains));
        let others = totals.others(&nothing, &mut version).expect("a change");
        assert_eq!(*others.bytes.get(Part::Retained), 40);
    }
}
