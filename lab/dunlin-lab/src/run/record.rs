//! What runs leave on disk, and the only thing that reports read.
//!
//! A run is a folder with two files. `run.json` is a [`Header`]; `cells.jsonl`
//! has a [`Record`] a line, appended when a cell is complete, so that an
//! interrupted run keeps what it has and goes on where it stopped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What distinguishes one measurement from another of the same experiment,
/// such as `testbed = wireless` or `loss = 10%`. Numbers are written as
/// numbers without units wherever a plot has them on an axis; the name then
/// carries the unit: `loss_percent = 10`.
pub(crate) type Factors = BTreeMap<String, String>;

/// The first file of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Header {
    /// Name of the experiment.
    pub(crate) experiment: String,
    pub(crate) scale: Scale,
    /// Cells of the whole plan.
    pub(crate) planned: usize,
    /// RFC 3339, UTC.
    pub(crate) started: String,
    pub(crate) finished: Option<String>,
    /// Versions of systems, kernel, processor; congestion control; priority.
    pub(crate) environment: BTreeMap<String, String>,
}

/// How much of an experiment is run.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scale {
    /// Seconds: does it work at all.
    Smoke,
    /// Minutes; the default.
    Short,
    /// Durations and counts of the paper.
    Paper,
}

/// The unit of work, of resuming and of seeds: servers and links are started
/// for it and end with it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Cell {
    /// Identifier of the system, such as `dunlin-quic`.
    pub(crate) system: String,
    pub(crate) factors: Factors,
    /// From 0.
    pub(crate) repetition: u32,
    /// Of the link and of everything else that is random.
    pub(crate) seed: u64,
}

/// A line of `cells.jsonl`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    pub(crate) cell: Cell,
    pub(crate) outcome: Outcome,
    /// What it took to run the cell.
    pub(crate) seconds: f64,
}

/// What a cell gave.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Outcome {
    pub(crate) measures: Vec<Measure>,
    /// Why this is not a measurement of the system: emulator or load generator
    /// were saturated, packets were lost by the kernel. Reports show such a
    /// cell as invalid and never its numbers.
    pub(crate) invalid: Option<String>,
    /// Sentences for the reader.
    pub(crate) notes: Vec<String>,
}

/// Observations of one metric.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Measure {
    /// Such as `latency` or `packets`.
    pub(crate) metric: String,
    /// Such as `ms`, `packets`, `bytes`, `%`.
    pub(crate) unit: String,
    /// Beside those of the cell: the `role` that was observed, for instance.
    #[serde(default)]
    pub(crate) factors: Factors,
    /// Single observations, warm-up left out.
    #[serde(default, deserialize_with = "numbers")]
    pub(crate) values: Vec<f64>,
    /// Seconds since the cell's start and value, for a course over time.
    #[serde(default)]
    pub(crate) series: Vec<(f64, f64)>,
}

/// JSON has no NaN and writers put `null` for it: one value that is none, not
/// a run that cannot be read.
fn numbers<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let values = Vec::<Option<f64>>::deserialize(from)?;
    Ok(values.into_iter().map(|v| v.unwrap_or(f64::NAN)).collect())
}
