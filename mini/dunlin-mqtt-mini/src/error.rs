//! What a session refuses, one number each, beside those of the engine.

use dunlin_quic_mini as quic;

/// A packet that does not follow the rules, or that this client did not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Why a call was refused or a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The engine's reason.
    Quic(quic::Error),
    /// A packet of the broker is malformed, or of a kind that a client does
    /// not get.
    Malformed,
    /// A packet of the broker is longer than this client allowed.
    TooLong,
    /// The broker refused the connection, or a message of a device;
    /// [`Session::reason`] says why.
    ///
    /// [`Session::reason`]: crate::Session::reason
    Refused,
    /// The broker ended the connection; [`Session::reason`] says why.
    ///
    /// [`Session::reason`]: crate::Session::reason
    Disconnected,
    /// The broker ended the stream without a word.
    Ended,
    /// The send buffer has no room now: call again after the next datagram.
    Full,
    /// The packet is longer than the send buffer, or than the broker takes.
    TooLarge,
    /// The call makes no sense now: begun already, or not begun.
    State,
    /// More messages under way than the broker allows, or more than this
    /// client allows the broker.
    Quota,
    /// The broker does not take this quality of service.
    Qos,
}

impl Error {
    /// A number for the device to send home. Those from 160 on belong to MQTT,
    /// the others are the engine's. [`error_text`](crate::error_text) has it in
    /// words.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Quic(error) => error as u8,
            Self::Malformed => 160,
            Self::TooLong => 161,
            Self::Refused => 162,
            Self::Disconnected => 163,
            Self::Ended => 164,
            Self::Full => 165,
            Self::TooLarge => 166,
            Self::State => 167,
            Self::Quota => 168,
            Self::Qos => 169,
        }
    }

    /// Whether the session goes on: the call may be made again, in another way
    /// or later. So may a call that publishes, after [`Quota`](Self::Quota).
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        match self {
            Self::Full | Self::TooLarge | Self::State | Self::Qos => true,
            Self::Quic(error) => error as u8 >= 128,
            _ => false,
        }
    }
}

impl From<quic::Error> for Error {
    fn from(error: quic::Error) -> Self {
        Self::Quic(error)
    }
}

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}
