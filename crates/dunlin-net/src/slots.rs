//! Connections by number. A connection's serial is its slot and the slot's
//! generation, so finding it is one index and a serial is never used twice: a
//! slot whose generations are spent is retired.

/// Connections of one loop at most, by the width of the slot number.
pub(crate) const SLOTS_MAX: usize = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 20;
const GENERATION_MAX: u32 = (1 << 28) - 1;

/// A growing table of `T`.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    live: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            live: 0,
        }
    }

    /// Values held.
    pub(crate) const fn len(&self) -> usize {
        self.live
    }

    /// Stores what `make` returns for the serial it will have.
    pub(crate) fn insert_with<E>(
        &mut self,
        make: impl FnOnce(u64) -> Result<T, E>,
    ) -> Result<Option<u64>, E> {
        let index = match self.free.last() {
            Some(&index) => index,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(Slot {
                    generation: 1,
                    value: None,
                });
                let index = (self.slots.len() - 1) as u32;
                self.free.push(index);
                index
            }
            None => return Ok(None),
        };
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return Ok(None);
        };
        let serial = (u64::from(slot.generation) << SLOT_BITS) | u64::from(index);
        slot.value = Some(make(serial)?);
        self.free.pop();
        self.live += 1;
        Ok(Some(serial))
    }

    pub(crate) fn get(&self, serial: u64) -> Option<&T> {
        let slot = self.slots.get(Self::index(serial))?;
        slot.value
            .as_ref()
            .filter(|_| Self::is_current(slot, serial))
    }

    pub(crate) fn get_mut(&mut self, serial: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(Self::index(serial))?;
        if !Self::is_current(slot, serial) {
            return None;
        }
        slot.value.as_mut()
    }

    pub(crate) fn remove(&mut self, serial: u64) -> Option<T> {
        let index = Self::index(serial);
        let slot = self.slots.get_mut(index)?;
        if !Self::is_current(slot, serial) {
            return None;
        }
        let value = slot.value.take()?;
        self.live -= 1;
        if slot.generation < GENERATION_MAX {
            slot.generation += 1;
            self.free.push(index as u32);
        }
        Some(value)
    }

    /// Shows values in turn, at most `max` slots of them and none twice, and
    /// leaves `cursor` after the last.
    pub(crate) fn visit(&mut self, cursor: &mut usize, max: usize, mut f: impl FnMut(&mut T)) {
        for _ in 0..max.min(self.slots.len()) {
            if *cursor >= self.slots.len() {
                *cursor = 0;
            }
            if let Some(value) = self.slots.get_mut(*cursor).and_then(|s| s.value.as_mut()) {
                f(value);
            }
            *cursor += 1;
        }
    }

    fn index(serial: u64) -> usize {
        (serial as usize) & (SLOTS_MAX - 1)
    }

    fn is_current(slot: &Slot<T>, serial: u64) -> bool {
        u64::from(slot.generation) == serial >> SLOT_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_not_reused_and_stale_ones_find_nothing() {
        let mut slots = Slots::new();
        let add = |slots: &mut Slots<u32>, v| {
            slots
                .insert_with(|_| Ok::<_, ()>(v))
                .expect("no error")
                .expect("room")
        };
        let a = add(&mut slots, 1);
        assert_eq!(slots.remove(a), Some(1));
        let b = add(&mut slots, 2);
        assert_ne!(a, b);
        assert_eq!((slots.get(a), slots.get(b)), (None, Some(&2)));
        assert_eq!(slots.remove(a), None);
        assert!(b >= SLOTS_MAX as u64, "small numbers stay free for tokens");
        let mut seen = Vec::new();
        let mut cursor = 0;
        slots.visit(&mut cursor, 10, |v| seen.push(*v));
        assert_eq!(seen, [2], "each once");
        let failed: Result<_, u8> = slots.insert_with(|_| Err(9));
        assert_eq!((failed, slots.len()), (Err(9), 1));
    }
}
