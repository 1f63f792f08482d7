//! What can go wrong in the client engine, by whose fault it is.

use dunlin_base::SinkFull;
use dunlin_base::topic::TopicError;
use dunlin_mqtt_codec::{DecodeError, EncodeError, ReasonCode};

/// The server broke the protocol, or is gone. The connection is over: write
/// what [`poll_output`](super::Session::poll_output) gives, then close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// A packet cannot be decoded, or is larger than was agreed.
    #[error("malformed packet from the server")]
    Decode(#[from] DecodeError),
    /// A packet that a server never sends, or not now.
    #[error("unexpected {0} packet from the server")]
    UnexpectedPacket(&'static str),
    /// An acknowledgement of the wrong kind for its packet identifier.
    #[error("the server acknowledged a packet with the wrong kind of packet")]
    WrongAcknowledgement,
    /// A PUBLISH reuses an identifier that is taken.
    #[error("the server used a packet identifier twice")]
    PacketIdInUse,
    /// More unacknowledged PUBLISHes than the Receive Maximum
    /// [MQTT-3.3.4-9].
    #[error("the server exceeded the receive maximum")]
    ReceiveMaximumExceeded,
    /// A topic alias that is zero, too large or not set
    /// [MQTT-3.1.2-26], [MQTT-3.3.2-11].
    #[error("the server used an invalid topic alias")]
    TopicAlias,
    /// A topic name with wildcards [MQTT-3.3.2-2].
    #[error("the server sent an invalid topic name")]
    Topic(#[source] TopicError),
    /// Session Present although no session was asked for [MQTT-3.2.2-4].
    #[error("the server resumed a session that this client does not have")]
    UnknownSession,
    /// An authentication method other than the one in CONNECT
    /// [MQTT-4.12.0-5], or one although CONNECT had none [MQTT-4.12.0-6].
    #[error("the server changed the authentication method")]
    AuthenticationMethod,
    /// No CONNACK in time.
    #[error("the server did not answer CONNECT in time")]
    ConnectTimeout,
    /// No PINGRESP in time.
    #[error("the server does not answer pings")]
    PingTimeout,
}

impl PeerError {
    /// What DISCONNECT says about it.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Decode(error) => error.reason(),
            Self::ReceiveMaximumExceeded => ReasonCode::ReceiveMaximumExceeded,
            Self::TopicAlias => ReasonCode::TopicAliasInvalid,
            Self::Topic(_) => ReasonCode::TopicNameInvalid,
            Self::ConnectTimeout | Self::PingTimeout => ReasonCode::UnspecifiedError,
            // "Packet Identifier in use" does not go into a DISCONNECT.
            Self::PacketIdInUse
            | Self::UnexpectedPacket(_)
            | Self::WrongAcknowledgement
            | Self::UnknownSession
            | Self::AuthenticationMethod => ReasonCode::ProtocolError,
        }
    }
}

/// A command cannot be done. Nothing has changed: the connection and the
/// session are as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The output buffer has no room. Throw away what was written of this
    /// packet, make room, try again.
    #[error("the output buffer is full")]
    SinkFull,
    /// There is no connection, or it is ending.
    #[error("not connected")]
    NotConnected,
    /// CONNECT has been sent already.
    #[error("already connected")]
    AlreadyConnected,
    /// The server's Receive Maximum is reached, all packet identifiers are in
    /// use, or older messages must be sent again first: later.
    #[error("too many messages are in flight")]
    InFlightFull,
    /// The server takes no message of this QoS [MQTT-3.2.2-11].
    #[error("the server does not support this QoS")]
    QosNotSupported,
    /// The server keeps no messages [MQTT-3.2.2-14].
    #[error("the server does not support retained messages")]
    RetainNotSupported,
    /// The packet is larger than the server takes [MQTT-3.2.2-15].
    #[error("the packet is larger than the server accepts")]
    PacketTooLarge,
    /// A topic or filter is not allowed.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The server takes no filter with wildcards.
    #[error("the server does not support wildcards")]
    WildcardNotSupported,
    /// The server takes no shared subscriptions.
    #[error("the server does not support shared subscriptions")]
    SharedNotSupported,
    /// The server takes no subscription identifiers.
    #[error("the server does not support subscription identifiers")]
    SubscriptionIdNotSupported,
    /// A SUBSCRIBE or UNSUBSCRIBE has at least one filter [MQTT-3.8.3-2],
    /// [MQTT-3.10.3-2].
    #[error("at least one topic filter is needed")]
    NoFilter,
    /// The packet identifier does not wait for this.
    #[error("no such packet identifier")]
    UnknownPacketId,
    /// CONNECT had no authentication method [MQTT-4.12.0-7], or nothing is to
    /// be authenticated.
    #[error("no authentication is under way")]
    NotAuthenticating,
    /// CONNECT asks for more than the engine's settings allow, or for what its
    /// version does not have.
    #[error("{0}")]
    Connect(&'static str),
    /// A field cannot be encoded: too long, or not in this version.
    #[error("{0}")]
    Encode(EncodeError),
}

impl From<SinkFull> for CommandError {
    fn from(_: SinkFull) -> Self {
        Self::SinkFull
    }
}

impl From<EncodeError> for CommandError {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::SinkFull(_) => Self::SinkFull,
            EncodeError::PacketTooLarge => Self::PacketTooLarge,
            error => Self::Encode(error),
        }
    }
}

impl CommandError {
    /// Whether the server has refused it by what its CONNACK says, so that
    /// another connection may allow it.
    pub(super) const fn is_by_server(&self) -> bool {
        matches!(
            self,
            Self::QosNotSupported
                | Self::RetainNotSupported
                | Self::PacketTooLarge
                | Self::WildcardNotSupported
                | Self::SharedNotSupported
                | Self::SubscriptionIdNotSupported
        )
    }
}
