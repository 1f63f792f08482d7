//! A set of sequence numbers that come nearly in order and go nearly in order:
//! a ring, with no bytes between. It knows nothing of what the numbers are.

use std::collections::VecDeque;

/// Below this many places, memory is not given back.
const KEPT_PLACES: usize = 64;

/// Numbers in rising order.
///
/// Adding the largest and removing the smallest are O(1); in between, each
/// is on the nearer side moves by a place.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    keys: VecDeque<u64>,
}

impl Sorted {
    /// Where a number is, or where it would be.
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

    /// Adds a number; `true` if it is new.
    pub(crate) fn insert(&mut self, key: u64) -> bool {
        match self.place(key) {
            Ok(_) => false,
            Err(place) => {
                self.keys.insert(place, key);
                true
            }
        }
    }

    /// Removes a number; `true` if it was there.
    pub(crate) fn remove(&mut self, key: u64) -> bool {
        let Ok(place) = self.place(key) else {
            return false;
        };
        self.keys.remove(place);
        let (len, capacity) = (self.keys.len(), self.keys.capacity());
        if capacity > KEPT_PLACES && len < capacity / 4 {
            self.keys.shrink_to(2 * len);
        }
        true
    }

    /// All numbers, smallest first.
    pub(crate) fn into_keys(self) -> impl Iterator<Item = u64> {
        self.keys.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_a_set() {
        const OPERATIONS: u64 = 20_000;
        let mut sorted = Sorted::default();
        let mut model = BTreeSet::new();
        let mut random = 1_u64;
        for turn in 0..OPERATIONS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let draw = random >> 33;
            // Keys rise with time, a little out of order.
            let key = turn / 4 + draw % 64;
            assert_eq!(sorted.contains(key), model.contains(&key));
            let shrinks = turn % 8000 > 5000;
            if (draw >> 8).is_multiple_of(4) || shrinks {
                let near = model.iter().nth((draw >> 16) as usize % 8).copied();
                let key = near.unwrap_or(key);
                assert_eq!(sorted.remove(key), model.remove(&key));
            } else {
                assert_eq!(sorted.insert(key), model.insert(key));
            }
        }
        assert!(!model.is_empty());
        assert!(sorted.into_keys().eq(model));
    }

    #[test]
    fn memory_is_given_back() {
        const PLACES: u64 = 100_000;
        let mut sorted = Sorted::default();
        for key in 0..PLACES {
            assert!(sorted.insert(key));
        }
        for key in 0..PLACES - 1 {
            assert!(sorted.remove(key));
        }
        assert!(sorted.keys.capacity() <= KEPT_PLACES);
        assert!(sorted.contains(PLACES - 1));
    }
}
