//! Why a broker does not start.

use core::net::SocketAddr;
use std::path::PathBuf;

use dunlin_net::TlsError;

use crate::certs;

/// Why the broker did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be made.
    #[error("cannot create the data directory {}", path.display())]
    DataDir {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The secret of QUIC cannot be read or made.
    #[error("cannot use the QUIC key {}: {source}", path.display())]
    Key {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A listener's name has no address.
    #[error("listener {index} ({name}): the name cannot be resolved")]
    Resolve {
        /// Number of the listener in the file.
        index: usize,
        /// Its address as configured.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// A listener's address is taken, or not of this machine, or needs rights.
    #[error("listener {index} cannot listen on {transport} {addr}: {source}")]
    Listen {
        /// Number of the listener in the file.
        index: usize,
        /// What it speaks.
        transport: &'static str,
        /// Where.
        addr: SocketAddr,
        /// Why.
        source: dunlin_net::NetError,
    },
    /// A Unix socket cannot be made: its path is too long, a file or another process has
    /// it, there is no such group.
    #[error("listener {index} cannot listen at {}: {source}", path.display())]
    Socket {
        /// Number of the listener in the file.
        index: usize,
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// As [`StartError::Listen`], found by asking for the address alone.
    #[error("listener {index} cannot listen on {transport} {addr}: {source}")]
    Busy {
        /// Number of the listener in the file.
        index: usize,
        /// What it speaks.
        transport: &'static str,
        /// Where.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Certificates cannot be read, or do not fit.
    #[error("listener {index}: {source}")]
    Tls {
        /// Number of the listener in the file.
        index: usize,
        /// Why.
        source: TlsError,
    },
    /// Development certificates cannot be made or read.
    #[error("development certificates: {0}")]
    Certificates(certs::CertError),
    /// The directory for qlog cannot be made or read.
    #[error("qlog.dir: cannot use {}: {source}", path.display())]
    Qlog {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file for secrets cannot be opened.
    #[error("tls.key_log: {0}")]
    KeyLog(TlsError),
    /// The address of the metrics is taken, or not of this machine.
    #[error("cannot show metrics on {addr}: {source}")]
    Metrics {
        /// Where.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The bridges that were added cannot be read.
    #[error("cannot use the bridges in {}: {source}", path.display())]
    AddedBridges {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The bans cannot be read.
    #[error("cannot read the bans in {}: {source}", path.display())]
    Bans {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The tokens of the HTTP door cannot be read.
    #[error("cannot read the tokens in {}: {source}", path.display())]
    Tokens {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate of the HTTP door cannot be read, or does not fit.
    #[error("control.http.tls: {0}")]
    HttpTls(TlsError),
    /// The address of the HTTP door is taken, or not of this machine.
    #[error("control.http.address: cannot listen on {addr}: {source}")]
    Http {
        /// Where.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The control socket cannot be made.
    #[error("control.socket: cannot listen on {}: {source}", path.display())]
    Control {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] dunlin_store_redb::OpenError),
    /// The store is that of other homes.
    #[error(transparent)]
    Homes(#[from] dunlin_broker::RestoreError),
    /// The log cannot be taken over or read.
    #[cfg(feature = "cluster")]
    #[error("store.nats: {0}")]
    Log(#[from] Box<dunlin_store_nats::OpenError>),
    /// The cluster cannot be joined.
    #[cfg(feature = "cluster")]
    #[error("cannot join the cluster: {0}")]
    Bus(#[from] Box<dunlin_bus::JoinError>),
    /// The node that has what is durable has gone while this one began.
    #[error("the home of the cluster is gone")]
    HomeGone,
    /// The secret of the cluster cannot be read.
    #[error("cluster.secret_file: cannot use {}: {source}", path.display())]
    ClusterSecret {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The certificates of who signs those of NATS cannot be read.
    #[error("store.nats.ca: cannot read certificates in {}: {source}", path.display())]
    LogCa {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The password file or the access list cannot be used.
    #[error(transparent)]
    Auth(#[from] crate::auth::AuthError),
    /// A bridge cannot be made as it is configured.
    #[error("bridge {name}: {message}")]
    Bridge {
        /// Which.
        name: String,
        /// Why.
        message: String,
    },
    /// An event loop or a thread cannot be had.
    #[error("cannot start an event loop: {0}")]
    Loop(String),
}

impl StartError {
    /// Whether another broker has the store.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        match self {
            #[cfg(feature = "cluster")]
            Self::Log(error) => matches!(**error, dunlin_store_nats::OpenError::TakenOver),
            _ => false,
        }
    }
}
