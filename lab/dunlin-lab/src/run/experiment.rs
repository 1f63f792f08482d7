//! What an experiment is: a plan of cells, a way to run one of them, figures
//! to draw and claims to judge. The driver runs the cells; reports read only
//! what was recorded.

use anyhow::Result;

use super::record::{Cell, Outcome, Record, Scale};
use crate::lab::Lab;

/// One experiment; they are listed in [`super::ALL`].
pub(crate) trait Experiment: Sync {
    /// Such as `kumar-hol`.
    fn name(&self) -> &'static str;
    /// One line.
    fn about(&self) -> &'static str;
    /// Where it comes from, such as `paper 000, Table III`.
    fn source(&self) -> &'static str;
    /// All cells, systems interleaved so that a slow minute of the machine
    /// hits all of them. Systems that are not installed are left out by the
    /// driver, which says so.
    fn plan(&self, scale: Scale) -> Vec<Cell>;
    /// Whether a check of this experiment runs the cell.
    fn checked(&self, _cell: &Cell) -> bool {
        true
    }
    /// Whether `run all` has it: it says something of a paper.
    fn in_all(&self) -> bool {
        true
    }
    /// Whether its claims isolate causes of misses of others: they are counted with what
    /// they explain, and not by themselves.
    fn isolates(&self) -> bool {
        false
    }
    /// What to install before it can be run, if anything.
    fn missing(&self) -> Option<&'static str> {
        None
    }
    /// How long a cell takes about, on a machine with nothing else to do.
    fn seconds(&self, cell: &Cell, scale: Scale) -> f64;
    /// Runs one cell.
    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome>;
    /// What the report draws.
    fn figures(&self) -> Vec<Figure>;
    /// What the paper said against what was recorded (valid cells only).
    fn claims(&self, records: &[Record]) -> Vec<Claim>;
}

/// A plot: one metric, a line or bar for each system.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Name of the file, such as `latency-wireless`.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) kind: Kind,
    /// One plot for each value of this factor.
    pub(crate) facet: Option<&'static str>,
    /// A factor that tells lines or bars of one system apart, such as
    /// `policy`. Values that differ in other factors are pooled.
    pub(crate) split: Option<&'static str>,
    /// Only records with these values of these factors.
    pub(crate) only: &'static [(&'static str, &'static str)],
    pub(crate) log_y: bool,
    /// What the paper measured, drawn beside ours.
    pub(crate) paper: Vec<PaperPoint>,
}

impl Target {
    /// Whether a value is where it should be.
    pub(crate) fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl Claim {
    /// Whether the value itself, without its interval, misses the target.
    pub(crate) fn is_missed(&self) -> bool {
        let measured = self.measured.zip(self.target);
        measured.is_some_and(|(estimate, target)| !target.met(estimate.value))
    }
}

impl Claim {
    /// Adds what isolates the cause of a miss.
    #[must_use]
    pub(crate) fn because(mut self, experiment: &'static str, what: String) -> Self {
        self.causes.push(Cause { experiment, what });
        self
    }
}

impl Figure {
    /// With neither facet nor paper: `Figure { facet: .., ..Figure::new(..) }`.
    pub(crate) const fn new(
        id: &'static str,
        title: &'static str,
        metric: &'static str,
        kind: Kind,
    ) -> Self {
        Self {
            id,
            title,
            metric,
            kind,
            facet: None,
            split: None,
            only: &[],
            log_y: false,
            paper: Vec::new(),
        }
    }
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Median with quartiles as error bars, groups along this factor.
    Bars { x: &'static str },
    /// Mean with a bootstrap interval of 95 %, along a numeric factor.
    Lines { x: &'static str },
    /// Distribution of all values.
    Cdf,
    /// The series of the metric.
    Course,
}

/// A point of a paper's figure or table.
#[derive(Clone, Debug)]
pub(crate) struct PaperPoint {
    /// Legend, such as `paper: MQTT over QUIC 0-RTT`.
    pub(crate) series: &'static str,
    /// Value of the facet, where there is one.
    pub(crate) facet: Option<&'static str>,
    /// Value of the factor on the x axis.
    pub(crate) x: &'static str,
    pub(crate) value: f64,
}

/// A row of the table "paper said, we measured, holds?".
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// Such as `packets of a handshake, wireless, subscriber: 0-RTT against TCP`.
    pub(crate) what: String,
    /// Such as `-56.2 % (Table II)`.
    pub(crate) paper: String,
    /// What was measured; `None` if nothing valid was recorded.
    pub(crate) measured: Option<Estimate>,
    pub(crate) unit: &'static str,
    /// What it takes for the claim to hold; `None` for a mere comparison.
    pub(crate) target: Option<Target>,
    /// Where it does not hold: why.
    pub(crate) reason: Option<&'static str>,
    /// Claims that isolate why, each a cause of its own: one that holds explains a
    /// claim that does not, or is open.
    pub(crate) causes: Vec<Cause>,
}

/// A claim of an experiment that isolates a cause: it measures the same with that
/// one cause taken away, or the best that the cause leaves to anyone. It has a target
/// of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Cause {
    /// Name of the experiment.
    pub(crate) experiment: &'static str,
    /// [`Claim::what`] of the claim.
    pub(crate) what: String,
}

/// A value with its confidence interval of 95 %. The ends are NaN where a
/// single observation leaves no way to tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// What a value should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}
