//! Files that must never be seen half written or by strangers: keys and
//! password hashes. Knows nothing of what is in them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its owner only.
    Private,
    /// Everybody whom the umask allows.
    Public,
}

/// Replaces `path` in one step: after a crash it holds either the old contents
/// or the new.
///
/// # Errors
/// What the operating system says.
pub fn replace(path: &Path, contents: &[u8], access: Access) -> io::Result<()> {
    let temporary = temporary(path)?;
    let result = write(&temporary, contents, access).and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        // The first error is the one worth reporting.
        let _ = fs::remove_file(&temporary);
        return result;
    }
    sync_directory(path)
}

/// Creates `path`, which must not exist.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or what the operating system says.
pub fn create(path: &Path, contents: &[u8], access: Access) -> io::Result<()> {
    if path.try_exists()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    replace(path, contents, access)
}

/// A name in the same directory, so that renaming does not copy.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("not the name of a file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.new", std::process::id()));
    Ok(path.with_file_name(hidden))
}

fn write(path: &Path, contents: &[u8], access: Access) -> io::Result<()> {
    // Left over from a process that died with this number; it may be readable
    // by others, so it is not written into.
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    restrict(&mut options, access);
    let mut file = options.open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

#[cfg(unix)]
fn restrict(options: &mut OpenOptions, access: Access) {
    use std::os::unix::fs::OpenOptionsExt as _;

    options.mode(match access {
        Access::Private => 0o600,
        Access::Public => 0o644,
    });
}

#[cfg(not(unix))]
fn restrict(_: &mut OpenOptions, _: Access) {}

/// Makes a rename survive loss of power.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if cfg!(unix) {
        File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_private() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("secret");
        create(&path, b"one", Access::Private).expect("new");
        let error = create(&path, b"two", Access::Private).expect_err("exists");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        replace(&path, b"three", Access::Private).expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"three");
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("no/such/file");
        let error = create(&path, b"", Access::Public).expect_err("missing");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
