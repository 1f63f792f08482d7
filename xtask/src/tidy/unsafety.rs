//! `unsafe` is counted in each package, and the count is on the ratchet; every
//! block says why it is sound. Function pointer types, attributes and tests do not
//! count.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::packages::{CodeFile, packages};
use crate::ratchet::Measure;
use crate::tree::Tree;

/// Lines before a block in which its reason begins.
const REASON_LINES: usize = 8;

/// How often the word stands in the code of each package.
pub(super) fn measures(tree: &Tree) -> Vec<Measure> {
    let mut counts: BTreeMap<String, Measure> = BTreeMap::new();
    for package in packages(tree) {
        for file in &package.code {
            let lines = unsafe_lines(file);
            let Some((first, _)) = lines.first() else {
                continue;
            };
            let measure = counts
                .entry(package.name.clone())
                .or_insert_with(|| Measure {
                    kind: "unsafe",
                    subject: package.name.clone(),
                    value: 0,
                    limit: 0,
                    path: file.path.to_owned(),
                    line: *first,
                    advice: "find a way without `unsafe`, or say in SECURITY.md why there is none"
                        .to_owned(),
                });
            measure.value += lines.len();
        }
    }
    counts.into_values().collect()
}

/// Holds every block to its reason.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let packages = packages(tree);
    let files = packages.iter().flat_map(|package| &package.code);
    let unexplained = files.flat_map(|file| {
        let lines: Vec<&str> = file.text.lines().collect();
        let whole = lines.iter().take_while(|line| line.starts_with("//!"));
        let explained = whole.clone().any(|line| line.contains("SAFETY"));
        let blocks = unsafe_lines(file).into_iter().filter(|(_, block)| *block);
        let blocks = blocks.filter(move |(line, _)| {
            let from = line.saturating_sub(1 + REASON_LINES);
            let before = lines.get(from..*line).unwrap_or_default();
            !explained && !before.iter().any(|line| line.contains("SAFETY"))
        });
        blocks.map(|(line, _)| {
            let advice = "say why it is sound in a comment `SAFETY: …` before it".to_owned();
            Finding::new(file.path, line, "unsafe", advice)
        })
    });
    unexplained.collect()
}

/// Lines with the word, and whether it opens a block or an implementation.
fn unsafe_lines(file: &CodeFile<'_>) -> Vec<(usize, bool)> {
    const WORD: &str = "unsafe";
    let code = file.source.code();
    let mut found = Vec::new();
    for (at, _) in code.match_indices(WORD) {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let (before, after) = (&code[..at], &code[at + WORD.len()..]);
        let after = after.trim_start();
        let is_word = !before.ends_with(is_part) && !code[at + WORD.len()..].starts_with(is_part);
        let is_type = before.ends_with('<') || before.ends_with(": ");
        if !is_word || is_type || after.starts_with('(') || file.source.is_test(at) {
            continue;
        }
        let block = after.starts_with('{') || after.starts_with("impl");
        found.push((file.source.line_of(at), block));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! x\n#![deny(unsafe_code)]\n#[unsafe(no_mangle)]\nfn a() {\n    \
        // SAFETY: it is.\n    unsafe { b() }\n    \"unsafe {\"\n}\n\n\n\n\n\n\n\n\n\
        fn c(d: Option<unsafe fn()>) {\n    unsafe { d() }\n}\nunsafe fn e() {}\n\
        #[cfg(test)]\nmod tests {\n    fn f() { unsafe { g() } }\n}\n";

    #[test]
    fn blocks_are_counted_and_need_a_reason() {
        let manifest = ("a/Cargo.toml", "[package]\nname = \"a\"\n");
        let tree = Tree::of(&[manifest, ("a/src/lib.rs", CODE)]);
        let counted = measures(&tree);
        assert_eq!((counted.len(), counted[0].value), (1, 3));
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a/src/lib.rs:18: unsafe"), "{found:?}");
        let whole = CODE.replace("//! x", "//! SAFETY: it never runs.");
        let tree = Tree::of(&[manifest, ("a/src/lib.rs", &whole)]);
        assert!(check(&tree).is_empty());
    }
}
