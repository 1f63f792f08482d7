//! The ratchet: a list of numbers that are larger than wanted and may only go
//! down. One line is `kind subject number`. What is not on the list has to
//! keep to the limit of its rule.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::tree::Tree;

/// The list, from the root of the repository.
pub(crate) const PATH: &str = "xtask/tidy-ratchet.txt";

/// A number that a rule measured.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    /// Short name of the rule.
    pub(crate) kind: &'static str,
    /// What was measured, without spaces.
    pub(crate) subject: String,
    /// The number.
    pub(crate) value: usize,
    /// The largest number that needs no entry.
    pub(crate) limit: usize,
    /// File of the subject.
    pub(crate) path: String,
    /// Line of the subject; 0 when it is a whole file.
    pub(crate) line: usize,
    /// What to do when the number is too large.
    pub(crate) advice: String,
}

/// An entry of the list.
struct Entry<'a> {
    line: usize,
    kind: &'a str,
    subject: &'a str,
    value: usize,
}

impl<'a> Entry<'a> {
    fn parse(line: usize, text: &'a str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let entry = Self {
            line,
            kind: words.next()?,
            subject: words.next()?,
            value: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(entry)
    }
}

/// Holds measures against the list of a tree.
pub(crate) fn check(tree: &Tree, measures: &[Measure]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed: BTreeMap<(&str, &str), Entry<'_>> = BTreeMap::new();
    let mut at_entry = |line, advice: String| {
        findings.push(Finding::new(PATH, line, "ratchet", advice));
    };
    for (line, text) in lines(tree.text(PATH).unwrap_or_default()) {
        match Entry::parse(line, text) {
            None => at_entry(line, "write `kind subject number`".to_owned()),
            Some(entry) => {
                if let Some(first) = listed.insert((entry.kind, entry.subject), entry) {
                    at_entry(
                        first.line,
                        format!("`{}` is listed twice: {SHRINK}", first.subject),
                    );
                }
            }
        }
    }
    for measure in measures
        .iter()
        .filter(|measure| measure.value > measure.limit)
    {
        let Measure {
            kind,
            subject,
            value,
            ..
        } = measure;
        let advice = match listed.remove(&(*kind, subject.as_str())) {
            Some(entry) if entry.value == *value => continue,
            Some(entry) if entry.value > *value => {
                let advice = format!("`{subject}` went down to {value}: {SHRINK}");
                findings.push(Finding::new(PATH, entry.line, "ratchet", advice));
                continue;
            }
            Some(entry) => format!("grew from {} to {value}: {}", entry.value, measure.advice),
            None => format!("{value}, at most {}: {}", measure.limit, measure.advice),
        };
        findings.push(Finding::new(
            &measure.path,
            measure.line,
            kind,
            format!("`{subject}`: {advice}"),
        ));
    }
    for entry in listed.into_values() {
        let advice = format!(
            "`{}` keeps to the limit or is gone: {SHRINK}",
            entry.subject
        );
        findings.push(Finding::new(PATH, entry.line, "ratchet", advice));
    }
    findings
}

/// How the list is brought down.
const SHRINK: &str = "run `cargo xtask tidy --shrink`";

/// The list with every number lowered to what is measured now and without
/// entries that are no longer needed. No number goes up and none is added.
pub(crate) fn shrink(text: &str, measures: &[Measure]) -> String {
    let mut needed: BTreeMap<(&str, &str), usize> = measures
        .iter()
        .filter(|measure| measure.value > measure.limit)
        .map(|measure| ((measure.kind, measure.subject.as_str()), measure.value))
        .collect();
    let mut lowest: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (line, text) in lines(text) {
        if let Some(entry) = Entry::parse(line, text) {
            let value = lowest
                .entry((entry.kind, entry.subject))
                .or_insert(entry.value);
            *value = entry.value.min(*value);
        }
    }
    let mut out = String::new();
    for line in text.lines() {
        let Some(entry) = Entry::parse(0, line).filter(|_| !is_comment(line)) else {
            out += line;
            out.push('\n');
            continue;
        };
        let key = (entry.kind, entry.subject);
        if let Some(value) = needed.remove(&key) {
            let value = lowest.get(&key).map_or(value, |listed| value.min(*listed));
            out += &format!("{} {} {value}\n", entry.kind, entry.subject);
        }
    }
    out
}

fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

/// Entries with their line numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !is_comment(line))
        .map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(value: usize) -> Measure {
        Measure {
            kind: "size",
            subject: "a::B".to_owned(),
            value,
            limit: 20,
            path: "a.rs".to_owned(),
            line: 3,
            advice: "split it".to_owned(),
        }
    }

    #[test]
    fn a_number_over_the_limit_needs_an_entry_that_equals_it() {
        let twice = "size a::B 30\nsize a::B 31\n";
        let cases = [
            (20, "", ""),
            (21, "", "a.rs:3: size: `a::B`: 21, at most 20: split it"),
            (30, "# why\nsize a::B 30\n", ""),
            (
                31,
                "size a::B 30\n",
                "a.rs:3: size: `a::B`: grew from 30 to 31: split it",
            ),
            (
                29,
                "size a::B 30\n",
                "tidy-ratchet.txt:1: ratchet: `a::B` went down to 29",
            ),
            (
                20,
                "size a::B 30\n",
                "tidy-ratchet.txt:1: ratchet: `a::B` keeps to the limit",
            ),
            (
                31,
                twice,
                "tidy-ratchet.txt:1: ratchet: `a::B` is listed twice",
            ),
            (
                20,
                "size 7\n",
                "tidy-ratchet.txt:1: ratchet: write `kind subject number`",
            ),
        ];
        for (value, list, want) in cases {
            let tree = Tree::of(&[(PATH, list)]);
            let got = check(&tree, &[measure(value)]);
            let got: Vec<String> = got.iter().map(ToString::to_string).collect();
            assert_eq!(got.len(), usize::from(!want.is_empty()), "{list}: {got:?}");
            assert!(got.iter().all(|g| g.contains(want)), "{list}: {got:?}");
        }
    }

    #[test]
    fn shrinking_lowers_and_removes_and_never_raises() {
        let list = "# why\nsize a::B 30\nsize gone 9\nsize a::B 31\n";
        let cases = [
            (25, "# why\nsize a::B 25\n"),
            (30, "# why\nsize a::B 30\n"),
            (99, "# why\nsize a::B 30\n"),
            (20, "# why\n"),
        ];
        for (value, want) in cases {
            assert_eq!(shrink(list, &[measure(value)]), want, "{value}");
        }
    }
}
