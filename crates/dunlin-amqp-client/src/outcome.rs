//! What became of a message, and why a peer refused something.

use core::fmt;
use std::sync::Arc;

use dunlin_amqp::State;
use dunlin_amqp::codec::{DeliveryState, Error, Modified, Outcome as Wire, Rejected, Symbol};

/// An error condition of the peer, such as `amqp:not-found`, with its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    name: Arc<str>,
    description: Option<Arc<str>>,
}

impl Condition {
    /// The symbol.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Text for people.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }
}

impl From<Error<'_>> for Condition {
    fn from(error: Error<'_>) -> Self {
        let description = error.description.filter(|text| !text.is_empty());
        Self {
            name: error.condition.as_str().into(),
            description: description.map(Arc::from),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            Some(text) => write!(f, "{text} ({})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// What became of a message that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The receiver has taken it over.
    Accepted,
    /// The receiver finds it invalid.
    Rejected(Option<Condition>),
    /// The receiver has not taken it and does not mean to.
    Released,
    /// The receiver has not taken it, and says something about that.
    Modified {
        /// It counts as a failed delivery.
        delivery_failed: bool,
        /// It is not to be sent on this link again.
        undeliverable_here: bool,
    },
    /// It has left for the network settled, or the receiver settled it without
    /// a word: nothing more is known.
    Settled,
}

impl Outcome {
    /// Whether the receiver has the message, as far as is known.
    #[must_use]
    pub const fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted | Self::Settled)
    }

    /// What a state of the receiver says; `None` if it is not the last.
    pub(crate) fn of(state: &DeliveryState<'_>) -> Option<Self> {
        Some(match state.outcome()? {
            Wire::Accepted => Self::Accepted,
            Wire::Rejected(rejected) => Self::Rejected(rejected.error.map(Condition::from)),
            Wire::Released => Self::Released,
            Wire::Modified(modified) => Self::Modified {
                delivery_failed: modified.delivery_failed,
                undeliverable_here: modified.undeliverable_here,
            },
            Wire::Declared(_) => Self::Settled,
        })
    }

    /// It as a receiver says it.
    pub(crate) fn state(&self) -> State {
        let outcome = match self {
            Self::Accepted | Self::Settled => Wire::Accepted,
            Self::Released => Wire::Released,
            Self::Rejected(why) => Wire::Rejected(Rejected {
                error: why.as_ref().and_then(|why| {
                    let name = Symbol::new(&why.name)?;
                    Some(Error::new(name, why.description().unwrap_or_default()))
                }),
            }),
            Self::Modified {
                delivery_failed,
                undeliverable_here,
            } => Wire::Modified(Modified {
                delivery_failed: *delivery_failed,
                undeliverable_here: *undeliverable_here,
                message_annotations: None,
            }),
        };
        // A reason that is too long cannot be encoded.
        State::new(&DeliveryState::Outcome(outcome)).unwrap_or(State::Released)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::Rejected(None) => f.write_str("rejected"),
            Self::Rejected(Some(condition)) => write!(f, "rejected: {condition}"),
            Self::Released => f.write_str("released"),
            Self::Modified { .. } => f.write_str("not taken (modified)"),
            Self::Settled => f.write_str("settled"),
        }
    }
}
