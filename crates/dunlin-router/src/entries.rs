//! Keyed values in a vector: what one filter's subscribers are kept in. Few
//! entries are searched in place, many through an index, and either way a
//! visit runs through memory in order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::borrow::Borrow;

/// More entries than this get an index. Below it a scan is as fast and the
/// order of insertion survives removals.
const SCAN_MAX: usize = 32;

/// Values by key, visited in order of insertion (a removal from more than
/// [`SCAN_MAX`] entries puts the last one in the gap).
#[derive(Clone, Debug)]
pub(crate) struct Entries<K, V> {
    items: Vec<(K, V)>,
    index: Option<BTreeMap<K, u32>>,
}

impl<K: Clone + Ord, V> Entries<K, V> {
    pub(crate) const fn new() -> Self {
        Self {
            items: Vec::new(),
            index: None,
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[(K, V)] {
        &self.items
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_pair(key).map(|(_, v)| v)
    }

    pub(crate) fn get_pair<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&(K, V)>
    where
        K: Borrow<Q>,
    {
        self.items.get(self.position(key)?)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = self.position(key)?;
        self.items.get_mut(at).map(|(_, v)| v)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(&key) {
            return Some(core::mem::replace(old, value));
        }
        let at = self.items.len();
        if at == self.items.capacity() {
            // Most filters have one or two subscribers; a vector would begin
            // with room for four.
            self.items.reserve_exact(1 + at / 2);
        }
        if let Some(index) = &mut self.index {
            index.insert(key.clone(), at as u32);
        }
        self.items.push((key, value));
        if self.index.is_none() && self.items.len() > SCAN_MAX {
            let positions = self
                .items
                .iter()
                .zip(0..)
                .map(|((k, _), at)| (k.clone(), at));
            self.index = Some(positions.collect());
        }
        None
    }

    /// Removes an entry and tells where it was.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(usize, V)>
    where
        K: Borrow<Q>,
    {
        let at = self.position(key)?;
        let Some(index) = &mut self.index else {
            return Some((at, self.items.remove(at).1));
        };
        index.remove(key);
        let (_, value) = self.items.swap_remove(at);
        if let Some((moved, _)) = self.items.get(at) {
            index.insert(moved.clone(), at as u32);
        }
        // Half, so that entries coming and going do not rebuild it each time.
        if self.items.len() <= SCAN_MAX / 2 {
            self.index = None;
        }
        if self.items.len() * 4 < self.items.capacity() {
            self.items.shrink_to(self.items.len() * 2);
        }
        Some((at, value))
    }

    /// The only entry, when there is exactly one.
    pub(crate) fn into_only(mut self) -> Option<(K, V)> {
        match self.items.len() {
            1 => self.items.pop(),
            _ => None,
        }
    }

    fn position<Q: Ord + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        match &self.index {
            Some(index) => index.get(key).map(|at| *at as usize),
            None => self.items.iter().position(|(k, _)| k.borrow() == key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_appears_follows_and_goes() {
        let mut entries = Entries::new();
        for key in 0..200u32 {
            assert_eq!(entries.insert(key, key * 2), None);
        }
        assert!(entries.index.is_some());
        assert_eq!(entries.insert(7, 1), Some(14));
        for key in (0..200).rev().filter(|k| k % 9 != 0) {
            assert!(entries.remove(&key).is_some(), "{key}");
            assert_eq!(entries.remove(&key), None);
        }
        let left: Vec<u32> = (0..200).filter(|k| k % 9 == 0).collect();
        assert_eq!(entries.len(), left.len());
        for key in left.iter().copied().take(20) {
            assert_eq!(entries.remove(&key).map(|(_, v)| v), Some(key * 2));
        }
        assert!(entries.index.is_none());
        assert_eq!(entries.get(&198), Some(&396));
    }
}
