//! What the experiments on one link share: a link with a server at its end,
//! clients on the other, and whether what was measured was the system and not
//! the bench.

use core::time::Duration;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use dunlin_link::linux::{Emulator, Options};
use serde::de::DeserializeOwned;

use super::congestion;
use super::load::BEHIND_US_MAX;
use super::record::{Cell, Measure, Outcome};
use super::systems::{Serving, System};
use super::validity;
use super::visits::{Times, Visited, Visits};
use crate::lab::Lab;
use crate::link::start;
use crate::process::{Server, output};
use crate::profile::of;

/// A link with a server at host B.
pub(super) struct Bench<'a> {
    pub(super) lab: &'a Lab,
    pub(super) emulator: Emulator,
    pub(super) system: &'static System,
    pub(super) server: Server,
}

impl<'a> Bench<'a> {
    /// Starts the link with these settings, and the server of the cell.
    pub(super) fn start(
        lab: &'a Lab,
        cell: &Cell,
        settings: &[String],
        capture: Option<PathBuf>,
    ) -> Result<Self> {
        Self::serving(lab, cell, settings, capture, &Serving::default())
    }

    /// The same, with settings of the server.
    pub(super) fn serving(
        lab: &'a Lab,
        cell: &Cell,
        settings: &[String],
        capture: Option<PathBuf>,
        serving: &Serving,
    ) -> Result<Self> {
        let system = System::of(cell)?;
        let mut options = Options::new(format!("run-{}", std::process::id()));
        options.seed = cell.seed;
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        options.profiles = of(&settings)?;
        options.capture = capture;
        let emulator = start(options)?;
        congestion::equal(Side::BOTH.map(|side| emulator.namespace(side)));
        let server = system.serve(lab, emulator.namespace(Side::B), serving)?;
        Ok(Self {
            lab,
            emulator,
            system,
            server,
        })
    }

    pub(super) fn url(&self) -> String {
        self.system.url(Emulator::address(Side::B))
    }

    /// Clients at host A that come one after another.
    pub(super) fn visits(&self, visits: &Visits<'_>) -> Result<Times> {
        let at = (self.emulator.namespace(Side::A), Emulator::address(Side::B));
        let visited: Visited = reply(self.system.visits(self.lab, at, visits))?;
        Ok(visited.times)
    }

    /// `dunlin pub` or `sub`, to be started at host A.
    pub(super) fn client(&self, name: &str) -> Command {
        let broker = Emulator::address(Side::B);
        self.system.client(self.lab, broker, name, "a")
    }

    /// The load generator at host A; `streams` is how messages are spread.
    pub(super) fn load(&self, streams: &str) -> Command {
        let at = (self.emulator.namespace(Side::A), Emulator::address(Side::B));
        self.system.load(self.lab, at, streams)
    }

    /// Ends everything where no time is measured; what makes the cell worthless:
    /// not that the link was late.
    pub(super) fn finish_untimed(mut self) -> Result<Option<String>> {
        self.server.runs()?;
        drop(self.server);
        Ok(self.emulator.stop().trouble().into_iter().next())
    }

    /// Ends everything; what makes the cell worthless, if anything does.
    pub(super) fn finish(mut self, late_us: u64) -> Result<Option<String>> {
        self.server.runs()?;
        drop(self.server);
        let link = validity::link(&self.emulator.stop());
        Ok(link.or_else(|| behind(late_us)))
    }
}

/// Why what was measured was the load generator, if so.
pub(super) fn behind(late_us: u64) -> Option<String> {
    (late_us > BEHIND_US_MAX).then(|| {
        let late = Duration::from_micros(late_us);
        format!("the load generator was saturated: it was {late:?} behind its schedule")
    })
}

/// Runs a tool, and reads what it printed.
pub(super) fn reply<T: DeserializeOwned>(command: Command) -> Result<T> {
    let said = output(command)?;
    let line = said.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("a tool printed {line}"))
}

/// Observations without factors of their own.
pub(super) fn measure(metric: &str, unit: &str, values: Vec<f64>) -> Measure {
    Measure {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        values,
        ..Measure::default()
    }
}

/// Microseconds as milliseconds.
pub(super) fn millis(values: &[u64]) -> Vec<f64> {
    values
        .iter()
        .map(|us| Duration::from_micros(*us).as_secs_f64() * 1e3)
        .collect()
}

/// Puts together what a cell gave.
pub(super) fn outcome(measures: Vec<Measure>, invalid: Option<String>) -> Outcome {
    Outcome {
        measures,
        invalid,
        ..Outcome::default()
    }
}
