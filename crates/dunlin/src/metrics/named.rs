//! Names of metrics in the book, in the files for Prometheus and in the scripts are those
//! of metrics that the broker or the sink shows.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Files that are not looked into: the page made from the metrics, and functions of C.
const LEFT_OUT: [&str; 3] = ["metrics.md", "microcontrollers.md", "tiny-size.sh"];

/// Words that are none: a token that is wrong.
const NO_METRICS: [&str; 1] = ["dunlin_wrong"];

/// Files of a folder and of those in it.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// Families that are shown.
fn shown(root: &Path) -> BTreeSet<String> {
    // Another test holds the page to what the broker shows.
    let page = read_to_string(root.join("docs/book/src/metrics.md")).expect("a page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned()));
    let mut names: BTreeSet<_> = names.collect();
    let sink = super::sink::exposition("s", &dunlin_sink::Stats::default());
    names.extend(sink.families().map(|(name, ..)| name.to_owned()));
    names
}

/// Whether a crate of this repository has that name in Rust.
fn is_crate(root: &Path, word: &str) -> bool {
    let name = word.replace('_', "-");
    let houses = ["crates", "mini", "lab"];
    houses.iter().any(|it| root.join(it).join(&name).is_dir())
}

#[test]
fn metrics_that_others_name_are_shown() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let shown = shown(root);
    let is_shown = |word: &str| {
        let mut parts = ["_bucket", "_count", "_sum"].iter();
        let family = parts.find_map(|part| word.strip_suffix(part));
        shown.contains(word) || family.is_some_and(|it| shown.contains(it))
    };
    let mut paths = Vec::new();
    for folder in ["docs/book/src", "packaging", "scripts", "bench"] {
        files(&root.join(folder), &mut paths);
    }
    let (mut named, mut wrong) = (BTreeSet::new(), Vec::new());
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Pictures are no text.
        let Ok(text) = read_to_string(&path) else {
            continue;
        };
        if LEFT_OUT.contains(&&*name) {
            continue;
        }
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        // What ends so is the beginning of several.
        let words = words.filter(|it| it.starts_with("dunlin_") && !it.ends_with('_'));
        for word in words {
            if is_shown(word) {
                named.insert(word.to_owned());
            } else if !NO_METRICS.contains(&word) && !is_crate(root, word) {
                wrong.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "no such metrics: {wrong:#?}");
    assert!(named.len() > 50, "{} metrics are named", named.len());
}
