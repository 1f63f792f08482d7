//! Figures with their targets, for people and as JSON.

use serde_json::{Value, json};

use crate::say;

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Nothing: it is there to be compared with.
    None,
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    fn met(self, value: f64) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtMost(most) => Some(value <= most),
            Self::AtLeast(least) => Some(value >= least),
        }
    }

    fn words(self) -> String {
        match self {
            Self::None => String::new(),
            Self::AtMost(most) => format!("<= {most}"),
            Self::AtLeast(least) => format!(">= {least}"),
        }
    }
}

/// Rows that were printed as they came.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Value>,
    missed: bool,
}

impl Table {
    /// Prints a figure and keeps it. NaN, for what could not be measured,
    /// misses every target.
    pub(super) fn row(&mut self, what: &str, value: f64, unit: &str, target: Target) {
        let met = target.met(value);
        self.missed |= met == Some(false);
        let verdict = match met {
            None => "",
            Some(true) => "ok",
            Some(false) => "MISSED",
        };
        let shown = if value.fract() == 0.0 {
            format!("{value:.0} {unit}")
        } else {
            format!("{value:.3} {unit}")
        };
        let words = target.words();
        say::out(format_args!(
            "  {what:<62} {shown:>14}  {words:<9} {verdict}"
        ));
        self.rows.push(json!({
            "what": what, "value": value, "unit": unit, "target": words, "met": met,
        }));
    }

    /// Keeps something that is no figure of its own.
    pub(super) fn note(&mut self, value: Value) {
        self.rows.push(value);
    }

    /// Prints why something is not there.
    pub(super) fn skipped(&mut self, what: &str, why: &str) {
        say::out(format_args!("  {what:<62} skipped: {why}"));
        self.rows.push(json!({"what": what, "skipped": why}));
    }

    pub(super) const fn passed(&self) -> bool {
        !self.missed
    }

    pub(super) fn json(&self) -> Value {
        json!({"passed": self.passed(), "rows": self.rows})
    }
}

/// The middle one.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which this share of values is; NaN of none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an index"
)]
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub(crate) const fn figure(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_judged() {
        let mut table = Table::default();
        table.row("a", 1.0, "", Target::None);
        table.row("b", 1.0, "", Target::AtMost(1.0));
        table.row("c", 1.0, "", Target::AtLeast(1.0));
        assert!(table.passed());
        table.row("d", f64::NAN, "", Target::AtMost(1.0));
        assert!(!table.passed());
        assert_eq!(table.json()["rows"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn quantiles_are_values() {
        let values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert!((median(&values) - 3.0).abs() < 1e-9);
        assert!((quantile(&values, 1.0) - 5.0).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }
}
