//! The hash table of edges: 32 bits of hash beside the child's node number.
//!
//! Linear probing in 8-byte slots: a lookup touches one cache line here and one
//! at the node, where `hashbrown` would touch two here. The index is the top of
//! the hash, so growing and shrinking run through memory in order and never
//! look at a node.

use alloc::vec;
use alloc::vec::Vec;

const SLOTS_MIN: usize = 16;

/// Edges by hash. Number 0 is no child, so a zero slot is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edges {
    slots: Vec<u64>,
    used: usize,
    /// 32 minus the binary logarithm of the slot count.
    shift: u32,
}

impl Edges {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            used: 0,
            shift: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// The first answer that `test` has for a child with this hash.
    #[inline]
    pub(crate) fn find<R>(&self, hash: u32, mut test: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let mut at = self.home(hash);
        loop {
            let slot = *self.slots.get(at)?;
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == hash
                && let Some(found) = test(slot as u32)
            {
                return Some(found);
            }
            at = self.next(at);
        }
    }

    pub(crate) fn insert(&mut self, hash: u32, child: u32) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(SLOTS_MIN));
        }
        self.place(pack(hash, child));
        self.used += 1;
    }

    /// Puts `new` in the place of `old`.
    pub(crate) fn replace(&mut self, hash: u32, old: u32, new: u32) {
        if let Some(at) = self.position(hash, old)
            && let Some(slot) = self.slots.get_mut(at)
        {
            *slot = pack(hash, new);
        }
    }

    pub(crate) fn remove(&mut self, hash: u32, child: u32) {
        let Some(mut hole) = self.position(hash, child) else {
            return;
        };
        // Move later entries of the run back, so that no tombstones pile up.
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = self.next(at);
            let slot = self.slots.get(at).copied().unwrap_or_default();
            if slot == 0 {
                break;
            }
            let home = self.home((slot >> 32) as u32);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.set(hole, slot);
                hole = at;
            }
        }
        self.set(hole, 0);
        self.used -= 1;
        if self.used * 8 < self.slots.len() {
            self.resize(if self.used == 0 {
                0
            } else {
                self.slots.len() / 2
            });
        }
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    fn set(&mut self, at: usize, slot: u64) {
        if let Some(old) = self.slots.get_mut(at) {
            *old = slot;
        }
    }

    fn position(&self, hash: u32, child: u32) -> Option<usize> {
        let want = pack(hash, child);
        let mut at = self.home(hash);
        loop {
            match *self.slots.get(at)? {
                0 => return None,
                slot if slot == want => return Some(at),
                _ => at = self.next(at),
            }
        }
    }

    fn place(&mut self, slot: u64) {
        let mut at = self.home((slot >> 32) as u32);
        while self.slots.get(at).is_some_and(|s| *s != 0) {
            at = self.next(at);
        }
        self.set(at, slot);
    }

    fn resize(&mut self, slots: usize) {
        if slots != 0 && slots < SLOTS_MIN {
            return;
        }
        let old = core::mem::replace(&mut self.slots, vec![0; slots]);
        self.shift = if slots == 0 {
            0
        } else {
            32 - slots.trailing_zeros()
        };
        for slot in old.into_iter().filter(|s| *s != 0) {
            self.place(slot);
        }
    }
}

#[inline]
fn pack(hash: u32, child: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colliding_edges_survive_each_others_removal() {
        let mut edges = Edges::new();
        // Few distinct homes, long runs, wrapping around the end.
        let hash = |n: u32| (n % 5).wrapping_mul(0x4000_0000).wrapping_sub(1) ^ (n & 3);
        for n in 1..=1000 {
            edges.insert(hash(n), n);
        }
        for n in (1..=1000).filter(|n| n % 3 == 0) {
            edges.remove(hash(n), n);
        }
        for n in 1..=1000u32 {
            let found = edges.find(hash(n), |c| (c == n).then_some(c));
            assert_eq!(found.is_some(), n % 3 != 0, "{n}");
        }
        for n in (1..=1000).filter(|n| n % 3 != 0) {
            edges.remove(hash(n), n);
        }
        assert_eq!((edges.len(), edges.slots.len()), (0, 0));
        assert_eq!(edges.find(7, Some), None);
    }
}
