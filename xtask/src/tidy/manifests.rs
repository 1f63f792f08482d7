//! Every manifest can be read, also those of packages outside the workspace,
//! which no build of the workspace looks at.

use toml::Table;

use crate::finding::Finding;
use crate::tree::Tree;

/// Holds the rule for every `Cargo.toml`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree
        .texts()
        .filter(|(path, _)| path.rsplit('/').next() == Some("Cargo.toml"));
    manifests
        .filter_map(|(path, text)| {
            let error = text.parse::<Table>().err()?;
            let before = error.span().map_or(0, |span| span.start);
            let line = text.get(..before).unwrap_or_default().lines().count();
            let advice = error.message().to_owned();
            Some(Finding::new(path, line.max(1), "manifest", advice))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_twice_is_found() {
        let tree = Tree::of(&[
            ("fuzz/Cargo.toml", "[dependencies]\na = \"1\"\na = \"2\"\n"),
            ("crates/a/Cargo.toml", "[dependencies]\na = \"1\"\n"),
            ("notes.toml", "a = 1\na = 2\n"),
        ]);
        let found = check(&tree);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("fuzz/Cargo.toml:"), "{found:?}");
    }
}
