//! QUIC, or TLS over TCP where QUIC does not get through: options, and how it
//! is decided. Knows no connection.

mod memory;
mod network;
mod plan;

use core::time::Duration;

pub use memory::RaceMemory;
pub(crate) use memory::wall_clock;
pub(crate) use network::name as network_name;
pub(crate) use plan::{Plan, Race as Running, Runner, Step};

/// How QUIC and TLS over TCP race for a connection. QUIC is taken if it gets
/// through, else TLS; only the winner ever carries the protocol.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Race {
    pub(crate) quic_port: Option<u16>,
    pub(crate) tls_port: Option<u16>,
    pub(crate) head_start: Option<Duration>,
    pub(crate) memory: Option<RaceMemory>,
    pub(crate) stay: bool,
    pub(crate) probe_after: Option<Duration>,
}

impl Race {
    /// Ports by the URL or, if it names none, its protocol's; head start by
    /// what is remembered; back to QUIC when it becomes possible.
    pub fn new() -> Self {
        Self::default()
    }

    /// UDP port of QUIC.
    pub fn quic_port(mut self, port: u16) -> Self {
        self.quic_port = Some(port);
        self
    }

    /// TCP port of TLS.
    pub fn tls_port(mut self, port: u16) -> Self {
        self.tls_port = Some(port);
        self
    }

    /// How long QUIC is alone, unless it is known to be blocked. Default: 10 ms
    /// where nothing is known, else a little more than QUIC took the last time.
    pub fn head_start(mut self, head_start: Duration) -> Self {
        self.head_start = Some(head_start);
        self
    }

    /// Where to remember what worked. Default: as long as the process lives,
    /// together with all other clients.
    pub fn memory(mut self, memory: &RaceMemory) -> Self {
        self.memory = Some(memory.clone());
        self
    }

    /// Whether a client that had to take TLS goes back to QUIC when that
    /// becomes possible (default). It does only if the server keeps the
    /// session between connections.
    pub fn upgrade(mut self, upgrade: bool) -> Self {
        self.stay = !upgrade;
        self
    }

    /// How long a client that had to take TLS waits before it tries QUIC again.
    /// Default: by what is remembered, from 10 seconds to an hour.
    pub fn probe_after(mut self, wait: Duration) -> Self {
        self.probe_after = Some(wait);
        self
    }
}
