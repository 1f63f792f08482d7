//! The hidden command `burst`: one client that has many messages of QoS 1 at
//! once, and how long it takes until the server has them all.

use core::time::Duration;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Args;
use dunlin_client::{Client, Publish};
use dunlin_link::parse_duration;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::access::{Access, quality};
use super::{micros, printed};

/// Longest time to disconnect.
const DISCONNECT_MAX: Duration = Duration::from_millis(300);

/// One client with many messages.
#[derive(Args, Clone, Debug)]
pub(crate) struct Burst {
    #[command(flatten)]
    access: Access,
    /// Messages.
    #[arg(long, default_value_t = 100)]
    count: u32,
    #[arg(long, default_value_t = 1)]
    qos: u8,
    #[arg(long, default_value = "burst/topic")]
    topic: String,
    /// File with the payload.
    #[arg(long)]
    file: std::path::PathBuf,
    #[arg(long, default_value = "burst")]
    id: String,
    /// Longest that all may take.
    #[arg(long, value_parser = parse_duration, default_value = "120s")]
    timeout: Duration,
    /// Connect once before, for a session ticket.
    #[arg(long)]
    resume: bool,
}

/// What came of it. Times are in microseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Bursted {
    /// From the call to CONNACK.
    pub(crate) connected_us: u64,
    /// From the first message to the last acknowledgement.
    pub(crate) transmitted_us: Option<u64>,
    /// From the beginning of the connection to the last acknowledgement.
    pub(crate) total_us: Option<u64>,
    pub(crate) acknowledged: u32,
}

impl Burst {
    pub(crate) fn run(self) -> Result<ExitCode> {
        printed(self.all())
    }

    async fn all(&self) -> Result<Bursted> {
        let payload = std::fs::read(&self.file)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let builder = || {
            let builder = self.access.transient(&self.id)?;
            let count = u16::try_from(self.count).unwrap_or(u16::MAX);
            anyhow::Ok(builder.max_in_flight(count).connect_timeout(self.timeout))
        };
        if self.resume {
            let (client, _none) = builder()?.connect().await.context("cannot connect")?;
            client.disconnect().await;
        }
        let mut done = Bursted::default();
        let begun = Instant::now();
        let (client, _none, connecting) = builder()?.start().context("cannot start")?;
        let connected = tokio::spawn(async move {
            connecting.await.context("cannot connect")?;
            anyhow::Ok(micros(begun))
        });
        // Messages go out with the first datagram only where there is a ticket.
        let (mut first, mut waiting) = (begun, Some(connected));
        if !self.resume
            && let Some(connected) = waiting.take()
        {
            done.connected_us = connected.await??;
            first = Instant::now();
        }
        let Ok(sent) = timeout(self.timeout, self.send(&client, &payload)).await else {
            return Ok(done);
        };
        let sent = sent?;
        if let Some(connected) = waiting {
            done.connected_us = connected.await??;
        }
        done.acknowledged = sent.0;
        if sent.0 == self.count {
            let us = |from: Instant| u64::try_from((sent.1 - from).as_micros()).ok();
            done.transmitted_us = us(first);
            done.total_us = us(begun);
        }
        // How it ends is not measured.
        let _ = timeout(DISCONNECT_MAX, client.disconnect()).await;
        Ok(done)
    }
    /// Number of acknowledgements and when the last one came.
    async fn send(&self, client: &Client, payload: &[u8]) -> Result<(u32, Instant)> {
        let mut deliveries = Vec::new();
        for _ in 0..self.count {
            let message = Publish::new(self.topic.clone(), payload.to_vec());
            let message = message.qos(quality(self.qos));
            let delivery = client.start_publish(message).await;
            deliveries.push(delivery.context("cannot publish")?);
        }
        let mut acknowledged = 0;
        for delivery in deliveries {
            acknowledged += u32::from(delivery.await.is_ok());
        }
        Ok((acknowledged, Instant::now()))
    }
}
