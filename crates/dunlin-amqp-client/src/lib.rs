//! Async AMQP 1.0 client over QUIC, TCP, TLS and WebSocket, on any executor.
//!
//! A [`Runtime`] is one background thread with one event loop for any number
//! of clients; a process-wide one starts with the first client. The async side
//! needs no particular executor. It is made like `dunlin-client`, which speaks
//! MQTT.
//!
//! # Examples
//! ```no_run
//! use dunlin_amqp_client::{Client, Message};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("amqps://plant-7:secret@broker.example")?
//!     .connect()
//!     .await?;
//! let sender = client.sender("plant/7/temperature").attach().await?;
//! let outcome = sender.send(Message::new("21.5").durable(true)).await?;
//! assert!(outcome.is_accepted());
//!
//! let mut receiver = client.receiver("plant/+/temperature").attach().await?;
//! let delivery = receiver.recv().await?;
//! println!("{:?}", delivery.payload());
//! delivery.accept().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! - [`Sender::send`] completes with the receiver's outcome; a settled message
//!   when its bytes have left. At most [`SenderBuilder::max_in_flight`] messages
//!   of a sender wait at a time; further calls wait for room.
//! - The connection comes back by itself, and links are attached again under
//!   their names. Messages without outcome are resumed by the rules of section
//!   2.6.13: where the server keeps the state of its links, a sender or receiver
//!   made with `exactly_once` loses and doubles nothing; where it does not, what
//!   has no outcome is sent again, so that it comes at least once.
//! - What a receiver has not settled outlives its process, if the application keeps it
//!   ([`Receiver::unsettled`], [`ReceiverBuilder::resume`]).
//! - When the application is slow, the server runs out of credit; nothing is
//!   dropped.
//! - A link that the server refuses or ends stays ended, and says why; one that is
//!   for another server says for which ([`LinkError::Redirected`]).
//! - All links of a client are on one session, over one stream of QUIC, unless it
//!   is made with [`StreamPolicy::PerLink`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

mod builder;
mod client;
mod command;
mod delivery;
mod error;
mod events;
mod limits;
mod link;
mod message;
mod options;
mod outcome;
mod receiver;
mod redirect;
mod renewing;
mod runtime;
mod sender;
mod settlement;
mod shared;
mod terminus;
mod tokens;
mod transaction;
mod unsettled;

pub use builder::Builder;
pub use client::{Client, Connecting};
pub use delivery::Delivery;
pub use dunlin_amqp::codec::{
    Header, List, Map, Message as Sections, MessageId, Properties, ReceiverSettleMode,
    SenderSettleMode, Symbol, TerminusDurability, TerminusExpiryPolicy, Timestamp, Uuid, Value,
};
pub use dunlin_base::transport::Transport;
pub use dunlin_dial::{
    Backoff, NetworkOptions, Race, RaceMemory, TicketFile, TlsOptions, Url, UrlError,
};
pub use dunlin_net::{Cipher, Congestion, Group, TuningError};
pub use error::{
    ConnectError, DisconnectCause, LinkError, OptionError, RuntimeError, SendError, SettleError,
    TokenError, TransactionError, TrySendError,
};
pub use events::{ConnectionEvent, Events};
pub use link::Attaching;
pub use message::{Id, Message, Payload};
pub use options::{Sasl, StreamPolicy};
pub use outcome::{Condition, Outcome};
pub use receiver::{Receiver, ReceiverBuilder};
pub use redirect::Redirect;
pub use runtime::{Runtime, RuntimeLimits};
pub use sender::{Sender, SenderBuilder, Sending};
pub use settlement::Settlement;
pub use terminus::Attached;
pub use tokens::Token;
pub use transaction::{Controller, Transaction};
pub use unsettled::Unsettled;
