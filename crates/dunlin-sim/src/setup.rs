//! What a world is made from: how many shards, their configuration, delays.

use dunlin_base::transport::Transport;
use dunlin_broker::access::WhenDown;
use dunlin_broker::{Config, SysTopics};

/// How long things take, in microseconds, from and to.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From client to shard and back.
    pub link: (u64, u64),
    /// From shard to shard.
    pub bus: (u64, u64),
    /// Until a request to the store is done.
    pub store: (u64, u64),
    /// Requests of one shard to the store do not wait for those of others.
    pub stores_apart: bool,
    /// Until the authenticator answers.
    pub auth: (u64, u64),
    /// Streams to the client do not wait for each other.
    pub apart: bool,
    /// Bytes to the server arrive in pieces.
    pub split: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            link: (100, 2_000),
            bus: (10, 1_500),
            store: (500, 5_000),
            stores_apart: false,
            auth: (1_000, 3_000),
            apart: false,
            split: true,
        }
    }
}

/// What a world is made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Number of shards; with edges, of homes.
    pub shards: u16,
    /// Number of shards that are no homes, each in a process of its own, without a store.
    pub edges: u16,
    /// Decides every delay and every cut.
    pub seed: u64,
    /// Configuration of every shard; number, count and seed are filled in.
    pub config: Config,
    /// Delays.
    pub pace: Pace,
    /// Streams that clients let the server open at once.
    pub server_streams: u64,
    /// Transport of all connections. One over TCP moves to the shard of its
    /// session and has no streams besides control.
    pub transport: Transport,
    /// Application protocol of all connections, if it is not `mqtt`.
    pub protocol: Option<&'static str>,
    /// Users and passwords.
    pub users: &'static [(&'static str, &'static str)],
    /// Access list; without one everything is allowed.
    pub acl: Option<String>,
    /// A server decides on topics that no rule is about.
    pub asks: Option<WhenDown>,
    /// What shards say to each other goes as bytes, as between machines. Within a process
    /// it does not, and shards share what they say.
    pub bus_of_bytes: bool,
}

impl Setup {
    /// A quiet configuration: no `$SYS` messages.
    #[must_use]
    pub fn new(shards: u16, seed: u64) -> Self {
        let config = Config {
            sys: SysTopics::quiet(),
            ..Config::default()
        };
        Self {
            shards,
            edges: 0,
            seed,
            config,
            pace: Pace::default(),
            server_streams: 0,
            transport: Transport::Quic,
            protocol: None,
            users: &[],
            acl: None,
            asks: None,
            bus_of_bytes: true,
        }
    }
}
