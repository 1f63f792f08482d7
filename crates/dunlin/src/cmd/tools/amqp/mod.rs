//! `dunlin send`, `dunlin receive` and `dunlin queue`: what they have of AMQP.

mod print;
pub(super) mod queue;
pub(super) mod receive;
pub(super) mod send;
mod token;

use core::convert::Infallible;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use dunlin_amqp_client::{Builder, Client, ConnectionEvent, Events, NetworkOptions};
use dunlin_amqp_client::{Sasl, StreamPolicy, TicketFile, Transport, Url};

use super::losses::Losses;
use super::tls::Tls;

/// Equal losses of a connection in a row after which there is no other attempt.
const LOSSES_MAX: u32 = 3;

/// Flags of the connection.
#[derive(Debug, Args)]
pub(super) struct Connect {
    /// Where to connect: amqp://, amqps://, amqp+quic://, amqp+ws://, amqp+wss://
    /// or amqp+auto:// (QUIC, or TLS where QUIC does not get through), then
    /// [USER:PASSWORD@]HOST[:PORT][/PATH].
    #[arg(long, value_name = "URL", default_value = "amqp://localhost")]
    url: String,
    /// User name, instead of the URL's.
    #[arg(short = 'u', long, value_name = "USER", requires = "password")]
    username: Option<String>,
    /// Password.
    #[arg(
        short = 'P',
        long = "pw",
        value_name = "PASSWORD",
        requires = "username",
        allow_hyphen_values = true
    )]
    password: Option<String>,
    /// File with a JSON Web Token, which authenticates (OAUTHBEARER). It is read again
    /// before the token expires, and the new one prolongs the connection.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sasl", "username"])]
    token_file: Option<PathBuf>,
    /// How to authenticate; plain with a user name, else anonymous, if not given.
    #[arg(long, value_name = "MECHANISM")]
    sasl: Option<Mechanism>,
    /// Container id; a random one if not given.
    #[arg(short = 'i', long, value_name = "ID")]
    container: Option<String>,
    /// File with session tickets (QUIC), made if there is none: with one from an
    /// earlier run the first datagram opens everything.
    #[arg(long, value_name = "FILE")]
    tickets: Option<PathBuf>,
    /// Open step by step, each after the answer to the one before, as most clients
    /// do, instead of in one flight.
    #[arg(long)]
    stepwise: bool,
    /// Which links share a stream of QUIC.
    #[arg(long, value_enum, default_value = "single")]
    streams: Streams,
    /// Print what happens.
    #[arg(short = 'd', long)]
    debug: bool,
    /// Do not print errors.
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    tls: Tls,
}

/// SASL mechanisms.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mechanism {
    Anonymous,
    Plain,
    External,
    #[value(name = "scram-sha-256")]
    ScramSha256,
    /// No SASL at all.
    Off,
}

/// As [`StreamPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Streams {
    /// All.
    Single,
    /// None, as far as the server allows streams.
    PerLink,
}

/// For a connection that is not worth a search for a larger packet size.
fn briefly(builder: Builder) -> Builder {
    builder.network(NetworkOptions::new().mtu_discovery(false))
}

/// What the server said to early data, when the client is closed.
async fn early_data(mut events: Events) -> Option<bool> {
    let mut said = None;
    while let Some(event) = events.next().await {
        if let ConnectionEvent::EarlyData { accepted } = event {
            said = Some(accepted);
        }
    }
    said
}

impl Connect {
    /// Says what happens to the connection once there was one; never ends.
    async fn watch(&self, mut events: Events) -> Infallible {
        let mut losses = Losses::default();
        let mut was_connected = false;
        while let Some(event) = events.next().await {
            match event {
                ConnectionEvent::Disconnected { cause } if was_connected => losses.lost(&cause),
                ConnectionEvent::Reconnecting { .. } => {
                    if let Some(cause) = losses.news() {
                        self.complain(&format_args!("Warning: {cause}; trying again"));
                    }
                }
                ConnectionEvent::Connected { .. } => {
                    was_connected = true;
                    if losses.over() {
                        self.complain(&"Connected again");
                    }
                }
                _ => {}
            }
        }
        core::future::pending().await
    }

    /// Options for the client.
    fn builder(&self) -> Result<Builder> {
        let url: Url = self
            .url
            .parse()
            .with_context(|| format!("--url {}", self.url))?;
        let mut builder = Client::builder(&self.url)
            .with_context(|| format!("--url {}", self.url))?
            .losses_max(LOSSES_MAX)
            .pipelined(!self.stepwise);
        if url.transport().is_encrypted() || url.is_auto() {
            builder = builder.tls(self.tls.options()?);
        } else if self.tls.is_wanted() {
            anyhow::bail!("options of TLS have no effect on {}://", url.scheme());
        }
        if let (Some(user), Some(password)) = (&self.username, &self.password) {
            builder = builder.credentials(user, password);
        }
        if self.streams == Streams::PerLink {
            if url.transport() != Transport::Quic {
                anyhow::bail!("--streams has no effect here: it needs QUIC");
            }
            builder = builder.streams(StreamPolicy::PerLink);
        }
        if let Some(id) = &self.container {
            builder = builder.container_id(id);
        }
        if let Some(path) = &self.tickets {
            if url.transport() != Transport::Quic {
                anyhow::bail!("--tickets has no effect here: it needs QUIC");
            }
            let file = TicketFile::open(path)
                .with_context(|| format!("cannot use --tickets {}", path.display()))?;
            builder = builder.tickets(file);
        }
        if let Some(path) = &self.token_file {
            let path = path.clone();
            builder = builder.tokens(move || token::read(&path));
        }
        Ok(match self.sasl {
            None => builder,
            Some(Mechanism::Anonymous) => builder.sasl(Sasl::Anonymous),
            Some(Mechanism::Plain) => builder.sasl(Sasl::Plain),
            Some(Mechanism::External) => builder.sasl(Sasl::External),
            Some(Mechanism::ScramSha256) => builder.sasl(Sasl::ScramSha256),
            Some(Mechanism::Off) => builder.sasl(Sasl::Off),
        })
    }

    /// Prints an error, unless that is not wanted.
    fn complain(&self, message: &dyn core::fmt::Display) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "{message}");
        }
    }

    /// Prints what happens, if that is wanted.
    fn say(&self, message: impl FnOnce() -> String) {
        if self.debug {
            let _ = writeln!(io::stderr(), "{}", message());
        }
    }
}

/// `NAME=VALUE`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
