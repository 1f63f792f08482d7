//! Doubly linked lists through a slice of slots: order without an allocator
//! and without moving anything. Knows nothing of packets.

/// No slot.
pub(super) const NIL: u16 = u16::MAX;

/// A slot's neighbours in the one list that it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    prev: u16,
    next: u16,
}

impl Links {
    pub(super) const UNLINKED: Self = Self {
        prev: NIL,
        next: NIL,
    };
}

/// Something with room for [`Links`].
pub(super) trait Linked {
    fn links(&mut self) -> &mut Links;
}

/// First and last slot of a list. All methods take the slice that every list
/// of a table shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u16,
    tail: u16,
    len: u16,
}

impl List {
    pub(super) const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
        len: 0,
    };

    pub(super) fn head(&self) -> Option<u16> {
        (self.head != NIL).then_some(self.head)
    }

    pub(super) fn len(&self) -> u16 {
        self.len
    }

    pub(super) fn next<T: Linked>(slots: &mut [T], index: u16) -> Option<u16> {
        let next = slots.get_mut(usize::from(index))?.links().next;
        (next != NIL).then_some(next)
    }

    pub(super) fn push_back<T: Linked>(&mut self, slots: &mut [T], index: u16) {
        let Some(slot) = slots.get_mut(usize::from(index)) else {
            return;
        };
        *slot.links() = Links {
            prev: self.tail,
            next: NIL,
        };
        match slots.get_mut(usize::from(self.tail)) {
            Some(tail) if self.tail != NIL => tail.links().next = index,
            _ => self.head = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// Takes a slot out, which must be in this list.
    pub(super) fn remove<T: Linked>(&mut self, slots: &mut [T], index: u16) {
        let Some(slot) = slots.get_mut(usize::from(index)) else {
            return;
        };
        let Links { prev, next } = core::mem::replace(slot.links(), Links::UNLINKED);
        if prev == NIL {
            debug_assert_eq!(self.head, index, "slot of another list");
            self.head = next;
        } else if let Some(slot) = slots.get_mut(usize::from(prev)) {
            slot.links().next = next;
        }
        if next == NIL {
            debug_assert_eq!(self.tail, index, "slot of another list");
            self.tail = prev;
        } else if let Some(slot) = slots.get_mut(usize::from(next)) {
            slot.links().prev = prev;
        }
        self.len = self.len.saturating_sub(1);
    }

    pub(super) fn pop_front<T: Linked>(&mut self, slots: &mut [T]) -> Option<u16> {
        let head = self.head()?;
        self.remove(slots, head);
        Some(head)
    }
}
