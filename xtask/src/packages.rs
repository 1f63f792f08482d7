//! The packages of the repository: every folder with a `Cargo.toml` that names
//! one, whether the workspace builds it or not.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::source::Source;
use crate::testcode::test_files;
use crate::tree::Tree;

/// A Rust file that is not a test.
#[derive(Clone, Debug)]
pub(crate) struct CodeFile<'a> {
    /// Path from the root of the repository.
    pub(crate) path: &'a str,
    /// Its text.
    pub(crate) text: &'a str,
    /// The text as the rules see it.
    pub(crate) source: Source,
}

/// A package and its Rust files.
#[derive(Clone, Debug)]
pub(crate) struct Package<'a> {
    /// Name in its manifest.
    pub(crate) name: String,
    /// Folder of the manifest, with a slash at the end.
    pub(crate) folder: String,
    /// What is compiled into its libraries and programs: the files under
    /// `src/` that are not tests.
    pub(crate) code: Vec<CodeFile<'a>>,
    /// Lines of all its other Rust, test modules in the files above included.
    pub(crate) other_lines: usize,
}

/// Every package, by name.
pub(crate) fn packages(tree: &Tree) -> Vec<Package<'_>> {
    let mut by_folder: BTreeMap<&str, Package<'_>> = BTreeMap::new();
    for (path, text) in tree.texts() {
        let Some(folder) = path.strip_suffix("Cargo.toml") else {
            continue;
        };
        if let Some(name) = name_in(text) {
            let package = Package {
                name,
                folder: folder.to_owned(),
                code: Vec::new(),
                other_lines: 0,
            };
            by_folder.insert(folder, package);
        }
    }
    let tests = test_files(tree);
    for (path, text) in tree.rust() {
        let Some(folder) = nearest(&by_folder, path) else {
            continue;
        };
        let Some(package) = by_folder.get_mut(folder) else {
            continue;
        };
        let all = text.lines().count();
        let inside = path.strip_prefix(folder).unwrap_or(path);
        if tests.contains(path) || !inside.starts_with("src/") {
            package.other_lines += all;
            continue;
        }
        let source = Source::new(text);
        package.other_lines += all.saturating_sub(source.lines());
        package.code.push(CodeFile { path, text, source });
    }
    let mut packages: Vec<Package<'_>> = by_folder.into_values().collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    packages
}

/// Name of the package that a file belongs to.
pub(crate) fn owner<'a>(packages: &'a [Package<'_>], path: &str) -> Option<&'a str> {
    let owners = packages.iter().filter(|p| path.starts_with(&p.folder));
    owners
        .max_by_key(|p| p.folder.len())
        .map(|p| p.name.as_str())
}

fn nearest<'a>(by_folder: &BTreeMap<&'a str, Package<'_>>, path: &str) -> Option<&'a str> {
    let folders = by_folder.keys().filter(|folder| path.starts_with(**folder));
    folders.max_by_key(|folder| folder.len()).copied()
}

fn name_in(manifest: &str) -> Option<String> {
    let manifest: Table = manifest.parse().ok()?;
    let name = manifest
        .get("package")?
        .get("name")
        .and_then(Value::as_str)?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_nearest_package() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\n"),
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("a/src/lib.rs", "//! x\n#[cfg(test)]\nmod tests {}\n"),
            ("a/tests/it.rs", "//! x\n\n"),
            ("a/b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("a/b/src/lib.rs", "//! x\n"),
            ("c.rs", "//! x\n"),
        ]);
        let packages = packages(&tree);
        let got: Vec<(&str, usize, usize)> = packages
            .iter()
            .map(|p| (p.name.as_str(), p.code.len(), p.other_lines))
            .collect();
        assert_eq!(got, [("a", 1, 4), ("b", 1, 0)]);
        assert_eq!(owner(&packages, "a/b/src/lib.rs"), Some("b"));
        assert_eq!(owner(&packages, "c.rs"), None);
    }
}
