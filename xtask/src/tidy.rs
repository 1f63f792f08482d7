//! `cargo xtask tidy`: the rules of the repository that a compiler cannot
//! hold. Each rule is a function from the files to findings.

mod includes;
mod layers;
mod links;
mod manifests;
mod openings;
mod rooms;
mod shapes;
mod sizes;
mod table;
mod traces;
mod unsafety;
mod words;

use std::fs;

use anyhow::{Context as _, Result};

use crate::finding::Finding;
use crate::ratchet::{self, Measure};
use crate::tree::Tree;

/// What is done besides checking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Nothing.
    Check,
    /// What is allowed but not wanted is listed.
    Report,
    /// The sizes of every package are printed, and nothing is checked.
    Table,
    /// Numbers on the ratchet go down to what is measured.
    Shrink,
}

/// Checks this repository and prints what is wrong.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn run(task: Task) -> Result<bool> {
    let root = Tree::root();
    let mut tree = Tree::load(&root)?;
    match task {
        Task::Check | Task::Report => {}
        Task::Table => {
            print!("{}", table::table(&tree));
            return Ok(true);
        }
        Task::Shrink => {
            let list = tree.text(ratchet::PATH).unwrap_or_default();
            let list = ratchet::shrink(list, &measures(&tree));
            fs::write(root.join(ratchet::PATH), list).context("cannot write the ratchet")?;
            tree = Tree::load(&root)?;
        }
    }
    let measures = measures(&tree);
    let findings = check(&tree, &measures);
    for finding in &findings {
        println!("{finding}");
    }
    if task == Task::Report {
        print_report(&tree, &measures);
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to do", tree.files().count());
    } else {
        println!("tidy: {} findings", findings.len());
    }
    Ok(findings.is_empty())
}

/// The numbers that are held by the ratchet.
fn measures(tree: &Tree) -> Vec<Measure> {
    let rules = [
        sizes::measures,
        shapes::measures,
        words::measures,
        unsafety::measures,
    ];
    rules.iter().flat_map(|rule| rule(tree)).collect()
}

/// Everything that is wrong with a tree, in order of path and line.
fn check(tree: &Tree, measures: &[Measure]) -> Vec<Finding> {
    let rules = [
        includes::check,
        layers::check,
        openings::check,
        rooms::check,
        sizes::check,
        shapes::check,
        traces::check,
        links::check,
        manifests::check,
        unsafety::check,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.extend(ratchet::check(tree, measures));
    findings.sort();
    findings
}

/// What is allowed but not wanted.
fn print_report(tree: &Tree, measures: &[Measure]) {
    for (path, lines) in sizes::long_files(tree) {
        println!(
            "{path}:0: long-file: {lines} lines of code, {} wanted",
            sizes::FILE_LINES_WANTED
        );
    }
    for measure in measures
        .iter()
        .filter(|measure| measure.value > measure.limit)
    {
        let Measure {
            kind,
            subject,
            value,
            limit,
            ..
        } = measure;
        println!(
            "{}:{}: {kind}: `{subject}`: {value}, {limit} wanted",
            measure.path, measure.line
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let tree = Tree::load(&Tree::root()).expect("readable");
        let findings: Vec<String> = check(&tree, &measures(&tree))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}
