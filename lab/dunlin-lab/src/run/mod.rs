//! `dunlin-lab run`: the experiments of the papers.

pub(crate) mod bed;
mod bench;
pub(crate) mod capture;
mod cause;
mod cipher;
pub(crate) mod clock;
mod coap;
pub(crate) mod congestion;
mod dialog;
pub(crate) mod drive;
pub(crate) mod environment;
pub(crate) mod experiment;
pub(crate) mod generator;
mod grid;
pub(crate) mod interrupt;
mod iqbal;
mod isolation;
pub(crate) mod kumar;
mod links;
pub(crate) mod load;
pub(crate) mod medians;
mod memory;
mod milios;
mod nikitin;
pub(crate) mod plan;
mod race;
mod reading;
pub(crate) mod record;
pub(crate) mod report;
mod running;
pub(crate) mod stats;
pub(crate) mod store;
mod storm;
pub(crate) mod systems;
mod uplink;
pub(crate) mod validity;
mod visits;
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
    &nikitin::Mesh,
    &iqbal::SINGLE,
    &iqbal::MULTI,
    &iqbal::DELAY,
    &iqbal::LOSS,
    &iqbal::BANDWIDTH,
    &isolation::Isolation,
    &links::Links,
    &uplink::Uplink,
    &wake::Wake,
    &reading::Reading,
    &cipher::Cipher,
    &grid::Grid,
    &cause::Hol,
    &cause::HalfOpen,
    &cause::Handshake,
    &cause::Publish,
    &cause::Transmit,
    &storm::Storm,
    &memory::Memory,
    &race::Race,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use record::Scale;

    /// A cause that no experiment measures would explain nothing, in silence.
    #[test]
    fn causes_are_claims_that_experiments_have_with_a_target() {
        let mut named = 0;
        for experiment in ALL {
            for cause in experiment
                .claims(&[])
                .iter()
                .flat_map(|claim| &claim.causes)
            {
                let other = ALL.iter().find(|other| other.name() == cause.experiment);
                let claims = other.map_or_else(Vec::new, |other| other.claims(&[]));
                let claim = claims.iter().find(|claim| claim.what == cause.what);
                let target = claim.and_then(|claim| claim.target);
                assert!(target.is_some(), "{}: {cause:?}", experiment.name());
                named += 1;
            }
        }
        assert!(named > 0);
    }

    #[test]
    fn experiments_have_plans_figures_and_nothing_to_say_of_nothing() {
        let names: BTreeSet<&str> = ALL.iter().map(|experiment| experiment.name()).collect();
        assert_eq!(names.len(), ALL.len());
        for experiment in ALL {
            let name = experiment.name();
            for scale in [Scale::Smoke, Scale::Short, Scale::Paper] {
                let cells = experiment.plan(scale);
                assert!(!cells.is_empty(), "{name}");
                let keys: BTreeSet<String> = cells
                    .iter()
                    .map(|cell| format!("{} {}", cell.shown(), cell.repetition))
                    .collect();
                assert_eq!(keys.len(), cells.len(), "{name} plans a cell twice");
                let times = cells.iter().map(|cell| experiment.seconds(cell, scale));
                assert!(times.into_iter().all(|time| time > 0.0), "{name}");
            }
            let figures = experiment.figures();
            let ids: BTreeSet<&str> = figures.iter().map(|figure| figure.id).collect();
            assert_eq!(ids.len(), figures.len(), "{name} has two figures of a name");
            let claims = experiment.claims(&[]);
            assert!(
                claims.iter().all(|claim| claim.measured.is_none()),
                "{name}"
            );
        }
    }
}
