//! Experiments that isolate why a claim of another one does not hold, or stays open: each
//! measures the same with one cause taken away, or the best that the cause leaves to
//! anyone. Their claims have targets of their own; see [`Cause`](super::experiment::Cause).

mod half_open;
mod handshake;
mod hol;
mod publish;
mod transmit;

pub(super) use half_open::HalfOpen;
pub(super) use handshake::Handshake;
pub(super) use hol::Hol;
pub(super) use publish::Publish;
pub(super) use transmit::Transmit;

use super::experiment::{Claim, Estimate, Target};

/// A row that is of no paper.
fn row(
    what: String,
    measured: Option<Estimate>,
    unit: &'static str,
    target: Option<Target>,
) -> Claim {
    Claim {
        what,
        paper: "ours".to_owned(),
        measured,
        unit,
        target,
        reason: None,
        causes: Vec::new(),
    }
}
