//! Where the clients of a run are: their shards, and the ports that lead there.

use core::net::SocketAddr;
use std::collections::HashMap;

use dunlin_broker::home_shard;

/// Client identifiers tried for one that belongs to a shard.
const SUFFIX_MAX: u32 = 10_000;

/// Which clients are on which shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Placement {
    /// All clients on the first shard.
    OneShard,
    /// Publisher and subscriber of a pair on one shard, pairs in turn.
    Local,
    /// Publisher and subscriber of a pair on different shards, pairs in turn.
    Crossing,
}

impl Placement {
    fn shard(self, role: char, number: usize, shards: u16) -> u16 {
        let number = match (self, role) {
            (Self::OneShard, _) => 0,
            (Self::Crossing, 's') => number + 1,
            _ => number,
        };
        (number % usize::from(shards.max(1))) as u16
    }
}

/// Where each client connects from.
#[derive(Clone, Debug)]
pub struct Places {
    placement: Placement,
    metrics: SocketAddr,
    shards: u16,
    sources: HashMap<(char, usize), SocketAddr>,
}

impl Places {
    pub(super) fn new(placement: Placement, metrics: SocketAddr, shards: u16) -> Self {
        Self {
            placement,
            metrics,
            shards,
            sources: HashMap::new(),
        }
    }

    /// Where the broker shows its metrics.
    pub(super) const fn metrics(&self) -> SocketAddr {
        self.metrics
    }

    pub(super) const fn shards(&self) -> u16 {
        self.shards
    }

    pub(super) fn connect_from(&mut self, role: char, number: usize, addr: SocketAddr) {
        self.sources.insert((role, number), addr);
    }

    pub(super) fn shard(&self, role: char, number: usize) -> u16 {
        self.placement.shard(role, number, self.shards)
    }

    /// Where a client connects from.
    #[must_use]
    pub fn source(&self, role: char, number: usize) -> Option<SocketAddr> {
        self.sources.get(&(role, number)).copied()
    }

    /// A client identifier that begins with `name` and belongs to the shard.
    #[must_use]
    pub fn client_id(&self, name: &str, role: char, number: usize) -> String {
        let shard = self.shard(role, number);
        (0..SUFFIX_MAX)
            .map(|suffix| format!("{name}-{suffix}"))
            .find(|id| home_shard(id, self.shards) == shard)
            .unwrap_or_else(|| name.to_owned())
    }
}
