//! Options of `dunlin bench` that say how clients connect: whom they trust, how many
//! come when, and from where.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use dunlin_base::transport::Transport;
use dunlin_net::{ClientTls, ClientTlsBuilder};

use super::seconds;
use crate::bench::handshakes::Until;
use crate::bench::places::Placement;
use crate::bench::plan::Target;
use crate::cmd::tools::network::Network;
use crate::cmd::tools::tls::parse_pin;

/// Connections from one local address to one listener at most; the kernel has
/// 28,232 ports by default.
const PORTS_PER_ADDRESS: usize = 20_000;
/// Local addresses from which QUIC connections come on loopback, so that a
/// broker that spreads by address has something to spread.
const QUIC_SOURCES: u8 = 8;

#[derive(Debug, Args)]
#[command(next_help_heading = "Trust")]
pub(super) struct Trust {
    /// Authorities to trust, PEM; without it those of the system.
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// SHA-256 of the server's public key (SubjectPublicKeyInfo) in hex.
    #[arg(long, value_name = "HEX", value_parser = parse_pin)]
    pub(super) pin: Option<[u8; 32]>,
    /// Do not check the server's certificate.
    #[arg(long)]
    pub(super) insecure: bool,
    /// Certificate of this client, PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Connections")]
pub(super) struct Connect {
    /// Only connect this many clients and hold them; with AMQP each has a session
    /// and a receiver.
    #[arg(long, value_name = "N", conflicts_with_all = ["pubs", "subs", "rate"])]
    pub(super) idle: Option<usize>,
    /// Only connect this many clients one after the other, and say what that
    /// costs the broker.
    #[arg(long, value_name = "N", conflicts_with_all = ["pubs", "subs", "rate", "idle"])]
    pub(super) handshakes: Option<u64>,
    /// Such clients come back, with tickets and tokens of earlier connections,
    /// instead of being strangers each time.
    #[arg(long, requires = "handshakes")]
    pub(super) returning: bool,
    /// They send CONNECT as early data (QUIC).
    #[arg(long, requires = "returning")]
    pub(super) early_data: bool,
    /// How far each goes.
    #[arg(long, value_enum, default_value = "connack", requires = "handshakes")]
    pub(super) until: Until,
    /// Such clients at a time.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub(super) at_once: usize,
    /// Such a client each time so many seconds have passed, and how long each took;
    /// with --early-data each comes once before, for tickets of its own.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "at_once")]
    pub(super) every: Option<Duration>,
    /// Seconds after which such a client is given up.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    pub(super) give_up: Duration,
    /// Such clients that come before and do not count; without it a tenth as many.
    #[arg(long, value_name = "N", requires = "handshakes")]
    pub(super) uncounted: Option<u64>,
    /// Connections a second; without it as fast as they come about.
    #[arg(long, value_name = "PER_SECOND")]
    pub(super) connect_rate: Option<f64>,
    /// Handshakes pending at most.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(super) connecting: usize,
    /// Keep alive in seconds; 0: none.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(super) keep_alive: u16,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    pub(super) threads: usize,
    /// Local addresses to connect from in turn.
    #[arg(long, value_delimiter = ',', value_name = "IP,...")]
    pub(super) source: Vec<IpAddr>,
    /// Place clients on chosen shards of a dunlin broker on 127.0.0.1.
    #[arg(
        long,
        value_enum,
        requires = "metrics",
        conflicts_with = "source",
        hide = true
    )]
    pub(super) placement: Option<Placement>,
    /// Address of the metrics of that broker.
    #[arg(long, value_name = "IP:PORT", hide = true)]
    pub(super) metrics: Option<SocketAddr>,
}

impl Trust {
    pub(super) fn build(
        &self,
        network: &Network,
        resumption: bool,
    ) -> anyhow::Result<Arc<ClientTls>> {
        let mut builder: ClientTlsBuilder = ClientTls::builder()
            .policy(network.policy())
            .resumption(resumption);
        if let Some(ca) = &self.ca {
            builder = builder.ca_pem_file(ca)?;
        }
        if let Some(pin) = self.pin {
            builder = builder.pin_public_key_sha256(pin);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            builder = builder.client_cert_files(cert, key)?;
        }
        if self.insecure {
            builder = builder.dangerous_accept_any_certificate();
        } else if self.ca.is_none() && self.pin.is_none() {
            builder = builder.system_roots()?;
        }
        Ok(Arc::new(builder.build()?))
    }
}

/// Where to connect from: as given, or on loopback as many addresses as ports
/// (TCP) or a broker's shards (QUIC) call for.
pub(super) fn sources(given: &[IpAddr], target: &Target, connections: usize) -> Vec<IpAddr> {
    if !given.is_empty() || !is_loopback_v4(target.addr) {
        return given.to_vec();
    }
    let count = if target.transport == Transport::Quic {
        usize::from(QUIC_SOURCES).min(connections)
    } else if connections > PORTS_PER_ADDRESS {
        connections.div_ceil(PORTS_PER_ADDRESS)
    } else {
        return Vec::new();
    };
    (1..=u8::try_from(count).unwrap_or(u8::MAX))
        .map(|last| Ipv4Addr::new(127, 0, 0, last).into())
        .collect()
}

fn is_loopback_v4(addr: SocketAddr) -> bool {
    addr.is_ipv4() && addr.ip().is_loopback()
}
