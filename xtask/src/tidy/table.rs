//! `cargo xtask tidy --table`: one row for each package, in Markdown.

use core::fmt::Write as _;
use std::collections::BTreeSet;

use super::shapes::plain_names;
use crate::packages::{Package, packages};
use crate::shape::{Shape, Struct};
use crate::tree::Tree;

/// Functions with more lines than this are counted.
const FUNCTION_LINES: usize = 50;

/// What one row shows.
#[derive(Default)]
struct Row {
    files: usize,
    lines: usize,
    other: usize,
    largest_file: usize,
    long_functions: usize,
    circle: usize,
    in_circles: usize,
    fields: (usize, String),
    flags: (usize, String),
    methods: (usize, String),
}

impl Row {
    fn of(package: &Package<'_>, plain: &BTreeSet<String>) -> Self {
        let shape = Shape::of(package);
        let sources = || package.code.iter().map(|file| &file.source);
        let lines = || sources().map(|source| source.lines());
        let functions = sources().flat_map(|source| source.functions());
        let structs = || {
            let named = |s: &&Struct| !plain.contains(&format!("{}::{}", package.name, s.name));
            shape.structs.iter().filter(named)
        };
        Self {
            files: package.code.len(),
            lines: lines().sum(),
            other: package.other_lines,
            largest_file: lines().max().unwrap_or(0),
            long_functions: functions.filter(|f| f.lines > FUNCTION_LINES).count(),
            circle: shape.largest_circle(),
            in_circles: shape.circles.iter().map(Vec::len).sum(),
            fields: largest(structs().map(|s| (s.fields, s.name.clone()))),
            flags: largest(structs().map(|s| (s.flags, s.name.clone()))),
            methods: largest(shape.methods.iter().map(|m| (m.count, m.name.clone()))),
        }
    }

    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.lines += other.lines;
        self.other += other.other;
        self.largest_file = self.largest_file.max(other.largest_file);
        self.long_functions += other.long_functions;
        self.circle = self.circle.max(other.circle);
        self.in_circles += other.in_circles;
        self.fields = self.fields.clone().max(other.fields.clone());
        self.flags = self.flags.clone().max(other.flags.clone());
        self.methods = self.methods.clone().max(other.methods.clone());
    }

    fn write(&self, name: &str, out: &mut String) {
        let Self {
            files,
            lines,
            other,
            largest_file,
            long_functions,
            circle,
            in_circles,
            ..
        } = self;
        let circles = match (*circle, *in_circles) {
            (0, _) => "–".to_owned(),
            (circle, all) if circle == all => circle.to_string(),
            (circle, all) => format!("{circle} (of {all})"),
        };
        let _ = writeln!(
            out,
            "| {name} | {files} | {lines} | {other} | {largest_file} | {long_functions} \
             | {circles} | {} | {} | {} |",
            named(&self.fields),
            named(&self.flags),
            named(&self.methods),
        );
    }
}

fn largest(numbers: impl Iterator<Item = (usize, String)>) -> (usize, String) {
    numbers.max().unwrap_or_default()
}

fn named((number, name): &(usize, String)) -> String {
    match number {
        0 => "–".to_owned(),
        _ => format!("{number} `{name}`"),
    }
}

/// The table of a tree. Fields and flags are those of structs that are not on
/// the list of plain ones.
pub(super) fn table(tree: &Tree) -> String {
    let mut out = String::from(
        "| crate | files | lines | test lines | largest file | functions over 50 lines \
         | largest circle, files (of all in circles) | most fields | most flags | most methods |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let plain = plain_names(tree);
    let mut all = Row::default();
    for package in packages(tree) {
        let row = Row::of(&package, &plain);
        all.add(&row);
        row.write(&format!("`{}`", package.name), &mut out);
    }
    all.write("all", &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_a_row_and_all_have_one() {
        let lib = "//! x\nmod x;\nstruct A { a: bool, b: u8 }\nimpl A { fn f() {} }\n";
        let tree = Tree::of(&[
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("a/src/lib.rs", lib),
            ("a/src/x.rs", "//! x\n#[cfg(test)]\nmod tests {}\n"),
        ]);
        let got = table(&tree);
        let rows: Vec<&str> = got.lines().skip(2).collect();
        let row = "| 2 | 5 | 2 | 4 | 0 | – | 2 `A` | 1 `A` | 1 `A` |";
        assert_eq!(rows, [format!("| `a` {row}"), format!("| all {row}")]);
    }
}
