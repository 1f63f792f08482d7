//! The number by which a filter is known while it is in use.

/// A filter's number in its tree: the same until the filter's last
/// subscription goes, then free for another filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterId(u32);

impl FilterId {
    pub(crate) const fn new(node: u32) -> Self {
        Self(node)
    }

    /// The number.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}
