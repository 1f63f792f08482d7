//! Every Rust file opens with `//!`: what it is and what it must not know.

use crate::finding::Finding;
use crate::tree::Tree;

/// Holds the rule.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let opens = |text: &str| {
        let first = text.lines().find(|line| !line.trim().is_empty());
        first.is_some_and(|line| {
            line.strip_prefix("//!")
                .is_some_and(|words| !words.trim().is_empty())
        })
    };
    tree.rust()
        .filter(|(_, text)| !opens(text))
        .map(|(path, _)| {
            let advice = "open the file with `//!`: what it is, what it must not know";
            Finding::new(path, 1, "opening", advice)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_opening_are_found() {
        let tree = Tree::of(&[
            ("crates/a/src/good.rs", "\n//! Good.\nfn x() {}\n"),
            ("crates/a/src/plain.rs", "// Plain.\n"),
            ("fuzz/empty.rs", ""),
            ("mini/wordless.rs", "//!\n//! later\n"),
            ("readme.md", "x"),
        ]);
        let found = check(&tree);
        let found: Vec<&str> = found.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(
            found,
            ["crates/a/src/plain.rs", "fuzz/empty.rs", "mini/wordless.rs"]
        );
    }
}
