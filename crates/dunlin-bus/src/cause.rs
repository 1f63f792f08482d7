//! Why a link is lost.

/// Why a link is lost. What was handed over to it and not taken by the other node may or may
/// not have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// A message of the peer is missing.
    Hole,
    /// Nothing came for too long.
    Silence,
    /// The peer lost its end and has greeted again.
    Replaced,
    /// The peer says that it lost its end, or leaves.
    Closed,
    /// What came does not keep to the rules, although the peer sealed it.
    Violation,
    /// More was handed over than a link may have.
    Overflow,
    /// The peer is no member any more.
    Left,
    /// Another membership has the peer's number.
    NewIncarnation,
    /// This node leaves, or is no member any more.
    Own,
}

impl Lost {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Hole,
        Self::Silence,
        Self::Replaced,
        Self::Closed,
        Self::Violation,
        Self::Overflow,
        Self::Left,
        Self::NewIncarnation,
        Self::Own,
    ];

    /// As metrics and logs say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hole => "hole",
            Self::Silence => "silence",
            Self::Replaced => "replaced",
            Self::Closed => "closed",
            Self::Violation => "violation",
            Self::Overflow => "overflow",
            Self::Left => "left",
            Self::NewIncarnation => "new_incarnation",
            Self::Own => "own",
        }
    }
}
