//! Packet identifiers in use towards the peer (MQTT 5.0 section 2.2.1), each
//! with what it is used for: both ends choose them in the same way, and keep what
//! is in flight in the same [`Window`].

use alloc::vec::Vec;

use dunlin_mqtt_codec::PacketId;
pub use dunlin_queue::Window;

/// Gives identifiers out in a circle, so that freed ones rest as long as
/// possible before they are used again.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketIdCounter {
    last: u16,
}

impl PacketIdCounter {
    /// The next identifier of those not in use [MQTT-2.2.1-4], of which there
    /// are `used`; the same until it is taken by [`PacketIdCounter::take`].
    #[must_use]
    pub fn next_free(self, used: usize, is_used: impl Fn(PacketId) -> bool) -> Option<PacketId> {
        let mut last = self.last;
        for _ in 0..=used {
            last = last.checked_add(1).unwrap_or(1);
            let id = PacketId::new(last)?;
            if !is_used(id) {
                return Some(id);
            }
        }
        None
    }

    /// An identifier is taken into use.
    pub const fn take(&mut self, id: PacketId) {
        self.last = id.get();
    }
}

/// The identifiers in use and the order of their use.
#[derive(Debug)]
pub struct PacketIds<T> {
    used: Window<PacketId, Entry<T>>,
    counter: PacketIdCounter,
    next_order: u64,
}

#[derive(Debug)]
struct Entry<T> {
    order: u64,
    value: T,
}

impl<T> Default for PacketIds<T> {
    fn default() -> Self {
        Self {
            used: Window::default(),
            counter: PacketIdCounter::default(),
            next_order: 0,
        }
    }
}

impl<T> PacketIds<T> {
    /// The next identifier that is not in use; the same until it is taken by
    /// [`PacketIds::insert`].
    #[must_use]
    pub fn next_free(&self) -> Option<PacketId> {
        let is_used = |id| self.used.contains(id);
        self.counter.next_free(self.used.len(), is_used)
    }

    /// Takes an identifier into use, after all others in order.
    pub fn insert(&mut self, id: PacketId, value: T) {
        self.counter.take(id);
        let order = self.next_order;
        self.next_order += 1;
        self.used.insert(id, Entry { order, value });
    }

    /// Moves an identifier behind all others in order.
    pub fn move_to_end(&mut self, id: PacketId) {
        if let Some(entry) = self.used.get_mut(id) {
            entry.order = self.next_order;
            self.next_order += 1;
        }
    }

    /// What an identifier is used for.
    #[must_use]
    pub fn get(&self, id: PacketId) -> Option<&T> {
        self.used.get(id).map(|entry| &entry.value)
    }

    /// What an identifier is used for, to be changed.
    pub fn get_mut(&mut self, id: PacketId) -> Option<&mut T> {
        self.used.get_mut(id).map(|entry| &mut entry.value)
    }

    /// Frees an identifier.
    pub fn remove(&mut self, id: PacketId) -> Option<T> {
        self.used.take(id).map(|entry| entry.value)
    }

    /// Identifiers in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether none is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.used.iter().map(|(_, entry)| &entry.value)
    }

    /// All values, in no order, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.used.iter_mut().map(|(_, entry)| &mut entry.value)
    }

    /// The identifiers whose value is wanted, in order.
    #[must_use]
    pub fn in_order(&self, wanted: impl Fn(&T) -> bool) -> Vec<PacketId> {
        let entries = self.used.iter();
        let entries = entries.filter(|(_, entry)| wanted(&entry.value));
        let mut ids: Vec<_> = entries.map(|(id, entry)| (entry.order, id)).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(ids: &mut PacketIds<u8>, value: u8) -> u16 {
        let id = ids.next_free().expect("an identifier");
        ids.insert(id, value);
        id.get()
    }

    fn id(id: u16) -> PacketId {
        PacketId::new(id).expect("not zero")
    }

    #[test]
    fn freed_identifiers_rest() {
        let mut ids = PacketIds::default();
        assert_eq!([take(&mut ids, 0), take(&mut ids, 0)], [1, 2]);
        ids.remove(id(1));
        assert_eq!(take(&mut ids, 0), 3);
        ids.remove(id(3));
        ids.counter.take(id(u16::MAX));
        assert_eq!([take(&mut ids, 0), take(&mut ids, 0)], [1, 3]);
    }

    #[test]
    fn all_identifiers_can_be_in_use_once() {
        let mut ids = PacketIds::default();
        for n in 1..=u16::MAX {
            assert_eq!(take(&mut ids, 0), n);
        }
        assert_eq!(ids.next_free(), None);
        ids.remove(id(700));
        assert_eq!(take(&mut ids, 0), 700);
    }

    #[test]
    fn order_is_that_of_use() {
        let mut ids = PacketIds::default();
        for value in 0..4 {
            take(&mut ids, value);
        }
        ids.remove(id(2));
        take(&mut ids, 9);
        ids.move_to_end(id(1));
        assert_eq!(ids.in_order(|_| true), [3, 4, 5, 1].map(id));
        assert_eq!(ids.in_order(|value| *value < 3), [3, 1].map(id));
    }
}
