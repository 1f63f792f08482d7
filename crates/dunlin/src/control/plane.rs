//! The control plane: what it reaches, and walks over the tables of all shards, of which
//! each does a bounded piece of work at a time. It may be used from any number of
//! threads.

use core::time::Duration;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use dunlin_base::ShardId;
use dunlin_broker::bans::Bans;
use dunlin_broker::control::values as shard;
use dunlin_net::Clock;
use dunlin_store_redb::Snapshots;

use super::audit::Audit;
use super::banlist::Banlist;
use super::cluster::Known;
use super::cursor::Cursor;
use super::draining::Drain;
use super::tokens::Tokens;
use super::values::{Bearer, Code, Failure, PageOf, ROWS_MAX, Reply};
use crate::bridge::Bridges;
use crate::config::Config;
use crate::daemon::Bound;
use crate::daemon::error::StartError;
use crate::daemon::mailbox::Addresses;
use crate::daemon::reload::Reloader;
use crate::metrics::Shards;

/// Rows with the shards that they are of, and where to go on.
pub(super) type Found<T> = (Vec<(ShardId, T)>, Option<String>);

/// What became of a request.
pub(super) type Outcome = Result<Reply, Failure>;

/// How long shards are asked for one page; what was found until then is answered,
/// with where to go on.
const PAGE_TIME: Duration = Duration::from_millis(250);

/// What the plane reaches.
pub(crate) struct Reach {
    pub(crate) shards: Addresses,
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    /// The store's file, if there is one.
    pub(crate) store: Option<(PathBuf, Snapshots)>,
    pub(crate) audit: Audit,
    pub(crate) bans: Banlist,
    pub(crate) tokens: Tokens,
    /// Where clients are accepted.
    pub(crate) bound: Vec<Bound>,
    pub(crate) reloader: Arc<Reloader>,
    /// The cluster that the broker is a node of, if it is.
    pub(crate) cluster: Option<Arc<dyn Known>>,
}

/// The control plane of one broker.
#[derive(Debug)]
pub struct Plane {
    pub(super) shards: Shards,
    clock: Clock,
    /// As the broker was started with it.
    pub(super) config: Config,
    /// Likewise, with what reloads have changed. Held while files are read again or the
    /// password file is changed, until that is brought into force.
    in_force: Mutex<Config>,
    pub(super) store: Option<(PathBuf, Snapshots)>,
    pub(super) audit: Audit,
    pub(super) bans: Banlist,
    pub(super) tokens: Tokens,
    pub(super) bound: Vec<Bound>,
    pub(super) reloader: Arc<Reloader>,
    pub(super) cluster: Option<Arc<dyn Known>>,
    /// What the log writes.
    pub(super) level: Mutex<String>,
    pub(super) drain: Arc<Drain>,
    pub(super) started: Instant,
    /// Its bridges, once they have started.
    bridges: OnceLock<Arc<Bridges>>,
    /// Held while a copy of the store is made.
    pub(super) copying: Mutex<()>,
}

impl Plane {
    pub(crate) fn new(reach: Reach) -> Self {
        Self {
            shards: Shards::new(reach.shards),
            clock: reach.clock,
            store: reach.store.map(|(path, copies)| (absolute(path), copies)),
            audit: reach.audit,
            bans: reach.bans,
            tokens: reach.tokens,
            bound: reach.bound,
            reloader: reach.reloader,
            cluster: reach.cluster,
            level: Mutex::new(reach.config.reports.log.level.name().to_owned()),
            drain: Arc::default(),
            in_force: Mutex::new(reach.config.clone()),
            config: reach.config,
            started: Instant::now(),
            copying: Mutex::default(),
            bridges: OnceLock::new(),
        }
    }

    /// The configuration with what reloads have changed.
    pub(super) fn in_force(&self) -> MutexGuard<'_, Config> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster that the broker is a node of, if it is.
    pub(crate) fn cluster(&self) -> Option<Arc<dyn Known>> {
        self.cluster.clone()
    }

    /// Refuses what only the node of a cluster answers that has what is durable.
    pub(super) fn check_home(&self) -> Result<(), Failure> {
        if !self.config.is_edge() {
            return Ok(());
        }
        let text = "this node of the cluster is an edge: ask the home, which has what is durable";
        Err(Failure::new(Code::Unavailable, text))
    }

    /// The bridges have started.
    pub(crate) fn set_bridges(&self, bridges: Arc<Bridges>) {
        // They do once.
        let _ = self.bridges.set(bridges);
    }

    pub(super) fn bridges(&self) -> Option<&Bridges> {
        self.bridges.get().map(Arc::as_ref)
    }

    /// What is to be done when the broker was drained and no client is left: to end the
    /// process, usually.
    pub fn when_drained(&self, stop: impl Fn() + Send + Sync + 'static) {
        self.drain.then(Box::new(stop));
    }

    /// Whose token this is.
    pub(super) fn bearer(&self, token: &str) -> Option<Bearer> {
        self.tokens.find(token)
    }

    /// Reads everything again that may change while the broker runs, but its
    /// configuration.
    ///
    /// # Errors
    /// A file cannot be read or has a mistake; then nothing changes.
    pub(crate) fn reload_files(&self) -> Result<(), StartError> {
        let tokens = self.tokens.read_again().map_err(|source| {
            let path = self.tokens.path().to_owned();
            StartError::Tokens { path, source }
        })?;
        self.reloader.reload()?;
        self.tokens.replace(tokens);
        Ok(())
    }

    /// Whether no more clients are accepted, and those that are here are sent away.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.is_begun()
    }

    /// Who is banned, as shards take it.
    pub(crate) fn bans(&self) -> Arc<Bans> {
        self.bans.in_force()
    }

    /// The time, as shards have it.
    pub(super) fn now(&self) -> dunlin_base::Instant {
        self.clock.now()
    }

    /// The largest message.
    pub(super) const fn packet_bytes_max(&self) -> u64 {
        self.config.limits.packets.max_packet_size.0
    }

    /// One page of rows of all shards, one shard after the other, and where to go on.
    pub(super) fn walk<T>(
        &self,
        page: &PageOf,
        ask: impl Fn(shard::Place, usize) -> shard::Request,
        rows_of: impl Fn(shard::Reply) -> Option<shard::Page<T>>,
    ) -> Result<Found<T>, Failure> {
        let mut cursor = match page.after.as_deref().map(str::parse) {
            None => Cursor::first(self.shards.first()),
            Some(Ok(cursor)) => cursor,
            Some(Err(())) => {
                let text = "`after` is not what `next` of a page was";
                return Err(Failure::new(Code::BadRequest, text));
            }
        };
        checked(page)?;
        let deadline = Instant::now() + PAGE_TIME;
        let mut rows = Vec::new();
        while self.shards.has(cursor.shard) {
            if rows.len() >= page.limit || Instant::now() >= deadline {
                return Ok((rows, Some(cursor.to_string())));
            }
            let request = ask(cursor.at, page.limit - rows.len());
            let reply = self.shards.control(cursor.shard, request);
            let found = reply.and_then(&rows_of).ok_or_else(silent)?;
            let shard = cursor.shard;
            rows.extend(found.rows.into_iter().map(|row| (shard, row)));
            cursor = match found.next {
                Some(at) => Cursor { shard, at },
                None => Cursor {
                    shard: ShardId(shard.0 + 1),
                    at: 0,
                },
            };
        }
        Ok((rows, None))
    }
}

/// A shard has not answered.
pub(super) fn silent() -> Failure {
    Failure::new(Code::Unavailable, "a shard does not answer in time")
}

/// The rows that a page may have.
pub(super) fn checked(page: &PageOf) -> Result<usize, Failure> {
    match page.limit {
        limit @ 1..=ROWS_MAX => Ok(limit),
        _ => {
            let text = format!("`limit` is a number from 1 to {ROWS_MAX}");
            Err(Failure::new(Code::BadRequest, text))
        }
    }
}

pub(super) fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
