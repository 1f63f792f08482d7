//! Every manifest can be read, also those of packages outside the workspace,
//! which no build of the workspace looks at. Those of packages that are published
//! say what a registry shows of them, and the Helm chart is of the same version.

use toml::{Table, Value};

use crate::finding::Finding;
use crate::tree::Tree;

/// What a registry takes of keywords and of categories.
const WORDS_MAX: usize = 5;

/// Longest keyword.
const KEYWORD_BYTES_MAX: usize = 20;

/// Categories that registries know and crates here use: an unknown one is refused late.
const CATEGORIES: [&str; 13] = [
    "asynchronous",
    "authentication",
    "command-line-utilities",
    "cryptography",
    "data-structures",
    "database",
    "development-tools::testing",
    "embedded",
    "encoding",
    "network-programming",
    "no-std",
    "no-std::no-alloc",
    "simulation",
];

/// Published packages whose manifests do not have keywords and categories yet.
const WITHOUT: [&str; 3] = [
    "crates/dunlin-quic/Cargo.toml",
    "crates/dunlin-sink/Cargo.toml",
    "crates/dunlin-store-nats/Cargo.toml",
];

/// The Helm chart's own manifest.
const CHART: &str = "packaging/helm/dunlin/Chart.yaml";

/// Holds the rules for every `Cargo.toml`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree
        .texts()
        .filter(|(path, _)| path.rsplit('/').next() == Some("Cargo.toml"));
    let mut findings = Vec::new();
    for (path, text) in manifests {
        let mut wrong = |line, advice| {
            findings.push(Finding::new(path, line, "manifest", advice));
        };
        match text.parse::<Table>() {
            Ok(manifest) => {
                let shown = shown(&manifest).err();
                match (shown, WITHOUT.contains(&path)) {
                    (Some(advice), false) => wrong(1, advice),
                    (None, true) => wrong(1, "strike it from the list in xtask".to_owned()),
                    _ => {}
                }
            }
            Err(error) => {
                let before = error.span().map_or(0, |span| span.start);
                let line = text.get(..before).unwrap_or_default().lines().count();
                wrong(line.max(1), error.message().to_owned());
            }
        }
    }
    findings.extend(chart(tree));
    findings
}

/// What a registry shows of a package of the workspace, if it is published.
fn shown(manifest: &Table) -> Result<(), String> {
    let Some(package) = manifest.get("package").and_then(Value::as_table) else {
        return Ok(());
    };
    let is_ours = package.get("version").is_some_and(Value::is_table);
    if !is_ours || package.get("publish").and_then(Value::as_bool) == Some(false) {
        return Ok(());
    }
    let description = package.get("description").and_then(Value::as_str);
    if description.is_none_or(str::is_empty) {
        return Err("a package that is published has a `description`".to_owned());
    }
    let keywords = words(package, "keywords")?;
    let is_long = |word: &&&str| word.len() > KEYWORD_BYTES_MAX;
    if let Some(long) = keywords.iter().find(is_long) {
        return Err(format!("keyword `{long}` is too long for a registry"));
    }
    let categories = words(package, "categories")?;
    match categories.iter().find(|it| !CATEGORIES.contains(it)) {
        Some(other) => Err(format!(
            "`{other}` is not in the list of categories in xtask"
        )),
        None => Ok(()),
    }
}

fn words<'a>(package: &'a Table, key: &str) -> Result<Vec<&'a str>, String> {
    let words = package.get(key).and_then(Value::as_array);
    let words: Vec<_> = words
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    match words.len() {
        1..=WORDS_MAX => Ok(words),
        _ => Err(format!(
            "a package that is published has 1 to {WORDS_MAX} `{key}`"
        )),
    }
}

/// The chart starts the image of this version.
fn chart(tree: &Tree) -> Option<Finding> {
    let manifest = tree.text("Cargo.toml")?.parse::<Table>().ok()?;
    let version = manifest.get("workspace")?.get("package")?.get("version")?;
    let version = version.as_str()?;
    let lines = tree.text(CHART)?.lines().zip(1..);
    let mut lines =
        lines.filter_map(|(text, line)| Some((text.strip_prefix("appVersion: ")?, line)));
    let (said, line) = lines.next()?;
    let advice = format!("appVersion is {said}, the workspace has {version}");
    (said != version).then(|| Finding::new(CHART, line, "manifest", advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_twice_is_found() {
        let tree = Tree::of(&[
            ("fuzz/Cargo.toml", "[dependencies]\na = \"1\"\na = \"2\"\n"),
            ("crates/a/Cargo.toml", "[dependencies]\na = \"1\"\n"),
            ("notes.toml", "a = 1\na = 2\n"),
        ]);
        let found = check(&tree);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("fuzz/Cargo.toml:"), "{found:?}");
    }

    #[test]
    fn what_is_published_says_what_it_is() {
        let head = "[package]\nname = \"a\"\nversion.workspace = true\n";
        let about = "description = \"A\"\nkeywords = [\"mqtt\"]\n";
        for (text, said) in [
            (
                "[package]\nname = \"a\"\nversion = \"0.0.0\"\n".to_owned(),
                None,
            ),
            (format!("{head}publish = false\n"), None),
            (head.to_owned(), Some("has a `description`")),
            (
                format!("{head}description = \"A\"\n"),
                Some("has 1 to 5 `keywords`"),
            ),
            (format!("{head}{about}"), Some("has 1 to 5 `categories`")),
            (
                format!("{head}{about}categories = [\"iot\"]\n"),
                Some("`iot` is not in the list"),
            ),
            (format!("{head}{about}categories = [\"embedded\"]\n"), None),
        ] {
            let found = check(&Tree::of(&[("crates/a/Cargo.toml", &text)]));
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            match said {
                Some(said) => assert!(found.len() == 1 && found[0].contains(said), "{found:?}"),
                None => assert!(found.is_empty(), "{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_chart_is_of_the_version_of_the_workspace() {
        let manifest = "[workspace.package]\nversion = \"0.1.0\"\n";
        for (version, findings) in [("0.1.0", 0), ("0.2.0", 1)] {
            let chart = format!("version: 0.3.0\nappVersion: {version}\n");
            let tree = Tree::of(&[("Cargo.toml", manifest), (CHART, &chart)]);
            assert_eq!(check(&tree).len(), findings, "{version}");
        }
    }
}
