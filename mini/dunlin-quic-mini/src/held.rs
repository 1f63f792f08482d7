//! A value or nothing, where nothing is zeros in memory. An `Option` may have
//! another pattern for `None`, and a client that has not begun would be bytes
//! in flash instead of memory that is cleared at the start.

/// A value or nothing.
#[repr(u8)]
pub(crate) enum Held<T> {
    Nothing = 0,
    Value(T) = 1,
}

impl<T> Held<T> {
    pub(crate) const fn as_ref(&self) -> Option<&T> {
        match self {
            Self::Nothing => None,
            Self::Value(value) => Some(value),
        }
    }

    pub(crate) const fn as_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Nothing => None,
            Self::Value(value) => Some(value),
        }
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        match core::mem::replace(self, Self::Nothing) {
            Self::Nothing => None,
            Self::Value(value) => Some(value),
        }
    }
}
