//! Files that must never be seen half written, or by strangers: keys, password
//! hashes, tickets. They are replaced by renaming. A rename would also take the
//! place of a device, a pipe or a socket, which are refused. Knows nothing of what is
//! in them.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Its owner only.
    Private,
    /// Everybody whom the umask allows.
    Public,
}

/// Where the file is that [`replace`] replaces: `path`, or what that leads to if it is
/// a symbolic link. It need not exist.
///
/// # Errors
/// Something else than a regular file is there, or what the operating system says.
pub fn replaceable(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(refused(format!(
            "it is {}, and only a regular file is replaced: name another one",
            kind_of(&found)
        ))),
        Ok(_) if path.is_symlink() => fs::canonicalize(path),
        Ok(_) => Ok(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.is_symlink() {
            true => Err(refused(
                "it is a symbolic link to nothing: remove it, or name what it should lead to"
                    .to_owned(),
            )),
            false => Ok(path.to_owned()),
        },
        Err(error) => Err(error),
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(unix)]
fn kind_of(found: &fs::Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;

    let kind = found.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn kind_of(found: &fs::Metadata) -> &'static str {
    match found.is_dir() {
        true => "a directory",
        false => "no file",
    }
}

/// Replaces the regular file `path` in one step: after a crash it holds either the old
/// contents or the new.
///
/// A file that is there keeps its owner and group, where the caller may give files away
/// (root), and its permissions, if strangers have none. So root can change the file of a
/// service, and the service can still read it.
///
/// # Errors
/// As [`replaceable`], or what the operating system says.
pub fn replace(path: &Path, contents: &[u8], access: Access) -> io::Result<()> {
    let path = put(path, contents, access, Sync::Now)?;
    sync_directory(&path)
}

/// As [`replace`], but the system may bring it to the disk later: a loss of power may
/// leave the old contents, or none.
pub(crate) fn replace_soon(path: &Path, contents: &[u8], access: Access) -> io::Result<()> {
    put(path, contents, access, Sync::Later).map(drop)
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

/// When a file is brought to the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    Now,
    Later,
}

/// Puts a file into its place; which that is.
fn put(path: &Path, contents: &[u8], access: Access, sync: Sync) -> io::Result<PathBuf> {
    let path = replaceable(path)?;
    let temporary = temporary(&path)?;
    let old = fs::metadata(&path).ok();
    let written = write(&temporary, contents, access, old.as_ref(), sync);
    let result = written.and_then(|()| fs::rename(&temporary, &path));
    if result.is_err() {
        // The first error is the one worth reporting.
        let _ = fs::remove_file(&temporary);
    }
    result.map(|()| path)
}

/// A name in the same directory, so that renaming does not copy.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("not the name of a file"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.new", std::process::id()));
    Ok(path.with_file_name(hidden))
}

fn write(
    path: &Path,
    contents: &[u8],
    access: Access,
    old: Option<&fs::Metadata>,
    sync: Sync,
) -> io::Result<()> {
    // Left over from a process that died with this number; it may be readable
    // by others, so it is not written into.
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    restrict(&mut options, access);
    let mut file = options.open(path)?;
    if let Some(old) = old {
        keep(&file, old)?;
    }
    file.write_all(contents)?;
    match sync {
        Sync::Now => file.sync_all(),
        Sync::Later => Ok(()),
    }
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

/// Gives a new file the owner and group of the one that it replaces, and its permissions
/// if strangers have none. Who may not give files away has a file of its own, as `restrict`
/// made it.
#[cfg(unix)]
fn keep(file: &File, old: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};

    const STRANGERS: u32 = 0o007;
    const READ_AND_WRITE: u32 = 0o660;
    const OWNER: u32 = 0o600;
    let new = file.metadata()?;
    let differs = (new.uid(), new.gid()) != (old.uid(), old.gid());
    if differs && fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
        return Ok(());
    }
    match old.mode() & STRANGERS {
        0 => file.set_permissions(fs::Permissions::from_mode(
            old.mode() & READ_AND_WRITE | OWNER,
        )),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn keep(_: &File, _: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

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
        replace_soon(&path, b"four", Access::Private).expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"four");
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    /// What may be given away needs root, as which CI runs; for others the owner stays.
    #[test]
    #[cfg(unix)]
    fn owner_and_permissions_are_those_of_the_file_before() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

        const OTHER: u32 = 65534;
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("secret");
        for (before, access, after) in [
            (0o600, Access::Private, 0o600),
            (0o640, Access::Private, 0o640),
            (0o440, Access::Private, 0o640),
            (0o644, Access::Private, 0o600),
            (0o600, Access::Public, 0o600),
        ] {
            fs::write(&path, b"old").expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).expect("set");
            let given = chown(&path, Some(OTHER), Some(OTHER)).is_ok();
            replace(&path, b"new", access).expect("replaced");
            let found = fs::metadata(&path).expect("there");
            assert_eq!(found.mode() & 0o777, after, "{before:o}");
            assert_eq!((found.uid(), found.gid()) == (OTHER, OTHER), given);
            assert_eq!(fs::read(&path).expect("read"), b"new");
            fs::remove_file(&path).expect("removed");
        }
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("no/such/file");
        let error = create(&path, b"", Access::Public).expect_err("missing");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    #[cfg(unix)]
    fn what_is_no_regular_file_stays() {
        use std::os::unix::fs::{FileTypeExt as _, symlink};
        use std::os::unix::net::UnixListener;

        let dir = tempfile::tempdir().expect("directory");
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).expect("bound");
        let link = dir.path().join("link");
        symlink(&socket, &link).expect("linked");
        for path in [&socket, &link, &dir.path().to_owned()] {
            for how in [replace, replace_soon] {
                let error = how(path, b"x", Access::Public).expect_err("no file");
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
                assert!(error.to_string().contains("name another"), "{error}");
            }
        }
        let kind = fs::symlink_metadata(&socket).expect("there").file_type();
        assert!(kind.is_socket() && link.is_symlink());
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 2);
    }

    #[test]
    #[cfg(unix)]
    fn what_a_link_leads_to_is_replaced() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().expect("directory");
        let [folder, link] = ["folder", "link"].map(|name| dir.path().join(name));
        fs::create_dir(&folder).expect("made");
        let file = folder.join("file");
        symlink("folder/file", &link).expect("linked");
        let error = replace(&link, b"x", Access::Public).expect_err("leads nowhere");
        assert!(error.to_string().contains("to nothing"), "{error}");
        fs::write(&file, b"old").expect("written");
        replace(&link, b"new", Access::Public).expect("replaced");
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).expect("read"), b"new");
        assert_eq!(fs::read_dir(&folder).expect("list").count(), 1);
    }
}
