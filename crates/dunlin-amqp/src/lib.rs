//! AMQP 1.0 engine, sans-IO: bytes and time come in as arguments, bytes, events
//! and a deadline come out as values. Client and server are one engine with a
//! [`Side`].
//!
//! # How a driver uses it
//!
//! One [`Connection`] is one AMQP connection over one byte stream.
//!
//! ```text
//! bytes from the transport:
//!     let mut data = bytes;
//!     while let Some(event) = connection.poll_event(now, &mut data) { … }
//! afterwards, and after every other call:
//!     connection.poll_output(now, &mut send_buf)
//!     wake at connection.deadline(), then connection.on_deadline(now)
//! transport closed:
//!     connection.handle_closed(), then poll_event with no bytes until None
//! ```
//!
//! [`Connection::poll_event`] takes bytes from `data` frame by frame and stops
//! after each event, so that the driver's answer to one event is in force when
//! the next frame is read. When it returns `None`, all of `data` is taken.
//!
//! | event | what the driver does |
//! |---|---|
//! | [`Event::SaslInit`], [`Event::SaslResponse`] | now or later [`Connection::sasl_challenge`] or [`Connection::sasl_outcome`]; what the client sent meanwhile is kept, bounded; then `poll_event` again, with no bytes if there are none |
//! | [`Event::Opened`] | a server answers with [`Connection::open`] or [`Connection::close`], now or later, then `poll_event` again |
//! | [`Event::Begun`] | nothing, or [`Connection::end`]: `begin` is answered here |
//! | [`Event::Attach`] | now or later [`Connection::accept_attach`] or [`Connection::refuse_attach`] |
//! | [`Event::Credit`] | [`Connection::send`] while [`Connection::credit`] says so, then [`Connection::drained`] if it says drain |
//! | [`Event::Message`] | [`Connection::settle`], or [`Connection::update`] first if the link settles second; [`Connection::set_credit`] when the credit is used up by half |
//! | [`Event::Demand`] | of a link whose target is a coordinator, instead of a message: begin or end the transaction, [`Connection::settle`] |
//! | [`Event::Disposition`] | forget the delivery if it is settled, else [`Connection::settle`] it |
//! | [`Event::WindowOpen`] | send again what `send` refused with [`SendError::Window`] |
//! | [`Event::Detached`] | forget the link: each that was in an `Attach` event or came from [`Connection::attach`] has exactly one |
//! | [`Event::Ended`], [`Event::Closed`] | forget the session; send the output and close the transport |
//!
//! A client calls [`Connection::open`], [`Connection::begin`] and
//! [`Connection::attach`] one after the other without waiting: all goes into
//! the first flight, after the SASL frames if there are any.
//!
//! # What the driver decides
//!
//! Addresses, rights, users, credit, outcomes and what is stored. The engine
//! knows frames, windows, counts and states, and answers every violation with
//! its condition at its level: `detach`, `end` or `close` with an error, after
//! which the events say that link, session or connection are gone.
//!
//! # Identity
//!
//! [`LinkId`] and [`SessionId`] are small and unique for a connection; a number
//! that is used again on the wire has another id here. A [`Delivery`] is a link
//! and the delivery-id of the session, for both directions. What survives a
//! connection is known by link name and [`Tag`]; [`RemoteUnsettled`] says how
//! deliveries are resumed when a link is attached again.
//!
//! # Bounds
//!
//! [`Limits`] has one for every table; see there what happens at each.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

/// The types and frames, for crates that drive an engine.
pub use dunlin_amqp_codec as codec;

mod connection;
mod error;
mod event;
pub mod filter;
mod framer;
mod ids;
mod limits;
mod link;
pub mod message;
mod output;
mod resume;
mod sasl;
mod session;
mod state;
mod tag;
mod transaction;
mod wire;

#[cfg(test)]
mod tests;

pub use connection::{Connection, Phase, SaslPolicy, Settings, Side};
pub use error::{CallError, Fault, Reason, SendError};
pub use event::{Body, Event, Message, Payload};
pub use ids::{Delivery, LinkId, SessionId};
pub use limits::Limits;
pub use resume::{RemoteUnsettled, Resumption};
pub use session::{Extent, Sending};
pub use state::State;
pub use tag::Tag;
pub use transaction::Demand;
