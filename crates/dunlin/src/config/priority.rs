//! `[[priority]]`: topics whose messages go before others.

use dunlin_base::topic;
use dunlin_broker::{PRIORITY_MAX, Priority};
use serde::{Deserialize, Serialize};

use super::error::Wrong;

/// Most rules: each publish is compared with them in turn.
const RULES_MAX: usize = 64;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Rule {
    /// Topics.
    pub filter: String,
    /// 1 to 7; topics without a rule have 0.
    pub level: u8,
}

/// The rules as the broker takes them.
pub(crate) fn priorities(rules: &[Rule]) -> Vec<Priority> {
    let rules = rules.iter();
    rules
        .map(|rule| Priority {
            filter: rule.filter.as_str().into(),
            level: rule.level,
        })
        .collect()
}

/// What is wrong with a rule, by its number.
pub(super) fn check(rules: &[Rule]) -> Result<(), (usize, Wrong)> {
    for (index, rule) in rules.iter().enumerate() {
        let wrong = |key, why| Err((index, (key, why)));
        if index >= RULES_MAX {
            return wrong("filter", format!("there are more than {RULES_MAX} rules"));
        }
        if topic::validate_filter(&rule.filter).is_err() || rule.filter.starts_with("$share/") {
            let why = format!("'{}' is not a topic filter", rule.filter);
            return wrong("filter", why);
        }
        if !(1..=PRIORITY_MAX).contains(&rule.level) {
            let why = format!("{} is not between 1 and {PRIORITY_MAX}", rule.level);
            return wrong("level", why);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_filters_with_levels() {
        let rule = |filter: &str, level| Rule {
            filter: filter.into(),
            level,
        };
        assert!(check(&[rule("alarms/#", 7), rule("+/status", 1)]).is_ok());
        for (bad, key) in [
            (rule("a/#/b", 1), "filter"),
            (rule("", 1), "filter"),
            (rule("$share/g/t", 1), "filter"),
            (rule("a", 0), "level"),
            (rule("a", 8), "level"),
        ] {
            let found = check(&[rule("a", 1), bad]).map_err(|(index, (key, _))| (index, key));
            assert_eq!(found, Err((1, key)));
        }
    }
}
