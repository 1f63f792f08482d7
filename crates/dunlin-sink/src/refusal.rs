//! Why a message is not stored and will not be, however often it is tried. Knows no target.

use core::fmt;

/// At which step a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its payload is not what the configuration says.
    Decode,
    /// An expression failed for it.
    Expression,
    /// A value does not fit the type of its column.
    Value,
    /// The target refused it.
    Target,
    /// Making rows of it panicked, or ended the process.
    Fault,
}

impl Cause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Decode,
        Self::Expression,
        Self::Value,
        Self::Target,
        Self::Fault,
    ];

    /// Its name in metrics and in what is written about refused messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Expression => "expression",
            Self::Value => "value",
            Self::Target => "target",
            Self::Fault => "fault",
        }
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// At which step.
    pub cause: Cause,
    /// Why, for people.
    pub why: String,
}

/// Longest reason that is kept: those of servers may repeat the whole row.
const WHY_BYTES_MAX: usize = 500;

impl Refusal {
    /// A refusal; a reason that is very long is cut.
    pub fn new(cause: Cause, why: impl Into<String>) -> Self {
        let mut why = why.into();
        if why.len() > WHY_BYTES_MAX {
            why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
            why.push('…');
        }
        Self { cause, why }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause.name(), self.why)
    }
}
