//! `--timing`: how long the steps of a publish took, as a line of JSON for
//! scripts.

use std::io::{self, Write as _};
use std::time::Instant;

use serde_json::json;

/// Times since the start of connecting, in microseconds.
#[derive(Debug)]
pub(super) struct Timing {
    start: Instant,
    connected: Option<u128>,
    early_data: Option<bool>,
    acknowledged: Option<u128>,
}

impl Timing {
    /// Connecting starts now.
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            connected: None,
            early_data: None,
            acknowledged: None,
        }
    }

    /// CONNACK is there; and what the server said to early data.
    pub(super) fn connected(&mut self, early_data: Option<bool>) {
        self.early_data = early_data;
        self.connected
            .get_or_insert_with(|| self.start.elapsed().as_micros());
    }

    /// The first message has its acknowledgement, or has left if it gets none.
    pub(super) fn acknowledged(&mut self) {
        self.acknowledged
            .get_or_insert_with(|| self.start.elapsed().as_micros());
    }

    /// The connection is closed: prints everything.
    pub(super) fn print(&self) {
        let times = json!({
            "connected_us": self.connected,
            "early_data": self.early_data,
            "acknowledged_us": self.acknowledged,
            "closed_us": self.start.elapsed().as_micros(),
        });
        // A reader that closed the output does not want to know.
        let _ = writeln!(io::stdout(), "{times}");
    }
}
