//! State stays small: import circles, fields, flags and methods have limits.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::packages::packages;
use crate::ratchet::Measure;
use crate::shape::Shape;
use crate::tree::Tree;

/// Fields that a struct may have.
const FIELDS_MAX: usize = 20;
/// Fields of them that may be flags.
const FLAGS_MAX: usize = 4;
/// Functions that all `impl` blocks of a type may have together.
const METHODS_MAX: usize = 40;

/// Files that may import each other in a circle. Elsewhere only a module and
/// its parent may, which is no circle here.
const CIRCLES: [(&str, usize); 3] = [
    ("dunlin-broker", 2),
    ("dunlin-client", 3),
    ("dunlin-quic", 2),
];

/// Structs without behaviour, `package::Struct why`: configuration, options,
/// statistics, wire messages. Their fields and flags have no limit.
const PLAIN: &str = "xtask/tidy-plain.txt";

/// The numbers of every package.
pub(super) fn measures(tree: &Tree) -> Vec<Measure> {
    let plain = plain(tree);
    let mut measures = Vec::new();
    for package in packages(tree) {
        let shape = Shape::of(&package);
        let name = &package.name;
        measures.extend(circle(name, &shape));
        let mut largest: BTreeMap<(&'static str, String), Measure> = BTreeMap::new();
        let mut keep = |measure: Measure| {
            let key = (measure.kind, measure.subject.clone());
            let entry = largest.entry(key).or_insert_with(|| measure.clone());
            if measure.value > entry.value {
                *entry = measure;
            }
        };
        for measured in &shape.structs {
            let subject = format!("{name}::{}", measured.name);
            if plain.contains_key(subject.as_str()) {
                continue;
            }
            let number = |kind, value, limit, advice: &str| Measure {
                kind,
                subject: subject.clone(),
                value,
                limit,
                path: measured.path.clone(),
                line: 0,
                advice: advice.to_owned(),
            };
            let advice = "group fields that change together into types of their own";
            keep(number("fields", measured.fields, FIELDS_MAX, advice));
            let advice = "make flags that encode a phase an enum";
            keep(number("flags", measured.flags, FLAGS_MAX, advice));
        }
        for methods in &shape.methods {
            keep(Measure {
                kind: "methods",
                subject: format!("{name}::{}", methods.name),
                value: methods.count,
                limit: METHODS_MAX,
                path: methods.path.clone(),
                line: 0,
                advice: "give parts of the state a type with its own methods".to_owned(),
            });
        }
        measures.extend(largest.into_values());
    }
    measures
}

/// The largest circle of a package.
fn circle(package: &str, shape: &Shape) -> Option<Measure> {
    let files = shape.circles.first()?;
    let first = files.first()?;
    let allowed = CIRCLES.iter().find(|(name, _)| *name == package);
    Some(Measure {
        kind: "circle",
        subject: package.to_owned(),
        value: files.len(),
        limit: allowed.map_or(0, |(_, limit)| *limit),
        path: first.clone(),
        line: 0,
        advice: format!("these files import each other: {}", files.join(", ")),
    })
}

/// Names of the plain structs.
pub(super) fn plain_names(tree: &Tree) -> BTreeSet<String> {
    plain(tree).into_keys().map(str::to_owned).collect()
}

/// Names of the plain structs and the lines that list them.
fn plain(tree: &Tree) -> BTreeMap<&str, usize> {
    let text = tree.text(PLAIN).unwrap_or_default();
    let entries = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    entries
        .map(|(index, line)| {
            (
                line.split_once(' ').map_or(line, |(name, _)| name),
                index + 1,
            )
        })
        .collect()
}

/// Holds the list of plain structs: each has a reason and needs its entry.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut large: Vec<String> = Vec::new();
    for package in packages(tree) {
        let structs = Shape::of(&package).structs;
        let structs = structs
            .iter()
            .filter(|s| s.fields > FIELDS_MAX || s.flags > FLAGS_MAX);
        large.extend(structs.map(|s| format!("{}::{}", package.name, s.name)));
    }
    let text = tree.text(PLAIN).unwrap_or_default();
    for (name, line) in plain(tree) {
        let entry = text.lines().nth(line - 1).unwrap_or_default();
        let advice = if !large.iter().any(|large| large == name) {
            format!("`{name}` keeps to the limits or is gone: remove the entry")
        } else if entry.trim() == name {
            format!("say why `{name}` is no state: configuration, options, statistics, message")
        } else {
            continue;
        };
        findings.push(Finding::new(PLAIN, line, "plain", advice));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: (&str, &str) = ("a/Cargo.toml", "[package]\nname = \"a\"\n");

    fn fields(count: usize, flags: usize) -> String {
        let field = |index| {
            let of = if index < flags { "bool" } else { "u8" };
            format!("f{index}: {of}, ")
        };
        let fields: String = (0..count).map(field).collect();
        format!("struct Big {{ {fields} }}\n")
    }

    #[test]
    fn every_number_has_its_limit() {
        let methods = format!("struct M;\nimpl M {{ {} }}\n", "fn f() {}\n".repeat(41));
        let lib = format!("mod x;\nmod y;\n{}{methods}", fields(21, 5));
        let tree = Tree::of(&[
            MANIFEST,
            ("a/src/lib.rs", &lib),
            ("a/src/x.rs", "use crate::y::f;\npub fn g() {}\n"),
            ("a/src/y.rs", "use crate::x::g;\npub fn f() {}\n"),
        ]);
        let got = measures(&tree);
        let got: Vec<_> = got
            .iter()
            .filter(|m| m.value > m.limit)
            .map(|m| (m.kind, m.subject.as_str(), m.value, m.limit))
            .collect();
        let want = [
            ("circle", "a", 2, 0),
            ("fields", "a::Big", 21, 20),
            ("flags", "a::Big", 5, 4),
            ("methods", "a::M", 41, 40),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn plain_structs_need_a_reason_and_a_size() {
        let big = fields(21, 0);
        let small = fields(20, 4);
        let cases = [
            (&big, "", true, ""),
            (&big, "# why\na::Big options\n", false, ""),
            (&big, "a::Big\n", false, "say why `a::Big` is no state"),
            (
                &small,
                "a::Big options\n",
                false,
                "`a::Big` keeps to the limits",
            ),
        ];
        for (text, list, over, want) in cases {
            let tree = Tree::of(&[MANIFEST, ("a/src/lib.rs", text), (PLAIN, list)]);
            assert_eq!(
                measures(&tree).iter().any(|m| m.value > m.limit),
                over,
                "{list}"
            );
            let got = check(&tree);
            assert_eq!(got.len(), usize::from(!want.is_empty()), "{list}: {got:?}");
            assert!(
                got.iter().all(|g| g.advice.contains(want)),
                "{list}: {got:?}"
            );
        }
    }
}
