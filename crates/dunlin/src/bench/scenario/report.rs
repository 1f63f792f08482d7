//! The result of a scenario, as JSON and as a table for people.

use core::fmt;

use serde::Serialize;

use super::{Phase, Population, Scenario};
use crate::bench::proc::Process;
use crate::bench::report::{self, duration, n};
use crate::bench::stats::Summary;

/// Format of the JSON; a reader should refuse what it does not know.
const FORMAT: u32 = 1;

/// A whole scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Number of this format.
    pub format: u32,
    /// Version of the generator.
    pub version: &'static str,
    /// What it is called.
    pub scenario: String,
    /// Its phases.
    pub phases: Vec<OfPhase>,
    /// Its populations.
    pub populations: Vec<OfPopulation>,
}

/// What the broker spent in a phase.
#[derive(Clone, Debug, Serialize)]
pub struct OfPhase {
    /// What it is called.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
    /// CPU seconds a second of the broker, if its process is known.
    pub broker_cores: Option<f64>,
    /// Its resident bytes at the end.
    pub broker_rss: Option<u64>,
}

/// What became of a population.
#[derive(Clone, Debug, Serialize)]
pub struct OfPopulation {
    /// What it is called.
    pub name: String,
    /// Number of its first phase.
    pub first_phase: usize,
    /// Why there is no report.
    pub failure: Option<String>,
    /// As of a run by itself; its `phases` begin with the first of its own.
    pub report: Option<report::Report>,
}

impl OfPhase {
    pub(super) fn new(
        phase: &Phase,
        broker: Option<Process>,
        before: Option<core::time::Duration>,
    ) -> Self {
        let seconds = phase.length.as_secs_f64();
        let spent = broker.and_then(Process::cpu).zip(before);
        Self {
            name: phase.name.clone(),
            seconds,
            broker_cores: spent
                .map(|(after, before)| after.saturating_sub(before).as_secs_f64() / seconds),
            broker_rss: broker.and_then(Process::rss),
        }
    }
}

impl OfPopulation {
    pub(super) fn new(population: &Population, result: anyhow::Result<report::Report>) -> Self {
        let (failure, report) = match result {
            Ok(report) => (None, Some(report)),
            Err(error) => (Some(format!("{error:#}")), None),
        };
        Self {
            name: population.name.clone(),
            first_phase: population.first,
            failure,
            report,
        }
    }
}

impl Report {
    pub(super) fn new(
        scenario: &Scenario,
        phases: Vec<OfPhase>,
        populations: Vec<OfPopulation>,
    ) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            scenario: scenario.name.clone(),
            phases,
            populations,
        }
    }

    /// Whether all populations came to their end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.populations.iter().all(|it| it.failure.is_none())
    }

    fn write_populations(&self, rows: &mut Vec<Row>) {
        rows.push(row([
            "population",
            "clients",
            "connected",
            "connect p50",
            "p99",
            "max",
        ]));
        for population in &self.populations {
            let Some(report) = &population.report else {
                continue;
            };
            let c = &report.connections;
            let (ready, all) = (c.ready as u64, &c.time);
            rows.push(vec![
                population.name.clone(),
                n(c.wanted as u64),
                n(ready),
                time(all, all.p50_us),
                time(all, all.p99_us),
                time(all, all.max_us),
            ]);
        }
    }

    fn write_messages(&self, rows: &mut Vec<Row>) {
        rows.push(row([
            "population",
            "phase",
            "sent/s",
            "delivered/s",
            "lost",
            "latency p50",
            "p99",
            "max",
        ]));
        for population in &self.populations {
            let phases = population.report.iter().flat_map(|report| &report.phases);
            for (at, of) in phases.enumerate() {
                let phase = self.phases.get(population.first_phase + at);
                rows.push(vec![
                    population.name.clone(),
                    phase.map(|it| it.name.clone()).unwrap_or_default(),
                    rate(of.sent_per_second),
                    rate(of.delivered_per_second),
                    n(of.lost),
                    time(&of.latency, of.latency.p50_us),
                    time(&of.latency, of.latency.p99_us),
                    time(&of.latency, of.latency.max_us),
                ]);
            }
        }
    }

    /// What sleeping and moving devices did, and what went wrong.
    fn write_notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for population in &self.populations {
            let name = &population.name;
            if let Some(failure) = &population.failure {
                writeln!(f, "{name}: FAILED: {failure}")?;
            }
            let Some(report) = &population.report else {
                continue;
            };
            if let Some(fleet) = &report.fleet
                && fleet.sleeping + fleet.moving > 0
            {
                writeln!(
                    f,
                    "{name}: {} wakes, {} with early data; {} moves, {} failed",
                    n(fleet.wakes),
                    n(fleet.early_data_accepted),
                    n(fleet.moves),
                    n(fleet.moves_failed)
                )?;
            }
            let c = &report.connections;
            for (what, causes) in [("not connected", &c.failures), ("lost", &c.losses)] {
                for (cause, count) in causes {
                    writeln!(f, "{name}: {what}: {} × {cause}", n(*count))?;
                }
            }
        }
        Ok(())
    }
}

type Row = Vec<String>;

fn row<const N: usize>(cells: [&str; N]) -> Row {
    cells.map(str::to_owned).to_vec()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.scenario)?;
        let mut rows = vec![row(["phase", "seconds", "broker cores", "broker memory"])];
        for phase in &self.phases {
            let unknown = || "-".to_owned();
            let mib = |bytes: u64| format!("{} MiB", n(bytes >> 20));
            rows.push(vec![
                phase.name.clone(),
                phase.seconds.to_string(),
                phase
                    .broker_cores
                    .map_or_else(unknown, |cores| format!("{cores:.2}")),
                phase.broker_rss.map_or_else(unknown, mib),
            ]);
        }
        write_table(f, 1, &rows)?;
        rows.clear();
        self.write_populations(&mut rows);
        write_table(f, 1, &rows)?;
        rows.clear();
        self.write_messages(&mut rows);
        write_table(f, 2, &rows)?;
        self.write_notes(f)
    }
}

/// With a decimal where that says something.
fn rate(per_second: f64) -> String {
    match per_second < 10.0 {
        true => format!("{per_second:.1}"),
        false => n(per_second as u64),
    }
}

/// A time of a distribution that may be empty.
fn time(of: &Summary, us: u64) -> String {
    match of.count {
        0 => "-".into(),
        _ => duration(us),
    }
}

/// In columns: the first `names` to the left, figures to the right.
fn write_table(f: &mut fmt::Formatter<'_>, names: usize, rows: &[Row]) -> fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column < names {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(f, "{}", line.trim_end())?;
    }
    writeln!(f)
}
