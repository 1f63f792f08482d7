//! Why a check did not come to an end.

use dunlin_base::transport::CloseCause;
use dunlin_client::DisconnectCause;
use dunlin_mqtt_codec::{DecodeError, EncodeError, ReasonCode};
use dunlin_net::{MoveError, NetError};

/// Why.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The time of the check, or of all checks, is over.
    #[error("no answer in time")]
    Timeout,
    /// The connection ended, or did not come about.
    #[error("{0}")]
    Closed(CloseCause),
    /// CONNACK or DISCONNECT with an error.
    #[error("{}", refusal(*.0, .1.as_deref()))]
    Refused(ReasonCode, Option<String>),
    /// What came is no MQTT.
    #[error("malformed packet: {0}")]
    Malformed(DecodeError),
    /// More came than any of the checks asks for.
    #[error("it sent more than {0} bytes")]
    TooMuch(usize),
    /// The connection could not be begun.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The event loop failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The connection cannot move.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// A packet cannot be made.
    #[error("{0}")]
    Encode(EncodeError),
    /// Something else, in words.
    #[error("{0}")]
    Other(String),
}

impl Fault {
    /// The server does not let this client do that: says nothing about what the
    /// server can.
    pub(super) const fn is_denial(&self) -> bool {
        matches!(
            self,
            Self::Refused(
                ReasonCode::NotAuthorized
                    | ReasonCode::BadUserNameOrPassword
                    | ReasonCode::Banned
                    | ReasonCode::ServerBusy
                    | ReasonCode::ServerUnavailable
                    | ReasonCode::QuotaExceeded
                    | ReasonCode::ConnectionRateExceeded,
                _
            )
        )
    }

    /// The server answered with a refusal, or by closing the connection.
    pub(super) const fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Refused(..) | Self::Closed(CloseCause::Peer { .. })
        ) && !self.is_denial()
    }
}

fn refusal(reason: ReasonCode, text: Option<&str>) -> String {
    let text = text.map(Into::into);
    DisconnectCause::Refused { reason, text }.to_string()
}
