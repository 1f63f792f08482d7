//! Statements joined with their quotations and exceptions.

use std::collections::BTreeMap;

use super::EXCEPTIONS;
use super::annotations::{Annotation, Claim};
use super::statements::{Exception, Statement};
use crate::finding::Finding;

/// How far a statement is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// A test claims it.
    Tested,
    /// It has no test, for a reason.
    Excepted,
    /// Code claims it, no test does.
    Implemented,
    /// Nothing names it.
    Missing,
}

impl State {
    /// In the order of a report.
    pub(super) const ALL: [Self; 4] = [
        Self::Tested,
        Self::Excepted,
        Self::Implemented,
        Self::Missing,
    ];

    /// The word in a report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tested => "tested",
            Self::Excepted => "excepted",
            Self::Implemented => "implemented",
            Self::Missing => "missing",
        }
    }
}

/// One statement with everything known of it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The statement.
    pub(super) statement: Statement,
    /// Where it is tested, as `path:line`.
    pub(super) tests: Vec<String>,
    /// Where it is implemented, as `path:line`.
    pub(super) code: Vec<String>,
    /// Why it has no test.
    pub(super) exception: Option<String>,
}

impl Entry {
    /// The best that can be said of it.
    pub(super) fn state(&self) -> State {
        if !self.tests.is_empty() {
            State::Tested
        } else if self.exception.is_some() {
            State::Excepted
        } else if !self.code.is_empty() {
            State::Implemented
        } else {
            State::Missing
        }
    }

    /// Chapter and section, as in `(3, 1)`.
    pub(super) fn section(&self) -> (u32, u32) {
        let numbers = self.statement.id.trim_start_matches("MQTT-");
        let mut parts = numbers
            .split(['.', '-'])
            .map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }
}

/// Every statement, in the order of the specification.
#[derive(Clone, Debug)]
pub(super) struct Coverage {
    entries: Vec<Entry>,
}

impl Coverage {
    /// Joins the data; what does not fit becomes a finding.
    pub(super) fn new(
        statements: Vec<Statement>,
        exceptions: Vec<Exception>,
        annotations: Vec<Annotation>,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let mut entries: Vec<Entry> = statements
            .into_iter()
            .map(|statement| Entry {
                statement,
                tests: Vec::new(),
                code: Vec::new(),
                exception: None,
            })
            .collect();
        let index: BTreeMap<String, usize> = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (entry.statement.id.clone(), at))
            .collect();
        for annotation in annotations {
            let Annotation {
                path,
                line,
                id,
                claim,
            } = annotation;
            let Some(at) = index.get(&id) else {
                if claim == Claim::Mention {
                    continue;
                }
                let advice = format!("`{id}` is no statement of MQTT 5.0");
                findings.push(Finding::new(&path, line, "annotation", advice));
                continue;
            };
            let place = format!("{path}:{line}");
            match claim {
                Claim::Test => entries[*at].tests.push(place),
                Claim::Code | Claim::Mention => entries[*at].code.push(place),
                Claim::TestOutsideTests => {
                    let advice = "claim a test in test code only";
                    findings.push(Finding::new(&path, line, "annotation", advice));
                }
            }
        }
        let mut coverage = Self { entries };
        for exception in exceptions {
            coverage.except(exception, &index, findings);
        }
        coverage
    }

    fn except(
        &mut self,
        exception: Exception,
        index: &BTreeMap<String, usize>,
        findings: &mut Vec<Finding>,
    ) {
        let Exception { line, id, reason } = exception;
        let mut report =
            |advice: String| findings.push(Finding::new(EXCEPTIONS, line, "exception", advice));
        let Some(at) = index.get(&id) else {
            return report(format!("`{id}` is no statement of MQTT 5.0"));
        };
        let entry = &mut self.entries[*at];
        if let Some(place) = entry.tests.first() {
            return report(format!("`{id}` is tested in {place}: remove the exception"));
        }
        if entry.exception.replace(reason).is_some() {
            report(format!("`{id}` is excepted twice"));
        }
    }

    /// Every statement.
    pub(super) fn statements(&self) -> &[Entry] {
        &self.entries
    }

    /// Statements that bind the server and have neither test nor exception.
    pub(super) fn open_for_server(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| {
            entry.statement.role.binds_server()
                && matches!(entry.state(), State::Implemented | State::Missing)
        })
    }

    /// How many statements that satisfy a condition are in a state.
    pub(super) fn count(&self, state: State, wanted: impl Fn(&Entry) -> bool) -> usize {
        self.entries
            .iter()
            .filter(|entry| entry.state() == state && wanted(entry))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::statements::{parse, parse_exceptions};
    use super::*;

    fn annotation(id: &str, claim: Claim) -> Annotation {
        Annotation {
            path: "a.rs".to_owned(),
            line: 7,
            id: id.to_owned(),
            claim,
        }
    }

    #[test]
    fn every_statement_gets_its_state_and_misfits_are_named() {
        let mut findings = Vec::new();
        let data: String = (1..=5)
            .map(|n| {
                let role = if n == 5 { "client" } else { "server" };
                format!("## MQTT-1.0.0-{n} {role}\nx\n")
            })
            .collect();
        let statements = parse("s", &data, &mut findings);
        let list = "MQTT-1.0.0-2 why\nMQTT-1.0.0-1 stale\nMQTT-9.0.0-1 unknown\n";
        let exceptions = parse_exceptions("e", list, &mut findings);
        let annotations = vec![
            annotation("MQTT-1.0.0-1", Claim::Test),
            annotation("MQTT-1.0.0-3", Claim::Code),
            annotation("MQTT-1.0.0-3", Claim::TestOutsideTests),
            annotation("MQTT-1.0.0-9", Claim::Test),
            annotation("MQTT-1.0.0-9", Claim::Mention),
        ];
        let coverage = Coverage::new(statements, exceptions, annotations, &mut findings);
        let states: Vec<State> = coverage.statements().iter().map(Entry::state).collect();
        let want = [
            State::Tested,
            State::Excepted,
            State::Implemented,
            State::Missing,
            State::Missing,
        ];
        assert_eq!(states, want);
        assert_eq!(coverage.open_for_server().count(), 2);
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let want = [
            "a.rs:7: annotation: claim a test in test code only",
            "a.rs:7: annotation: `MQTT-1.0.0-9` is no statement of MQTT 5.0",
            "docs/spec/exceptions.txt:2: exception: `MQTT-1.0.0-1` is tested in a.rs:7: \
             remove the exception",
            "docs/spec/exceptions.txt:3: exception: `MQTT-9.0.0-1` is no statement of MQTT 5.0",
        ];
        assert_eq!(lines, want);
    }
}
