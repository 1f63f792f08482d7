//! The broker daemon: opens store and listeners, starts the shards and their
//! threads, stops them again. The library form of `dunlin broker`, which tests and
//! embedders use too.

mod answers;
mod asked;
mod authenticator;
mod certificates;
mod changes;
mod check;
#[cfg(feature = "cluster")]
mod cluster;
pub(crate) mod error;
mod far;
mod kept;
mod keys;
mod listening;
mod machine;
pub(crate) mod mailbox;
mod memory;
#[cfg(feature = "cluster")]
mod node;
pub(crate) mod query;
pub(crate) mod reload;
pub(crate) mod settings;
#[cfg(feature = "cluster")]
mod standby;
mod threads;
mod tickets;
mod worker;

use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use dunlin_base::ShardId;
use dunlin_broker::access::Access;
use dunlin_broker::{SECRET_BYTES, Secret, Shard};
use dunlin_net::{Clock, Net, NetConfig, NetKeys, NetShared, Qlog};
use dunlin_store::Recovered;

use crate::auth::Authenticator;
use crate::bridge::Bridges;
use crate::bridge::added::Added;
use crate::config::Config;
use crate::control::audit::Audit;
use crate::control::banlist::Banlist;
use crate::control::http::{self, tls::Tls};
use crate::control::plane::{Plane, Reach};
use crate::control::tokens::Tokens;
#[cfg(unix)]
use crate::control::unix::{Answers, Door};
use crate::metrics::history::{Known, Recording};
use crate::metrics::{BrokerPages, LogViews, Paths, Readiness, Server, Shards, Sources, Watch};
use asked::Asked;
use authenticator::AuthClient;
use kept::{Kept, Source, Submits};
use mailbox::{Address, Addresses, Inbox, Mail, Outbox};
use memory::Memory;
use reload::{Reloader, load_access};
use threads::Threads;
use tickets::Tickets;
use worker::Worker;

pub use crate::control::reloading::{ReloadError, Reloaded};
pub use crate::metrics::Pulse;
#[cfg(feature = "cluster")]
use cluster::Attached;
#[cfg(feature = "cluster")]
pub(crate) use cluster::relay::RelayedTotals;
pub use error::StartError;
use far::Place;
pub use kept::GivenUp;
pub use listening::Bound;
#[cfg(feature = "cluster")]
pub use node::{Heard, Hears, Node};
#[cfg(feature = "cluster")]
pub(crate) use settings::log as log_settings;
#[cfg(feature = "cluster")]
pub use standby::{Outcome, Standby};
pub(crate) use tickets::PREFIX as TICKET_PREFIX;

/// A running broker. Dropping it stops the threads without a farewell; call
/// [`Daemon::shut_down`].
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    bound: Vec<Bound>,
    ca: Option<PathBuf>,
    shards: Addresses,
    threads: Threads,
    /// Stores session tickets until the shards have ended.
    keeper: Option<JoinHandle<()>>,
    store: Option<Kept>,
    plane: Arc<Plane>,
    /// The socket for `dunlin ctl`.
    #[cfg(unix)]
    door: Option<Door>,
    authenticator: Option<Arc<Authenticator>>,
    bridges: Option<Arc<Bridges>>,
    /// Orders over HTTP, and the last hour, which is shown there.
    http: Option<(http::Server, Recording)>,
    metrics: Option<Server>,
    watch: Option<Watch>,
    qlog: Option<Qlog>,
    ready: Arc<Readiness>,
    /// Other nodes know the shards as long as this is there.
    #[cfg(feature = "cluster")]
    attached: Option<Attached>,
}

/// The parts of one shard before its thread starts.
struct Parts {
    net: Net,
    inbox: Inbox,
}

/// The QUIC keys of a broker, if it has any yet: those of its cluster, or of its data
/// directory.
///
/// # Errors
/// The file cannot be read.
pub fn net_keys(config: &Config) -> Result<Option<NetKeys>, StartError> {
    #[cfg(feature = "cluster")]
    if config.cluster.is_used() {
        return node::net_keys(config).map(Some);
    }
    keys::existing(&config.data_dir)
}

impl Daemon {
    /// Opens everything, then starts the threads. When it returns, clients can
    /// connect.
    ///
    /// # Errors
    /// The first thing that cannot be had; nothing is left behind.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::serve(config, Source::Configured, &Place::alone())
    }

    /// Starts the shards of a node that has nothing durable.
    #[cfg(feature = "cluster")]
    fn edge(config: &Config, place: &Place) -> Result<Self, StartError> {
        Self::serve(config.edge(), Source::Configured, place)
    }

    fn serve(config: Config, source: Source, place: &Place) -> Result<Self, StartError> {
        make_data_dir(&config.data_dir)?;
        let added = Added::load(&config)?;
        let (access, credentials) = load_access(&config, &added)?;
        let authenticator = credentials.start(config.auth.delays())?.map(Arc::new);
        let development = certificates::development(&config)?;
        let secrets = certificates::log_secrets(&config)?;
        let tls = certificates::load(&config, development.as_ref(), secrets.as_ref())?;
        let ca = development.map(|dev| dev.ca);
        let clock = Clock::new();
        let tickets = config
            .tickets()
            .map(|limits| Tickets::new(limits, keeps_tickets(&config, place)));
        let qlog = open_qlog(&config, clock)?;
        let loops = Loops {
            clock,
            tickets: tickets.as_ref(),
            qlog: qlog.as_ref(),
        };
        let (mut parts, shards) = event_loops(&config, place, &loops)?;
        let bound = listening::listen(&config, &tls, &mut parts)?;
        let http = certificates::http(&config)?.as_ref().map(Tls::new);
        certificates::log(&config)?;
        listening::ask(&config)?;
        // It ends the broker that has the store, so that what may fail comes before.
        let (store, recovered) = Kept::open(&config, source)?;
        let keeper = tickets.map(|it| it.start(store.as_ref(), &recovered, &shards, place));
        let keeper = keeper.transpose()?.flatten();
        let reloader = Arc::new(Reloader {
            config: config.clone(),
            added,
            shards: shards.clone(),
            authenticator: authenticator.clone(),
            secrets,
            access: Arc::new(Mutex::new(access.clone())),
            http,
        });
        let plane = plane(&reloader, &bound, (clock, place), store.as_ref())?;
        let mut daemon = Self {
            bound,
            ca,
            shards,
            threads: Threads::default(),
            keeper,
            ready: Arc::new(Readiness::new(store.as_ref().map(Kept::metrics))),
            store,
            plane,
            #[cfg(unix)]
            door: None,
            authenticator,
            bridges: None,
            http: None,
            metrics: None,
            watch: None,
            qlog,
            #[cfg(feature = "cluster")]
            attached: None,
            config,
        };
        // Their connections wait for the threads.
        let bridges = Arc::new(Bridges::start(Arc::clone(&reloader))?);
        daemon.plane.set_bridges(Arc::clone(&bridges));
        daemon.bridges = Some(bridges);
        daemon.spawn(parts, (clock, place), &recovered, &access)?;
        daemon.open_door()?;
        daemon.open_http(reloader.http.clone())?;
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

    /// Where the control plane is reached over HTTP, as a URL, if it is.
    #[must_use]
    pub fn http(&self) -> Option<String> {
        self.http.as_ref().map(|(server, _)| {
            let scheme = if server.is_encrypted() {
                "https"
            } else {
                "http"
            };
            format!("{scheme}://{}", server.addr())
        })
    }

    /// The socket for `dunlin ctl`, if there is one.
    #[must_use]
    pub fn control_socket(&self) -> Option<&Path> {
        #[cfg(unix)]
        return self.door.as_ref().map(Door::path);
        #[cfg(not(unix))]
        None
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

    /// To ask, from any thread, whether the shards answer.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse::new(self.shards.clone())
    }

    /// Number of threads that serve the shards at the moment.
    #[must_use]
    pub fn threads_in_use(&self) -> usize {
        self.threads.in_use().load(Ordering::Relaxed)
    }

    /// Reads the password and access files, all certificates, the tokens of the HTTP
    /// door and the configuration again. Clients
    /// whose user is gone or has a new password are disconnected, new rules
    /// hold for those that stay; new certificates for connections to come. The
    /// shards have them soon after this returns.
    ///
    /// # Errors
    /// A file cannot be read or has a mistake; then nothing changes.
    pub fn reload(&self) -> Result<Reloaded, ReloadError> {
        self.plane.reload()
    }

    /// Tells every client that the server goes (0x8B), lets the store finish,
    /// ends the threads.
    pub fn shut_down(mut self) {
        self.ready.drain();
        // What they have taken from sessions here may still be acknowledged.
        if let Some(bridges) = self.bridges.take() {
            bridges.stop();
        }
        self.watch = None;
        #[cfg(unix)]
        {
            self.door = None;
        }
        self.http = None;
        for shard in &self.shards {
            shard.send(Mail::ShutDown);
        }
        self.threads.join();
        #[cfg(feature = "cluster")]
        {
            self.attached = None;
        }
        self.metrics = None;
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

    /// Calls `then` when the store acknowledges nothing any more, and the broker is to end;
    /// at once if that is so. It is called on the store's threads and must not block.
    pub fn when_given_up(&self, then: impl FnOnce(GivenUp) + Send + 'static) {
        if let Some(store) = &self.store {
            store.when_given_up(Box::new(then));
        }
    }

    /// To see and steer the broker, from any thread.
    #[must_use]
    pub fn plane(&self) -> Arc<Plane> {
        Arc::clone(&self.plane)
    }

    /// Listens for `dunlin ctl`.
    fn open_door(&mut self) -> Result<(), StartError> {
        #[cfg(unix)]
        {
            self.door = door(&self.config, self.plane())?;
        }
        Ok(())
    }

    /// Listens for orders over HTTP, when that is wanted.
    fn open_http(&mut self, tls: Option<Tls>) -> Result<(), StartError> {
        let config = &self.config.control.http;
        let Some(addr) = config.address else {
            return Ok(());
        };
        let wrong = |source| StartError::Http { addr, source };
        let busy = self.threads.busy();
        let known = Known {
            shards: Shards::new(self.shards.clone()),
            store: self.store.as_ref().map(Kept::metrics),
            busy: Box::new(move || busy.micros()),
        };
        let recording = Recording::start(known).map_err(wrong)?;
        let settings = http::Settings {
            addr,
            tls,
            hosts: config.hosts.clone(),
            plane: Arc::clone(&self.plane),
            recorder: recording.recorder(),
        };
        let server = http::Server::start(settings).map_err(wrong)?;
        self.http = Some((server, recording));
        Ok(())
    }

    fn show_metrics(&mut self) -> Result<(), StartError> {
        let Some(addr) = self.config.reports.metrics.address else {
            return Ok(());
        };
        if !addr.ip().is_loopback() {
            tracing::warn!(%addr, "metrics show clients to everyone who reaches this address");
        }
        let sources = Sources {
            shards: self.shards.clone(),
            plane: Arc::clone(&self.plane),
            threads: self.threads.in_use(),
            store: self.store.as_ref().map(Kept::metrics),
            log: self.log(),
            qlog: self.qlog.clone(),
            ready: Arc::clone(&self.ready),
            bridges: self.bridges.clone(),
            cluster: self.plane.cluster(),
            started: std::time::Instant::now(),
        };
        let hosts = self.config.reports.metrics.hosts.clone();
        let started = Server::start(addr, hosts, BrokerPages::new(sources));
        self.metrics = Some(started.map_err(|source| StartError::Metrics { addr, source })?);
        Ok(())
    }

    /// What this process is to a store that is a log, also as an edge, which waits for it.
    fn log(&self) -> Option<LogViews> {
        let own = self.store.as_ref().and_then(Kept::log);
        own.or_else(|| self.plane.cluster()?.log())
    }

    /// Tells of clients on `$SYS`, when that is wanted.
    fn show_clients(&mut self) -> Result<(), StartError> {
        let sys = &self.config.reports.sys;
        if sys.clients && !sys.interval.0.is_zero() {
            let watch = Watch::start(self.shards.clone(), sys.interval.0);
            self.watch = Some(watch.map_err(|e| StartError::Loop(e.to_string()))?);
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        parts: Vec<Parts>,
        (clock, place): (Clock, &Place),
        recovered: &Recovered,
        access: &Access,
    ) -> Result<(), StartError> {
        let count = u16::try_from(parts.len()).unwrap_or(u16::MAX);
        let secret = random_secret()?;
        let memory = settings::memory(&self.config, machine::memory());
        tracing::info!(bytes = memory.bytes, "memory for clients (limits.memory)");
        let bridges = self.bridges.as_deref().map(Bridges::sessions);
        let bridges = bridges.unwrap_or_default();
        let mut workers = Vec::with_capacity(parts.len());
        for ((id, address), part) in self.shards.ids().zip(&self.shards).zip(parts) {
            let settings = settings::shard(&self.config, id, count, secret.clone(), memory.clone());
            let mut shard = Shard::new(place.settle(settings), clock.now());
            shard.restore(recovered)?;
            shard.set_access(clock.now(), access.clone());
            shard.set_bans(self.plane.bans());
            shard.set_bridges(bridges.clone());
            let address = address.clone();
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
                far: place.far(&self.ready),
                asked: Asked::default(),
                refused: None,
            };
            worker.perform();
            workers.push(worker);
        }
        #[cfg(feature = "cluster")]
        {
            self.attached = place.attach(&self.shards, clock)?;
        }
        let threads = threads::start(workers, self.config.shard_threads, clock);
        self.threads = threads.map_err(|e| StartError::Loop(e.to_string()))?;
        Ok(())
    }
}

/// The socket for `dunlin ctl`, if one is wanted. A broker without that is still a broker,
/// unless it was asked for by a path.
#[cfg(unix)]
fn door(config: &Config, answers: Arc<dyn Answers>) -> Result<Option<Door>, StartError> {
    let Some(path) = config.control_path() else {
        return Ok(None);
    };
    match Door::open(&path, answers) {
        Ok(door) => Ok(Some(door)),
        Err(source) if config.control.socket.is_some() => Err(StartError::Control { path, source }),
        Err(error) => {
            let path = path.display();
            tracing::warn!(%error, %path, "no control socket: `dunlin ctl` does not work");
            Ok(None)
        }
    }
}

fn plane(
    reloader: &Arc<Reloader>,
    bound: &[Bound],
    (clock, place): (Clock, &Place),
    store: Option<&Kept>,
) -> Result<Arc<Plane>, StartError> {
    let config = &reloader.config;
    let path = config.bans_path();
    let wrong = |source| StartError::Bans {
        path: config.bans_path(),
        source,
    };
    let bans = Banlist::load(path).map_err(wrong)?;
    let wrong = |source| StartError::Tokens {
        path: config.tokens_path(),
        source,
    };
    let tokens = Tokens::load(config.tokens_path()).map_err(wrong)?;
    let reach = Reach {
        shards: reloader.shards.clone(),
        reloader: Arc::clone(reloader),
        clock,
        config: config.clone(),
        store: store.map(Kept::snapshots),
        audit: Audit::new(config.audit_path(), config.control.audit_size.0),
        bans,
        tokens,
        bound: bound.to_vec(),
        cluster: place.cluster(),
    };
    Ok(Arc::new(Plane::new(reach)))
}

fn submitter(store: &Kept, address: Address) -> Submits {
    store.submitter(Box::new(move |done| address.send(Mail::Store(done))))
}

fn random_secret() -> Result<Secret, StartError> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| StartError::Loop(e.to_string()))?;
    Ok(Secret::new(bytes))
}

/// Whether the use of a session ticket is kept before its early data is taken, here or at
/// another node.
fn keeps_tickets(config: &Config, place: &Place) -> bool {
    settings::store(config).is_some() || place.asks_for_tickets()
}

/// What the event loops share.
struct Loops<'a> {
    clock: Clock,
    tickets: Option<&'a Tickets>,
    qlog: Option<&'a Qlog>,
}

/// The event loop of each shard, and the way into its inbox.
fn event_loops(
    config: &Config,
    place: &Place,
    of_all: &Loops<'_>,
) -> Result<(Vec<Parts>, Addresses), StartError> {
    let loops = |e: dunlin_net::NetError| StartError::Loop(e.to_string());
    let keys = match place.net_keys() {
        Some(keys) => keys,
        None => keys::load(&config.data_dir)?,
    };
    let shared = NetShared::default();
    let count = config.shard_count();
    let (mut parts, mut shards) = (Vec::new(), Vec::new());
    for id in 0..count {
        let mut net_config = NetConfig::new(ShardId(id), count, of_all.clock, keys.clone());
        place.settle_net(&mut net_config);
        net_config.limits = settings::net(config);
        // Checked when the configuration was read.
        net_config.lb = config.quic.lb.layout().ok().flatten();
        net_config.shared = shared.clone();
        net_config.accepts_peers = true;
        net_config.qlog = of_all.qlog.cloned();
        net_config.tickets = of_all.tickets.map(|t| Arc::clone(&t.register));
        let net = Net::new(net_config).map_err(loops)?;
        let (inbox, address) = Inbox::new(net.waker());
        shards.push(address);
        parts.push(Parts { net, inbox });
    }
    Ok((parts, Addresses::new(place.first(), shards)))
}

pub(crate) fn make_data_dir(path: &Path) -> Result<(), StartError> {
    let path = path.to_path_buf();
    std::fs::create_dir_all(&path).map_err(|source| StartError::DataDir { path, source })
}

fn open_qlog(config: &Config, clock: Clock) -> Result<Option<Qlog>, StartError> {
    let Some(dir) = &config.reports.qlog.dir else {
        return Ok(None);
    };
    let wrong = |source| StartError::Qlog {
        path: dir.clone(),
        source,
    };
    let qlog = Qlog::open(dir, config.reports.qlog.limits(), clock).map_err(wrong)?;
    qlog.select(config.reports.qlog.filter());
    Ok(Some(qlog))
}
