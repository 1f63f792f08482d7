//! Small packets that are sent twice: when, and how a client asks a server for it. A
//! transport does it; what lies between only passes this value on.

/// When small packets are sent a second time without being lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Repeat {
    /// Never.
    #[default]
    Never,
    /// Those that are alone on their way, where packets were lost lately.
    Lone,
    /// For a while after a packet was lost, and as [`Repeat::Lone`] after it.
    OnLoss,
    /// Always.
    Always,
}

impl Repeat {
    /// The number by which a client asks a server for it. There is none for
    /// [`Repeat::Lone`], which a server does by itself.
    #[must_use]
    pub const fn asked(self) -> Option<u32> {
        match self {
            Self::Never => Some(0),
            Self::Always => Some(1),
            Self::OnLoss => Some(2),
            Self::Lone => None,
        }
    }

    /// What a client asks for by this number.
    #[must_use]
    pub const fn from_asked(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Never),
            1 => Some(Self::Always),
            2 => Some(Self::OnLoss),
            _ => None,
        }
    }

    /// What a server does that is asked for it, and does not `allow` all; `None`: what it
    /// does without being asked. No server sends packets twice to a client that wants none.
    #[must_use]
    pub fn granted(asked: Option<Self>, allow: bool) -> Option<Self> {
        asked.filter(|asked| allow || *asked == Self::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_asks_for_what_it_stands_for() {
        for number in 0..=u32::from(u8::MAX) {
            let asked = Repeat::from_asked(number);
            assert_eq!(asked.and_then(Repeat::asked), asked.map(|_| number));
            assert_eq!(asked.is_some(), number < 3);
        }
        assert_eq!(Repeat::Lone.asked(), None);
    }

    #[test]
    fn a_server_that_allows_nothing_still_stops() {
        for asked in [Repeat::Never, Repeat::OnLoss, Repeat::Always].map(Some) {
            assert_eq!(Repeat::granted(asked, true), asked);
        }
        let never = Some(Repeat::Never);
        assert_eq!(Repeat::granted(never, false), never);
        assert_eq!(Repeat::granted(Some(Repeat::Always), false), None);
        assert_eq!(Repeat::granted(None, true), None);
    }
}
