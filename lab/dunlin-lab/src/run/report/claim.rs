//! Whether what a paper said holds, in words.

use super::plot::words::{minus, number};
use crate::run::experiment::{Claim, Estimate, Target};

/// A row of the table of claims.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) claim: Claim,
    /// The claims that it names as causes, of runs that are here.
    pub(super) causes: Vec<Found>,
}

/// A claim that isolates a cause, as it was measured.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) experiment: &'static str,
    pub(super) claim: Claim,
}

impl Row {
    /// Without causes yet.
    pub(super) const fn of(claim: Claim) -> Self {
        Self {
            claim,
            causes: Vec::new(),
        }
    }

    /// Whether a claim that isolates a cause holds.
    fn is_explained(&self) -> bool {
        let mut causes = self.causes.iter();
        causes.any(|found| Verdict::alone(&found.claim) == Verdict::Holds)
    }
}

/// What the measurement says of a claim.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Verdict {
    /// All of the interval is where it should be.
    Holds,
    /// It does not hold or is open, and a claim that isolates the cause holds.
    Explained,
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
    pub(super) const ALL: [Self; 6] = [
        Self::Holds,
        Self::Explained,
        Self::Open,
        Self::Fails,
        Self::Unmeasured,
        Self::Shown,
    ];

    /// Of a row of the table, with what explains it.
    pub(super) fn of(row: &Row) -> Self {
        match Self::alone(&row.claim) {
            Self::Open | Self::Fails if row.is_explained() => Self::Explained,
            verdict => verdict,
        }
    }

    /// Of the claim alone.
    pub(super) fn alone(claim: &Claim) -> Self {
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
            Self::Explained => "explained",
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
            Self::Explained => "explained (a claim that isolates the cause holds)",
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
            Self::Explained => "explained",
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

/// How many rows have which verdict, without verdicts that none has.
pub(super) fn counts<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(Verdict, usize)> {
    let verdicts: Vec<Verdict> = rows.map(Verdict::of).collect();
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
    let verdict = match Verdict::alone(claim) {
        Verdict::Shown => return format!("{what}: {measured}; paper: {paper}"),
        Verdict::Holds => "HOLDS",
        Verdict::Fails => "DOES NOT HOLD",
        Verdict::Explained => "EXPLAINED",
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

/// In the table of a row: an explained one says what it is without the explanation.
pub(super) fn holds(row: &Row) -> String {
    let alone = Verdict::alone(&row.claim);
    match Verdict::of(row) {
        Verdict::Explained => format!("{}, explained", alone.word()),
        verdict => verdict.word().to_owned(),
    }
}

/// Why it does not hold, in sentences without their dots: what isolates the cause, with
/// its number, and what its experiment says; empty where that has not to be said.
pub(super) fn why(row: &Row) -> Vec<String> {
    if !matches!(Verdict::alone(&row.claim), Verdict::Open | Verdict::Fails) {
        return Vec::new();
    }
    let causes = row.causes.iter().map(|found| {
        let claim = &found.claim;
        let word = match Verdict::alone(claim) {
            Verdict::Holds => "explained by",
            Verdict::Unmeasured => {
                return format!("{}, {}: not measured", found.experiment, claim.what);
            }
            _ => "not explained by",
        };
        format!(
            "{word} {}, {}: {} ({})",
            found.experiment,
            claim.what,
            measured(claim),
            target(claim)
        )
    });
    causes
        .chain(
            row.claim
                .reason
                .map(|reason| reason.trim_end_matches('.').to_owned()),
        )
        .collect()
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
            causes: Vec::new(),
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
                Verdict::alone(&claim(measured, target)),
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
        assert_eq!(why(&Row::of(all.clone())), ["because"], "it is open");
        let one = claim(Some((3.0, f64::NAN, f64::NAN)), None);
        assert_eq!(measured(&one), "3 % (one observation)");
        assert!(why(&Row::of(one.clone())).is_empty());
        assert_eq!(measured(&claim(None, None)), "nothing valid");
        assert_eq!(
            summary(&counts([all, one].map(Row::of).iter())),
            "open (the target lies within the interval): 1 · without a target: 1"
        );
    }

    #[test]
    fn only_a_cause_that_holds_explains_and_only_what_does_not() {
        let most = Some(Target::AtMost(-50.0));
        let (good, bad) = ((-60.0, -62.0, -55.0), (-40.0, -45.0, -35.0));
        let row = |of, causes: &[Option<(f64, f64, f64)>]| Row {
            claim: claim(of, most),
            causes: causes
                .iter()
                .map(|measured| Found {
                    experiment: "cause-x",
                    claim: Claim {
                        what: "the same without".to_owned(),
                        ..claim(*measured, most)
                    },
                })
                .collect(),
        };
        let open = (-50.0, -55.0, -45.0);
        for (row, verdict, shown) in [
            (
                row(Some(bad), &[Some(good)]),
                Verdict::Explained,
                "no, explained",
            ),
            (
                row(Some(open), &[Some(good)]),
                Verdict::Explained,
                "open, explained",
            ),
            (
                row(Some(bad), &[Some(bad), Some(good)]),
                Verdict::Explained,
                "no, explained",
            ),
            (row(Some(bad), &[Some(bad)]), Verdict::Fails, "no"),
            (row(Some(bad), &[Some(open)]), Verdict::Fails, "no"),
            (row(Some(bad), &[None]), Verdict::Fails, "no"),
            (row(Some(bad), &[]), Verdict::Fails, "no"),
            (row(Some(good), &[Some(good)]), Verdict::Holds, "yes"),
            (
                row(None, &[Some(good)]),
                Verdict::Unmeasured,
                "not measured",
            ),
        ] {
            assert_eq!(Verdict::of(&row), verdict, "{row:?}");
            assert_eq!(holds(&row), shown, "{row:?}");
        }
        assert_eq!(
            why(&row(Some(bad), &[Some(bad), Some(good), None])),
            [
                "not explained by cause-x, the same without: −40 % [−45, −35] (at most −50 %)",
                "explained by cause-x, the same without: −60 % [−62, −55] (at most −50 %)",
                "cause-x, the same without: not measured",
                "because",
            ]
        );
        assert!(why(&row(Some(good), &[Some(good)])).is_empty());
        let rows = [row(Some(bad), &[Some(good)]), row(Some(good), &[])];
        assert_eq!(
            summary(&counts(rows.iter())),
            "hold: 1 · explained (a claim that isolates the cause holds): 1"
        );
    }
}
