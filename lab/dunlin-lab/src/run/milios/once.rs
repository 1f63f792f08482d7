//! What isolates why a mean of `milios-publish` is not flat.

/// The experiment.
pub(crate) const CAUSES: &str = "cause-publish";

/// Percent that a delay may be more where packets are lost.
pub(crate) const STABLE: f64 = 10.0;

/// Its claim: even a sender that knows of a loss as soon as anyone can needs more.
pub(crate) fn floor() -> String {
    "publish delay of a sender that sends once and repeats after a round trip, mean: \
     10 % loss against none"
        .to_owned()
}
