//! States of deliveries that outlive the frame they came in.

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp_codec::{DeliveryState, Modified, Outcome, Rejected};

/// A delivery state with its own memory; the two common outcomes need none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The receiver has the message.
    Accepted,
    /// The message was not and will not be acted upon.
    Released,
    /// Another state, encoded; see [`State::get`].
    Encoded(Bytes),
}

impl State {
    /// A copy of a state; `None` if it cannot be encoded.
    #[must_use]
    pub fn new(state: &DeliveryState<'_>) -> Option<Self> {
        Some(match state {
            DeliveryState::Outcome(Outcome::Accepted) => Self::Accepted,
            DeliveryState::Outcome(Outcome::Released) => Self::Released,
            other => {
                let mut bytes = Vec::new();
                other.encode(&mut bytes).ok()?;
                Self::Encoded(bytes.into())
            }
        })
    }

    /// The state.
    #[must_use]
    pub fn get(&self) -> DeliveryState<'_> {
        match self {
            Self::Accepted => DeliveryState::Outcome(Outcome::Accepted),
            Self::Released => DeliveryState::Outcome(Outcome::Released),
            // The bytes were encoded here, so that they can be decoded.
            Self::Encoded(bytes) => {
                DeliveryState::decode(bytes).unwrap_or(DeliveryState::Outcome(Outcome::Released))
            }
        }
    }

    /// Whether it is an outcome and cannot change any more.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.get(), DeliveryState::Outcome(_))
    }

    /// Whether it is part of a transaction.
    pub(crate) fn is_transactional(&self) -> bool {
        matches!(self, Self::Encoded(_)) && matches!(self.get(), DeliveryState::Transactional(_))
    }

    /// The state without what makes it large: errors and annotations.
    #[must_use]
    pub fn without_details(&self) -> DeliveryState<'_> {
        match self.get() {
            DeliveryState::Outcome(Outcome::Rejected(_)) => {
                DeliveryState::Outcome(Outcome::Rejected(Rejected::default()))
            }
            DeliveryState::Outcome(Outcome::Modified(modified)) => {
                DeliveryState::Outcome(Outcome::Modified(Modified {
                    message_annotations: None,
                    ..modified
                }))
            }
            other => other,
        }
    }
}
