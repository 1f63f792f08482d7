//! The broker daemon: opens store and listeners, starts the shards and their
//! threads, stops them again. The library form of `dunlin broker`, which tests and
//! embedders use too.

mod answers;
mod authenticator;
mod check;
mod keys;
mod machine;
pub(crate) mod mailbox;
mod memory;
pub(crate) mod query;
mod settings;
mod threads;
mod tickets;
mod worker;

use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use dunlin_base::transport::Transport;
use dunlin_base::{ShardId, Text};
use dunlin_broker::access::Access;
use dunlin_broker::{SECRET_BYTES, Secret, Shard};
use dunlin_mqtt::flow;
use dunlin_net::{
    Clock, KeyLog, ListenerConfig, Net, NetConfig, NetKeys, NetShared, Qlog, ServerTls,
    ServerTlsOptions, TlsError,
};
use dunlin_store::Recovered;
use dunlin_store_redb::{RedbStore, Submitter};

use crate::auth::{Authenticator, Credentials};
use crate::certs::{self, DevCerts, DevState};
use crate::config::Config;
use crate::config::listener::{self, Kind, Listener, Protocol};
use crate::metrics::{Paths, Server, Sources, Watch};
use authenticator::AuthClient;
use mailbox::{Address, Inbox, Mail, Outbox};
use memory::Memory;
use threads::Threads;
use tickets::Tickets;
use worker::Worker;

pub(crate) use tickets::PREFIX as TICKET_PREFIX;

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
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] dunlin_store_redb::OpenError),
    /// The password file or the access list cannot be used.
    #[error(transparent)]
    Auth(#[from] crate::auth::AuthError),
    /// An event loop or a thread cannot be had.
    #[error("cannot start an event loop: {0}")]
    Loop(String),
}

/// A place where the broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bound {
    /// Number of the listener in the configuration.
    pub listener: usize,
    /// What it speaks.
    pub transport: Transport,
    /// Where.
    pub addr: SocketAddr,
}

/// A running broker. Dropping it stops the threads without a farewell; call
/// [`Daemon::shut_down`].
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    bound: Vec<Bound>,
    ca: Option<PathBuf>,
    shards: Vec<Address>,
    threads: Threads,
    /// Stores session tickets until the shards have ended.
    keeper: Option<JoinHandle<()>>,
    store: Option<RedbStore>,
    /// Hands out copies of the store.
    #[cfg(unix)]
    control: Option<crate::store::control::Control>,
    authenticator: Option<Arc<Authenticator>>,
    metrics: Option<Server>,
    watch: Option<Watch>,
    secrets: Option<KeyLog>,
    qlog: Option<Qlog>,
}

/// The parts of one shard before its thread starts.
struct Parts {
    net: Net,
    inbox: Inbox,
}

/// The QUIC keys of a broker's data directory, if it has any.
///
/// # Errors
/// The file cannot be read.
pub fn net_keys(data_dir: &Path) -> Result<Option<NetKeys>, StartError> {
    keys::existing(data_dir)
}

impl Daemon {
    /// Opens everything, then starts the threads. When it returns, clients can
    /// connect.
    ///
    /// # Errors
    /// The first thing that cannot be had; nothing is left behind.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let source = |source| StartError::DataDir {
            path: config.data_dir.clone(),
            source,
        };
        std::fs::create_dir_all(&config.data_dir).map_err(source)?;
        let (access, credentials) = load_access(&config)?;
        let authenticator = credentials.start()?.map(Arc::new);
        let development = development_certs(&config)?;
        let secrets = config.tls.key_log.as_deref().map(log_secrets).transpose()?;
        let tls = load_tls(&config, development.as_ref(), secrets.as_ref())?;
        let ca = development.map(|dev| dev.ca);
        let count = config.shard_count();
        let clock = Clock::new();
        let loops = |e: dunlin_net::NetError| StartError::Loop(e.to_string());
        let keys = keys::load(&config.data_dir)?;
        let tickets = config
            .early_data
            .limits()
            .map(|limits| Tickets::new(limits, settings::store(&config).is_some()));
        let shared = NetShared::default();
        let qlog = open_qlog(&config, clock)?;
        let mut parts = Vec::new();
        let mut shards = Vec::new();
        for id in 0..count {
            let mut net_config = NetConfig::new(ShardId(id), count, clock, keys.clone());
            net_config.limits = settings::net(&config);
            // Checked when the configuration was read.
            net_config.lb = config.quic.lb.layout().ok().flatten();
            net_config.shared = shared.clone();
            net_config.accepts_peers = true;
            net_config.qlog.clone_from(&qlog);
            net_config.tickets = tickets.as_ref().map(|t| Arc::clone(&t.register));
            let net = Net::new(net_config).map_err(loops)?;
            let (inbox, address) = Inbox::new(net.waker());
            shards.push(address);
            parts.push(Parts { net, inbox });
        }
        let bound = listen(&config, &tls, &mut parts)?;
        let (store, recovered) = open_store(&config)?;
        let keeper = match tickets {
            Some(tickets) => tickets.start(store.as_ref(), &recovered, &shards)?,
            None => None,
        };
        let mut daemon = Self {
            bound,
            ca,
            shards,
            threads: Threads::default(),
            keeper,
            store,
            #[cfg(unix)]
            control: None,
            authenticator,
            metrics: None,
            watch: None,
            secrets,
            qlog,
            config,
        };
        daemon.spawn(parts, clock, &recovered, &access)?;
        daemon.listen_for_backups();
        daemon.show_metrics()?;
        daemon.show_clients()?;
        Ok(daemon)
    }

    /// Where the broker listens.
    #[must_use]
    pub fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// Where metrics are shown, if they are.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Server::addr)
    }

    /// Certificate of the development authority, when a listener uses it.
    #[must_use]
    pub fn development_ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// Number of shards.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Number of threads that serve the shards at the moment.
    #[must_use]
    pub fn threads_in_use(&self) -> usize {
        self.threads.in_use().load(Ordering::Relaxed)
    }

    /// Reads the password and access files and all certificates again. Clients
    /// whose user is gone or has a new password are disconnected, new rules
    /// hold for those that stay; new certificates for connections to come. The
    /// shards have them soon after this returns.
    ///
    /// # Errors
    /// A file cannot be read or has a mistake; then nothing changes.
    pub fn reload(&self) -> Result<(), StartError> {
        let (access, credentials) = load_access(&self.config)?;
        let development = development_certs(&self.config)?;
        let tls: Arc<[_]> =
            load_tls(&self.config, development.as_ref(), self.secrets.as_ref())?.into();
        let shards = self.shards.clone();
        let then = move || {
            for shard in &shards {
                shard.send(Mail::Access(access.clone()));
                shard.send(Mail::Tls(Arc::clone(&tls)));
            }
        };
        match &self.authenticator {
            // A client that it let in with an old password comes first, so
            // that the shard disconnects it.
            Some(authenticator) => authenticator.replace(credentials, Box::new(then)),
            None => then(),
        }
        Ok(())
    }

    /// Tells every client that the server goes (0x8B), lets the store finish,
    /// ends the threads.
    pub fn shut_down(mut self) {
        self.metrics = None;
        self.watch = None;
        #[cfg(unix)]
        {
            self.control = None;
        }
        for shard in &self.shards {
            shard.send(Mail::ShutDown);
        }
        self.threads.join();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
        if let Some(store) = self.store.take() {
            store.close();
        }
        if let Some(qlog) = self.qlog.take() {
            qlog.flush();
        }
    }

    /// A broker without backups is still a broker.
    fn listen_for_backups(&mut self) {
        #[cfg(unix)]
        if let Some(store) = &self.store {
            let path = self.config.store_path();
            match crate::store::control::Control::start(&path, store.snapshots()) {
                Ok(control) => self.control = Some(control),
                Err(error) => tracing::warn!(%error, "no backups: cannot listen beside the store"),
            }
        }
    }

    fn show_metrics(&mut self) -> Result<(), StartError> {
        let Some(addr) = self.config.metrics.address else {
            return Ok(());
        };
        if !addr.ip().is_loopback() {
            tracing::warn!(%addr, "metrics show clients to everyone who reaches this address");
        }
        let sources = Sources {
            shards: self.shards.clone(),
            threads: self.threads.in_use(),
            store: self.store.as_ref().map(RedbStore::metrics),
            qlog: self.qlog.clone(),
            hosts: self.config.metrics.hosts.clone(),
            started: std::time::Instant::now(),
        };
        let started = Server::start(addr, sources);
        self.metrics = Some(started.map_err(|source| StartError::Metrics { addr, source })?);
        Ok(())
    }

    /// Tells of clients on `$SYS`, when that is wanted.
    fn show_clients(&mut self) -> Result<(), StartError> {
        let sys = &self.config.sys;
        if sys.clients && !sys.interval.0.is_zero() {
            let watch = Watch::start(self.shards.clone(), sys.interval.0);
            self.watch = Some(watch.map_err(|e| StartError::Loop(e.to_string()))?);
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        parts: Vec<Parts>,
        clock: Clock,
        recovered: &Recovered,
        access: &Access,
    ) -> Result<(), StartError> {
        let count = u16::try_from(parts.len()).unwrap_or(u16::MAX);
        let secret = random_secret()?;
        let memory = settings::memory(&self.config, machine::memory());
        tracing::info!(bytes = memory.bytes, "memory for clients (limits.memory)");
        let mut workers = Vec::with_capacity(parts.len());
        for (id, part) in (0..count).map(ShardId).zip(parts) {
            let settings = settings::shard(&self.config, id, count, secret.clone(), memory.clone());
            let mut shard = Shard::new(settings, clock.now());
            shard.restore(recovered);
            shard.set_access(clock.now(), access.clone());
            let Some(address) = self.shards.get(usize::from(id.0)).cloned() else {
                continue;
            };
            let mut worker = Worker {
                id,
                shard,
                net: part.net,
                clock,
                inbox: part.inbox,
                shards: self.shards.clone(),
                store: self.store.as_ref().map(|s| submitter(s, address.clone())),
                qlog: self.qlog.clone(),
                auth: AuthClient::new(self.authenticator.clone(), address),
                held: VecDeque::new(),
                outboxes: (0..count).map(|_| Outbox::default()).collect(),
                deadline: None,
                paths: Paths::default(),
                memory: Memory::default(),
            };
            worker.perform();
            workers.push(worker);
        }
        let threads = threads::start(workers, self.config.shard_threads, clock);
        self.threads = threads.map_err(|e| StartError::Loop(e.to_string()))?;
        Ok(())
    }
}

fn submitter(store: &RedbStore, address: Address) -> Submitter {
    store.submitter(Box::new(move |done| address.send(Mail::Store(done))))
}

fn random_secret() -> Result<Secret, StartError> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| StartError::Loop(e.to_string()))?;
    Ok(Secret::new(bytes))
}

fn open_qlog(config: &Config, clock: Clock) -> Result<Option<Qlog>, StartError> {
    let Some(dir) = &config.qlog.dir else {
        return Ok(None);
    };
    let wrong = |source| StartError::Qlog {
        path: dir.clone(),
        source,
    };
    let qlog = Qlog::open(dir, config.qlog.limits(), clock).map_err(wrong)?;
    qlog.select(config.qlog.filter());
    Ok(Some(qlog))
}

fn open_store(config: &Config) -> Result<(Option<RedbStore>, Recovered), StartError> {
    match settings::store(config) {
        None => Ok((None, Recovered::default())),
        Some(settings) => {
            let (store, recovered) = RedbStore::open(&config.store_path(), settings)?;
            Ok((Some(store), recovered))
        }
    }
}

/// The access list, the password file and the keys of tokens.
fn load_access(config: &Config) -> Result<(Access, Credentials), StartError> {
    let acl = config.auth.acl_file.as_deref();
    let acl = acl.map(crate::auth::load_acl).transpose()?;
    let auth = &config.auth;
    let credentials = Credentials::load(auth.password_file.as_deref(), auth.jwt.as_ref())?;
    let access = Access {
        acl: acl.map(Arc::new),
        users: credentials.users().map(Arc::new),
    };
    Ok((access, credentials))
}

/// Certificates to begin with, if a listener has none of its own.
fn development_certs(config: &Config) -> Result<Option<DevCerts>, StartError> {
    if !config.needs_development_certs() {
        return Ok(None);
    }
    let dir = config.certs_dir();
    let found = certs::ensure_development(&dir).map_err(StartError::Certificates)?;
    match found.state {
        DevState::Reused => {}
        DevState::Created => tracing::info!(dir = %dir.display(), "made development certificates"),
        DevState::Renewed => {
            tracing::warn!(dir = %dir.display(), "renewed the development certificate of the server");
        }
        DevState::Replaced => tracing::warn!(
            ca = %found.ca.display(),
            "the development authority had expired and was replaced; clients need the new one"
        ),
    }
    Ok(Some(found))
}

type LoadedTls = Vec<Option<Arc<ServerTls>>>;

/// Certificates of every listener; those that need `development` have none
/// without it.
fn load_tls(
    config: &Config,
    development: Option<&DevCerts>,
    secrets: Option<&KeyLog>,
) -> Result<LoadedTls, StartError> {
    let mut loaded = Vec::new();
    for (index, listener) in config.listener.iter().enumerate() {
        let wrong = |source| StartError::Tls { index, source };
        let tls = match (&listener.tls, development) {
            _ if !listener.transport.transport().is_encrypted() => None,
            (Some(tls), _) => Some(server_tls(config, tls)),
            (None, Some(dev)) => {
                let files = listener::Tls::new(dev.cert.clone(), dev.key.clone());
                Some(server_tls(config, &files))
            }
            (None, None) => None,
        };
        let mut tls = tls.transpose().map_err(wrong)?;
        if let (Some(tls), Some(log)) = (&mut tls, secrets) {
            tls.log_secrets(log);
        }
        loaded.push(tls.map(Arc::new));
    }
    Ok(loaded)
}

fn server_tls(config: &Config, tls: &listener::Tls) -> Result<ServerTls, TlsError> {
    let mut options = ServerTlsOptions::read(&tls.cert, &tls.key, tls.client_ca.as_deref())?;
    options.require_client_cert = tls.require_client_cert;
    options.policy = config.tls.policy();
    options.cert_name = tls.identity.unwrap_or_default().0;
    ServerTls::new(&options)
}

fn log_secrets(path: &Path) -> Result<KeyLog, StartError> {
    let path_shown = path.display();
    tracing::warn!(path = %path_shown, "SECRETS OF ALL CONNECTIONS ARE LOGGED: who has the file reads everything");
    KeyLog::append(path).map_err(StartError::KeyLog)
}

/// Addresses of a listener.
fn resolve(index: usize, listener: &Listener) -> Result<Vec<SocketAddr>, StartError> {
    let address = listener.address();
    address.resolve().map_err(|source| StartError::Resolve {
        index,
        name: address.to_string(),
        source,
    })
}

/// Binds every listener on every shard.
fn listen(config: &Config, tls: &LoadedTls, parts: &mut [Parts]) -> Result<Vec<Bound>, StartError> {
    let mut bound = Vec::new();
    for (index, (listener, tls)) in config.listener.iter().zip(tls).enumerate() {
        for addr in resolve(index, listener)? {
            let mut settings = ListenerConfig::new(listener.transport.transport(), addr);
            settings.quic = config.quic_tuning(listener);
            settings.tls = tls.clone();
            settings.protocols = protocols(listener);
            settings.origins = config.origins(listener);
            let addr = listen_on(index, listener, settings, parts)?;
            bound.push(Bound {
                listener: index,
                transport: listener.transport.transport(),
                addr,
            });
        }
    }
    Ok(bound)
}

/// What is spoken: MQTT on QUIC with flow headers too, for clients that offer it.
fn protocols(listener: &Listener) -> Vec<Text> {
    let spoken = listener.protocols();
    let has_flows = listener.transport == Kind::Quic && spoken.contains(&Protocol::Mqtt);
    let flows = has_flows.then_some(flow::ALPN);
    let names = spoken.iter().map(|protocol| protocol.name());
    flows
        .into_iter()
        .chain(names)
        .map(Text::from_static)
        .collect()
}

/// Whether the address can be had by this process alone.
fn probe(transport: Transport, addr: SocketAddr) -> std::io::Result<()> {
    match transport {
        Transport::Quic => std::net::UdpSocket::bind(addr).map(drop),
        _ => std::net::TcpListener::bind(addr).map(drop),
    }
}

fn listen_on(
    index: usize,
    listener: &Listener,
    mut settings: ListenerConfig,
    parts: &mut [Parts],
) -> Result<SocketAddr, StartError> {
    let (shared, addr) = (parts.len() > 1, settings.addr);
    if shared {
        // Shards share the address with each other, and so with any other
        // broker that shares it: ask for it alone first.
        probe(listener.transport.transport(), addr).map_err(|source| StartError::Busy {
            index,
            transport: listener.transport.name(),
            addr,
            source,
        })?;
    }
    settings.index = u16::try_from(index).unwrap_or(u16::MAX);
    settings.reuse_port = shared;
    settings.ws_path = listener.path().to_owned();
    for part in parts {
        // The first shard's port is everybody's.
        let addr = settings.addr;
        settings.addr = part
            .net
            .listen(settings.clone())
            .map_err(|source| StartError::Listen {
                index,
                transport: listener.transport.name(),
                addr,
                source,
            })?;
    }
    Ok(settings.addr)
}
