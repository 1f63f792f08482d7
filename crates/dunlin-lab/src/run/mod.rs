//! `dunlin-lab run`: the experiments of the papers.

#![allow(dead_code, unused_imports, reason = "the experiments come next")]

pub(crate) mod experiment;
pub(crate) mod record;
pub(crate) mod stats;

use experiment::Experiment;

/// All experiments, in the order of the report.
pub(crate) static ALL: &[&dyn Experiment] = &[];
