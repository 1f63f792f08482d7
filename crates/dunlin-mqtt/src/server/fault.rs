//! Why a connection, or one of its streams, ends: a rule that the client broke,
//! with the reason code that it gets.

use dunlin_mqtt_codec::{DecodeError, ReasonCode};

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Reason code for DISCONNECT or CONNACK.
    pub reason: ReasonCode,
    /// The rule, for the log.
    pub text: &'static str,
}

impl Fault {
    /// A broken rule with its reason code.
    #[must_use]
    pub const fn new(reason: ReasonCode, text: &'static str) -> Self {
        Self { reason, text }
    }

    /// Protocol Error (0x82).
    #[must_use]
    pub const fn protocol(text: &'static str) -> Self {
        Self::new(ReasonCode::ProtocolError, text)
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::new(error.reason(), "a packet could not be decoded")
    }
}
