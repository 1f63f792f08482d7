//! The properties of MQTT 5.0 (section 2.2.2): one table of identifiers, names
//! and wire types. What the wire types are is in `property.rs`.

/// Gives the table to a macro: documentation, identifier, name and wire type of
/// each property.
macro_rules! property_table {
    ($make:ident) => {
        $make! {
            /// Payload Format Indicator.
            0x01 PayloadFormatIndicator: Flag,
            /// Message Expiry Interval.
            0x02 MessageExpiryInterval: FourBytes,
            /// Content Type.
            0x03 ContentType: Text,
            /// Response Topic.
            0x08 ResponseTopic: TopicName,
            /// Correlation Data.
            0x09 CorrelationData: Binary,
            /// Subscription Identifier.
            0x0b SubscriptionIdentifier: Varint,
            /// Session Expiry Interval.
            0x11 SessionExpiryInterval: FourBytes,
            /// Assigned Client Identifier.
            0x12 AssignedClientIdentifier: Text,
            /// Server Keep Alive.
            0x13 ServerKeepAlive: TwoBytes,
            /// Authentication Method.
            0x15 AuthenticationMethod: Text,
            /// Authentication Data.
            0x16 AuthenticationData: Binary,
            /// Request Problem Information.
            0x17 RequestProblemInformation: Flag,
            /// Will Delay Interval.
            0x18 WillDelayInterval: FourBytes,
            /// Request Response Information.
            0x19 RequestResponseInformation: Flag,
            /// Response Information.
            0x1a ResponseInformation: Text,
            /// Server Reference.
            0x1c ServerReference: Text,
            /// Reason String.
            0x1f ReasonString: Text,
            /// Receive Maximum.
            0x21 ReceiveMaximum: TwoBytesNonZero,
            /// Topic Alias Maximum.
            0x22 TopicAliasMaximum: TwoBytes,
            /// Topic Alias.
            0x23 TopicAlias: Alias,
            /// Maximum QoS.
            0x24 MaximumQos: QosLimit,
            /// Retain Available.
            0x25 RetainAvailable: Flag,
            /// User Property.
            0x26 UserProperty: Pair,
            /// Maximum Packet Size.
            0x27 MaximumPacketSize: FourBytesNonZero,
            /// Wildcard Subscription Available.
            0x28 WildcardSubscriptionAvailable: Flag,
            /// Subscription Identifier Available.
            0x29 SubscriptionIdentifierAvailable: Flag,
            /// Shared Subscription Available.
            0x2a SharedSubscriptionAvailable: Flag,
        }
    };
}

pub(crate) use property_table;

macro_rules! identifiers {
    ($($(#[$meta:meta])* $id:literal $Name:ident: $Kind:ident,)*) => {
        /// Identifies a property; names as in the specification.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum PropertyId {
            $($(#[$meta])* $Name = $id,)*
        }

        impl PropertyId {
            /// Every property, ascending by identifier.
            pub const ALL: &'static [Self] = &[$(Self::$Name,)*];

            /// The property with this identifier, if there is one.
            #[must_use]
            pub const fn from_u8(id: u8) -> Option<Self> {
                match id {
                    $($id => Some(Self::$Name),)*
                    _ => None,
                }
            }
        }
    };
}

property_table!(identifiers);
