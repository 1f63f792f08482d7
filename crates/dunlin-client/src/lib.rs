//! Async MQTT client: 5.0 and 3.1.1 over QUIC, TCP, TLS and WebSocket, on any
//! executor.
//!
//! A [`Runtime`] is one background thread with one event loop for any number
//! of clients; a process-wide one starts with the first client. The async side
//! needs no particular executor.
//!
//! # Examples
//! ```no_run
//! use dunlin_client::{Client, Publish, QoS};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let (client, mut messages) = Client::builder("quic://broker.example")?
//!     .credentials("plant-7", "secret")
//!     .connect()
//!     .await?;
//! client.subscribe("plant/+/temperature", QoS::AtLeastOnce).await?;
//! client
//!     .publish(Publish::new("plant/7/temperature", "21.5").qos(QoS::AtLeastOnce))
//!     .await?;
//! while let Some(message) = messages.next().await {
//!     println!("{}: {:?}", message.topic, message.payload);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! - [`Client::publish`] completes when the server has taken over the message:
//!   at PUBACK or PUBCOMP, for QoS 0 when the bytes have left. Connections may
//!   break and come back meanwhile; messages of QoS 1 and 2 are sent again.
//! - At most [`Builder::max_in_flight`] messages wait at a time; further calls
//!   wait for room.
//! - A received message of QoS 1 or 2 is acknowledged when the application has
//!   taken it out of [`Messages`], or when it says so
//!   ([`Builder::manual_acknowledgement`]). When the application is slow, the
//!   server is slowed down; nothing is dropped.
//! - If the server has lost the session, subscriptions are made again and
//!   unacknowledged messages are published as new.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

mod arguments;
mod builder;
mod client;
mod command;
mod error;
mod events;
mod inbox;
mod message;
mod messages;
mod options;
mod outbox;
mod repeat;
mod runtime;
mod shared;
mod streams;
mod url;
mod work;

pub use arguments::{Payload, TextArg, Topic};
pub use builder::Builder;
pub use client::{Client, Connecting, Delivery, Subscribe, Subscription};
pub use dunlin_base::transport::Transport;
pub use dunlin_base::{MessageProperties, QoS, Repeat, Text};
pub use dunlin_dial::{
    Backoff, NetworkOptions, Race, RaceMemory, TicketFile, TlsOptions, Url, UrlError,
};
pub use dunlin_mqtt::client::{CommandError, Negotiated, PeerError};
pub use dunlin_mqtt::codec::{ReasonCode, RetainHandling, Version};
pub use dunlin_net::{Cipher, Congestion, Connector, Group, TuningError};
pub use error::{
    ConnectError, DisconnectCause, MigrateError, OptionError, PublishError, RuntimeError,
    SubscribeError, TryPublishError,
};
pub use events::{ConnectionEvent, Events, Migrated, StreamStatistics};
pub use message::{Message, Publish, Will};
pub use messages::Messages;
pub use runtime::{Runtime, RuntimeLimits};
pub use streams::{Priority, PriorityError, StreamDialect, StreamPolicy};
pub use url::{default_port, scheme};
