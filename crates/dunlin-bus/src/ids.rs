//! What names a node and one of its memberships.

use core::fmt;

use crate::limits::NODES_MAX;

/// Number of a node: 1 to [`NODES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u16);

impl NodeId {
    /// A number, if nodes may have it.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        match number {
            1..=NODES_MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=NODES_MAX).map(Self)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A random number of one membership: a node that joins again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_range() {
        assert_eq!(NodeId::new(0), None);
        assert_eq!(NodeId::new(NODES_MAX + 1), None);
        assert_eq!(NodeId::all().count(), usize::from(NODES_MAX));
    }
}
