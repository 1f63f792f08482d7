//! Words that no comment, name or page needs: each says less than the plain
//! word for it. How often they stand is on the ratchet and goes down.

use std::collections::BTreeMap;

use crate::packages::{owner, packages};
use crate::ratchet::Measure;
use crate::source::without_literals;
use crate::tree::{Tree, has_extension};

/// The words. They are matched without regard to case.
const WORDS: [&str; 7] = [
    "told", "nobody", "whoever", "anew", "goodbye", "whatever", "somebody",
];

/// Files that are looked at.
const EXTENSIONS: [&str; 10] = ["rs", "md", "toml", "py", "sh", "c", "h", "go", "js", "mjs"];

/// How often the words stand in each package and in each other folder. Strings
/// in Rust do not count: tests and users depend on what they say.
pub(super) fn measures(tree: &Tree) -> Vec<Measure> {
    let packages = packages(tree);
    let mut counts: BTreeMap<&str, Measure> = BTreeMap::new();
    for (path, text) in tree.texts() {
        if !has_extension(path, &EXTENSIONS) && !path.ends_with("Makefile") {
            continue;
        }
        let text = match has_extension(path, &["rs"]) {
            true => without_literals(text),
            false => text.to_owned(),
        };
        let Some((line, count)) = banned(&text) else {
            continue;
        };
        let area = owner(&packages, path).unwrap_or_else(|| folder(path));
        let measure = counts.entry(area).or_insert_with(|| Measure {
            kind: "words",
            subject: area.to_owned(),
            value: 0,
            limit: 0,
            path: path.to_owned(),
            line,
            advice: format!("write plain words instead of {}", WORDS.join(", ")),
        });
        measure.value += count;
    }
    counts.into_values().collect()
}

/// The folder at the top that a file is in.
fn folder(path: &str) -> &str {
    path.split_once('/').map_or("top", |(folder, _)| folder)
}

/// How often the words stand in a text, and the line of the first.
fn banned(text: &str) -> Option<(usize, usize)> {
    let mut first = None;
    let mut count = 0;
    for (index, line) in text.lines().enumerate() {
        let words = line.split(|c: char| !c.is_alphanumeric());
        let found = words
            .filter(|word| WORDS.iter().any(|banned| word.eq_ignore_ascii_case(banned)))
            .count();
        if found > 0 {
            first.get_or_insert(index + 1);
            count += found;
        }
    }
    first.map(|line| (line, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_names_and_pages_count_and_strings_do_not() {
        // In halves: this file is counted as well.
        let one = ["nobo", "dy"].concat();
        let rust = format!("//! {one}, it is {one}'s.\nfn is_{one}() {{ f(\"{one}\") }}\n");
        let page = format!("# It is {}\n{one}body\n", one.to_uppercase());
        let tree = Tree::of(&[
            ("a/Cargo.toml", "[package]\nname = \"pack\"\n"),
            ("a/src/lib.rs", &rust),
            ("docs/a.md", &page),
            ("README.md", "plain\n"),
            ("b.lock", &page),
        ]);
        let got = measures(&tree);
        let got: Vec<_> = got
            .iter()
            .map(|m| (m.subject.as_str(), m.value, m.line))
            .collect();
        assert_eq!(got, [("docs", 1, 1), ("pack", 3, 1)]);
    }
}
