//! Many clients that connect one after another: `dunlin bench --handshakes` at an
//! interval, and how long each step took them.

use core::time::Duration;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// What it prints, as far as it is read.
#[derive(Debug, Deserialize)]
pub(super) struct Visited {
    pub(super) times: Times,
}

/// For each client that got so far the time since it began, in microseconds.
#[derive(Debug, Deserialize)]
pub(super) struct Times {
    pub(super) clients: usize,
    /// What a client that did not get to the end took at least.
    timeout_us: u64,
    /// The transport takes bytes.
    pub(super) ready_us: Vec<u64>,
    /// Those of early data: the server has answered.
    pub(super) answered_us: Vec<u64>,
    pub(super) connack_us: Vec<u64>,
    pub(super) suback_us: Vec<u64>,
    /// Clients that got to the end.
    pub(super) done: usize,
    /// Clients whose early data was taken.
    pub(super) early: usize,
    /// How far behind its schedule it was with all but one in fifty.
    pub(super) late_us: u64,
    /// Why the first one that did not failed.
    pub(super) why: Option<String>,
}

impl Times {
    /// The times in milliseconds; clients that did not get so far count with
    /// the time after which they were given up, else loss would look good.
    pub(super) fn or_given_up(&self, times: &[u64]) -> Vec<f64> {
        let missing = self.clients.saturating_sub(times.len());
        let all = times.iter().copied();
        all.chain(core::iter::repeat_n(self.timeout_us, missing))
            .map(|us| Duration::from_micros(us).as_secs_f64() * 1e3)
            .collect()
    }
}

/// Clients that come so often, and not more than so long; `first` before them do
/// not count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visits<'a> {
    pub(super) clients: usize,
    pub(super) first: usize,
    pub(super) every: Duration,
    pub(super) timeout: Duration,
    /// `handshake`, `connack` or `suback`.
    pub(super) until: &'a str,
    /// Each comes once before, and sends early data with its ticket.
    pub(super) early: bool,
    /// What our clients assume of a path over QUIC; their default if not given.
    pub(super) initial_rtt: Option<Duration>,
}

impl Visits<'_> {
    /// Adds them to the program that makes them, with where to connect.
    pub(super) fn of(&self, mut command: Command, url: &str, ca: &Path) -> Command {
        command.args(["bench", "--quiet", "--json", "-", "--url", url]);
        command.arg("--ca").arg(ca);
        if let Some(trip) = self.initial_rtt {
            command.args(["--initial-rtt", &trip.as_millis().to_string()]);
        }
        self.add_to(command)
    }

    /// Adds them to a program that knows where to connect.
    pub(super) fn add_to(&self, mut command: Command) -> Command {
        command.args(["--handshakes", &self.clients.to_string()]);
        command.args(["--uncounted", &self.first.to_string()]);
        command.args(["--every", &self.every.as_secs_f64().to_string()]);
        command.args(["--give-up", &self.timeout.as_secs_f64().to_string()]);
        command.args(["--until", self.until, "--returning"]);
        if self.early {
            command.arg("--early-data");
        }
        command
    }
}
