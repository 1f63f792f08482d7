//! Reason codes (MQTT 5.0 section 2.4) and which packet may carry which.

macro_rules! reason_codes {
    ($($(#[$meta:meta])* $Name:ident = $value:literal,)*) => {
        /// Why something succeeded or failed; names as in the specification.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ReasonCode {
            $($(#[$meta])* $Name = $value,)*
        }

        impl ReasonCode {
            /// Every reason code, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$Name,)*];

            /// The reason code with this number, if there is one.
            #[must_use]
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value {
                    $($value => Some(Self::$Name),)*
                    _ => None,
                }
            }
        }
    };
}

reason_codes! {
    /// Success; also Normal disconnection and Granted QoS 0.
    #[default]
    Success = 0x00,
    /// Subscribed with maximum QoS 1.
    GrantedQos1 = 0x01,
    /// Subscribed with maximum QoS 2.
    GrantedQos2 = 0x02,
    /// The client disconnects and wants its Will published.
    DisconnectWithWill = 0x04,
    /// Accepted, but there is no subscriber.
    NoMatchingSubscribers = 0x10,
    /// There was no such subscription to remove.
    NoSubscriptionExisted = 0x11,
    /// Another step of authentication follows.
    ContinueAuthentication = 0x18,
    /// The client starts a re-authentication.
    ReAuthenticate = 0x19,
    /// No reason is given.
    UnspecifiedError = 0x80,
    /// The packet cannot be parsed.
    MalformedPacket = 0x81,
    /// Unexpected or forbidden data.
    ProtocolError = 0x82,
    /// Valid, but not accepted by this implementation.
    ImplementationSpecificError = 0x83,
    /// The protocol version is not supported.
    UnsupportedProtocolVersion = 0x84,
    /// The client identifier is not allowed.
    ClientIdentifierNotValid = 0x85,
    /// User name or password not accepted.
    BadUserNameOrPassword = 0x86,
    /// Not allowed to do this.
    NotAuthorized = 0x87,
    /// The server is not available.
    ServerUnavailable = 0x88,
    /// The server is busy; try later.
    ServerBusy = 0x89,
    /// The client is banned.
    Banned = 0x8a,
    /// The server shuts down.
    ServerShuttingDown = 0x8b,
    /// The authentication method is not supported.
    BadAuthenticationMethod = 0x8c,
    /// Nothing arrived for one and a half keep-alive intervals.
    KeepAliveTimeout = 0x8d,
    /// Another connection uses the same client identifier.
    SessionTakenOver = 0x8e,
    /// The topic filter is not accepted.
    TopicFilterInvalid = 0x8f,
    /// The topic name is not accepted.
    TopicNameInvalid = 0x90,
    /// The packet identifier is already in use.
    PacketIdentifierInUse = 0x91,
    /// The packet identifier is not known.
    PacketIdentifierNotFound = 0x92,
    /// More messages in flight than the Receive Maximum.
    ReceiveMaximumExceeded = 0x93,
    /// The topic alias is not valid.
    TopicAliasInvalid = 0x94,
    /// The packet is larger than the Maximum Packet Size.
    PacketTooLarge = 0x95,
    /// Messages arrive too fast.
    MessageRateTooHigh = 0x96,
    /// A limit is exceeded.
    QuotaExceeded = 0x97,
    /// Ended by an administrator.
    AdministrativeAction = 0x98,
    /// The payload is not what Payload Format Indicator says.
    PayloadFormatInvalid = 0x99,
    /// The server has no retained messages.
    RetainNotSupported = 0x9a,
    /// QoS above Maximum QoS.
    QosNotSupported = 0x9b,
    /// Use another server for now.
    UseAnotherServer = 0x9c,
    /// Use another server from now on.
    ServerMoved = 0x9d,
    /// The server has no shared subscriptions.
    SharedSubscriptionsNotSupported = 0x9e,
    /// Connections arrive too fast.
    ConnectionRateExceeded = 0x9f,
    /// The longest time for a connection is over.
    MaximumConnectTime = 0xa0,
    /// The server has no subscription identifiers.
    SubscriptionIdentifiersNotSupported = 0xa1,
    /// The server has no wildcard subscriptions.
    WildcardSubscriptionsNotSupported = 0xa2,
}

impl ReasonCode {
    /// Granted QoS 0, which shares its number with [`ReasonCode::Success`].
    pub const GRANTED_QOS_0: Self = Self::Success;
    /// Normal disconnection, which shares its number with
    /// [`ReasonCode::Success`].
    pub const NORMAL_DISCONNECTION: Self = Self::Success;

    /// The number on the wire.
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// Whether it says failure (0x80 and above).
    #[must_use]
    pub const fn is_error(self) -> bool {
        self as u8 >= 0x80
    }

    /// The CONNACK return code of 3.1.1 closest to it.
    #[must_use]
    pub const fn connack_v3_code(self) -> u8 {
        match self {
            Self::UnsupportedProtocolVersion => 1,
            Self::ClientIdentifierNotValid => 2,
            Self::BadUserNameOrPassword | Self::BadAuthenticationMethod => 4,
            Self::NotAuthorized | Self::Banned => 5,
            code if !code.is_error() => 0,
            // "Server unavailable" is the only code left that lets a client
            // try again.
            _ => 3,
        }
    }

    /// The reason code for a CONNACK return code of 3.1.1.
    #[must_use]
    pub const fn from_connack_v3_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Success,
            1 => Self::UnsupportedProtocolVersion,
            2 => Self::ClientIdentifierNotValid,
            3 => Self::ServerUnavailable,
            4 => Self::BadUserNameOrPassword,
            5 => Self::NotAuthorized,
            _ => return None,
        })
    }
}

/// Which reason codes a packet may carry, as predicates on the raw byte.
pub(crate) mod allowed {
    /// CONNACK (section 3.2.2.2).
    pub(crate) const fn connack(code: u8) -> bool {
        matches!(code, 0x00 | 0x80..=0x8a | 0x8c | 0x90 | 0x95 | 0x97 | 0x99..=0x9d | 0x9f)
    }

    /// PUBACK and PUBREC (sections 3.4.2.1, 3.5.2.1).
    pub(crate) const fn puback(code: u8) -> bool {
        matches!(
            code,
            0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99
        )
    }

    /// PUBREL and PUBCOMP (sections 3.6.2.1, 3.7.2.1).
    pub(crate) const fn pubrel(code: u8) -> bool {
        matches!(code, 0x00 | 0x92)
    }

    /// SUBACK (section 3.9.3).
    pub(crate) const fn suback(code: u8) -> bool {
        matches!(
            code,
            0x00..=0x02 | 0x80 | 0x83 | 0x87 | 0x8f | 0x91 | 0x97 | 0x9e | 0xa1 | 0xa2
        )
    }

    /// SUBACK of 3.1.1 (its section 3.9.3).
    pub(crate) const fn suback_v3(code: u8) -> bool {
        matches!(code, 0x00..=0x02 | 0x80)
    }

    /// UNSUBACK (section 3.11.3).
    pub(crate) const fn unsuback(code: u8) -> bool {
        matches!(code, 0x00 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8f | 0x91)
    }

    /// DISCONNECT (section 3.14.2.1; 0x8c by the table of section 2.4).
    pub(crate) const fn disconnect(code: u8) -> bool {
        matches!(
            code,
            0x00 | 0x04 | 0x80..=0x83 | 0x87 | 0x89 | 0x8b..=0x90 | 0x93..=0xa2
        )
    }

    /// AUTH (section 3.15.2.1).
    pub(crate) const fn auth(code: u8) -> bool {
        matches!(code, 0x00 | 0x18 | 0x19)
    }
}
