//! Files and functions stay short. Test code does not count: a table of cases
//! is as long as it must be.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::source::Source;
use crate::testcode::test_files;
use crate::tree::Tree;

/// A file longer than this is reported on request.
pub(super) const FILE_LINES_WANTED: usize = 500;
/// A file longer than this is refused.
const FILE_LINES_MAX: usize = 1000;
/// A function longer than this is refused unless it is on the list.
const FUNCTION_LINES_MAX: usize = 70;
/// The list of longer functions: `path::function lines`, which only shrinks.
const RATCHET: &str = "xtask/tidy-ratchet.txt";

/// Holds both rules and the list.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, lines) in file_lines(tree) {
        if lines > FILE_LINES_MAX {
            let advice =
                format!("{lines} lines of code: split by concern, at most {FILE_LINES_MAX}");
            findings.push(Finding::new(&path, 0, "file-size", advice));
        }
    }
    check_functions(tree, &mut findings);
    findings
}

/// Files that are longer than wanted and not refused.
pub(super) fn long_files(tree: &Tree) -> Vec<(String, usize)> {
    let mut files = file_lines(tree);
    files.retain(|(_, lines)| (FILE_LINES_WANTED + 1..=FILE_LINES_MAX).contains(lines));
    files
}

/// Functions on the list.
pub(super) fn ratchet_entries(tree: &Tree) -> Vec<(String, usize)> {
    let text = tree.text(RATCHET).unwrap_or_default();
    ratchet(text)
        .filter_map(|(_, entry)| entry.ok())
        .map(|(key, lines)| (key.to_owned(), lines))
        .collect()
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

fn check_functions(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut listed = BTreeMap::new();
    for (line, entry) in ratchet(tree.text(RATCHET).unwrap_or_default()) {
        match entry {
            Ok((key, lines)) => {
                listed.insert(key.to_owned(), (line, lines));
            }
            Err(advice) => findings.push(Finding::new(RATCHET, line, "ratchet", advice)),
        }
    }
    for (path, source) in code_files(tree) {
        for function in source.functions() {
            if function.lines <= FUNCTION_LINES_MAX {
                continue;
            }
            let key = format!("{path}::{}", function.name);
            let lines = function.lines;
            let advice = match listed.remove(&key) {
                Some((_, limit)) if limit == lines => continue,
                Some((entry, limit)) if lines < limit => {
                    let advice = format!("`{key}` is shorter now: write {lines} for {limit}");
                    findings.push(Finding::new(RATCHET, entry, "ratchet", advice));
                    continue;
                }
                Some((_, limit)) => {
                    format!(
                        "`{}` grew from {limit} to {lines} lines: shorten it",
                        function.name
                    )
                }
                None => format!(
                    "`{}` has {lines} lines: split it into named steps of at most \
                     {FUNCTION_LINES_MAX}",
                    function.name
                ),
            };
            findings.push(Finding::new(path, function.line, "function-size", advice));
        }
    }
    for (key, (line, _)) in listed {
        let advice = format!("`{key}` is short enough or gone: remove the entry");
        findings.push(Finding::new(RATCHET, line, "ratchet", advice));
    }
}

/// Entries of the list with their lines.
fn ratchet(text: &str) -> impl Iterator<Item = (usize, Result<(&str, usize), &'static str>)> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| (index + 1, ratchet_entry(line)))
}

fn ratchet_entry(line: &str) -> Result<(&str, usize), &'static str> {
    let (key, lines) = line
        .rsplit_once(' ')
        .ok_or("write `path::function lines`")?;
    let lines = lines.parse().map_err(|_| "end the entry with a number")?;
    Ok((key.trim(), lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one function of this many lines.
    fn function(lines: usize) -> String {
        format!("//! x\nfn f() {{\n{}}}\n", "x;\n".repeat(lines - 2))
    }

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
    fn long_functions_need_an_entry_that_only_shrinks() {
        let (fits, long) = (function(70), function(71));
        assert!(findings(&[("a.rs", &fits)]).is_empty());
        let cases = [
            ("", "a.rs:2: function-size: `f` has 71 lines"),
            ("# why\na.rs::f 71\n", ""),
            (
                "a.rs::f 70\n",
                "a.rs:2: function-size: `f` grew from 70 to 71",
            ),
            (
                "a.rs::f 80\n",
                "tidy-ratchet.txt:1: ratchet: `a.rs::f` is shorter now: write 71",
            ),
        ];
        for (list, want) in cases {
            let got = findings(&[("a.rs", &long), (RATCHET, list)]);
            assert_eq!(got.len(), usize::from(!want.is_empty()), "{list}: {got:?}");
            assert!(got.iter().all(|g| g.contains(want)), "{list}: {got:?}");
        }
        let stale = findings(&[("a.rs", &fits), (RATCHET, "a.rs::f 71\nnonsense\n")]);
        assert_eq!(stale.len(), 2, "{stale:?}");
    }
}
