//! Options of `dunlin bench --library`: clients of the library, and what they do
//! that the generator's own cannot.

use core::time::Duration;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use dunlin_client::{Builder, Client, TicketFile, TlsOptions};

use super::super::streams::Streams;
use super::{Bench, Trust, run_id, seconds, write_json};
use crate::bench::library::{self, Options};
use crate::bench::plan::Plan;

#[derive(Debug, Args)]
#[command(next_help_heading = "Clients of the library")]
pub(super) struct LibraryOptions {
    /// Use clients of the library, which use streams, come back after a loss and
    /// move, instead of the generator's own. Needs a URL of MQTT; the report is
    /// shorter, and counts begin with the first message. --persistent is for all.
    #[arg(long, conflicts_with_all = ["idle", "handshakes"])]
    pub(super) library: bool,
    /// Have the times of each message in the JSON.
    #[arg(long, requires = "library")]
    samples: bool,
    /// Print `connected` when all are.
    #[arg(long, requires = "library")]
    announce: bool,
    /// Messages that each publisher exchanges before, one after the other.
    #[arg(
        long,
        requires = "library",
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    exchange: u32,
    /// Move each QUIC connection to another local port after so many seconds, again
    /// and again.
    #[arg(long, requires = "library", value_name = "SECONDS", value_parser = seconds)]
    migrate: Option<Duration>,
    /// Network namespace of the subscribers (Linux, root).
    #[arg(long, requires = "library", value_name = "NAME")]
    sub_namespace: Option<String>,
    /// Keep alive of subscribers, if it differs.
    #[arg(long, requires = "library", value_name = "SECONDS")]
    sub_keep_alive: Option<u16>,
    /// Messages of QoS 1 and 2 that the broker may have on their way to a client.
    #[arg(long, requires = "library", value_name = "N", default_value_t = 256)]
    receive_maximum: u16,
    /// File with session tickets (QUIC), as with `dunlin pub`.
    #[arg(long, requires = "library", value_name = "FILE")]
    tickets: Option<PathBuf>,
    #[command(flatten)]
    streams: Streams,
}

impl Bench {
    /// Runs a plan with clients of the library.
    pub(super) fn library(&self) -> anyhow::Result<ExitCode> {
        let plan = self.plan(run_id())?;
        let own = &self.library;
        let options = Options {
            samples: own.samples,
            announce: own.announce,
            migrate: own.migrate,
            namespace: own.sub_namespace.clone(),
            exchange: own.exchange,
        };
        let make = |kind, number| self.client(&plan, kind, number);
        let done = library::run(&plan, &options, &make)?;
        match &self.json {
            Some(path) => write_json(path, &done, false)?,
            None => write!(io::stdout().lock(), "{done}")?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn client(&self, plan: &Plan, kind: char, number: usize) -> anyhow::Result<Builder> {
        let (own, is_subscriber) = (&self.library, kind == 's');
        let url = match &self.sub_url {
            Some(url) if is_subscriber => url.as_str(),
            _ => self.url(),
        };
        let keep_alive = own.sub_keep_alive.filter(|_| is_subscriber);
        let keep_alive = keep_alive.unwrap_or(plan.sessions.keep_alive);
        let expiry = if plan.sessions.persistent {
            plan.sessions.expiry
        } else {
            0
        };
        let mut builder = Client::builder(url)?
            .client_id(plan.client_id(kind, number))
            .version(plan.sessions.version)
            .keep_alive(Duration::from_secs(keep_alive.into()))
            .session_expiry(Duration::from_secs(expiry.into()))
            .receive_maximum(own.receive_maximum)
            .network(self.network.options())
            .tls(self.network.tls(self.trust.options()));
        if let Some(user) = &plan.target.user {
            builder = builder.user(user);
        }
        if let Some(password) = &plan.target.password {
            builder = builder.password(password.as_str());
        }
        if let Some(path) = &own.tickets {
            let file = TicketFile::open(path)
                .with_context(|| format!("cannot use --tickets {}", path.display()))?;
            builder = builder.tickets(file);
        }
        own.streams.apply(builder, false)
    }
}

impl LibraryOptions {
    /// Refuses a plan that clients of the library do not carry out.
    pub(super) fn check(&self, plan: &Plan) -> anyhow::Result<()> {
        if !self.library {
            return Ok(());
        }
        if plan.fleet != Default::default() || plan.sessions.share || plan.messages.queue.is_some()
        {
            bail!("--library has no devices that sleep or move, no --share and no --queue");
        }
        Ok(())
    }
}

impl Trust {
    /// For the client library.
    fn options(&self) -> TlsOptions {
        let mut options = TlsOptions::new();
        if let Some(ca) = &self.ca {
            options = options.ca_file(ca);
        }
        if let Some(pin) = self.pin {
            options = options.pin_key_sha256(pin);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            options = options.identity_files(cert, key);
        }
        if self.insecure {
            options = options.dangerous_no_verification();
        }
        options
    }
}
