//! Why a connection (or one of its streams) ends, with the reason code that
//! the client is told.

use dunlin_mqtt::codec::{DecodeError, ReasonCode};

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: ReasonCode,
    pub(crate) text: &'static str,
}

impl Fault {
    pub(crate) const fn new(reason: ReasonCode, text: &'static str) -> Self {
        Self { reason, text }
    }

    /// Protocol Error (0x82).
    pub(crate) const fn protocol(text: &'static str) -> Self {
        Self::new(ReasonCode::ProtocolError, text)
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::new(error.reason(), "a packet could not be decoded")
    }
}
