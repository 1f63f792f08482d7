//! Sees to it that namespaces go when their maker does.
//!
//! The maker of a link holds a lock on a file named after it. A process that can take
//! that lock knows that the maker is gone: a watcher process that waits for
//! it, or [`clean`].

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::namespace::{NAMES, Namespace};

/// Where the lock files are.
const FOLDER: &str = "/run/dunlin-lab";

/// What the names of namespaces start with.
const PREFIX: &str = "dunlin-";

/// The claim on a link's name.
#[derive(Debug)]
pub(super) struct Claim {
    name: String,
    /// Locked as long as it is open.
    _file: File,
}

impl Claim {
    /// Claims a name, and removes what a dead claimant left.
    pub(super) fn take(name: &str) -> io::Result<Self> {
        fs::create_dir_all(FOLDER)?;
        let file = open(name)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    format!("a link named {name} is running"),
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        remove_namespaces(name);
        Ok(Self {
            name: name.to_owned(),
            _file: file,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        remove_namespaces(&self.name);
        // Before the lock goes, so that no other claimant loses its file.
        let _ = fs::remove_file(path(&self.name));
    }
}

/// What [`clean`] found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Cleaned {
    /// Namespaces that were removed.
    pub removed: Vec<String>,
    /// Links that are running.
    pub running: Vec<String>,
}

/// Removes the namespaces of links whose makers are gone: of those with these
/// names, or of all if none is given.
///
/// # Errors
/// When the names cannot be listed.
pub fn clean(only: &[String]) -> io::Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    for name in links()? {
        if !only.is_empty() && !only.contains(&name) {
            continue;
        }
        match open(&name).map(|file| file.try_lock().map(|()| file)) {
            Ok(Ok(_locked)) => {
                cleaned.removed.extend(remove_namespaces(&name));
                let _ = fs::remove_file(path(&name));
            }
            _ => cleaned.running.push(name),
        }
    }
    Ok(cleaned)
}

/// Waits until the maker of a link is gone, then removes what it left. For a
/// process of its own, that does not disturb when its maker is killed.
///
/// # Errors
/// When the lock file cannot be opened or locked.
pub fn watch(name: &str) -> io::Result<()> {
    let path = path(name);
    // The link may have ended before the watcher came this far.
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    file.lock()?;
    // A new link of that name has a new file.
    if is_at(&file, &path) {
        remove_namespaces(name);
        let _ = fs::remove_file(&path);
    }
    Ok(())
}

/// The namespace of a host. Names of hosts have no dashes, so that this can be
/// taken apart again.
pub(super) fn namespace_name(link: &str, host: &str) -> String {
    format!("{PREFIX}{link}-{host}")
}

/// The link and the host of a namespace, if it is one of ours.
fn parts(namespace: &str) -> Option<(&str, &str)> {
    namespace.strip_prefix(PREFIX)?.rsplit_once('-')
}

fn open(name: &str) -> io::Result<File> {
    fs::create_dir_all(FOLDER)?;
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path(name))
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Links that have a lock file or a namespace.
fn links() -> io::Result<Vec<String>> {
    let mut names: Vec<String> = files(Path::new(FOLDER))?;
    for namespace in files(Path::new(NAMES))? {
        names.extend(parts(&namespace).map(|(link, _)| link.to_owned()));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn files(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn remove_namespaces(link: &str) -> Vec<String> {
    let mut removed = Vec::new();
    // Where there are no names, there is nothing to remove.
    for name in files(Path::new(NAMES)).unwrap_or_default() {
        let ours = parts(&name).is_some_and(|(of, _)| of == link);
        if ours && Namespace::existing(&name).delete().is_ok() {
            removed.push(name);
        }
    }
    removed.sort();
    removed
}
