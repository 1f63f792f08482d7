//! What makes a cell no measurement of its system.

use dunlin_link::linux::{Lateness, Report};

use super::load::{BEHIND_US_MAX, Done};

/// Share of packets that may be later than [`LATE_US_MAX`].
const LATE_SHARE: f64 = 0.99;

/// Microseconds that the link may be late with that share of packets; reports
/// know powers of two.
const LATE_US_MAX: u64 = 1_024;

/// Share of messages that the load generator may send later than
/// [`BEHIND_US_MAX`].
const BEHIND_SHARE_MAX: f64 = 0.02;

/// Why what was measured was not this link, if so.
pub(crate) fn link(report: &Report) -> Option<String> {
    network(&report.trouble(), &report.lateness)
}

/// The same for a network, from its report.
pub(crate) fn network(trouble: &[String], lateness: &Lateness) -> Option<String> {
    if let Some(sentence) = trouble.first() {
        return Some(sentence.clone());
    }
    let late = lateness.quantile_us(LATE_SHARE);
    (late > LATE_US_MAX).then(|| {
        format!("the link was saturated: one packet in a hundred was {late} µs late or more")
    })
}

/// Why what was measured was the load generator, if so.
pub(crate) fn load(done: &Done) -> Option<String> {
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = done.behind as f64 / (done.published.max(1)) as f64;
    (share > BEHIND_SHARE_MAX).then(|| {
        format!(
            "the load generator was saturated: {:.0} % of messages were sent more than {} ms late",
            share * 100.0,
            BEHIND_US_MAX / 1000
        )
    })
}
