//! Files that must never be seen half written, or by strangers: keys, password
//! hashes, tickets. They are replaced by renaming. A rename would also take the
//! place of a device, a pipe or a socket, which are refused. Knows nothing of what is
//! in them.

#[cfg(unix)]
mod directory;
#[cfg(not(unix))]
#[path = "files/directory_by_name.rs"]
mod directory;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use directory::{Directory, Old};

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
/// service, and the service can still read it. Owner and group are only kept where no one but
/// root and that owner can have put the file there: `path` is no symbolic link, and its
/// directory belongs to one of the two and no one else may write to it.
///
/// # Errors
/// As [`replaceable`], or what the operating system says.
pub fn replace(path: &Path, contents: &[u8], access: Access) -> io::Result<()> {
    let keep = |old: &Old, file: &File, may_give| old.keep(file, may_give);
    let directory = put(path, contents, access, Sync::Now, keep)?;
    directory.sync()
}

/// As [`replace`], but the file is the caller's, with the permissions of a new one, and the
/// system may bring it to the disk later: a loss of power may leave the old contents, or none.
pub(crate) fn replace_soon(path: &Path, contents: &[u8], access: Access) -> io::Result<()> {
    put(path, contents, access, Sync::Later, |_, _, _| Ok(())).map(drop)
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

/// Puts a file into its place; the directory that has it.
fn put(
    path: &Path,
    contents: &[u8],
    access: Access,
    sync: Sync,
    keep: impl FnOnce(&Old, &File, bool) -> io::Result<()>,
) -> io::Result<Directory> {
    let place = replaceable(path)?;
    let is_as_given = place == path;
    let name = place
        .file_name()
        .ok_or_else(|| io::Error::other("not the name of a file"))?;
    let parent = place
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = Directory::open(parent.unwrap_or_else(|| Path::new(".")))?;
    let temporary = temporary(name);
    let written = write(&directory, &temporary, contents, access, sync, |file| {
        let Some(old) = directory.find(name)? else {
            return Ok(());
        };
        keep(&old, file, is_as_given && directory.is_trusted(&old)?)
    });
    let result = written.and_then(|()| directory.rename(&temporary, name));
    if result.is_err() {
        // The first error is the one worth reporting.
        let _ = directory.remove(&temporary);
    }
    result.map(|()| directory)
}

/// A name in the same directory, so that renaming does not copy.
fn temporary(name: &OsStr) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.new", std::process::id()));
    hidden
}

fn write(
    directory: &Directory,
    name: &OsStr,
    contents: &[u8],
    access: Access,
    sync: Sync,
    keep: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    // Left over from a process that died with this number; it may be readable
    // by others, so it is not written into.
    let _ = directory.remove(name);
    let mut file = directory.create(name, access)?;
    keep(&file)?;
    file.write_all(contents)?;
    match sync {
        Sync::Now => file.sync_all(),
        Sync::Later => Ok(()),
    }
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

    /// As which user a test of the owner runs matters: without root there is nothing to keep.
    #[test]
    #[cfg(unix)]
    fn the_owner_is_not_kept_where_others_can_have_put_the_file() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

        const OTHER: u32 = 65534;
        const THIRD: u32 = 65533;
        let dir = tempfile::tempdir().expect("directory");
        let [folder, link] = ["folder", "link"].map(|name| dir.path().join(name));
        fs::create_dir(&folder).expect("made");
        let file = folder.join("file");
        symlink(&file, &link).expect("linked");
        let own = fs::metadata(&folder).expect("there").uid();
        for (mode, owner, path, kept) in [
            (0o755, own, &file, true),
            (0o755, OTHER, &file, true),
            (0o755, own, &link, false),
            (0o755, OTHER, &link, false),
            (0o755, THIRD, &file, false),
            (0o1777, own, &file, false),
            (0o777, OTHER, &file, false),
            (0o775, own, &file, false),
        ] {
            fs::write(&file, b"old").expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("set");
            let given = chown(&file, Some(OTHER), Some(OTHER)).is_ok();
            if given {
                chown(&folder, Some(owner), Some(owner)).expect("given");
            }
            replace(path, b"new", Access::Private).expect("replaced");
            let found = fs::metadata(&file).expect("there");
            let expected = if given && kept { OTHER } else { own };
            assert_eq!(found.uid(), expected, "{mode:o} {owner} {path:?}");
            assert_eq!(found.mode() & 0o007, 0);
            if given && !kept {
                assert_eq!(found.mode() & 0o777, 0o600, "{mode:o} {owner} {path:?}");
            }
            assert_eq!(fs::read(&file).expect("read"), b"new");
            assert!(link.is_symlink());
            fs::remove_file(&file).expect("removed");
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
