//! `cargo xtask spec`: which normative statements of MQTT 5.0 have a test, an
//! exception, or neither. It counts annotations; whether a test tests what it
//! claims is for its reader to judge.

mod annotations;
mod coverage;
mod report;
mod statements;

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::finding::Finding;
use crate::tree::Tree;
use coverage::Coverage;

/// The statements.
const STATEMENTS: &str = "docs/spec/mqtt-5.0.txt";
/// Statements without a test and why.
const EXCEPTIONS: &str = "docs/spec/exceptions.txt";
/// The page of the book that holds the summary.
const PAGE: &str = "docs/book/src/conformance.md";

/// Prints the state of every statement, or does what the options say.
///
/// # Errors
/// An option is unknown or a file cannot be read or written.
pub(crate) fn run(options: &[&str]) -> Result<bool> {
    let known = ["--json", "--check", "--book"];
    if let Some(unknown) = options.iter().find(|o| !known.contains(*o)) {
        bail!("unknown option `{unknown}`; known: {}", known.join(" "));
    }
    let has = |option| options.contains(&option);
    let root = Tree::root();
    let tree = Tree::load(&root)?;
    let (coverage, findings) = load(&tree)?;
    if has("--book") {
        let page = tree.text(PAGE).unwrap_or_default();
        let page = report::into_page(page, &coverage)?;
        fs::write(root.join(PAGE), page).with_context(|| format!("cannot write {PAGE}"))?;
    } else if has("--json") {
        println!("{}", report::json(&coverage));
    } else if has("--check") {
        print!("{}", report::open_statements(&coverage));
    } else {
        print!("{}", report::text(&coverage));
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    let complete = !has("--check") || coverage.open_for_server().next().is_none();
    Ok(findings.is_empty() && complete)
}

/// The coverage of a tree and what is wrong with its annotations.
fn load(tree: &Tree) -> Result<(Coverage, Vec<Finding>)> {
    let text = |path| {
        tree.text(path)
            .with_context(|| format!("{path} is not there"))
    };
    let mut findings = Vec::new();
    let statements = statements::parse(STATEMENTS, text(STATEMENTS)?, &mut findings);
    let exceptions = statements::parse_exceptions(EXCEPTIONS, text(EXCEPTIONS)?, &mut findings);
    let annotations = annotations::scan(tree);
    let coverage = Coverage::new(statements, exceptions, annotations, &mut findings);
    findings.sort();
    Ok((coverage, findings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_this_repository_name_known_statements() {
        let tree = Tree::load(&Tree::root()).expect("readable");
        let (coverage, findings) = load(&tree).expect("data there");
        assert_eq!(coverage.statements().len(), 251);
        let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}
