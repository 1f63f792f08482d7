//! The gates: figures in `scripts/mcu/sizes.toml` that images must keep. A
//! goal that is known to be missed has a second figure that must be kept, and
//! is reported every time.

use std::fs;

use anyhow::{Context as _, Result};
use toml::{Table, Value};

use super::tools::Tools;

/// Where the figures are.
pub(crate) const FILE: &str = "scripts/mcu/sizes.toml";

/// One figure held against its goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) provider: String,
    pub(crate) name: String,
    pub(crate) figure: u64,
    pub(crate) goal: u64,
    /// For a goal that is known to be missed: what must be kept, and why.
    pub(crate) known: Option<(u64, String)>,
}

impl Verdict {
    /// Whether the goal is reached.
    pub(crate) const fn is_met(&self) -> bool {
        self.figure <= self.goal
    }

    /// Whether the gate lets it pass.
    pub(crate) fn passes(&self) -> bool {
        let known = self.known.as_ref();
        self.is_met() || known.is_some_and(|(limit, _)| self.figure <= *limit)
    }

    /// One line.
    pub(crate) fn line(&self) -> String {
        let Self {
            provider,
            name,
            figure,
            goal,
            ..
        } = self;
        let (head, tail) = match &self.known {
            _ if self.is_met() => ("ok", String::new()),
            Some((limit, why)) if self.passes() => {
                ("MISSED", format!(" (known, at most {limit}: {why})"))
            }
            _ => ("FAILED", String::new()),
        };
        format!("{head:<7} {provider}: {name} {figure} of {goal}{tail}")
    }
}

/// The figures of the file.
pub(crate) struct Budget(Table);

impl Budget {
    /// Reads the file.
    ///
    /// # Errors
    /// It is not there or no TOML.
    pub(crate) fn read(tools: &Tools) -> Result<Self> {
        let text = fs::read_to_string(tools.root().join(FILE)).context(FILE)?;
        Ok(Self(text.parse().context(FILE)?))
    }

    /// Holds a figure against its goal; a figure without a goal is none.
    pub(crate) fn judge(&self, provider: &str, name: &str, figure: u64) -> Option<Verdict> {
        let table = self.0.get(provider)?;
        let goal = whole(table.get(name)?)?;
        let known = table.get("missed").and_then(|missed| missed.get(name));
        let known = known.and_then(|known| {
            let why = known.get("why").and_then(Value::as_str).unwrap_or_default();
            Some((whole(known.get("at_most")?)?, why.to_owned()))
        });
        Some(Verdict {
            provider: provider.to_owned(),
            name: name.to_owned(),
            figure,
            goal,
            known,
        })
    }
}

fn whole(value: &Value) -> Option<u64> {
    value.as_integer().and_then(|number| number.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_is_reported_and_does_not_grow() {
        let text = "[tiny]\nflash = 10\nwake = 30\n[tiny.missed]\nwake = { at_most = 60, why = \"of keys\" }\n";
        let budget = Budget(text.parse().expect("TOML"));
        let judge = |name, figure| budget.judge("tiny", name, figure).expect("a goal");
        assert!(judge("flash", 10).is_met());
        assert!(!judge("flash", 11).passes());
        assert_eq!(judge("flash", 11).line(), "FAILED  tiny: flash 11 of 10");
        let missed = judge("wake", 60);
        assert!(missed.passes() && !missed.is_met());
        assert_eq!(
            missed.line(),
            "MISSED  tiny: wake 60 of 30 (known, at most 60: of keys)"
        );
        assert!(!judge("wake", 61).passes());
        assert!(budget.judge("tiny", "other", 1).is_none());
    }
}
