//! What the product is built from: `cargo xtask supply` holds the dependencies to
//! deny.toml, as far as cargo's own data goes; `cargo xtask sbom` lists them in
//! the form CycloneDX 1.5. Advisories need `cargo deny`: see `make supply-chain`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use toml::Table;

use crate::tree::Tree;

/// The program that the list is of.
const PRODUCT: &str = "dunlin";

/// Where the list goes, below the target folder.
const SBOM: &str = "dunlin.cdx.json";

/// Checks licences, sources and versions that are there twice.
///
/// # Errors
/// Cargo or deny.toml says nothing that can be read.
pub(crate) fn check() -> Result<bool> {
    let metadata = metadata()?;
    let text = fs::read_to_string(Tree::root().join("deny.toml")).context("deny.toml")?;
    let rules: Table = text.parse().context("deny.toml")?;
    let findings = findings(&metadata, &rules);
    for finding in &findings {
        println!("{finding}");
    }
    let packages = packages(&metadata).count();
    println!("supply: {packages} packages, {} findings", findings.len());
    Ok(findings.is_empty())
}

/// Writes the list of components.
///
/// # Errors
/// Cargo says nothing that can be read, or the file cannot be written.
pub(crate) fn sbom() -> Result<bool> {
    let metadata = metadata()?;
    let root = Tree::root();
    let lock: Table = fs::read_to_string(root.join("Cargo.lock"))?.parse()?;
    let target = metadata["target_directory"].as_str().unwrap_or("target");
    let path = std::path::Path::new(target).join(SBOM);
    let list = bill(&metadata, &checksums(&lock)).context("cargo names no such package")?;
    fs::write(&path, serde_json::to_string_pretty(&list)? + "\n")?;
    let components = list["components"].as_array().map_or(0, Vec::len);
    println!("sbom: {components} components in {}", path.display());
    Ok(true)
}

fn metadata() -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version=1"])
        .current_dir(Tree::root())
        .output()?;
    ensure!(output.status.success(), "cargo metadata failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn findings(metadata: &Value, rules: &Table) -> Vec<String> {
    let list = |section: &str, key: &str| -> BTreeSet<&str> {
        let values = rules.get(section).and_then(|s| s.get(key));
        let values = values.and_then(toml::Value::as_array);
        let name = |value: &'_ toml::Value| value.get("crate").unwrap_or(value).as_str().is_some();
        let values = values.into_iter().flatten().filter(|v| name(v));
        values
            .filter_map(|value| value.get("crate").unwrap_or(value).as_str())
            .collect()
    };
    let allowed = list("licenses", "allow");
    let excepted = list("licenses", "exceptions");
    let skipped = list("bans", "skip");
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages(metadata) {
        let (name, version) = (text(package, "name"), text(package, "version"));
        versions.entry(name).or_default().push(version);
        let license = text(package, "license");
        if !excepted.contains(name) && !is_allowed(license, &allowed) {
            found.push(format!("{name} {version}: licence `{license}`"));
        }
        let source = text(package, "source");
        if !source.is_empty() && !source.starts_with("registry+") {
            found.push(format!("{name} {version}: source `{source}`"));
        }
    }
    for (name, versions) in versions {
        let new = versions.iter().filter(|version| {
            let release = version.split('+').next().unwrap_or_default();
            let exact = format!("{name}@{release}");
            !skipped.contains(exact.as_str()) && !skipped.contains(name)
        });
        if versions.len() > 1 && new.count() > 1 {
            found.push(format!("{name}: versions {}", versions.join(", ")));
        }
    }
    found
}

/// Whether a licence expression can be kept with the licences allowed.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    any(&mut words, allowed) && words.is_empty()
}

/// `words` are in reverse.
fn any(words: &mut Vec<&str>, allowed: &BTreeSet<&str>) -> bool {
    let mut holds = all(words, allowed);
    while words.last() == Some(&"OR") {
        words.pop();
        holds |= all(words, allowed);
    }
    holds
}

fn all(words: &mut Vec<&str>, allowed: &BTreeSet<&str>) -> bool {
    let mut holds = one(words, allowed);
    while words.last() == Some(&"AND") {
        words.pop();
        holds &= one(words, allowed);
    }
    holds
}

fn one(words: &mut Vec<&str>, allowed: &BTreeSet<&str>) -> bool {
    match words.pop() {
        Some("(") => {
            let holds = any(words, allowed);
            words.pop() == Some(")") && holds
        }
        Some(license) if words.last() == Some(&"WITH") => {
            words.pop();
            let exception = words.pop().unwrap_or_default();
            allowed.contains(format!("{license} WITH {exception}").as_str())
        }
        license => license.is_some_and(|license| allowed.contains(license)),
    }
}

/// SHA-256 of the packages that come from a registry, by name and version.
fn checksums(lock: &Table) -> BTreeMap<(String, String), String> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let entry = |package: &toml::Value| {
        let text = |key| Some(package.get(key)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    packages.into_iter().flatten().filter_map(entry).collect()
}

/// The components that the product is linked from, for all systems.
fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Option<Value> {
    let by_id: BTreeMap<&str, &Value> = packages(metadata).map(|p| (text(p, "id"), p)).collect();
    let product = *by_id.iter().find(|(_, p)| text(p, "name") == PRODUCT)?.0;
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let nodes: BTreeMap<&str, &Value> = nodes.iter().map(|n| (text(n, "id"), n)).collect();
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut open = vec![product];
    while let Some(id) = open.pop() {
        if edges.contains_key(id) {
            continue;
        }
        let needed: BTreeSet<&str> = nodes
            .get(id)
            .into_iter()
            .flat_map(|node| node["deps"].as_array().into_iter().flatten())
            .filter(|dep| {
                let kinds = dep["dep_kinds"].as_array();
                kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
            })
            .map(|dep| text(dep, "pkg"))
            .collect();
        open.extend(&needed);
        edges.insert(id, needed);
    }
    let purl = |id: &str| {
        let package = by_id.get(id)?;
        let (name, version) = (text(package, "name"), text(package, "version"));
        Some(format!("pkg:cargo/{name}@{version}"))
    };
    let component = |id: &str| {
        let package = by_id.get(id)?;
        let (name, version) = (text(package, "name"), text(package, "version"));
        let mut component = json!({
            "type": if id == product { "application" } else { "library" },
            "bom-ref": purl(id)?,
            "name": name,
            "version": version,
            "purl": purl(id)?,
            "licenses": [{ "expression": text(package, "license").replace('/', " OR ") }],
        });
        if let Some(sha256) = checksums.get(&(name.to_owned(), version.to_owned())) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
        }
        Some(component)
    };
    let others = edges.keys().filter(|id| **id != product);
    let mut components: Vec<Value> = others.filter_map(|id| component(id)).collect();
    components.sort_by_key(|component| text(component, "purl").to_owned());
    let mut dependencies: Vec<Value> = edges
        .iter()
        .filter_map(|(id, needed)| {
            let needed: BTreeSet<String> = needed.iter().filter_map(|id| purl(id)).collect();
            Some(json!({ "ref": purl(id)?, "dependsOn": needed }))
        })
        .collect();
    dependencies.sort_by_key(|dependency| text(dependency, "ref").to_owned());
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(product)? },
        "components": components,
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_expressions() {
        let allowed = BTreeSet::from(["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"]);
        for (expression, want) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("", false),
            ("MIT/GPL-3.0", true),
            ("GPL-3.0 OR MIT", true),
            ("ISC AND (GPL-3.0 OR MIT)", true),
            ("ISC AND GPL-3.0", false),
            ("(MIT OR ISC) AND GPL-3.0", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("Apache-2.0", false),
            ("MIT )", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), want, "{expression}");
        }
    }

    fn package(name: &str, version: &str, source: &str) -> Value {
        json!({
            "id": format!("{name}@{version}"), "name": name, "version": version,
            "license": "MIT", "source": source,
        })
    }

    #[test]
    fn duplicates_and_sources_are_found() {
        let metadata = json!({ "packages": [
            package("a", "1.0.0", "registry+x"),
            package("a", "2.0.0", "registry+x"),
            package("b", "1.0.0", "git+x"),
        ]});
        let rules = |text: &str| text.parse::<Table>().expect("TOML");
        let strict = rules("[licenses]\nallow = [\"MIT\"]\n");
        let got = findings(&metadata, &strict);
        assert_eq!(got, ["b 1.0.0: source `git+x`", "a: versions 1.0.0, 2.0.0"]);
        let skip = "[licenses]\nallow = [\"MIT\"]\n[bans]\nskip = [{ crate = \"a@1.0.0\" }]\n";
        assert_eq!(findings(&metadata, &rules(skip)).len(), 1);
    }

    #[test]
    fn the_bill_has_what_is_linked() {
        let dep = |pkg: &str, kind: Option<&str>| json!({ "pkg": format!("{pkg}@1.0.0"), "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("dunlin", "1.0.0", ""),
                package("a", "1.0.0", "registry+x"),
                package("b", "1.0.0", "registry+x"),
            ],
            "resolve": { "nodes": [
                { "id": "dunlin@1.0.0", "deps": [dep("a", None), dep("b", Some("dev"))] },
                { "id": "a@1.0.0", "deps": [] },
            ]},
        });
        let key = ("a".to_owned(), "1.0.0".to_owned());
        let bill = bill(&metadata, &BTreeMap::from([(key, "00ff".to_owned())]));
        let bill = bill.expect("a product");
        assert_eq!(bill["metadata"]["component"]["name"], "dunlin");
        assert_eq!(bill["components"].as_array().map(Vec::len), Some(1));
        assert_eq!(bill["components"][0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "00ff");
        assert_eq!(bill["dependencies"][1]["dependsOn"][0], "pkg:cargo/a@1.0.0");
    }
}
