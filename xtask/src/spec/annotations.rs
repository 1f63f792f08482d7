//! Where the repository quotes the specification.
//!
//! In Rust: a comment `//= mqtt5#[ID] type=test` in or above a test, or without
//! `type=test` where it is implemented; `[ID]` in any other comment counts as
//! implemented too. In Python: `# mqtt5#[ID] type=test`. In JSON of a crate: `"ID"` as a
//! string, because a test vector cannot carry a comment.

use crate::source::Source;
use crate::testcode::test_files;
use crate::tree::{Tree, has_extension};

/// What a quotation claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The statement is tested here.
    Test,
    /// A test is claimed, but this is not test code.
    TestOutsideTests,
    /// The statement is implemented here.
    Code,
    /// As `Code`, said in prose; it may be about another specification.
    Mention,
}

/// One quotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Annotation {
    /// File.
    pub(super) path: String,
    /// Line from 1.
    pub(super) line: usize,
    /// The statement.
    pub(super) id: String,
    /// What it claims.
    pub(super) claim: Claim,
}

/// Marks an annotation.
const MARK: &str = "mqtt5#[";

/// Every quotation in the repository.
pub(super) fn scan(tree: &Tree) -> Vec<Annotation> {
    let tests = test_files(tree);
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        // The rules themselves and the data quote without claiming.
        if path.starts_with("xtask/") || path.starts_with("docs/") {
            continue;
        }
        if has_extension(path, &["rs"]) {
            let is_test_file = tests.contains(path) || is_harness(path);
            scan_rust(path, text, is_test_file, &mut found);
        } else if has_extension(path, &["py"]) {
            scan_lines(path, text, |_| true, &mut found);
        } else if has_extension(path, &["json"]) && path.starts_with("crates/") {
            scan_json(path, text, &mut found);
        }
    }
    found
}

/// Code that exists for tests although every build compiles it: the simulator
/// and the conformance suites that several back ends run.
fn is_harness(path: &str) -> bool {
    path.starts_with("crates/dunlin-sim/")
        || path.contains("conformance")
        || path.starts_with("fuzz/")
}

fn scan_rust(path: &str, text: &str, is_test_file: bool, found: &mut Vec<Annotation>) {
    let source = Source::new(text);
    scan_lines(path, text, |at| is_test_file || source.is_test(at), found);
}

fn scan_lines(
    path: &str,
    text: &str,
    is_test: impl Fn(usize) -> bool,
    found: &mut Vec<Annotation>,
) {
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let claim = if !line.contains(MARK) {
            Claim::Mention
        } else if !line.contains("type=test") {
            Claim::Code
        } else if is_test(at) {
            Claim::Test
        } else {
            Claim::TestOutsideTests
        };
        for id in bracketed(line) {
            found.push(Annotation {
                path: path.to_owned(),
                line: index + 1,
                id: id.to_owned(),
                claim,
            });
        }
        at += line.len();
    }
}

fn scan_json(path: &str, text: &str, found: &mut Vec<Annotation>) {
    for (index, line) in text.lines().enumerate() {
        let ids = line.split('"').filter(|word| is_id(word));
        found.extend(ids.map(|id| Annotation {
            path: path.to_owned(),
            line: index + 1,
            id: id.to_owned(),
            claim: Claim::Test,
        }));
    }
}

/// Identifiers in brackets, also several with commas.
fn bracketed(line: &str) -> impl Iterator<Item = &str> {
    line.split('[')
        .skip(1)
        .filter_map(|rest| rest.split_once(']'))
        .flat_map(|(inside, _)| inside.split(','))
        .map(str::trim)
        .filter(|word| is_id(word))
}

/// Whether a word has the form of an identifier, as in `MQTT-3.1.2-24`.
fn is_id(word: &str) -> bool {
    let Some((section, number)) = word
        .strip_prefix("MQTT-")
        .and_then(|rest| rest.split_once('-'))
    else {
        return false;
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    section.contains('.') && section.split('.').all(is_number) && is_number(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_found_and_distinguished() {
        let code = "\
//! x
/// Checked [MQTT-1.0.0-1], see [MQTT-5.0] and [`x`].
fn a() {}
//= mqtt5#[MQTT-1.0.0-2]
//= mqtt5#[MQTT-1.0.0-3] type=test
fn b() {}
#[cfg(test)]
mod tests {
    //= mqtt5#[MQTT-1.0.0-4] type=test
    //= mqtt5#[MQTT-1.0.0-5, MQTT-1.0.0-6] type=test
    fn c() {}
}
";
        let tree = Tree::of(&[
            ("crates/a/src/b.rs", code),
            (
                "crates/a/tests/v.json",
                "{\"spec\": [\"MQTT-1.0.0-7\", \"MQTT\"]}",
            ),
            ("package.json", "\"MQTT-1.0.0-8\""),
            ("scripts/t.py", "# mqtt5#[MQTT-1.0.0-9] type=test\n"),
            ("xtask/src/x.rs", code),
        ]);
        let got: Vec<(String, usize, Claim)> = scan(&tree)
            .into_iter()
            .map(|a| (a.id.replace("MQTT-1.0.0-", ""), a.line, a.claim))
            .collect();
        let want = [
            ("1", 2, Claim::Mention),
            ("2", 4, Claim::Code),
            ("3", 5, Claim::TestOutsideTests),
            ("4", 9, Claim::Test),
            ("5", 10, Claim::Test),
            ("6", 10, Claim::Test),
            ("7", 1, Claim::Test),
            ("9", 1, Claim::Test),
        ];
        let want = want.map(|(id, line, claim)| (id.to_owned(), line, claim));
        assert_eq!(got, want);
    }
}
