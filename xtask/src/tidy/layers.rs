//! The layer table: which crate may depend on which, and which foreign names
//! stop at which crate. The table is the one in ARCHITECTURE.md.

use toml::{Table, Value};

use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// The page that shows the table to people.
const MAP: &str = "ARCHITECTURE.md";

/// The first layer that may use the standard library.
const STD_LAYER: u8 = 4;

/// A row of the table.
struct Layer {
    number: u8,
    name: &'static str,
    /// The folder that the crate is in.
    house: &'static str,
    /// Workspace crates that it may name in normal and build dependencies.
    may: &'static [&'static str],
}

/// The product.
const CRATES: &str = "crates";
/// The microcontroller.
const MINI: &str = "mini";
/// The testbed.
const LAB: &str = "lab";

const fn layer(number: u8, name: &'static str, may: &'static [&'static str]) -> Layer {
    Layer {
        number,
        name,
        house: CRATES,
        may,
    }
}

const fn mini(number: u8, name: &'static str, may: &'static [&'static str]) -> Layer {
    Layer {
        house: MINI,
        ..layer(number, name, may)
    }
}

const fn lab(number: u8, name: &'static str, may: &'static [&'static str]) -> Layer {
    Layer {
        house: LAB,
        ..layer(number, name, may)
    }
}

/// Rows for crates that do not exist yet are promises, not errors.
const TABLE: &[Layer] = &[
    layer(0, "dunlin-base", &[]),
    layer(1, "dunlin-mqtt-codec", &["dunlin-base"]),
    layer(1, "dunlin-amqp-codec", &["dunlin-base"]),
    layer(1, "dunlin-sasl", &["dunlin-base"]),
    mini(1, "dunlin-mini-crypto", &[]),
    layer(2, "dunlin-queue", &["dunlin-base"]),
    layer(
        2,
        "dunlin-mqtt",
        &[
            "dunlin-base",
            "dunlin-mqtt-codec",
            "dunlin-queue",
            "dunlin-sasl",
        ],
    ),
    layer(
        2,
        "dunlin-amqp",
        &["dunlin-base", "dunlin-amqp-codec", "dunlin-queue"],
    ),
    mini(2, "dunlin-quic-mini", &["dunlin-mini-crypto"]),
    layer(2, "dunlin-router", &["dunlin-base"]),
    layer(2, "dunlin-store", &["dunlin-base"]),
    layer(
        3,
        "dunlin-broker",
        &[
            "dunlin-base",
            "dunlin-mqtt",
            "dunlin-amqp",
            "dunlin-queue",
            "dunlin-router",
            "dunlin-sasl",
            "dunlin-store",
        ],
    ),
    mini(3, "dunlin-mqtt-mini", &["dunlin-quic-mini"]),
    mini(
        3,
        "dunlin-mini-device",
        &["dunlin-mini-crypto", "dunlin-mqtt-mini", "dunlin-quic-mini"],
    ),
    layer(4, "dunlin-quic", &["dunlin-base"]),
    layer(4, "dunlin-net", &["dunlin-base", "dunlin-quic"]),
    lab(4, "dunlin-link", &["dunlin-base"]),
    layer(4, "dunlin-store-redb", &["dunlin-base", "dunlin-store"]),
    layer(
        4,
        "dunlin-store-nats",
        &["dunlin-base", "dunlin-store", "dunlin-store-redb"],
    ),
    layer(4, "dunlin-bus", &["dunlin-base", "dunlin-store-nats"]),
    layer(
        4,
        "dunlin-sim",
        &[
            "dunlin-base",
            "dunlin-mqtt-codec",
            "dunlin-amqp-codec",
            "dunlin-mqtt",
            "dunlin-amqp",
            "dunlin-queue",
            "dunlin-router",
            "dunlin-sasl",
            "dunlin-store",
            "dunlin-broker",
        ],
    ),
    layer(5, "dunlin-dial", &["dunlin-base", "dunlin-net"]),
    layer(
        5,
        "dunlin-client",
        &["dunlin-base", "dunlin-mqtt", "dunlin-net", "dunlin-dial"],
    ),
    layer(
        5,
        "dunlin-amqp-client",
        &[
            "dunlin-base",
            "dunlin-sasl",
            "dunlin-amqp",
            "dunlin-net",
            "dunlin-dial",
        ],
    ),
    layer(
        5,
        "dunlin-socket",
        &["dunlin-base", "dunlin-net", "dunlin-dial"],
    ),
    layer(
        6,
        "dunlin-sink",
        &["dunlin-base", "dunlin-sasl", "dunlin-net", "dunlin-client"],
    ),
    mini(
        5,
        "dunlin-tiny",
        &["dunlin-mini-crypto", "dunlin-mqtt-mini", "dunlin-quic-mini"],
    ),
    mini(
        5,
        "dunlin-tiny-c",
        &["dunlin-mini-crypto", "dunlin-mqtt-mini", "dunlin-quic-mini"],
    ),
    layer(
        6,
        "dunlin",
        &[
            "dunlin-base",
            "dunlin-mqtt-codec",
            "dunlin-amqp-codec",
            "dunlin-mqtt",
            "dunlin-amqp",
            "dunlin-router",
            "dunlin-store",
            "dunlin-broker",
            "dunlin-bus",
            "dunlin-net",
            "dunlin-store-nats",
            "dunlin-store-redb",
            "dunlin-sim",
            "dunlin-dial",
            "dunlin-client",
            "dunlin-amqp-client",
            "dunlin-socket",
            "dunlin-sink",
        ],
    ),
    lab(6, "dunlin-lab", &["dunlin-link"]),
];

/// A crate from elsewhere that only some of ours may name.
struct Confined {
    name: &'static str,
    to: &'static [&'static str],
}

const CONFINED: &[Confined] = &[
    Confined {
        name: "quinn-proto",
        to: &["dunlin-quic", "dunlin-sim"],
    },
    Confined {
        name: "quinn-udp",
        to: &["dunlin-net"],
    },
    Confined {
        name: "quinn",
        to: &[],
    },
    Confined {
        name: "rustls",
        to: &["dunlin-quic", "dunlin-net"],
    },
    Confined {
        name: "mio",
        to: &["dunlin-net"],
    },
    Confined {
        name: "redb",
        to: &["dunlin-store-redb"],
    },
    Confined {
        name: "async-nats",
        to: &["dunlin-store-nats", "dunlin-bus"],
    },
    Confined {
        name: "smoltcp",
        to: &["dunlin-mini-device"],
    },
];

/// Foreign crates that may not be named below [`STD_LAYER`].
const ASYNC_RUNTIMES: [&str; 2] = ["tokio", "async-std"];

/// Crates that never name each other, not even in tests: only the broker
/// composes the protocols, through the neutral message.
const STRANGERS: [(&str, &str); 2] = [
    ("dunlin-mqtt", "dunlin-amqp"),
    ("dunlin-mqtt-codec", "dunlin-amqp-codec"),
];

/// Harness crate that the tests of every layer may use.
const HARNESS: &str = "dunlin-sim";

/// Holds the table for every crate of the three houses.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let renames = workspace_packages(tree);
    for (path, text) in tree.texts() {
        let Some((house, name)) = path
            .strip_suffix("/Cargo.toml")
            .and_then(|folder| folder.split_once('/'))
            .filter(|(house, name)| [CRATES, MINI, LAB].contains(house) && !name.contains('/'))
        else {
            continue;
        };
        check_manifest(path, name, text, &renames, &mut findings);
        if let Some(row) = row(name).filter(|row| row.house != house) {
            let advice = format!("`{name}` belongs into {}/", row.house);
            findings.push(Finding::new(path, 0, "layer", advice));
        }
        let named = format!("| `{name}` |");
        if tree.text(MAP).is_some_and(|map| !map.contains(&named)) {
            let advice = format!("give `{name}` a row in the map");
            findings.push(Finding::new(MAP, 0, "layer", advice));
        }
        if let Some(row) = row(name).filter(|row| row.number < STD_LAYER) {
            check_no_std(tree, row, &mut findings);
        }
    }
    findings
}

fn row(name: &str) -> Option<&'static Layer> {
    TABLE.iter().find(|row| row.name == name)
}

fn check_manifest(
    path: &str,
    name: &str,
    text: &str,
    renames: &Table,
    findings: &mut Vec<Finding>,
) {
    let mut report =
        |line, rule, advice: String| findings.push(Finding::new(path, line, rule, advice));
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            let advice = format!("write valid TOML: {}", error.message());
            return report(0, "layer", advice);
        }
    };
    let package = manifest.get("package").and_then(|p| p.get("name"));
    if package.and_then(Value::as_str) != Some(name) {
        report(0, "layer", "name the package like its folder".to_owned());
    }
    let Some(row) = row(name) else {
        let advice = format!("give `{name}` a row in xtask/src/tidy/layers.rs");
        return report(0, "layer", advice);
    };
    for dependency in dependencies(&manifest, renames) {
        if let Some(advice) = refuse(row, &dependency) {
            report(line_of_key(text, &dependency.key), "layer", advice);
        }
    }
}

/// Why a crate may not have this dependency.
fn refuse(row: &Layer, dependency: &Dependency) -> Option<String> {
    let Layer {
        number, name, may, ..
    } = row;
    let package = dependency.package.as_str();
    let strangers = STRANGERS
        .iter()
        .any(|(a, b)| (*name == *a && package == *b) || (*name == *b && package == *a));
    if strangers {
        return Some(format!(
            "`{name}` and `{package}` never name each other; compose them in dunlin-broker"
        ));
    }
    if package == *name {
        return None;
    }
    if let Some(other) = TABLE.iter().find(|row| row.name == package) {
        let fits = match (row.house, other.house) {
            (LAB, CRATES) => true,
            (MINI, CRATES) => dependency.dev,
            (from, to) => from == to,
        };
        if !fits {
            return Some(format!(
                "`{name}` of {}/ may not depend on `{package}` of {}/",
                row.house, other.house
            ));
        }
        let allowed = if dependency.dev {
            other.number <= *number || package == HARNESS
        } else {
            may.contains(&package)
        };
        return (!allowed).then(|| {
            format!(
                "layer {number} `{name}` may not depend on layer {} `{package}`",
                other.number
            )
        });
    }
    if dependency.dev && *number >= STD_LAYER {
        return None;
    }
    if let Some(confined) = CONFINED.iter().find(|c| c.name == package)
        && !confined.to.contains(name)
    {
        let to = match confined.to {
            [] => "no crate here".to_owned(),
            to => to.join(" and "),
        };
        return Some(format!("`{package}` stops at {to}; ask for values instead"));
    }
    if ASYNC_RUNTIMES.contains(&package) && *number < STD_LAYER {
        return Some(format!(
            "`{package}` is not for layers below {STD_LAYER}; engines do no I/O"
        ));
    }
    None
}

/// A dependency as a manifest names it.
struct Dependency {
    key: String,
    package: String,
    dev: bool,
}

/// Dependencies of all kinds, those for one target included.
fn dependencies(manifest: &Table, renames: &Table) -> Vec<Dependency> {
    let mut found = Vec::new();
    collect(manifest, renames, &mut found);
    let targets = manifest.get("target").and_then(Value::as_table);
    for target in targets.into_iter().flat_map(Table::values) {
        if let Some(table) = target.as_table() {
            collect(table, renames, &mut found);
        }
    }
    found
}

fn collect(table: &Table, renames: &Table, found: &mut Vec<Dependency>) {
    for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
        let Some(entries) = table.get(kind).and_then(Value::as_table) else {
            continue;
        };
        for (key, value) in entries {
            let own = value.get("package").and_then(Value::as_str);
            let inherited = renames.get(key).and_then(Value::as_str);
            found.push(Dependency {
                key: key.clone(),
                package: own.or(inherited).unwrap_or(key).to_owned(),
                dev: kind == "dev-dependencies",
            });
        }
    }
}

/// Names under which the root manifest hides other packages.
fn workspace_packages(tree: &Tree) -> Table {
    let root = tree.text("Cargo.toml").unwrap_or_default();
    let root: Table = root.parse().unwrap_or_default();
    let shared = root
        .get("workspace")
        .and_then(|w| w.get("dependencies"))
        .and_then(Value::as_table);
    let entries = shared.into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.get("package")?.clone())))
        .collect()
}

fn line_of_key(text: &str, key: &str) -> usize {
    let starts = |line: &str| {
        let rest = line.trim_start().trim_start_matches('"').strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with(['=', '.', '"']))
            || line.trim_end().ends_with(&format!("dependencies.{key}]"))
    };
    text.lines().position(starts).map_or(0, |index| index + 1)
}

/// Below the first layer with a standard library, the compiler itself refuses
/// clocks, sockets, threads and files, as long as it is not let back in.
fn check_no_std(tree: &Tree, row: &Layer, findings: &mut Vec<Finding>) {
    let folder = format!("{}/{}/src/", row.house, row.name);
    let root = format!("{folder}lib.rs");
    let root_code = tree
        .text(&root)
        .map(|text| Source::new(text).code().to_owned());
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        let there = root_code
            .as_ref()
            .is_some_and(|code| code.lines().any(|line| line.trim() == attribute));
        if !there {
            let advice = format!(
                "write `{attribute}` at the top of a layer {} crate",
                row.number
            );
            findings.push(Finding::new(&root, 0, "no-std", advice));
        }
    }
    for (path, text) in tree.rust().filter(|(path, _)| path.starts_with(&folder)) {
        let source = Source::new(text);
        for (at, _) in source.code().match_indices("extern crate std") {
            if !source.is_test(at) {
                let advice = "put `extern crate std` behind `#[cfg(test)]`";
                findings.push(Finding::new(path, source.line_of(at), "no-std", advice));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "//! x\n#![no_std]\n#![forbid(unsafe_code)]\n";

    /// Findings for one crate with this manifest tail and library.
    fn findings(name: &str, tail: &str, lib: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"{name}\"\n{tail}");
        let house = row(name).map_or(CRATES, |row| row.house);
        let tree = Tree::of(&[
            (
                "Cargo.toml",
                "[workspace.dependencies]\nquic = { package = \"quinn-proto\", version = \"0\" }\n",
            ),
            (&format!("{house}/{name}/Cargo.toml"), &manifest),
            (&format!("{house}/{name}/src/lib.rs"), lib),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_of_the_table_are_held() {
        let cases = [
            ("dunlin-base", "[dependencies]\nbytes = \"1\"\n", None),
            ("dunlin-mqtt", "[dependencies]\ndunlin-base = {}\n", None),
            (
                "dunlin-mqtt",
                "[dependencies]\ndunlin-router = {}\n",
                Some("Cargo.toml:4: layer: layer 2 `dunlin-mqtt` may not depend on layer 2"),
            ),
            (
                "dunlin-mqtt",
                "[build-dependencies]\ndunlin-store.workspace = true\n",
                Some("Cargo.toml:4: layer: layer 2 `dunlin-mqtt` may not depend on layer 2"),
            ),
            ("dunlin-mqtt", "[dev-dependencies]\ndunlin-sim = {}\n", None),
            (
                "dunlin-mqtt",
                "[dev-dependencies]\ndunlin-amqp = {}\n",
                Some("never name each other"),
            ),
            (
                "dunlin-sim",
                "[dev-dependencies]\ndunlin-quic-mini = {}\n",
                Some("`dunlin-sim` of crates/ may not depend on `dunlin-quic-mini` of mini/"),
            ),
            ("dunlin-lab", "[dependencies]\ndunlin-link = {}\n", None),
            (
                "dunlin-lab",
                "[dependencies]\ndunlin-client = {}\n",
                Some("layer 6 `dunlin-lab` may not depend on layer 5 `dunlin-client`"),
            ),
            ("dunlin-tiny", "[dev-dependencies]\ndunlin-net = {}\n", None),
            (
                "dunlin-tiny",
                "[dependencies]\ndunlin-net = {}\n",
                Some("`dunlin-tiny` of mini/ may not depend on `dunlin-net` of crates/"),
            ),
            (
                "dunlin-store",
                "[dev-dependencies]\ndunlin-net = {}\n",
                Some("may not depend on layer 4 `dunlin-net`"),
            ),
            (
                "dunlin-broker",
                "[dependencies]\nquic.workspace = true\n",
                Some("`quinn-proto` stops at dunlin-quic and dunlin-sim"),
            ),
            (
                "dunlin-client",
                "[target.'cfg(unix)'.dependencies]\nmio = {}\n",
                Some("`mio` stops at dunlin-net"),
            ),
            ("dunlin-client", "[dev-dependencies]\nrustls = {}\n", None),
            (
                "dunlin-router",
                "[dev-dependencies]\ntokio = {}\n",
                Some("`tokio` is not for layers below 4"),
            ),
            (
                "dunlin-new",
                "",
                Some("give `dunlin-new` a row in xtask/src/tidy/layers.rs"),
            ),
        ];
        for (name, tail, want) in cases {
            let got = findings(name, tail, LIB);
            match want {
                None => assert!(got.is_empty(), "{name} {tail}: {got:?}"),
                Some(want) => {
                    assert_eq!(got.len(), 1, "{name} {tail}: {got:?}");
                    assert!(got[0].contains(want), "{name} {tail}: {got:?}");
                }
            }
        }
    }

    #[test]
    fn a_crate_is_in_its_house() {
        let manifest = "[package]\nname = \"dunlin-lab\"\n";
        let found = check(&Tree::of(&[("crates/dunlin-lab/Cargo.toml", manifest)]));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["crates/dunlin-lab/Cargo.toml:0: layer: `dunlin-lab` belongs into lab/"]
        );
    }

    #[test]
    fn the_map_shows_every_crate() {
        let manifest = "[package]\nname = \"dunlin-net\"\n";
        let files = |map| {
            let tree = Tree::of(&[(MAP, map), ("crates/dunlin-net/Cargo.toml", manifest)]);
            check(&tree).len()
        };
        assert_eq!(files("| 4 | `dunlin-net` | sockets |"), 0);
        assert_eq!(files("| 4 | `dunlin-new` | sockets |"), 1);
    }

    #[test]
    fn low_layers_stay_without_std() {
        assert!(findings("dunlin-base", "", LIB).is_empty());
        assert!(findings("dunlin-net", "", "//! x\n").is_empty());
        assert_eq!(findings("dunlin-base", "", "//! x\n").len(), 2);
        let commented = "//! x\n// #![no_std]\n#![forbid(unsafe_code)]\n";
        assert_eq!(findings("dunlin-base", "", commented).len(), 1);
        let test_only = format!("{LIB}#[cfg(test)]\nextern crate std;\n");
        assert!(findings("dunlin-base", "", &test_only).is_empty());
        let let_in = format!("{LIB}extern crate std;\n");
        assert_eq!(
            findings("dunlin-base", "", &let_in),
            [
                "crates/dunlin-base/src/lib.rs:4: no-std: put `extern crate std` behind `#[cfg(test)]`"
            ]
        );
    }
}
