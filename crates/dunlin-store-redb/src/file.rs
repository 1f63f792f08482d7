//! A store in a file, and a reserve of disk space beside it. Knows no table and
//! no request.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::FileBackend;

use crate::engine::{Engine, EngineConfig};
use crate::error::OpenError;
use crate::place::Place;

/// A file, and its reserve in a file beside it.
pub(crate) struct FilePlace {
    path: PathBuf,
    reserve: PathBuf,
    reserve_bytes: u64,
    /// Held as long as the store may be opened again.
    _lock: Arc<Lock>,
}

impl FilePlace {
    /// The store in this file; no reserve if `reserve_bytes` is zero.
    pub(crate) fn new(path: &Path, reserve_bytes: u64, lock: Arc<Lock>) -> Self {
        Self {
            path: path.to_owned(),
            reserve: beside(path, "reserve"),
            reserve_bytes,
            _lock: lock,
        }
    }

    fn fill_reserve(&self) -> io::Result<()> {
        const CHUNK_BYTES: usize = 256 * 1024;
        // Nothing that a file system could store in less.
        let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut file = File::create(&self.reserve)?;
        let mut left = self.reserve_bytes;
        while left > 0 {
            for word in chunk.chunks_exact_mut(8) {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                word.copy_from_slice(&noise.to_le_bytes());
            }
            let some = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            file.write_all(chunk.get(..some).unwrap_or(&chunk))?;
            left -= some as u64;
        }
        // Some file systems find out only now whether there is room.
        file.sync_data()
    }
}

impl Place for FilePlace {
    fn open(&mut self) -> io::Result<Box<dyn StorageBackend>> {
        open_file(&self.path, false)
    }

    fn hold(&mut self) -> io::Result<()> {
        let is_held = |file: std::fs::Metadata| file.len() == self.reserve_bytes;
        if self.reserve_bytes == 0 || std::fs::metadata(&self.reserve).is_ok_and(is_held) {
            return Ok(());
        }
        let filled = self.fill_reserve();
        if filled.is_err() {
            self.spend();
        }
        filled
    }

    fn spend(&mut self) {
        // What cannot be removed is not there, or no help.
        let _ = std::fs::remove_file(&self.reserve);
    }
}

/// A file under construction: the store's file appears when it is whole,
/// because half a new file is nothing after a crash.
pub(crate) struct Unborn(pub(crate) PathBuf);

impl Place for Unborn {
    fn open(&mut self) -> io::Result<Box<dyn StorageBackend>> {
        open_file(&self.0, true)
    }
}

/// Says that a store is in use, until it is dropped.
pub(crate) struct Lock(File);

impl Drop for Lock {
    /// A process that was started meanwhile may have the file open too, until it runs
    /// its own program: to close it here does not unlock it.
    fn drop(&mut self) {
        // There may be no lock.
        let _ = self.0.unlock();
    }
}

/// Takes the store in this file for this process, with a file beside it that
/// says nothing else.
pub(crate) fn lock(path: &Path) -> Result<Lock, OpenError> {
    let io_error = |error| OpenError::Io {
        path: path.to_owned(),
        error,
    };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let lock = options.open(beside(path, "lock")).map_err(io_error)?;
    match lock.try_lock() {
        Ok(()) => Ok(Lock(lock)),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            path: path.to_owned(),
        }),
        // Not every file system has locks; redb has one more.
        Err(TryLockError::Error(_)) => Ok(Lock(lock)),
    }
}

/// Refuses a file of no length: a store appears whole, so that one was cut off. And
/// what is no file, such as a device: a repair would take its place.
pub(crate) fn refuse_empty(path: &Path) -> Result<(), OpenError> {
    let metadata = std::fs::metadata(path);
    match metadata {
        Ok(found) if !found.is_file() => Err(OpenError::Io {
            path: path.to_owned(),
            error: io::Error::other("it is no regular file"),
        }),
        Ok(file) if file.is_file() && file.len() == 0 => Err(OpenError::Empty {
            path: path.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Puts the whole store `new` in the place of `path`; the name under which the
/// old file is kept.
pub(crate) fn replace(path: &Path, new: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    let kept = loop {
        let kept = beside(path, &format!("damaged-{number}"));
        match std::fs::hard_link(path, &kept) {
            Ok(()) => break kept,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            // Not every file system has links.
            Err(_) => {
                std::fs::rename(path, &kept)?;
                break kept;
            }
        }
    };
    std::fs::rename(new, path)?;
    sync_parent(path)?;
    Ok(kept)
}

/// Gives the whole store `new` the name `path`, which must not exist.
pub(crate) fn appear(new: &Path, path: &Path) -> io::Result<()> {
    match std::fs::hard_link(new, path) {
        Ok(()) => {
            std::fs::remove_file(new)?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => std::fs::rename(new, path)?,
    }
    sync_parent(path)
}

/// Makes sure that the file exists and is a whole store.
pub(crate) fn create(path: &Path) -> Result<(), OpenError> {
    let io_error = |error| OpenError::Io {
        path: path.to_owned(),
        error,
    };
    if path.try_exists().map_err(io_error)? {
        return refuse_empty(path);
    }
    let unborn = beside(path, &format!("new-{}", std::process::id()));
    let made = make_file(&unborn, path).map_err(io_error);
    // Gone already if it was renamed.
    let _ = std::fs::remove_file(&unborn);
    made
}

fn make_file(unborn: &Path, path: &Path) -> io::Result<()> {
    // Left by a process that had this number.
    let _ = std::fs::remove_file(unborn);
    match Engine::open(Unborn(unborn.to_owned()), EngineConfig::new(unborn)) {
        Ok(engine) => drop(engine),
        Err(OpenError::Io { error, .. }) => return Err(error),
        Err(error) => return Err(io::Error::other(error)),
    }
    // A link does not replace what another process has made meanwhile; not
    // every file system has links.
    match std::fs::hard_link(unborn, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(_) => std::fs::rename(unborn, path)?,
    }
    sync_parent(path)
}

pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn open_file(path: &Path, create: bool) -> io::Result<Box<dyn StorageBackend>> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(create)
        .truncate(false);
    // It holds messages and session secrets.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    let backend = FileBackend::new(file).map_err(io::Error::other)?;
    Ok(Box::new(backend))
}

/// A new file's name survives a power cut only when its folder was synced.
fn sync_parent(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
