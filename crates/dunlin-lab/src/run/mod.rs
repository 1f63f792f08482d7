//! `dunlin-lab run`: the experiments of the papers.

#![allow(dead_code, unused_imports, reason = "the experiments come next")]

pub(crate) mod bed;
mod bench;
pub(crate) mod capture;
pub(crate) mod congestion;
pub(crate) mod drive;
pub(crate) mod environment;
pub(crate) mod experiment;
pub(crate) mod generator;
mod grid;
pub(crate) mod interrupt;
mod isolation;
pub(crate) mod kumar;
pub(crate) mod medians;
mod milios;
mod nikitin;
pub(crate) mod plan;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod systems;
pub(crate) mod validity;
mod wake;

use experiment::Experiment;

/// All experiments, in the order of the report.
pub(crate) static ALL: &[&dyn Experiment] = &[
    kumar::HANDSHAKE,
    kumar::HOL,
    kumar::HALF_OPEN,
    kumar::MIGRATION,
    &milios::HANDSHAKE,
    &milios::SUBSCRIBE,
    &milios::Publish,
    &milios::Resources,
    &milios::Bytes,
    &nikitin::Connect,
    &nikitin::Transmit,
    &nikitin::Size,
    &isolation::Isolation,
    &wake::Wake,
    &grid::Grid,
];
