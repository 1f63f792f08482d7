//! `--timing`: how long the steps of a command of a client took, as a line of
//! JSON for scripts.

use core::time::Duration;
use std::io::{self, Write as _};
use std::time::{Instant, SystemTime};

use dunlin_base::transport::Transport;
use serde_json::{Map, Value, json};

/// Round trips of messages that are printed.
const ROUND_TRIPS_MAX: usize = 10_000;

/// The server has accepted the client.
pub(super) const CONNECTED: &str = "connected_us";
/// ... and all links.
pub(super) const ATTACHED: &str = "attached_us";
/// The server has answered the subscriptions.
pub(super) const SUBSCRIBED: &str = "subscribed_us";
/// The first message has its acknowledgement.
pub(super) const ACKNOWLEDGED: &str = "acknowledged_us";
/// ... and all messages.
pub(super) const ALL_ACKNOWLEDGED: &str = "all_acknowledged_us";
/// The response has come.
pub(super) const ANSWERED: &str = "answered_us";
/// The first message has come.
pub(super) const FIRST: &str = "first_us";

/// When there was a later connection, and what it is over.
pub(super) type Reconnection = (Instant, Transport);

/// Times since the start of connecting, in microseconds.
#[derive(Debug)]
pub(super) struct Timing {
    start: Instant,
    since_epoch: Duration,
    early_data: Option<bool>,
    transport: Option<Transport>,
    reconnections: Vec<Reconnection>,
    steps: Map<String, Value>,
    round_trips: Vec<u128>,
}

impl Timing {
    /// Connecting starts now. A step that is not reached is printed as null.
    pub(super) fn start(steps: &[&str]) -> Self {
        let null = |step: &&str| ((*step).to_owned(), Value::Null);
        Self {
            start: Instant::now(),
            since_epoch: SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default(),
            early_data: None,
            transport: None,
            reconnections: Vec::new(),
            steps: steps.iter().map(null).collect(),
            round_trips: Vec::new(),
        }
    }

    /// A step is reached, unless it was before.
    pub(super) fn reached(&mut self, step: &str) {
        if let Some(at @ Value::Null) = self.steps.get_mut(step) {
            *at = json!(self.start.elapsed().as_micros());
        }
    }

    /// What the server said to early data.
    pub(super) const fn early_data(&mut self, accepted: Option<bool>) {
        self.early_data = accepted;
    }

    /// What the first connection is over.
    pub(super) const fn transport(&mut self, transport: Option<Transport>) {
        self.transport = transport;
    }

    /// When there were later connections, and over what.
    pub(super) fn reconnected(&mut self, later: Vec<Reconnection>) {
        self.reconnections = later;
    }

    /// How long a message took to its acknowledgement.
    pub(super) fn round_trip(&mut self, took: Duration) {
        if self.round_trips.len() < ROUND_TRIPS_MAX {
            self.round_trips.push(took.as_micros());
        }
    }

    /// The connection is closed: prints everything.
    pub(super) fn print(mut self) {
        let closed = self.start.elapsed().as_micros();
        self.steps.insert("closed_us".into(), json!(closed));
        let start = json!(self.since_epoch.as_micros());
        self.steps.insert("start_unix_us".into(), start);
        let early_data = json!(self.early_data);
        self.steps.insert("early_data".into(), early_data);
        if let Some(transport) = self.transport {
            let transport = json!(transport.name());
            self.steps.insert("transport".into(), transport);
        }
        if !self.reconnections.is_empty() {
            let shown = |(at, transport): &Reconnection| {
                let us = at.saturating_duration_since(self.start).as_micros();
                json!({"us": us, "transport": transport.name()})
            };
            let reconnections = self.reconnections.iter().map(shown).collect();
            self.steps.insert("reconnections".into(), reconnections);
        }
        if !self.round_trips.is_empty() {
            let round_trips = json!(self.round_trips);
            self.steps.insert("round_trips_us".into(), round_trips);
        }
        // A reader that closed the output does not want to know.
        let _ = writeln!(io::stdout(), "{}", Value::Object(self.steps));
    }
}
