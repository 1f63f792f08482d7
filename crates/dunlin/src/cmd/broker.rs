//! `dunlin broker`: starts the daemon, says where it listens and how to reach
//! it, and stops it at SIGTERM or SIGINT.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use clap::Args;

use super::announce;
use crate::config::{Config, EXAMPLE};
use crate::control::audit::Who;
use crate::control::values::{Request, Role};
use crate::daemon::{Daemon, GivenUp};
#[cfg(feature = "cluster")]
use crate::daemon::{Standby, StartError};
use crate::service::Service;
use crate::signals::{self, Signal, Signals};

/// Run the broker.
///
/// Without arguments it keeps its data in ./dunlin-data, makes development
/// certificates there once, and listens on QUIC udp/14567, MQTT 1883, MQTT over
/// TLS 8883, WebSocket 8083 and secure WebSocket 8084. Clients without
/// credentials are let in from this machine only.
#[derive(Debug, Args)]
pub(crate) struct Broker {
    /// Configuration file; see dunlin.example.toml.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the store and the development certificates.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Keep what is durable as a log in NATS JetStream, so that another machine can go on
    /// with it: a server, as in nats://user:password@host:4222; may be repeated. As
    /// store.nats.urls of the configuration, where passwords are not seen in the list of
    /// processes.
    #[arg(long, value_name = "URL")]
    store: Vec<String>,
    /// Wait while another broker has the store that is a log, ready to serve when that one
    /// ends or dies; then serve. As store.nats.take = "free" of the configuration.
    #[arg(long)]
    standby: bool,
    /// Be a node of a cluster, whose nodes share a store in NATS JetStream: a server, as in
    /// nats://user:password@host:4222; may be repeated. Needs cluster.secret_file. As
    /// store.nats.urls of the configuration.
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "standby"])]
    cluster: Vec<String>,
    /// Override one key of the configuration, as in
    /// --set limits.receive_maximum=100; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the configuration and the files it names, and exit.
    #[arg(long)]
    check: bool,
    /// Print a configuration file with every key and its default, and exit.
    #[arg(long)]
    example: bool,
}

impl Broker {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.example {
            io::stdout().write_all(EXAMPLE.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut config = Config::load(self.config.as_deref(), &self.overrides())?;
        if let Some(dir) = self.data_dir {
            config.data_dir = dir;
        }
        if !self.cluster.is_empty() && !config.cluster.is_used() {
            anyhow::bail!(
                "--cluster needs a file with what all nodes know: cluster.secret_file in the \
                 configuration, or --set cluster.secret_file=FILE"
            );
        }
        if self.check {
            Daemon::check(&config)?;
            writeln!(io::stdout(), "the configuration is valid")?;
            return Ok(ExitCode::SUCCESS);
        }
        crate::log::init(&config.reports.log)?;
        let descriptors = crate::descriptors::raise_limit();
        tracing::debug!(?descriptors, "limit of open files");
        #[cfg(feature = "cluster")]
        if config.cluster.is_used() {
            return super::node::run(config, &by_signal());
        }
        let signals = Signals::new().context("cannot handle signals")?;
        let (said, events) = sync_channel(EVENTS_MAX);
        let to = said.clone();
        let forwarded = signals.forward(move |signal| to.send(Event::Signal(signal)).is_ok());
        forwarded.context("cannot handle signals")?;
        // What is opened may be waited for long, and nothing is acknowledged before.
        let starting = signals::exit_while_starting().context("cannot handle signals")?;
        let mut life = Life {
            config,
            said,
            events,
            starting,
        };
        loop {
            let daemon = match life.start()? {
                Started::Serves(daemon) => *daemon,
                Started::TakenOver => continue,
                Started::Ended(code) => return Ok(code),
            };
            match life.serve(daemon)? {
                Some(code) => return Ok(code),
                None => tracing::info!("another broker has the store: waiting as a standby"),
            }
        }
    }

    /// Keys that the command line sets.
    fn overrides(&self) -> Vec<String> {
        let mut all = self.set.clone();
        // All of it is checked together.
        if !self.store.is_empty() {
            let urls: toml::Value = self.store.clone().into();
            all.push(format!("store.nats.urls={urls}"));
        }
        if !self.cluster.is_empty() {
            let urls: toml::Value = self.cluster.clone().into();
            all.push(format!("store.nats.urls={urls}"));
        }
        if self.standby {
            all.push("store.nats.take=free".to_owned());
        }
        all
    }
}

/// Signals and other events that wait.
const EVENTS_MAX: usize = 16;

/// What happens to a broker.
enum Event {
    Signal(Signal),
    /// A standby is to serve, or cannot go on.
    #[cfg(feature = "cluster")]
    Standby(Result<(), StartError>),
}

/// What became of a start.
enum Started {
    Serves(Box<Daemon>),
    /// Another one took the store over meanwhile.
    TakenOver,
    Ended(ExitCode),
}

/// A broker from its start to its end; as a standby, again and again.
struct Life {
    config: Config,
    /// Where events come from.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "a standby uses it")
    )]
    said: SyncSender<Event>,
    events: Receiver<Event>,
    /// SIGTERM ends the process at once.
    starting: Arc<AtomicBool>,
}

impl Life {
    /// The next event. There is one at the end.
    fn next(&self) -> Event {
        self.events.recv().unwrap_or(Event::Signal(Signal::Stop))
    }

    /// Starts to serve; a standby, when it is its turn.
    fn start(&self) -> anyhow::Result<Started> {
        self.starting.store(true, Ordering::Relaxed);
        let is_standby = self.config.store.nats.is_standby();
        let started = match is_standby {
            #[cfg(feature = "cluster")]
            true => match self.wait()? {
                Some(started) => started,
                None => return Ok(Started::Ended(ExitCode::SUCCESS)),
            },
            _ => Daemon::start(self.config.clone()),
        };
        let daemon = match started {
            Err(error) if error.is_taken_over() && is_standby => {
                tracing::warn!("{error}");
                return Ok(Started::TakenOver);
            }
            Err(error) if error.is_taken_over() => {
                tracing::error!("{error}; store.nats.take = \"always\" takes it");
                return Ok(Started::Ended(ExitCode::from(TAKEN_OVER)));
            }
            started => started?,
        };
        self.starting.store(false, Ordering::Relaxed);
        Ok(Started::Serves(Box::new(daemon)))
    }

    /// Waits as a standby until it is its turn; `None`: it was stopped.
    #[cfg(feature = "cluster")]
    fn wait(&self) -> anyhow::Result<Option<Result<Daemon, StartError>>> {
        let (standby, outcome) = Standby::start(self.config.clone())?;
        self.starting.store(false, Ordering::Relaxed);
        // A standby whose output is not read is still a standby.
        let _ = announce::standby(&self.config, &standby);
        let service = Service::standby().context("cannot start the watchdog")?;
        let to = self.said.clone();
        std::thread::Builder::new()
            .name("standby".into())
            .spawn(move || drop(to.send(Event::Standby(outcome.wait()))))
            .context("cannot wait as a standby")?;
        loop {
            match self.next() {
                Event::Signal(Signal::Reload) => {
                    tracing::info!("a standby reads its files when it begins to serve");
                }
                Event::Signal(Signal::Stop) => {
                    service.stopping();
                    return Ok(None);
                }
                Event::Standby(outcome) => {
                    outcome?;
                    break;
                }
            }
        }
        tracing::info!("no broker has the store: this standby takes it over");
        self.starting.store(true, Ordering::Relaxed);
        let started = standby.serve();
        service.end();
        Ok(Some(started))
    }

    /// Serves until it is stopped, or its store was taken over; `None`: it is a standby
    /// again.
    fn serve(&mut self, daemon: Daemon) -> anyhow::Result<Option<ExitCode>> {
        // A broker whose output is not read is still a broker.
        let _ = announce::broker(&self.config, &daemon);
        daemon.plane().when_drained(stop);
        let end = Arc::new(End::default());
        let of_store = Arc::clone(&end);
        daemon.when_given_up(move |cause| of_store.given_up(&cause));
        let service = Service::ready(&daemon).context("cannot start the watchdog")?;
        loop {
            match self.next() {
                Event::Signal(Signal::Reload) => {
                    // The log has what came of it, and the audit log the order.
                    let reload = || daemon.plane().answer(&by_signal(), &Request::Reload {});
                    let _ = service.reloading(reload);
                }
                Event::Signal(Signal::Stop) => break,
                #[cfg(feature = "cluster")]
                Event::Standby(_) => {}
            }
        }
        tracing::info!("stopping");
        end.begin();
        #[cfg(feature = "cluster")]
        if self.config.store.nats.is_standby() && end.is_taken_over() {
            service.end();
            daemon.shut_down();
            return Ok(None);
        }
        service.stopping();
        self.end_at_second_stop(Arc::clone(&end))?;
        daemon.shut_down();
        Ok(Some(end.code()))
    }

    /// One that is asked to stop twice ends at once.
    fn end_at_second_stop(&mut self, end: Arc<End>) -> anyhow::Result<()> {
        let (_, none) = sync_channel(0);
        let events = core::mem::replace(&mut self.events, none);
        let action = move || {
            while let Ok(event) = events.recv() {
                if matches!(event, Event::Signal(Signal::Stop)) {
                    tracing::warn!("stopped before everything was done");
                    std::process::exit(end.impatient().into());
                }
            }
        };
        let thread = std::thread::Builder::new().name("impatient".into());
        thread.spawn(action).context("cannot handle signals")?;
        Ok(())
    }
}

/// The exit code of a broker whose store another one has taken over: a service manager
/// that started it again would take it back, and so on for ever.
const TAKEN_OVER: u8 = 75;

/// Why the broker ends by itself.
#[derive(Default)]
struct End {
    /// It ends anyway.
    begun: AtomicBool,
    cause: OnceLock<GivenUp>,
}

impl End {
    fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Without its store, a broker stops as if it was asked to.
    fn given_up(&self, cause: &GivenUp) {
        if self.cause.set(cause.clone()).is_ok() && !self.begun.load(Ordering::Relaxed) {
            tracing::error!(?cause, "the broker ends, because its store was given up");
            stop();
        }
    }

    #[cfg(feature = "cluster")]
    fn is_taken_over(&self) -> bool {
        self.cause.get() == Some(&GivenUp::TakenOver)
    }

    fn code(&self) -> ExitCode {
        match self.cause.get() {
            None => ExitCode::SUCCESS,
            Some(GivenUp::TakenOver) => ExitCode::from(TAKEN_OVER),
            Some(_) => ExitCode::FAILURE,
        }
    }

    /// The exit code where not everything was done.
    fn impatient(&self) -> u8 {
        match self.cause.get() {
            Some(GivenUp::TakenOver) => TAKEN_OVER,
            _ => 1,
        }
    }
}

/// Stops as SIGTERM does.
fn stop() {
    if let Err(error) = signals::stop() {
        tracing::error!(%error, "cannot stop");
    }
}

/// Who asks for a reload by SIGHUP.
fn by_signal() -> Who {
    Who {
        door: "signal",
        name: "SIGHUP".to_owned(),
        role: Role::Admin,
    }
}
