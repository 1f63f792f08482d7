//! A map from sequence numbers, for keys that come nearly in order and go
//! nearly in order: a ring of keys beside a ring of values, with no bytes
//! between. It knows nothing of what the numbers are.

use std::collections::VecDeque;

/// Below this many places, memory is not given back.
const KEPT_PLACES: usize = 64;

/// Keys in rising order with a value each; `Sorted<()>` is a set.
///
/// Adding the largest key and removing the smallest are O(1); in between,
/// whatever is on the nearer side moves by a place.
#[derive(Debug)]
pub(crate) struct Sorted<V> {
    keys: VecDeque<u64>,
    values: VecDeque<V>,
}

impl<V> Default for Sorted<V> {
    fn default() -> Self {
        Self {
            keys: VecDeque::new(),
            values: VecDeque::new(),
        }
    }
}

impl<V> Sorted<V> {
    /// Where a key is, or where it would be.
    fn place(&self, key: u64) -> Result<usize, usize> {
        match (self.keys.front(), self.keys.back()) {
            (Some(first), _) if *first == key => Ok(0),
            (_, Some(last)) if *last < key => Err(self.keys.len()),
            _ => self.keys.binary_search(&key),
        }
    }

    pub(crate) fn contains(&self, key: u64) -> bool {
        self.place(key).is_ok()
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        self.values.get_mut(place)
    }

    /// Adds a key or changes its value; `true` if the key is new.
    pub(crate) fn insert(&mut self, key: u64, value: V) -> bool {
        match self.place(key) {
            Ok(place) => {
                if let Some(old) = self.values.get_mut(place) {
                    *old = value;
                }
                false
            }
            Err(place) => {
                self.keys.insert(place, key);
                self.values.insert(place, value);
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let place = self.place(key).ok()?;
        self.keys.remove(place)?;
        let value = self.values.remove(place);
        let len = self.keys.len();
        if self.keys.capacity() > KEPT_PLACES && len < self.keys.capacity() / 4 {
            self.keys.shrink_to(2 * len);
            self.values.shrink_to(2 * len);
        }
        value
    }

    /// All keys, smallest first.
    pub(crate) fn into_keys(self) -> impl Iterator<Item = u64> {
        self.keys.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_a_map() {
        const OPERATIONS: u64 = 20_000;
        let mut sorted = Sorted::default();
        let mut model = BTreeMap::new();
        let mut random = 1_u64;
        for turn in 0..OPERATIONS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let draw = random >> 33;
            // Keys rise with time, a little out of order.
            let key = turn / 4 + draw % 64;
            assert_eq!(sorted.contains(key), model.contains_key(&key));
            assert_eq!(sorted.get_mut(key), model.get_mut(&key));
            let shrinks = turn % 8000 > 5000;
            if (draw >> 8).is_multiple_of(4) || shrinks {
                let near = model.keys().nth((draw >> 16) as usize % 8).copied();
                let key = near.unwrap_or(key);
                assert_eq!(sorted.remove(key), model.remove(&key));
            } else {
                let new = model.insert(key, turn).is_none();
                assert_eq!(sorted.insert(key, turn), new);
            }
        }
        assert!(!model.is_empty());
        assert!(sorted.into_keys().eq(model.into_keys()));
    }

    #[test]
    fn memory_is_given_back() {
        const PLACES: u64 = 100_000;
        let mut sorted = Sorted::default();
        for key in 0..PLACES {
            assert!(sorted.insert(key, key));
        }
        for key in 0..PLACES - 1 {
            assert_eq!(sorted.remove(key), Some(key));
        }
        assert!(sorted.keys.capacity() <= KEPT_PLACES);
        assert!(sorted.contains(PLACES - 1));
    }
}
