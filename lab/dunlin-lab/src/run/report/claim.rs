//! Whether what a paper said holds, in words.

use super::plot::words::{minus, number};
use crate::run::experiment::{Claim, Estimate, Target};

/// What the measurement says of a claim.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Verdict {
    /// All of the interval is where it should be.
    Holds,
    /// The target lies inside the interval.
    Open,
    /// All of the interval is on the wrong side.
    Fails,
    /// Nothing valid was recorded.
    Unmeasured,
    /// There is no target: a comparison.
    Shown,
}

impl Verdict {
    pub(super) const ALL: [Self; 5] = [
        Self::Holds,
        Self::Open,
        Self::Fails,
        Self::Unmeasured,
        Self::Shown,
    ];

    pub(super) fn of(claim: &Claim) -> Self {
        let (estimate, target) = match (claim.measured, claim.target) {
            (None, _) => return Self::Unmeasured,
            (Some(_), None) => return Self::Shown,
            (Some(estimate), Some(target)) => (estimate, target),
        };
        let (best, worst) = match target {
            Target::AtMost(_) => (least(estimate), most(estimate)),
            Target::AtLeast(_) => (most(estimate), least(estimate)),
        };
        if target.met(worst) {
            Self::Holds
        } else if target.met(best) {
            Self::Open
        } else {
            Self::Fails
        }
    }

    /// In the table.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Holds => "yes",
            Self::Open => "open",
            Self::Fails => "no",
            Self::Unmeasured => "not measured",
            Self::Shown => "\u{2013}",
        }
    }

    /// In a summary, before a number.
    pub(super) const fn counted(self) -> &'static str {
        match self {
            Self::Holds => "hold",
            Self::Open => "open (the target lies within the interval)",
            Self::Fails => "do not hold",
            Self::Unmeasured => "not measured",
            Self::Shown => "without a target",
        }
    }

    /// Name in style sheets and in JSON.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Open => "open",
            Self::Fails => "fails",
            Self::Unmeasured => "unmeasured",
            Self::Shown => "shown",
        }
    }
}

/// The lower end; the value itself where a single observation has no interval.
fn least(estimate: Estimate) -> f64 {
    estimate.value.min(estimate.low)
}

fn most(estimate: Estimate) -> f64 {
    estimate.value.max(estimate.high)
}

/// How many claims have which verdict, without those that have none.
pub(super) fn counts<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<(Verdict, usize)> {
    let verdicts: Vec<Verdict> = claims.map(Verdict::of).collect();
    Verdict::ALL
        .into_iter()
        .map(|verdict| {
            let count = verdicts.iter().filter(|other| **other == verdict).count();
            (verdict, count)
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Such as `hold: 3 · open (…): 1`.
pub(super) fn summary(counts: &[(Verdict, usize)]) -> String {
    let parts: Vec<String> = counts
        .iter()
        .map(|(verdict, count)| format!("{}: {count}", verdict.counted()))
        .collect();
    parts.join(" · ")
}

/// Such as `−61.2 % [−63, −58.4]`.
pub(super) fn measured(claim: &Claim) -> String {
    let Some(Estimate { value, low, high }) = claim.measured else {
        return "nothing valid".to_owned();
    };
    if low.is_finite() && high.is_finite() {
        let width = high - low;
        let unit = if claim.unit.is_empty() { "" } else { " " };
        format!(
            "{}{unit}{} [{}, {}]",
            within(value, width),
            claim.unit,
            within(low, width),
            within(high, width)
        )
    } else {
        format!("{} (one observation)", with_unit(value, claim.unit))
    }
}

/// A number without the digits that its interval makes meaningless.
fn within(value: f64, width: f64) -> String {
    // An interval of 43 leaves whole numbers, one of 3.9 tenths.
    let digits = (1.0 - width.log10().floor()).clamp(0.0, 12.0);
    if width <= 0.0 {
        return number(value);
    }
    let unit = 10_f64.powf(digits);
    number((value * unit).round() / unit)
}

/// A claim in one line, for a terminal.
pub(crate) fn line(claim: &Claim) -> String {
    let (what, paper) = (&claim.what, paper(claim));
    let (measured, target) = (measured(claim), target(claim));
    let verdict = match Verdict::of(claim) {
        Verdict::Shown => return format!("{what}: {measured}; paper: {paper}"),
        Verdict::Holds => "HOLDS",
        Verdict::Fails => "DOES NOT HOLD",
        Verdict::Open => "OPEN",
        Verdict::Unmeasured => "NOT MEASURED",
    };
    format!("{what}: {measured}; paper: {paper}; {target}: {verdict}")
}

/// Such as `at most −60 %`.
pub(super) fn target(claim: &Claim) -> String {
    match claim.target {
        None => String::new(),
        Some(Target::AtMost(most)) => format!("at most {}", with_unit(most, claim.unit)),
        Some(Target::AtLeast(least)) => format!("at least {}", with_unit(least, claim.unit)),
    }
}

/// What the paper said.
pub(super) fn paper(claim: &Claim) -> String {
    minus(&claim.paper)
}

/// Why it does not hold; only where that has to be said.
pub(super) fn reason(claim: &Claim) -> &'static str {
    match Verdict::of(claim) {
        Verdict::Open | Verdict::Fails => claim.reason.unwrap_or_default(),
        _ => "",
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    if unit.is_empty() {
        number(value)
    } else {
        format!("{} {unit}", number(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(measured: Option<(f64, f64, f64)>, target: Option<Target>) -> Claim {
        Claim {
            what: String::new(),
            paper: String::new(),
            measured: measured.map(|(value, low, high)| Estimate { value, low, high }),
            unit: "%",
            target,
            reason: Some("because"),
        }
    }

    #[test]
    fn intervals_decide() {
        let (none, most, least) = (
            None,
            Some(Target::AtMost(-56.0)),
            Some(Target::AtLeast(2.0)),
        );
        let cases = [
            (None, most, Verdict::Unmeasured),
            (Some((1.0, 0.0, 2.0)), none, Verdict::Shown),
            (Some((-60.0, -62.0, -57.0)), most, Verdict::Holds),
            (Some((-60.0, -62.0, -55.0)), most, Verdict::Open),
            (Some((-50.0, -57.0, -45.0)), most, Verdict::Open),
            (Some((-50.0, -55.0, -45.0)), most, Verdict::Fails),
            (Some((2.5, 2.0, 3.0)), least, Verdict::Holds),
            (Some((2.5, 1.9, 3.0)), least, Verdict::Open),
            (Some((1.5, 1.2, 1.9)), least, Verdict::Fails),
            (Some((2.5, f64::NAN, f64::NAN)), least, Verdict::Holds),
            (Some((1.5, f64::NAN, f64::NAN)), least, Verdict::Fails),
        ];
        for (measured, target, verdict) in cases {
            assert_eq!(
                Verdict::of(&claim(measured, target)),
                verdict,
                "{measured:?}"
            );
        }
    }

    #[test]
    fn words_are_for_people() {
        let all = claim(Some((-61.234, -63.0, -58.4)), Some(Target::AtMost(-60.0)));
        assert_eq!(measured(&all), "−61.2 % [−63, −58.4]");
        assert_eq!(
            line(&all),
            ": −61.2 % [−63, −58.4]; paper: ; at most −60 %: OPEN"
        );
        let wide = claim(Some((1234.567, -800.0, 2000.0)), None);
        assert_eq!(measured(&wide), "1235 % [−800, 2000]");
        let exact = claim(Some((0.5, 0.5, 0.5)), None);
        assert_eq!(measured(&exact), "0.5 % [0.5, 0.5]");
        assert_eq!(target(&all), "at most −60 %");
        assert_eq!(reason(&all), "because", "it is open");
        let one = claim(Some((3.0, f64::NAN, f64::NAN)), None);
        assert_eq!(measured(&one), "3 % (one observation)");
        assert_eq!(reason(&one), "");
        assert_eq!(measured(&claim(None, None)), "nothing valid");
        assert_eq!(
            summary(&counts([all, one].iter())),
            "open (the target lies within the interval): 1 · without a target: 1"
        );
    }
}
