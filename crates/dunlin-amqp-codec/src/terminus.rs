//! Sources and targets (sections 3.5.1 to 3.5.14).

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::{
    Coordinator, DecodeError, Described, Descriptor, EncodeError, List, Map, Outcome, Symbol,
    Symbols, Value,
};

composite! {
    /// Where the messages of a link come from.
    Source<'a> = 0x28, "amqp:source:list" {
        /// The node.
        address: optional &'a str,
        /// What survives a failure.
        durable: default TerminusDurability = TerminusDurability::None,
        /// When the expiry of the terminus begins.
        expiry_policy: default TerminusExpiryPolicy = TerminusExpiryPolicy::SessionEnd,
        /// Seconds from then to its end.
        timeout: default u32 = 0,
        /// The other side is to create a node.
        dynamic: default bool = false,
        /// Properties of that node, by symbol.
        dynamic_node_properties: optional Map<'a>,
        /// Whether messages are moved or copied.
        distribution_mode: optional DistributionMode,
        /// Filters by name; values are described.
        filter: optional Map<'a>,
        /// Outcome of a delivery that is settled without one.
        default_outcome: optional Outcome<'a>,
        /// Outcomes that the link may have, by symbolic descriptor.
        outcomes: optional Symbols<'a>,
        /// Extensions that the source supports or should.
        capabilities: optional Symbols<'a>,
    }
}

composite! {
    /// Where the messages of a link go to.
    Target<'a> = 0x29, "amqp:target:list" {
        /// The node.
        address: optional &'a str,
        /// What survives a failure.
        durable: default TerminusDurability = TerminusDurability::None,
        /// When the expiry of the terminus begins.
        expiry_policy: default TerminusExpiryPolicy = TerminusExpiryPolicy::SessionEnd,
        /// Seconds from then to its end.
        timeout: default u32 = 0,
        /// The other side is to create a node.
        dynamic: default bool = false,
        /// Properties of that node, by symbol.
        dynamic_node_properties: optional Map<'a>,
        /// Extensions that the target supports or should.
        capabilities: optional Symbols<'a>,
    }
}

/// What `attach` has for a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnyTarget<'a> {
    /// A node.
    Target(Target<'a>),
    /// The coordinator of transactions.
    Coordinator(Coordinator<'a>),
}

/// What of a terminus survives a failure (section 3.5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum TerminusDurability {
    /// Nothing.
    #[default]
    None = 0,
    /// That it exists, and its configuration.
    Configuration = 1,
    /// Its unsettled deliveries too.
    UnsettledState = 2,
}

/// When the expiry of a terminus begins (section 3.5.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TerminusExpiryPolicy {
    /// When its link is detached.
    LinkDetach,
    /// When its session ends.
    #[default]
    SessionEnd,
    /// When its connection closes.
    ConnectionClose,
    /// Never.
    Never,
}

/// What a source does with a message that it sends (section 3.5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DistributionMode {
    /// It goes to one link only.
    Move,
    /// It stays for others.
    Copy,
}

/// When a dynamic node is deleted (sections 3.5.10 to 3.5.13): the value of
/// `lifetime-policy` in the properties of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LifetimePolicy {
    /// When the link that created it is closed.
    DeleteOnClose = 0x2b,
    /// When no link to it is left.
    DeleteOnNoLinks = 0x2c,
    /// When no message is in it.
    DeleteOnNoMessages = 0x2d,
    /// When no link to it and no message in it is left.
    DeleteOnNoLinksOrMessages = 0x2e,
}

any_composite! {
    AnyTarget {
        Target(Target),
        Coordinator(Coordinator),
    }
}

impl<'a> Field<'a> for TerminusDurability {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u32::read(code, r)? {
            0 => Ok(Self::None),
            1 => Ok(Self::Configuration),
            2 => Ok(Self::UnsettledState),
            _ => Err(DecodeError::ValueOutOfRange),
        }
    }

    fn encoded_len(&self) -> usize {
        (*self as u32).encoded_len()
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        (*self as u32).write(out)
    }
}

/// Implements [`Field`] for an enum whose variants are symbols.
macro_rules! choice {
    ($name:ident { $($variant:ident = $text:literal,)* }) => {
        impl $name {
            /// The symbol.
            #[must_use]
            pub const fn symbol(self) -> Symbol<'static> {
                match self {
                    $(Self::$variant => const { Symbol::from_static($text) },)*
                }
            }
        }

        impl<'a> Field<'a> for $name {
            fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
                match Symbol::read(code, r)?.as_str() {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(DecodeError::ValueOutOfRange),
                }
            }

            fn encoded_len(&self) -> usize {
                self.symbol().encoded_len()
            }

            fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
                self.symbol().write(out)
            }
        }
    };
}

choice! {
    TerminusExpiryPolicy {
        LinkDetach = "link-detach",
        SessionEnd = "session-end",
        ConnectionClose = "connection-close",
        Never = "never",
    }
}

choice! {
    DistributionMode {
        Move = "move",
        Copy = "copy",
    }
}

impl LifetimePolicy {
    const ALL: [(Self, &'static str); 4] = [
        (Self::DeleteOnClose, "amqp:delete-on-close:list"),
        (Self::DeleteOnNoLinks, "amqp:delete-on-no-links:list"),
        (Self::DeleteOnNoMessages, "amqp:delete-on-no-messages:list"),
        (
            Self::DeleteOnNoLinksOrMessages,
            "amqp:delete-on-no-links-or-messages:list",
        ),
    ];

    /// The policy that a value is.
    #[must_use]
    pub fn from_value(value: &Value<'_>) -> Option<Self> {
        let Value::Described(described) = value else {
            return None;
        };
        Self::ALL
            .into_iter()
            .find(|(policy, symbol)| described.descriptor.is(*policy as u64, symbol))
            .map(|(policy, _)| policy)
    }

    /// The policy as a value.
    #[must_use]
    pub const fn value(self) -> Value<'static> {
        const EMPTY: &Value<'static> = &Value::List(List::new(&[]));
        Value::Described(Described::new(Descriptor::Code(self as u64), EMPTY))
    }
}
