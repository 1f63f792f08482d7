//! The load of experiments: `dunlin bench --library`, and what it printed.

use core::time::Duration;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// Microseconds that the load generator may be behind its schedule.
pub(crate) const BEHIND_US_MAX: u64 = 10_000;

/// What a load did, as far as it is read; times are in microseconds from one clock.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Done {
    pub(crate) published: u64,
    /// Messages whose publisher learnt that they failed.
    pub(crate) failed: u64,
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    /// Connections that ended, and attempts that failed.
    pub(crate) disconnections: u64,
    /// Why the first of them did.
    pub(crate) causes: Vec<String>,
    /// Connections after the first one of each client.
    pub(crate) reconnections: u64,
    /// Moves of connections to other local addresses, wanted and by themselves.
    pub(crate) moves: u64,
    /// Messages that were sent more than [`BEHIND_US_MAX`] late because the
    /// generator was.
    pub(crate) behind: u64,
    /// How late they were with all but one in fifty.
    pub(crate) late_us: u64,
    pub(crate) seconds: f64,
    /// From before the first message to after the last arrival, since the epoch.
    pub(crate) window_us: (u64, u64),
    /// Topic, time of publishing and of arrival.
    #[serde(default)]
    pub(crate) samples: Vec<(u16, u64, u64)>,
    /// Time of publishing, and from then to the end, of messages of CoAP that still
    /// wait to be sent, first or again.
    #[serde(default)]
    pub(crate) waiting: Vec<(u64, u64)>,
    /// Time of publishing, and from then to the acknowledgement.
    #[serde(default)]
    pub(crate) acknowledged: Vec<(u64, u64)>,
}

/// Publishers and subscribers; every subscriber gets every message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) publishers: u32,
    pub(crate) subscribers: u32,
    /// Of each publisher.
    pub(crate) topics: u32,
    /// Messages a second of each publisher; `None`: as many as possible.
    pub(crate) rate: Option<f64>,
    pub(crate) time: Duration,
    /// Bytes of a message.
    pub(crate) payload: u32,
    /// Longest wait for what is still to come.
    pub(crate) patience: Duration,
    /// How long sessions outlive connections.
    pub(crate) expiry: Duration,
    /// In seconds; 0: none.
    pub(crate) keep_alive: u16,
}

impl Load {
    /// One publisher and one subscriber for so long.
    pub(crate) const fn of(time: Duration) -> Self {
        Self {
            publishers: 1,
            subscribers: 1,
            topics: 8,
            rate: None,
            time,
            payload: 64,
            patience: Duration::from_secs(5),
            expiry: Duration::from_secs(600),
            keep_alive: 20,
        }
    }

    /// Adds it to a command that says where to connect.
    pub(crate) fn add_to(&self, command: &mut Command) {
        let mut add = |name: &str, value: String| {
            command.args([name, &value]);
        };
        add("--pubs", self.publishers.to_string());
        add("--subs", self.subscribers.to_string());
        add("--topics", (self.publishers * self.topics).to_string());
        add("--size", self.payload.to_string());
        add("--duration", self.time.as_secs_f64().to_string());
        add("--keep-alive", self.keep_alive.to_string());
        add("--drain", self.patience.as_secs_f64().to_string());
        if let Some(rate) = self.rate {
            let all = rate * f64::from(self.publishers);
            add("--rate", all.to_string());
        }
        if !self.expiry.is_zero() {
            add("--session-expiry", self.expiry.as_secs().to_string());
            command.arg("--persistent");
        }
        command.args(["--pattern", "n-n"]);
    }
}

/// `dunlin bench` with clients of the library; `streams` is how they spread
/// messages.
pub(crate) fn clients(mut command: Command, url: &str, ca: &Path, streams: &str) -> Command {
    command.args(["bench", "--library", "--quiet", "--json", "-"]);
    command.args(["--warmup", "0", "--url", url]);
    command.arg("--ca").arg(ca);
    command.args(["--streams", streams]);
    if streams != "single" {
        command.args(["--isolate", "--delivery-streams"]);
    }
    command
}
