//! `dunlin tunnel`: the options of a tunnel. What it does is in
//! [`crate::tunnel`].

use core::net::SocketAddr;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context as _, bail};
use clap::Args;
use dunlin_base::transport::Transport;
use dunlin_dial::Url;
use dunlin_socket::{Options, TicketFile};

use super::network::Network;
use super::tls::Tls;
use crate::signals::{Signal, Signals};
use crate::tunnel::{CONNECTIONS_DEFAULT, KEEP_ALIVE, STREAMS_DEFAULT, Settings, Tunnel};

/// Carry TCP clients of MQTT or AMQP over QUIC to a broker.
///
/// The clients connect to --listen as to a broker, without TLS: keep that
/// address on this machine. Each client has a QUIC
/// connection of its own; clients of AMQP can share one (--streams). When a QUIC connection ends, so do
/// its clients; the next one that connects has the broker dialled again.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TunnelArgs {
    /// The broker: quic://HOST[:PORT] (MQTT) or amqp+quic://HOST[:PORT].
    url: Url,
    /// Where TCP clients connect; 127.0.0.1:1883 or 127.0.0.1:5672, by the
    /// protocol, if not given.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// TCP connections at a time, at most.
    #[arg(long, value_name = "NUMBER", default_value_t = CONNECTIONS_DEFAULT)]
    connections: usize,
    /// Clients of AMQP that share a QUIC connection, at most, each on a stream. A
    /// client that proves nothing of its own has the rights of the first one then:
    /// share it among clients of one user only.
    #[arg(long, value_name = "NUMBER", default_value_t = STREAMS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
    /// File with session tickets, made if there is none: with one from an
    /// earlier connection, what a client says first goes out in the first
    /// datagram.
    #[arg(long, value_name = "FILE")]
    tickets: Option<PathBuf>,
    /// Do not send anything before the broker has answered.
    #[arg(long)]
    no_early_data: bool,
    /// Do not print errors.
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    network: Network,
}

const EXAMPLES: &str = "\
Examples:
  dunlin tunnel --cafile ca.pem quic://broker.example
  dunlin tunnel --listen 127.0.0.1:5672 amqp+quic://broker.example";

impl TunnelArgs {
    /// Runs the command until a signal ends it.
    ///
    /// # Errors
    /// An option cannot be, or the address to listen on cannot be used.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let settings = self.settings()?;
        let cannot = format!("cannot listen on tcp {}", settings.listen);
        let tunnel = Tunnel::bind(settings).context(cannot)?;
        let _ = writeln!(io::stdout(), "Listening on {}", tunnel.addr());
        let stop = tunnel.stop();
        let mut signals = Signals::new().context("cannot watch signals")?;
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                while signals.wait() == Signal::Reload {}
                stop.stop();
            })
            .context("cannot start a thread")?;
        tunnel.run()?;
        Ok(ExitCode::SUCCESS)
    }

    fn settings(self) -> anyhow::Result<Settings> {
        let url = self.url;
        if url.transport() != Transport::Quic || url.is_auto() {
            bail!("{url}: a tunnel is over QUIC: quic:// or amqp+quic://");
        }
        let quiet = self.quiet;
        let complain = move |what: &dyn core::fmt::Display| {
            if !quiet {
                let _ = writeln!(io::stderr(), "dunlin: {what}");
            }
        };
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let tcp_port = url.protocol().default_port(Transport::Tcp);
        let network = self.network.options();
        network.clone().keep_alive(KEEP_ALIVE).check()?;
        let mut options = Options::new()
            .tls(self.network.tls(self.tls.options()?))
            .network(network)
            .keep_alive(Some(KEEP_ALIVE));
        if let Some(path) = &self.tickets {
            let file = TicketFile::open(path)
                .with_context(|| format!("cannot use --tickets {}", path.display()))?;
            if let Some(notice) = file.notice() {
                complain(&format_args!("warning: {notice}"));
            }
            options = options.tickets(&file);
        }
        Ok(Settings {
            listen: self.listen.unwrap_or_else(|| local(tcp_port)),
            url,
            options,
            early_data: !self.no_early_data,
            connections_max: self.connections,
            streams_max: self.streams,
            complain: Box::new(complain),
        })
    }
}
