//! Options of a queue of AMQP: for `dunlin queue`, which asks any broker's management
//! node, and for `dunlin ctl queue`, which asks a running broker's control socket.

use clap::{Args, ValueEnum};

use crate::config::units::{Size, Span};

/// Options of a queue, as those of `[[queue]]` in the configuration.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Topic filter that brings messages; may be repeated.
    #[arg(long, value_name = "FILTER")]
    pub(super) topic: Vec<String>,
    /// Most messages.
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_messages: Option<u64>,
    /// Most bytes of them in memory, such as 16MiB.
    #[arg(long, value_name = "SIZE")]
    pub(super) max_bytes: Option<Size>,
    /// What happens to a message when the queue is full.
    #[arg(long)]
    pub(super) full: Option<Full>,
    /// Longest time that a message stays, such as 7d; 0s: no limit.
    #[arg(long, value_name = "TIME")]
    pub(super) ttl: Option<Span>,
    /// Levels, 1 to 10, into which the priorities 0 to 9 are sorted.
    #[arg(long, value_name = "NUMBER")]
    pub(super) levels: Option<u8>,
    /// Failed deliveries after which a message is dead; 0: no limit.
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_deliveries: Option<u16>,
    /// The queue that dead messages go to; "" for none.
    #[arg(long, value_name = "NAME")]
    pub(super) dead_letter: Option<String>,
}

/// What happens to a message for a queue that is full.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Full {
    /// Its sender is refused.
    Reject,
    /// The queue goes without.
    DropNewest,
    /// The oldest messages make room.
    DropOldest,
}
