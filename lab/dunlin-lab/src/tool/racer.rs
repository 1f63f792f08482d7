//! The hidden command `racer`: connects a client and prints as JSON how long
//! it took and over what, and on request waits until it is on QUIC again, with
//! messages under way. Runs inside a namespace.

use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dunlin_client::{Client, ConnectionEvent, Publish, QoS, Race, RaceMemory, Transport};
use dunlin_link::parse_duration;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::access::Access;
use super::printed;

/// Between two messages of a client that waits for QUIC.
const PUBLISH_EVERY: Duration = Duration::from_millis(5);

/// Longest wait for the last messages.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// One client.
#[derive(Args, Clone, Debug)]
pub(crate) struct Racer {
    #[command(flatten)]
    access: Access,
    /// Where to remember what worked.
    #[arg(long)]
    memory: Option<PathBuf>,
    /// Wait so long, at most, until the connection is on QUIC.
    #[arg(long, value_parser = parse_duration)]
    upgrade_within: Option<Duration>,
    /// Wait so long before QUIC is tried again.
    #[arg(long, value_parser = parse_duration)]
    probe_after: Option<Duration>,
}

/// What came of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Raced {
    /// From the call until CONNACK.
    pub(crate) connect_us: f64,
    /// Over QUIC from the beginning.
    pub(crate) quic: bool,
    /// Until the connection was on QUIC again.
    pub(crate) upgrade_us: Option<f64>,
    /// Messages published meanwhile, to itself.
    pub(crate) published: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
}

impl Racer {
    pub(crate) fn run(self) -> Result<ExitCode> {
        printed(self.race())
    }

    async fn race(&self) -> Result<Raced> {
        let builder = self.access.builder("racer")?;
        let mut builder = builder.session_expiry(Duration::from_secs(60));
        if self.access.url.starts_with("auto:") {
            let mut race = Race::new();
            if let Some(path) = &self.memory {
                race = race.memory(&RaceMemory::file(path)?);
            }
            if let Some(wait) = self.probe_after {
                race = race.probe_after(wait);
            }
            builder = builder.race(race);
        }
        let begun = Instant::now();
        let (client, messages) = builder.connect().await.context("cannot connect")?;
        let mut raced = Raced {
            connect_us: micros(begun.elapsed()),
            quic: client.transport() == Some(Transport::Quic),
            ..Raced::default()
        };
        if let Some(within) = self.upgrade_within {
            upgrade(&client, messages, within, &mut raced).await?;
        }
        client.disconnect().await;
        Ok(raced)
    }
}

/// Publishes to itself until it is on QUIC, and looks whether all arrived.
async fn upgrade(
    client: &Client,
    mut messages: dunlin_client::Messages,
    within: Duration,
    raced: &mut Raced,
) -> Result<()> {
    let topic = "race/self";
    client.subscribe(topic, QoS::ExactlyOnce).await?;
    let mut events = client.events();
    let begun = Instant::now();
    let mut deliveries = Vec::new();
    while raced.upgrade_us.is_none() {
        if begun.elapsed() > within {
            bail!("not on QUIC within {within:?}");
        }
        let message = Publish::new(topic, raced.published.to_string()).qos(QoS::ExactlyOnce);
        deliveries.push(client.start_publish(message).await?);
        raced.published += 1;
        if let Ok(Some(ConnectionEvent::Connected { transport, .. })) =
            timeout(PUBLISH_EVERY, events.next()).await
            && transport == Transport::Quic
        {
            raced.upgrade_us = Some(micros(begun.elapsed()));
        }
    }
    for delivery in deliveries {
        delivery.await.context("a message was not delivered")?;
    }
    let mut times = vec![0_u64; usize::try_from(raced.published).unwrap_or_default()];
    while times.contains(&0) {
        let Ok(Some(message)) = timeout(DRAIN_MAX, messages.next()).await else {
            break;
        };
        let number = core::str::from_utf8(&message.payload).ok();
        let number: Option<usize> = number.and_then(|text| text.parse().ok());
        if let Some(times) = number.and_then(|number| times.get_mut(number)) {
            *times += 1;
        }
    }
    raced.lost = times.iter().filter(|times| **times == 0).count() as u64;
    raced.doubled = times.iter().map(|times| times.saturating_sub(1)).sum();
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
