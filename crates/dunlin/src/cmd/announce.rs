//! What a broker says on standard output when it begins: where it listens, and how to reach
//! it.

use std::io::{self, Write as _};
use std::path::Path;

use dunlin_base::transport::Transport;

use crate::config::Config;
use crate::config::listener::{Anonymous, Kind, Listener, Protocol};
#[cfg(feature = "cluster")]
use crate::daemon::Standby;
use crate::daemon::{Bound, Daemon};

/// The transport of what may be tried next, if there is a listener for it.
const BY_PREFERENCE: [Transport; 4] = [
    Transport::Quic,
    Transport::Tls,
    Transport::Tcp,
    Transport::Unix,
];

/// What a standby is, for people.
#[cfg(feature = "cluster")]
pub(super) fn standby(config: &Config, standby: &Standby) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "dunlin broker {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "  data       {}", config.data_dir.display())?;
    for url in config.store.nats.shown_urls() {
        writeln!(out, "  standby    of the log at {url}")?;
    }
    if let Some(addr) = standby.metrics() {
        writeln!(out, "  metrics    http://{addr}/metrics")?;
    }
    out.flush()
}

/// What a person needs to know next.
pub(super) fn broker(config: &Config, daemon: &Daemon) -> io::Result<()> {
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
