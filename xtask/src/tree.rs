//! The files of the repository in memory, so that every rule can be tested
//! on a tree written in a few lines and none of them touches a disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// Files larger than this are not read; the size rule refuses them anyway.
const READ_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Folders that are skipped when git cannot say what belongs to the
/// repository.
const SKIPPED: [&str; 5] = [".git", ".venv", "target", "node_modules", "dunlin-data"];

/// One file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// Its size.
    pub(crate) bytes: u64,
    /// Its text; `None` when it is not UTF-8.
    pub(crate) text: Option<String>,
}

/// The files that belong to the repository, by path from its root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, File>,
}

impl Tree {
    /// The repository that this tool was built from.
    pub(crate) fn root() -> PathBuf {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        manifest.parent().unwrap_or(manifest).to_path_buf()
    }

    /// Reads the files under `root` that git tracks or would track; all of
    /// them when there is no git.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let paths = match git_files(root) {
            Some(paths) => paths,
            None => walk(root)?,
        };
        let mut files = BTreeMap::new();
        for path in paths {
            let full = root.join(&path);
            let Ok(meta) = fs::symlink_metadata(&full) else {
                continue;
            };
            if !meta.is_file() {
                continue;
            }
            let text = if meta.len() <= READ_BYTES_MAX {
                let bytes = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
                String::from_utf8(bytes).ok()
            } else {
                None
            };
            let bytes = meta.len();
            files.insert(path, File { bytes, text });
        }
        Ok(Self { files })
    }

    /// A tree from paths and texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |text: &str| File {
            bytes: text.len() as u64,
            text: Some(text.to_owned()),
        };
        Self {
            files: files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), file(text)))
                .collect(),
        }
    }

    /// Every file.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// Every text file.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files()
            .filter_map(|(path, file)| Some((path, file.text.as_deref()?)))
    }

    /// Every Rust file.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts()
            .filter(|(path, _)| has_extension(path, &["rs"]))
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    /// Whether a file or a folder has this path.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(first, _)| first.starts_with(&folder))
    }
}

/// Whether a path ends in one of these extensions.
pub(crate) fn has_extension(path: &str, wanted: &[&str]) -> bool {
    let extension = Path::new(path).extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| wanted.contains(&e))
}

fn git_files(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others"])
        .arg("--exclude-standard")
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let list = String::from_utf8(output.stdout).ok()?;
    let paths = list.split('\0').filter(|path| !path.is_empty());
    Some(paths.map(str::to_owned).collect())
}

fn walk(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = folder.join(&name);
            if entry.file_type()?.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if let Some(path) = path.to_str() {
                paths.push(path.to_owned());
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_exist() {
        let tree = Tree::of(&[("docs/a.md", ""), ("docs-b", "")]);
        for (path, want) in [
            ("docs/a.md", true),
            ("docs", true),
            ("docs/", true),
            ("doc", false),
            ("docs/b.md", false),
            ("", true),
        ] {
            assert_eq!(tree.exists(path), want, "{path:?}");
        }
    }

    #[test]
    fn this_repository_is_found() {
        let tree = Tree::load(&Tree::root()).expect("readable");
        assert!(tree.text("Cargo.toml").is_some());
        assert!(tree.rust().any(|(path, _)| path == "xtask/src/tree.rs"));
    }
}
