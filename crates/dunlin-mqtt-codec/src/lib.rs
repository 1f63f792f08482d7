//! MQTT 3.1.1 and 5.0: bytes to packets and back.
//!
//! One packet model serves both versions; the [`Version`] is a parameter.
//! Decoded packets borrow from the received bytes and nothing is allocated, so
//! the same code runs in the broker, in the client and on a microcontroller.
//!
//! - [`peek`] reads a fixed header and applies the size limit before the body
//!   has arrived.
//! - [`decode`] turns exactly one packet into a [`Packet`]. It never panics,
//!   and every fault has its own [`DecodeError`] with the reason code to answer.
//!   [`decode_from_client`] and [`decode_from_server`] know one side only.
//! - [`Packet::encode`] writes to a [`dunlin_base::ByteSink`]. It checks what the
//!   format cannot express (lengths, version) and leaves to the caller what
//!   needs a look at the content: topics, forbidden characters, reason codes.
//! - [`Publish::encode_header`] serves a fan-out: the header once, the packet
//!   identifier patched per receiver, the payload shared.
//!
//! Layer 1: knows no session, no connection state, no clock and no transport.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

mod ack;
mod auth;
mod connack;
mod connect;
mod disconnect;
mod error;
mod filters;
mod frame;
mod lists;
mod packet;
mod property;
mod property_id;
mod publish;
mod reader;
mod reason;
mod suback;
mod subscribe;
mod unsubscribe;
mod will;
mod writer;

pub use ack::{Ack, ReasonProperties};
pub use auth::{Auth, AuthProperties};
pub use connack::{ConnAck, ConnAckProperties};
pub use connect::{Connect, ConnectProperties};
pub use disconnect::{Disconnect, DisconnectProperties};
pub use dunlin_base::QoS;
pub use error::{DecodeError, EncodeError};
pub use filters::{
    RetainHandling, SubscribeFilter, SubscribeFilters, SubscribeOptions, UnsubscribeFilters,
};
pub use frame::{Frame, PacketType, Version, peek};
pub use lists::{ReasonCodes, SubscriptionIdentifiers, UserProperties};
pub use packet::{Packet, decode, decode_from_client, decode_from_server, decode_publish};
pub use property_id::PropertyId;
pub use publish::{HeaderLayout, Publish, PublishProperties};
pub use reader::PacketId;
pub use reason::ReasonCode;
pub use suback::{SubAck, UnsubAck};
pub use subscribe::Subscribe;
pub use unsubscribe::Unsubscribe;
pub use will::{Will, WillProperties};
