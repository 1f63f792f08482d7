//! `dunlin broker`: starts the daemon, says where it listens and how to reach
//! it, and stops it at SIGTERM or SIGINT.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use clap::Args;
use dunlin_base::transport::Transport;

use crate::config::listener::{Anonymous, Kind, Listener, Protocol};
use crate::config::{Config, EXAMPLE};
use crate::control::audit::Who;
use crate::control::values::{Request, Role};
use crate::daemon::{Bound, Daemon, GivenUp};
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
    #[arg(long, value_name = "FILE")]
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
        if self.check {
            Daemon::check(&config)?;
            writeln!(io::stdout(), "the configuration is valid")?;
            return Ok(ExitCode::SUCCESS);
        }
        crate::log::init(&config.reports.log)?;
        let descriptors = crate::descriptors::raise_limit();
        tracing::debug!(?descriptors, "limit of open files");
        let mut signals = Signals::new().context("cannot handle signals")?;
        // What is opened may be waited for long, and nothing is acknowledged before.
        let starting = signals::exit_while_starting().context("cannot handle signals")?;
        let daemon = match Daemon::start(config.clone()) {
            Err(error) if error.is_taken_over() => {
                tracing::error!("{error}; store.nats.take = \"always\" takes it");
                return Ok(ExitCode::from(TAKEN_OVER));
            }
            started => started?,
        };
        starting.store(false, Ordering::Relaxed);
        // A broker whose output is not read is still a broker.
        let _ = announce(&config, &daemon);
        daemon.plane().when_drained(stop);
        let end = Arc::new(End::default());
        let of_store = Arc::clone(&end);
        daemon.when_given_up(move |cause| of_store.given_up(&cause));
        let service = Service::ready(&daemon).context("cannot start the watchdog")?;
        while signals.wait() == Signal::Reload {
            // The log has what came of it, and the audit log the order.
            let _ = service.reloading(|| daemon.plane().answer(&by_signal(), &Request::Reload {}));
        }
        tracing::info!("stopping");
        end.begin();
        service.stopping();
        let of_signals = Arc::clone(&end);
        let impatient = signals.on_second_stop(move || {
            tracing::warn!("stopped before everything was done");
            std::process::exit(of_signals.impatient().into());
        });
        impatient.context("cannot handle signals")?;
        daemon.shut_down();
        Ok(end.code())
    }

    /// Keys that the command line sets.
    fn overrides(&self) -> Vec<String> {
        let mut all = self.set.clone();
        if !self.store.is_empty() {
            let urls: toml::Value = self.store.clone().into();
            all.push(format!("store.nats.urls={urls}"));
        }
        all
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

/// The transport of what may be tried next, if there is a listener for it.
const BY_PREFERENCE: [Transport; 4] = [
    Transport::Quic,
    Transport::Tls,
    Transport::Tcp,
    Transport::Unix,
];

/// What a person needs to know next.
fn announce(config: &Config, daemon: &Daemon) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let shards = daemon.shard_count();
    writeln!(out, "dunlin broker {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "  data       {}", config.data_dir.display())?;
    for url in config.store.nats.shown_urls() {
        writeln!(out, "  store      a log at {url}")?;
    }
    writeln!(out, "  shards     {shards}")?;
    for bound in daemon.bound() {
        writeln!(
            out,
            "  listening  {:<6} {} ({})",
            name(bound.transport),
            bound,
            spoken(&config.listener, bound)
        )?;
    }
    if let Some(addr) = daemon.metrics() {
        writeln!(out, "  metrics    http://{addr}/metrics")?;
    }
    if let Some(socket) = daemon.control_socket() {
        writeln!(out, "  control    {}", socket.display())?;
    }
    if let Some(url) = daemon.http() {
        writeln!(
            out,
            "  http       {url}/ (needs a token: dunlin ctl token add)"
        )?;
    }
    if let Some(ca) = daemon.development_ca() {
        writeln!(out, "  CA         {} (development)", ca.display())?;
    }
    if config.auth.password_file.is_none() {
        writeln!(
            out,
            "  access     clients without credentials: {}",
            match config.auth.anonymous {
                Anonymous::Always => "from everywhere",
                Anonymous::Loopback => "from this machine only",
                Anonymous::Never => "none",
            }
        )?;
    }
    let trusting = |l: &Listener| {
        l.anonymous.unwrap_or(config.auth.anonymous) == Anonymous::Loopback
            && !matches!(l.transport, Kind::Quic | Kind::Unix)
    };
    if config.listener.iter().any(trusting) {
        tracing::warn!(
            "clients on this machine need no credentials; behind a proxy on it that is \
             everybody: say `anonymous = \"never\"` at such a listener"
        );
    }
    let best = BY_PREFERENCE.into_iter().find_map(|t| {
        let mut bound = daemon.bound().iter();
        bound.find(|b| b.transport == t && speaks(&config.listener, b, Protocol::Mqtt))
    });
    if let Some(bound) = best {
        let sub = command(bound, daemon.development_ca(), "sub", "-t 'demo/#' -v");
        let publish = command(bound, daemon.development_ca(), "pub", "-t demo/hello -m hi");
        writeln!(out, "try it, in two other terminals:")?;
        writeln!(out, "  {sub}")?;
        writeln!(out, "  {publish}")?;
    }
    out.flush()
}

fn speaks(listeners: &[Listener], bound: &Bound, protocol: Protocol) -> bool {
    let listener = listeners.get(bound.listener);
    listener.is_some_and(|listener| listener.protocols().contains(&protocol))
}

/// The protocols of a listener, for people.
fn spoken(listeners: &[Listener], bound: &Bound) -> String {
    let listener = listeners.get(bound.listener);
    let protocols = listener.map_or(&[][..], Listener::protocols);
    let titles = protocols.iter().map(|protocol| match protocol {
        Protocol::Mqtt => "MQTT",
        Protocol::Amqp => "AMQP",
    });
    titles.collect::<Vec<_>>().join(", ")
}

fn name(transport: Transport) -> &'static str {
    match transport {
        Transport::Quic => "quic",
        Transport::Tcp => "tcp",
        Transport::Tls => "tls",
        Transport::Ws => "ws",
        Transport::Wss => "wss",
        Transport::Unix => "unix",
        _ => "?",
    }
}

/// A command line that works as printed, in any directory.
fn command(bound: &Bound, ca: Option<&Path>, verb: &str, rest: &str) -> String {
    let program = std::env::current_exe()
        .ok()
        .map_or_else(|| "dunlin".into(), |path| path.display().to_string());
    let host = if bound.addr.ip().is_unspecified() {
        "localhost".to_owned()
    } else {
        match bound.addr.ip() {
            core::net::IpAddr::V6(ip) => format!("[{ip}]"),
            core::net::IpAddr::V4(ip) => ip.to_string(),
        }
    };
    let scheme = dunlin_client::scheme(bound.transport);
    let url = match bound.path.as_deref().map(std::path::absolute) {
        Some(path) => format!("{scheme}:{}", path.unwrap_or_default().display()),
        None => format!("{scheme}://{host}:{}", bound.addr.port()),
    };
    let mut line = format!("{program} {verb} --url {url}");
    if let Some(ca) = ca.filter(|_| bound.transport.is_encrypted()) {
        let ca = std::path::absolute(ca).unwrap_or_else(|_| ca.to_owned());
        line.push_str(&format!(" --ca {}", ca.display()));
    }
    format!("{line} {rest}")
}
