//! The hidden command `knock`: one client that connects again and again, and
//! prints as JSON when each step was done, so that packets of a capture can be
//! distinguished. Runs inside a namespace.

use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Args;
use dunlin_client::{QoS, StreamPolicy, TlsOptions};
use dunlin_link::parse_duration;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::access::Access;
use super::printed;

/// One client, several times.
#[derive(Args, Clone, Debug)]
pub(crate) struct Knock {
    #[command(flatten)]
    access: Access,
    /// Write the secrets of TLS here, for tshark.
    #[arg(long, value_name = "FILE")]
    keylog: Option<PathBuf>,
    #[arg(long, default_value = "knock")]
    id: String,
    /// Connections that are reported.
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Connections before them.
    #[arg(long, default_value_t = 1)]
    warm_up: u32,
    /// Subscribe as well.
    #[arg(long)]
    subscribe: bool,
    /// Quiet time after each step that ends with quiet.
    #[arg(long, value_parser = parse_duration, default_value = "500ms")]
    settle: Duration,
}

/// When a connection got how far, in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Knocked {
    pub(crate) begun: u64,
    /// CONNACK was there.
    pub(crate) connected: u64,
    /// SUBACK was there; the same without `--subscribe`.
    pub(crate) ready: u64,
    /// Before DISCONNECT, long after the last packet.
    pub(crate) settled: u64,
}

impl Knock {
    pub(crate) fn run(self) -> Result<ExitCode> {
        printed(self.all())
    }

    async fn all(&self) -> Result<Vec<Knocked>> {
        let mut knocked = Vec::new();
        for number in 0..self.warm_up + self.times {
            let one = self.one().await?;
            if number >= self.warm_up {
                knocked.push(one);
            }
        }
        Ok(knocked)
    }

    async fn one(&self) -> Result<Knocked> {
        let mut tls = TlsOptions::new().ca_file(&self.access.ca);
        if let Some(path) = &self.keylog {
            tls = tls.log_secrets_to(path);
        }
        // A connection without messages has one stream. CONNECT leaves as with
        // `dunlin sub`.
        let builder = self.access.builder(&self.id)?;
        let builder = builder.streams(StreamPolicy::Single).isolate_streams(false);
        let builder = builder.delivery_streams(false).pipelined(true);
        let builder = builder.keep_alive(Duration::ZERO).tls(tls);
        let begun = now();
        let (client, messages, connecting) = builder.start()?;
        let connected = async {
            let connected = connecting.await;
            connected.with_context(|| format!("cannot connect to {}", self.access.url))?;
            anyhow::Ok(now())
        };
        // Handed over before there is a connection, so that it goes out as
        // early as it may.
        let subscribed = async {
            let filter = format!("knock/{}", self.id);
            let subscribed = client.subscribe(filter, QoS::AtMostOnce).await;
            subscribed.context("cannot subscribe")?;
            anyhow::Ok(now())
        };
        let (connected, ready) = match self.subscribe {
            true => {
                let (connected, ready) = tokio::join!(connected, subscribed);
                (connected?, ready?)
            }
            false => {
                let connected = connected.await?;
                (connected, connected)
            }
        };
        sleep(self.settle).await;
        let settled = now();
        client.disconnect().await;
        drop(messages);
        // DISCONNECT leaves sooner than everything else.
        sleep(self.settle / 2).await;
        Ok(Knocked {
            begun,
            connected,
            ready,
            settled,
        })
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
