//! A broker that waits: it follows the log that another broker has for a store, and becomes
//! the broker that serves when nothing holds the lease of the log any more. It accepts no
//! clients until then.

use core::net::SocketAddr;
#[cfg(unix)]
use std::io::{self, BufWriter};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
#[cfg(unix)]
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use dunlin_store_nats::{NatsStandby, OpenError};

use super::far::Place;
use super::kept::{self, Source};
use super::{Daemon, StartError, listening, make_data_dir, settings};
use crate::config::Config;
#[cfg(unix)]
use crate::control::audit::Who;
use crate::control::cluster::Known;
#[cfg(unix)]
use crate::control::cluster::reply;
#[cfg(unix)]
use crate::control::unix::{Answers, Door};
#[cfg(unix)]
use crate::control::values::{Code, Failure, Reply, Request};
use crate::metrics::{LogViews, Server, standby};
#[cfg(unix)]
use crate::store::json::Writer;

/// What comes of waiting.
#[derive(Debug)]
pub struct Outcome(Receiver<Result<(), OpenError>>);

impl Outcome {
    /// Waits until the standby is to serve.
    ///
    /// # Errors
    /// It cannot follow the log, or has ended.
    pub fn wait(&self) -> Result<(), StartError> {
        let ended = |_| OpenError::Server("the standby has ended".to_owned());
        let outcome = self.0.recv().map_err(ended).flatten();
        outcome.map_err(|error| Box::new(error).into())
    }
}

/// Why a standby wants no clients.
const OTHER_SERVES: &str = "this broker is a standby: another one serves clients";

/// Why a node that serves nothing wants none.
const NO_HOME: &str = "this node of the cluster is linked to no home, and waits to be it";

/// A broker that waits. Dropping it ends it.
#[derive(Debug)]
pub struct Standby {
    config: Config,
    store: NatsStandby,
    metrics: Option<Server>,
    #[cfg(unix)]
    door: Option<Door>,
    /// It is seen at the addresses of what it may serve.
    is_shown: bool,
}

impl Standby {
    /// Looks at everything that serving needs, and begins to follow the log.
    ///
    /// # Errors
    /// The first thing that cannot be had.
    pub fn start(config: Config) -> Result<(Self, Outcome), StartError> {
        let (mut standby, outcome) = Self::beside(config)?;
        standby.show_as(OTHER_SERVES, None)?;
        Ok((standby, outcome))
    }

    /// Shows that it is there, for a node that serves nothing: at the addresses at which that
    /// shows itself.
    ///
    /// # Errors
    /// One of them cannot be had.
    pub(super) fn show(&mut self, cluster: Arc<dyn Known>) -> Result<(), StartError> {
        match self.is_shown {
            true => Ok(()),
            false => self.show_as(NO_HOME, Some(cluster)),
        }
    }

    /// What it is to the log; also of what takes the log over.
    pub(super) fn views(&self) -> LogViews {
        kept::views(self.store.role())
    }

    /// Leaves these addresses to what is about to serve.
    pub(super) fn hide(&mut self) {
        self.is_shown = false;
        self.metrics = None;
        #[cfg(unix)]
        {
            self.door = None;
        }
    }

    fn show_as(
        &mut self,
        why: &'static str,
        cluster: Option<Arc<dyn Known>>,
    ) -> Result<(), StartError> {
        let views = self.views();
        let shown = &self.config.reports.metrics;
        if let Some(addr) = shown.address {
            let what = standby::Shown {
                why,
                views: views.clone(),
                cluster: cluster.clone(),
            };
            let server = Server::start(addr, shown.hosts.clone(), what);
            self.metrics = Some(server.map_err(|source| StartError::Metrics { addr, source })?);
        }
        #[cfg(unix)]
        {
            self.door = super::door(&self.config, Arc::new(Refusal { views, cluster }))?;
        }
        self.is_shown = true;
        Ok(())
    }

    /// The same beside what serves as an edge, which is what is seen of the node.
    ///
    /// # Errors
    /// The first thing that cannot be had.
    pub(super) fn beside(config: Config) -> Result<(Self, Outcome), StartError> {
        make_data_dir(&config.data_dir)?;
        Daemon::check(&config)?;
        for error in listening::busy(&config) {
            tracing::warn!("{error}; it has to be free when this standby is to serve");
        }
        let Some(settings) = settings::log(&config) else {
            let why = "a standby needs a store that is a log".to_owned();
            return Err(StartError::Loop(why));
        };
        kept::warn(&config, &settings);
        let (store, outcome) = NatsStandby::start(settings).map_err(Box::new)?;
        let standby = Self {
            #[cfg(unix)]
            door: None,
            config,
            store,
            metrics: None,
            is_shown: false,
        };
        Ok((standby, Outcome(outcome)))
    }

    /// Takes the log over and serves.
    ///
    /// # Errors
    /// As [`Daemon::start`]; the lease is given back then.
    pub fn serve(self) -> Result<Daemon, StartError> {
        self.serve_at(&Place::alone())
    }

    /// The same as the home of a cluster.
    pub(super) fn serve_at(mut self, place: &Place) -> Result<Daemon, StartError> {
        self.hide();
        Daemon::serve(self.config, Source::Standby(self.store), place)
    }

    /// Where it shows that it is a standby, if it does.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Server::addr)
    }

    /// The socket for `dunlin ctl`, if there is one.
    #[cfg(unix)]
    #[must_use]
    pub fn control_socket(&self) -> Option<&Path> {
        self.door.as_ref().map(Door::path)
    }
}

/// What a standby answers to every question and order, but about the cluster.
#[cfg(unix)]
struct Refusal {
    views: LogViews,
    /// The cluster that it is a node of, if it is.
    cluster: Option<Arc<dyn Known>>,
}

#[cfg(unix)]
dunlin_base::opaque_debug!(Refusal);

#[cfg(unix)]
impl Refusal {
    fn why(&self) -> String {
        let behind = (self.views)().behind;
        format!(
            "this broker is a standby and has no clients: another one serves; {behind} records \
             of its log are not read here yet"
        )
    }
}

#[cfg(unix)]
impl Answers for Refusal {
    fn answer(&self, _: &Who, request: &Request) -> Reply {
        if let (Request::Cluster {}, Some(cluster)) = (request, &self.cluster) {
            return reply(Some(&**cluster));
        }
        Reply::Failed(Failure::new(Code::Unavailable, self.why()))
    }

    fn backup(&self, _: &Who, out: BufWriter<&UnixStream>, _: &dyn Fn() -> bool) -> io::Result<()> {
        Writer::new(out)?.fail(self.why())
    }
}
