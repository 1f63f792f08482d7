//! The experiments of paper 000: MQTT over QUIC against MQTT over TLS and TCP
//! on a wired, a wireless and a long-distance network.

pub(super) mod half_open;
mod handshake;
pub(super) mod hol;
mod migration;

use super::experiment::{Claim, Experiment, Target};
use super::record::{Factors, Measure, Record};
use super::stats::{Pick, Sample, Statistic};

pub(crate) static HANDSHAKE: &dyn Experiment = &handshake::Handshake;
pub(crate) static HOL: &dyn Experiment = &hol::Hol;
pub(crate) static HALF_OPEN: &dyn Experiment = &half_open::HalfOpen;
pub(crate) static MIGRATION: &dyn Experiment = &migration::Migration;

/// Observations of a metric.
fn measure(metric: &str, unit: &str, values: Vec<f64>) -> Measure {
    Measure {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        values,
        ..Measure::default()
    }
}

/// One factor.
fn factor(name: &str, value: &str) -> Factors {
    Factors::from([(name.to_owned(), value.to_owned())])
}

/// A claim that one system needs less than another, in percent.
fn change(
    records: &[Record],
    what: String,
    paper: String,
    picks: [&Pick; 2],
    statistic: Statistic,
    target: Option<Target>,
) -> Claim {
    let [ours, base] = picks.map(|pick| Sample::of(records, pick));
    Claim {
        what,
        paper,
        measured: ours.change(&base, statistic),
        unit: "%",
        target,
        reason: None,
        causes: Vec::new(),
    }
}
