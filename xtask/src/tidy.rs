//! `cargo xtask tidy`: the rules of the repository that a compiler cannot
//! hold. Each rule is a function from the files to findings.

mod layers;
mod links;
mod manifests;
mod openings;
mod sizes;
mod traces;

use anyhow::Result;

use crate::finding::Finding;
use crate::tree::Tree;

/// Checks this repository and prints what is wrong.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn run(report: bool) -> Result<bool> {
    let tree = Tree::load(&Tree::root())?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    if report {
        print_report(&tree);
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to do", tree.files().count());
    } else {
        println!("tidy: {} findings", findings.len());
    }
    Ok(findings.is_empty())
}

/// Everything that is wrong with a tree, in order of path and line.
fn check(tree: &Tree) -> Vec<Finding> {
    let rules = [
        layers::check,
        openings::check,
        sizes::check,
        traces::check,
        links::check,
        manifests::check,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

/// What is allowed but not wanted.
fn print_report(tree: &Tree) {
    for (path, lines) in sizes::long_files(tree) {
        println!(
            "{path}:0: long-file: {lines} lines of code, {} wanted",
            sizes::FILE_LINES_WANTED
        );
    }
    for (key, lines) in sizes::ratchet_entries(tree) {
        println!("{key}: long-function: {lines} lines, on the list");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let tree = Tree::load(&Tree::root()).expect("readable");
        let findings: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}
