//! Error conditions (sections 2.8.15 to 2.8.18, 4.5.8).

use crate::{DecodeError, Symbol};

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: Symbol<'static> = Symbol::from_static($text);)*
    };
}

conditions! {
    /// A fault of this side.
    INTERNAL_ERROR = "amqp:internal-error";
    /// There is no such node.
    NOT_FOUND = "amqp:not-found";
    /// Not allowed to this user.
    UNAUTHORIZED_ACCESS = "amqp:unauthorized-access";
    /// Bytes that are no AMQP.
    DECODE_ERROR = "amqp:decode-error";
    /// A limit of this side.
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded";
    /// Not allowed here, to anyone.
    NOT_ALLOWED = "amqp:not-allowed";
    /// A field has a value that it cannot have.
    INVALID_FIELD = "amqp:invalid-field";
    /// Part of the specification that this side does not have.
    NOT_IMPLEMENTED = "amqp:not-implemented";
    /// Another has it.
    RESOURCE_LOCKED = "amqp:resource-locked";
    /// Conditions that the peer named do not hold.
    PRECONDITION_FAILED = "amqp:precondition-failed";
    /// It was deleted.
    RESOURCE_DELETED = "amqp:resource-deleted";
    /// Not in this state.
    ILLEGAL_STATE = "amqp:illegal-state";
    /// A frame larger than `max-frame-size`.
    FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small";
    /// Connection closed by an operator.
    CONNECTION_FORCED = "amqp:connection:forced";
    /// Not a valid frame.
    FRAMING_ERROR = "amqp:connection:framing-error";
    /// The container is reached elsewhere.
    CONNECTION_REDIRECT = "amqp:connection:redirect";
    /// More transfers than the window allows.
    WINDOW_VIOLATION = "amqp:session:window-violation";
    /// A frame for a link that was detached with an error.
    ERRANT_LINK = "amqp:session:errant-link";
    /// `attach` with a handle that has a link.
    HANDLE_IN_USE = "amqp:session:handle-in-use";
    /// A handle without a link.
    UNATTACHED_HANDLE = "amqp:session:unattached-handle";
    /// Link detached by an operator.
    DETACH_FORCED = "amqp:link:detach-forced";
    /// More transfers than the link credit allows.
    TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded";
    /// A message larger than `max-message-size`.
    MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded";
    /// The node is reached elsewhere.
    LINK_REDIRECT = "amqp:link:redirect";
    /// The same link was attached elsewhere.
    STOLEN = "amqp:link:stolen";
    /// There is no such transaction.
    TRANSACTION_UNKNOWN_ID = "amqp:transaction:unknown-id";
    /// The transaction was rolled back.
    TRANSACTION_ROLLBACK = "amqp:transaction:rollback";
    /// The transaction took too long.
    TRANSACTION_TIMEOUT = "amqp:transaction:timeout";
}

impl DecodeError {
    /// The condition of the error that answers it.
    #[must_use]
    pub const fn condition(self) -> Symbol<'static> {
        match self {
            Self::DataOffset | Self::FrameSize(_) | Self::FrameType(_) | Self::FrameTooShort => {
                FRAMING_ERROR
            }
            Self::FieldMissing(_) | Self::FieldValue(_) | Self::ValueOutOfRange => INVALID_FIELD,
            Self::ArrayConstructor | Self::Depth | Self::EmptyElements => RESOURCE_LIMIT_EXCEEDED,
            Self::UnknownPerformative => NOT_IMPLEMENTED,
            _ => DECODE_ERROR,
        }
    }
}
