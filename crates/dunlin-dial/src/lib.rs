//! How a client of any message protocol finds its server, opens a connection
//! and keeps one: URLs, TLS options, a race of QUIC and TLS, session tickets,
//! early data, attempts after a failure.
//!
//! The owner of a [`Link`] runs a [`dunlin_net::Net`], gives the link what
//! happens on its connections, and speaks its protocol on the one that
//! [`Step::Begin`] names. Nothing here knows a packet or a frame: what a
//! connection is for says [`Protocol`], and why one ended says the owner's
//! [`Cause`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

mod backoff;
mod builder;
mod channel;
mod context;
mod error;
mod event_loop;
pub mod files;
mod link;
mod network;
mod options;
mod protocol;
mod race;
mod resolver;
mod runtime;
mod tickets;
mod tls;
mod url;

pub use backoff::{Backoff, random_u64};
pub use channel::Channel;
pub use context::Context;
pub use error::{Cause, DialError};
pub use event_loop::{Remote, Task};
pub use link::{Link, SessionFacts, Standing, Step, Watch};
pub use network::NetworkOptions;
pub use options::LinkOptions;
pub use protocol::Protocol;
pub use race::{Race, RaceMemory};
pub use resolver::{Key, Resolved, Resolver};
pub use runtime::{RuntimeError, RuntimeLimits};
pub use tickets::TicketFile;
pub use tls::TlsOptions;
pub use url::{Url, UrlError};
