//! What the code of a published package includes is in its folder: a registry has
//! nothing else, and the package would not compile there. A file that has to be elsewhere
//! gets a symbolic link in the folder, which Cargo packages as a file.

use crate::finding::Finding;
use crate::packages::{Package, packages};
use crate::tree::Tree;

use super::links::resolve;

const MACROS: [&str; 2] = ["include_str!(", "include_bytes!("];

/// Nothing of this is compiled but by rustdoc's tests in the repository.
const DOCTEST: &str = "#[cfg(doctest)]";

/// Holds the rule for every package that is published.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let all = packages(tree);
    let published = all.iter().filter(|package| is_published(tree, package));
    published.flat_map(outside).collect()
}

fn is_published(tree: &Tree, package: &Package<'_>) -> bool {
    let manifest = tree.text(&format!("{}Cargo.toml", package.folder));
    manifest.is_some_and(|text| !text.lines().any(|line| line.trim() == "publish = false"))
}

/// What a package includes from outside of its folder, but for tests.
fn outside(package: &Package<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &package.code {
        let code = file.source.code();
        let found = MACROS.iter().flat_map(|name| code.match_indices(name));
        for (at, _) in found.filter(|(at, _)| !file.source.is_test(*at)) {
            let line = file.source.line_of(at);
            let before = file.text.lines().nth(line.saturating_sub(2));
            let Some(target) = file.text[at..].split('"').nth(1) else {
                continue;
            };
            let is_inside =
                resolve(file.path, target).is_some_and(|path| path.starts_with(&package.folder));
            if !is_inside && before.map(str::trim) != Some(DOCTEST) {
                let advice = format!("`{target}` is not in the package: link it into its folder");
                findings.push(Finding::new(file.path, line, "include", advice));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_registry_has_not_is_found() {
        let code = "#![doc = include_str!(\"../../../docs/x.md\")]\n\
                    const A: &str = include_str!(\"../a.txt\");\n\
                    const B: &[u8] = include_bytes!(\"../../b/b\");\n\
                    #[cfg(doctest)]\n#[doc = include_str!(\"../../../docs/y.md\")]\nstruct Page;\n\
                    #[cfg(test)]\nmod tests {\n    const C: &str = include_str!(\"../../c\");\n}\n";
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("crates/a/src/lib.rs", code),
            ("x/Cargo.toml", "[package]\nname = \"x\"\npublish = false\n"),
            ("x/src/lib.rs", code),
        ]);
        let got: Vec<usize> = check(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(got, [1, 3]);
    }
}
