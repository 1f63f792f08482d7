//! AMQP 1.0: bytes to values, frames and message sections, and back.
//!
//! Everything that is decoded borrows from the received bytes; nothing is
//! allocated. A compound value (list, map, array, described value) is checked
//! once, when it is read, and its elements are read again as they are iterated,
//! so that memory does not depend on what a peer claims to send. The same types
//! are built from slices of [`Value`] to be encoded.
//!
//! - [`frame::split`] cuts one frame from the received bytes, under the limit of
//!   its size; [`Performative::decode`] and [`SaslFrame::decode`] read its body.
//! - [`frame::encode`] and [`frame::encode_transfer`] write frames.
//! - [`Message::scan`] finds the sections of a message without changing them.
//! - [`SerialNumber`] is the arithmetic of delivery counts and transfer ids.
//!
//! Composite types are described once, by the macro `composite!`, which gives
//! the struct, its decoder and its encoder. A field with a default value has
//! that value when the peer left it out, and is left out when it has it.
//!
//! Layer 1: knows no connection, session or link state, no clock and no
//! transport.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

#[macro_use]
mod composite;
pub mod capability;
mod code;
pub mod condition;
mod connection;
mod error;
mod field;
pub mod frame;
pub mod limits;
mod link;
mod message;
mod message_id;
mod outcome;
mod performative;
mod primitive;
mod protocol_header;
mod reader;
mod sasl;
mod section;
mod serial;
mod session;
mod settle_mode;
mod symbol;
mod symbols;
mod terminus;
mod transaction;
mod unsettled;
mod value;
mod writer;

pub use connection::{Close, Error, Open};
pub use error::{DecodeError, EncodeError};
pub use frame::{Frame, FrameType};
pub use link::{Attach, Detach, Disposition, Flow, Transfer};
pub use message::{Body, BodyKind, Message};
pub use message_id::MessageId;
pub use outcome::{
    Accepted, Declared, DeliveryState, Modified, Outcome, Received, Rejected, Released,
    TransactionalState,
};
pub use performative::Performative;
pub use primitive::{Timestamp, Uuid};
pub use protocol_header::{NotAProtocolHeader, ProtocolHeader};
pub use sasl::{
    SaslChallenge, SaslCode, SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse,
};
pub use section::{Header, Properties, Section, encode_annotated};
pub use serial::SerialNumber;
pub use session::{Begin, End};
pub use settle_mode::{ReceiverSettleMode, Role, SenderSettleMode};
pub use symbol::Symbol;
pub use symbols::Symbols;
pub use terminus::{
    AnyTarget, DistributionMode, LifetimePolicy, Source, Target, TerminusDurability,
    TerminusExpiryPolicy,
};
pub use transaction::{Coordinator, Declare, Discharge};
pub use unsettled::Unsettled;
pub use value::{Array, Described, Descriptor, List, Map, Value};
