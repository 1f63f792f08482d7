//! Files and functions stay short. Test code does not count: a table of cases
//! is as long as it must be.

use crate::finding::Finding;
use crate::ratchet::Measure;
use crate::source::Source;
use crate::testcode::test_files;
use crate::tree::Tree;

/// A file longer than this is reported on request.
pub(super) const FILE_LINES_WANTED: usize = 500;
/// A file longer than this is refused.
const FILE_LINES_MAX: usize = 1000;
/// A function longer than this is refused unless it is on the list.
const FUNCTION_LINES_MAX: usize = 70;
/// Holds the limit of files.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, lines) in file_lines(tree) {
        if lines > FILE_LINES_MAX {
            let advice =
                format!("{lines} lines of code: split by concern, at most {FILE_LINES_MAX}");
            findings.push(Finding::new(&path, 0, "file-size", advice));
        }
    }
    findings
}

/// Files that are longer than wanted and not refused.
pub(super) fn long_files(tree: &Tree) -> Vec<(String, usize)> {
    let mut files = file_lines(tree);
    files.retain(|(_, lines)| (FILE_LINES_WANTED + 1..=FILE_LINES_MAX).contains(lines));
    files
}

/// The lines of every function.
pub(super) fn measures(tree: &Tree) -> Vec<Measure> {
    let mut measures = Vec::new();
    for (path, source) in code_files(tree) {
        measures.extend(source.functions().into_iter().map(|function| Measure {
            kind: "function-size",
            subject: format!("{path}::{}", function.name),
            value: function.lines,
            limit: FUNCTION_LINES_MAX,
            path: path.to_owned(),
            line: function.line,
            advice: "split it into named steps".to_owned(),
        }));
    }
    measures
}

/// Lines of code of every file that is not a test.
fn file_lines(tree: &Tree) -> Vec<(String, usize)> {
    code_files(tree)
        .into_iter()
        .map(|(path, source)| (path.to_owned(), source.lines()))
        .collect()
}

/// Rust files without those that hold only tests.
fn code_files(tree: &Tree) -> Vec<(&str, Source)> {
    let tests = test_files(tree);
    tree.rust()
        .filter(|(path, _)| !tests.contains(path))
        .map(|(path, text)| (path, Source::new(text)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let found = check(&Tree::of(files));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_are_measured_without_their_tests() {
        let long = "//! x\n".repeat(1001);
        let got = findings(&[("crates/a/src/b.rs", &long)]);
        let want = "crates/a/src/b.rs:0: file-size: 1001 lines of code: \
                    split by concern, at most 1000";
        assert_eq!(got, [want]);
        assert!(findings(&[("crates/a/tests/it/b.rs", &long)]).is_empty());
        let sibling = "//! x\n#[cfg(test)]\nmod tests;\n";
        let files = [
            ("crates/a/src/b.rs", sibling),
            ("crates/a/src/b/tests.rs", &long),
        ];
        assert!(findings(&files).is_empty());
        let wanted = Tree::of(&[("a.rs", &"//! x\n".repeat(501))]);
        assert_eq!(long_files(&wanted), [("a.rs".to_owned(), 501)]);
    }

    #[test]
    fn functions_are_measured() {
        let text = format!("//! x\nfn f() {{\n{}}}\n", "x;\n".repeat(69));
        let got = measures(&Tree::of(&[("a.rs", &text)]));
        let got: Vec<_> = got
            .iter()
            .map(|m| (m.subject.as_str(), m.line, m.value, m.limit))
            .collect();
        assert_eq!(got, [("a.rs::f", 2, 71, 70)]);
    }
}
