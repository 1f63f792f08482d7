//! What is in flight, by key, in the order of the keys.
//!
//! Keys are given out in a circle and mostly settled in that order, so a list
//! whose ends are looked at first serves better than a hash map: the oldest
//! and the newest are found without a search, all others by a binary one.
//! Places that become free in the middle stay until an end reaches them, or
//! until they are more than half.

use alloc::collections::VecDeque;
use core::fmt;
use core::num::NonZeroU16;

/// Free places that are kept beside as many as are in use.
const FREE_MAX: usize = 16;

/// A name that a protocol gives to a delivery that is not settled.
pub trait Key: Copy + Eq + fmt::Debug {
    /// How many keys after `earlier` this one is given out, in the circle of
    /// all keys.
    fn since(self, earlier: Self) -> u64;

    /// Whether it is given out before `first`. Keys of a small circle never are.
    fn is_before(self, first: Self) -> bool {
        let _ = first;
        false
    }
}

/// An MQTT packet identifier: 1 follows 65,535.
impl Key for NonZeroU16 {
    fn since(self, earlier: Self) -> u64 {
        let circle = u32::from(u16::MAX);
        let ahead = u32::from(self.get()) + circle - u32::from(earlier.get());
        u64::from(ahead % circle)
    }
}

/// A serial number (RFC 1982), such as an AMQP delivery-id.
impl Key for u32 {
    fn since(self, earlier: Self) -> u64 {
        u64::from(self.wrapping_sub(earlier))
    }
}

/// A number that only rises.
impl Key for u64 {
    fn since(self, earlier: Self) -> u64 {
        self.wrapping_sub(earlier)
    }

    fn is_before(self, first: Self) -> bool {
        self < first
    }
}

/// Values by key. None of the two ends is free.
#[derive(Debug)]
pub struct Window<K, T> {
    places: VecDeque<(K, Option<T>)>,
    len: usize,
    /// Places for which memory is kept when it is empty.
    kept: usize,
}

impl<K, T> Default for Window<K, T> {
    fn default() -> Self {
        Self {
            places: VecDeque::new(),
            len: 0,
            kept: 0,
        }
    }
}

impl<K: Key, T> Window<K, T> {
    /// One that keeps the memory of so many places when it is empty.
    #[must_use]
    pub fn keeping(places: usize) -> Self {
        Self {
            kept: places,
            ..Self::default()
        }
    }

    /// Places for which it has memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.places.capacity()
    }

    /// Values in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a key has a value.
    #[must_use]
    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: K) -> Option<&T> {
        let place = self.find(key).ok()?;
        self.places.get(place)?.1.as_ref()
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let place = self.find(key).ok()?;
        self.places.get_mut(place)?.1.as_mut()
    }

    /// Adds a value, instead of one that had the key before. The value, in its
    /// place.
    pub fn insert(&mut self, key: K, value: T) -> Option<&mut T> {
        let place = match self.find(key) {
            Err(place) if place == self.places.len() => {
                self.places.push_back((key, Some(value)));
                self.len += 1;
                return self.places.back_mut()?.1.as_mut();
            }
            Err(place) => {
                self.places.insert(place, (key, None));
                place
            }
            Ok(place) => place,
        };
        let (_, there) = self.places.get_mut(place)?;
        self.len += usize::from(there.is_none());
        Some(there.insert(value))
    }

    /// Removes the value of a key; `false` if there is none.
    pub fn remove(&mut self, key: K) -> bool {
        self.remove_with(key, |_| Some(())).is_some()
    }

    /// Removes a value if `take` takes what is wanted of it. The rest is dropped
    /// in its place: values are large, and mostly nothing is wanted.
    pub fn remove_with<R>(&mut self, key: K, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let place = self.find(key).ok()?;
        let (_, value) = self.places.get_mut(place)?;
        let taken = take(value.as_mut()?)?;
        *value = None;
        self.len -= 1;
        self.tidy();
        Some(taken)
    }

    /// Removes the value of a key and gives it.
    pub fn take(&mut self, key: K) -> Option<T> {
        let place = self.find(key).ok()?;
        let taken = self.places.get_mut(place)?.1.take()?;
        self.len -= 1;
        self.tidy();
        Some(taken)
    }

    /// The oldest key.
    #[must_use]
    pub fn oldest(&self) -> Option<K> {
        self.places.front().map(|(key, _)| *key)
    }

    /// The oldest value whose key is given out with this one or after it. The
    /// key is not given out before [`Window::oldest`].
    #[must_use]
    pub fn at_or_after(&self, key: K) -> Option<(K, &T)> {
        let (Ok(place) | Err(place)) = self.find(key);
        let mut places = self.places.range(place..);
        places.find_map(|(key, value)| Some((*key, value.as_ref()?)))
    }

    /// All values, in the order of their keys from the oldest.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        let places = self.places.iter();
        places.filter_map(|(key, value)| Some((*key, value.as_ref()?)))
    }

    /// All values, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        let places = self.places.iter_mut();
        places.filter_map(|(key, value)| Some((*key, value.as_mut()?)))
    }

    /// All values, in the order of their keys from the oldest.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.places.into_iter().filter_map(|(_, value)| value)
    }

    /// The place of a key, or where it belongs.
    fn find(&self, key: K) -> Result<usize, usize> {
        let (Some((first, _)), Some((last, _))) = (self.places.front(), self.places.back()) else {
            return Err(0);
        };
        if key.is_before(*first) {
            return Err(0);
        }
        let wanted = key.since(*first);
        let newest = last.since(*first);
        if wanted == 0 {
            return Ok(0);
        }
        match wanted.cmp(&newest) {
            core::cmp::Ordering::Greater => Err(self.places.len()),
            core::cmp::Ordering::Equal => Ok(self.places.len() - 1),
            core::cmp::Ordering::Less => {
                let since = |(key, _): &(K, _)| K::since(*key, *first);
                self.places.binary_search_by_key(&wanted, since)
            }
        }
    }

    /// Drops free places at the ends, and all of them when they are many.
    #[inline]
    fn tidy(&mut self) {
        if self.len == 0 {
            match self.places.capacity() <= self.kept {
                true => self.places.clear(),
                false => self.places = VecDeque::new(),
            }
            return;
        }
        let is_free = |place: Option<&(K, Option<T>)>| place.is_some_and(|(_, v)| v.is_none());
        while is_free(self.places.front()) {
            self.places.pop_front();
        }
        while is_free(self.places.back()) {
            self.places.pop_back();
        }
        if self.places.len() > 2 * self.len + FREE_MAX {
            self.places.retain(|(_, value)| value.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    fn id(number: u16) -> NonZeroU16 {
        NonZeroU16::new(number).expect("not zero")
    }

    #[test]
    fn keys_are_a_circle() {
        assert_eq!(id(1).since(id(65_535)), 1);
        assert_eq!(id(65_535).since(id(1)), 65_534);
        assert_eq!(id(7).since(id(7)), 0);
        assert_eq!(0_u32.since(u32::MAX), 1);
    }

    #[test]
    fn it_is_a_map_in_any_order_of_removals() {
        const OPERATIONS: u32 = 200_000;
        let mut window = Window::default();
        let mut model = BTreeMap::new();
        let (mut random, mut last) = (1_u64, 0_u16);
        for number in 0..OPERATIONS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let draw = (random >> 33) as u32;
            // Long phases in which it grows, then shrinks; one key stays for
            // several turns of the circle.
            let grows = number % 2_000 < 1_000;
            if (draw % 8 < 6) == grows {
                last = if last == u16::MAX { 1 } else { last + 1 };
                while model.contains_key(&last) {
                    last = if last == u16::MAX { 1 } else { last + 1 };
                }
                assert!(!window.contains(id(last)));
                assert_eq!(window.insert(id(last), number), Some(&mut { number }));
                model.insert(last, number);
            } else {
                let from = match draw % 3 {
                    0 => 1,
                    1 => last,
                    _ => draw as u16,
                };
                let mut keys = model.range(from..).chain(&model).map(|(key, _)| *key);
                if let Some(key) = keys.find(|key| *key != 3) {
                    let removed = match draw % 2 {
                        0 => window.remove_with(id(key), |value| Some(*value)),
                        _ => window.take(id(key)),
                    };
                    assert_eq!(removed, model.remove(&key));
                    assert!(!window.remove(id(key)));
                }
            }
            assert_eq!(window.len(), model.len());
            assert!(model.len() < 2000);
            assert!(window.places.len() <= 2 * window.len() + FREE_MAX);
            if number % 256 == 0 {
                let mut all: Vec<_> = window.iter().map(|(k, v)| (k.get(), *v)).collect();
                all.sort_unstable();
                assert!(all.into_iter().eq(model.iter().map(|(k, v)| (*k, *v))));
                for (key, value) in &model {
                    assert_eq!(window.get(id(*key)), Some(value));
                }
            }
        }
    }

    #[test]
    fn what_was_taken_out_goes_back_in_front() {
        let mut window = Window::keeping(8);
        for key in [7_u64, 9, u64::MAX] {
            window.insert(key, key);
        }
        assert_eq!(window.take(7), Some(7));
        assert!(!window.contains(7) && !window.contains(8));
        for key in [7, 8, 1] {
            assert_eq!(window.insert(key, key), Some(&mut { key }));
        }
        let keys: Vec<_> = window.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [1, 7, 8, 9, u64::MAX]);
        for key in keys {
            assert!(window.remove(key));
        }
        assert!(window.is_empty() && window.places.capacity() >= 5);
    }

    #[test]
    fn ranges_are_found_from_any_key() {
        let mut window = Window::default();
        let keys = [u32::MAX - 1, u32::MAX, 0, 1, 5, 6];
        for key in keys {
            window.insert(key, key);
        }
        window.remove(0);
        window.remove(5);
        assert_eq!(window.oldest(), Some(u32::MAX - 1));
        let next = |key| window.at_or_after(key).map(|(key, value)| (key, *value));
        for (from, found) in [(u32::MAX, u32::MAX), (0, 1), (2, 6), (5, 6), (6, 6)] {
            assert_eq!(next(from), Some((found, found)), "{from}");
        }
        assert_eq!(next(7), None);
        window.remove(u32::MAX - 1);
        assert_eq!(window.oldest(), Some(u32::MAX));
        assert_eq!(Window::<u32, ()>::default().at_or_after(3), None);
    }

    #[test]
    fn an_empty_one_holds_no_memory() {
        let mut window = Window::default();
        for key in 1_u32..=100 {
            window.insert(key, ());
        }
        for key in 1_u32..=100 {
            window.remove(key);
        }
        assert!(window.is_empty());
        assert_eq!(window.places.capacity(), 0);
    }
}
