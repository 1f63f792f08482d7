//! Hidden commands: the clients of the experiments, each a process of its own
//! inside a namespace that prints what it saw as a line of JSON.

mod access;
pub(crate) mod knock;
pub(crate) mod load;
pub(crate) mod pairs;
pub(crate) mod racer;
pub(crate) mod trickle;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde::Serialize;

use crate::say;

/// Clients of the experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Publishers and subscribers.
    #[command(hide = true)]
    Load(load::Load),
    /// One client that connects again and again.
    #[command(hide = true)]
    Knock(knock::Knock),
    /// One client that may use QUIC and TLS over TCP.
    #[command(hide = true)]
    Racer(racer::Racer),
    /// Pairs of a publisher and a subscriber.
    #[command(hide = true)]
    Pairs(pairs::Pairs),
    /// A publisher that gets one line at a time.
    #[command(hide = true)]
    Trickle(trickle::Trickle),
}

impl Tool {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Load(load) => load.run(),
            Self::Knock(knock) => knock.run(),
            Self::Racer(racer) => racer.run(),
            Self::Pairs(pairs) => pairs.run(),
            Self::Trickle(trickle) => trickle.run(),
        }
    }
}

/// Does the work of a tool, and prints what came of it.
fn printed<T: Serialize>(work: impl Future<Output = Result<T>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .context("cannot start")?;
    let done = runtime.block_on(work)?;
    say::out(serde_json::to_string(&done)?);
    Ok(ExitCode::SUCCESS)
}

/// Microseconds since then.
fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// How late things were done that had a time.
#[derive(Debug, Default)]
struct Lateness(Vec<u64>);

impl Lateness {
    /// Something that was due then is done now.
    fn note(&mut self, due: Instant) {
        self.note_until(due, Instant::now());
    }

    /// Something that was due then was done at that time.
    fn note_until(&mut self, due: Instant, now: Instant) {
        let late = now.saturating_duration_since(due).as_micros();
        self.0.push(u64::try_from(late).unwrap_or(u64::MAX));
    }

    /// The 98th percentile in microseconds: what tells a saturated machine
    /// from a single hiccup, as in `run::validity`.
    fn p98_us(&mut self) -> u64 {
        self.0.sort_unstable();
        let index = self.0.len().saturating_sub(1) * 98 / 100;
        self.0.get(index).copied().unwrap_or_default()
    }
}
