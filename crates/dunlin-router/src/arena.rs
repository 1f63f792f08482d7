//! Nodes in one vector, named by small numbers that stay valid until freed.
//!
//! One vector, not chunks: a match follows several numbers, and a directory of
//! chunks would add a load to each.

use alloc::vec;
use alloc::vec::Vec;

/// Slots that are handed out and taken back.
#[derive(Clone, Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Arena<T> {
    /// An arena whose slot 0 holds `first` for good.
    pub(crate) fn new(first: T) -> Self {
        Self {
            slots: vec![first],
            free: Vec::new(),
        }
    }

    /// Slots in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.slots.get_mut(id as usize)
    }

    /// Stores `value` and names it. Memory ends long before the numbers do:
    /// 2^32 nodes would be 300 GB.
    pub(crate) fn put(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            if let Some(slot) = self.get_mut(id) {
                *slot = value;
            }
            return id;
        }
        debug_assert!(self.slots.len() < u32::MAX as usize, "arena is full");
        self.slots.push(value);
        (self.slots.len() - 1) as u32
    }

    /// Takes back slot `id`, leaving `vacant` in it. When only slot 0 is left,
    /// the memory goes too.
    pub(crate) fn free(&mut self, id: u32, vacant: T) -> Option<T> {
        let value = core::mem::replace(self.get_mut(id)?, vacant);
        self.free.push(id);
        if self.len() == 1 {
            self.free = Vec::new();
            self.slots.truncate(1);
            self.slots.shrink_to_fit();
        }
        Some(value)
    }
}
