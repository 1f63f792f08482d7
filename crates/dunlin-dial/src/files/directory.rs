//! A directory that is opened once: what is done in it is done in this one, also where
//! another one is put into its place meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, renameat, statat, unlinkat};

use super::{Access, refused};

/// A file that is replaced: whose it is, and what others may do with it.
#[derive(Clone, Copy)]
pub(super) struct Old {
    uid: u32,
    gid: u32,
    mode: Mode,
}

pub(super) struct Directory(File);

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        match file.metadata()?.is_dir() {
            true => Ok(Self(file)),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// The regular file of this name, if there is one.
    pub(super) fn find(&self, name: &OsStr) -> io::Result<Option<Old>> {
        let found = match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            found => found?,
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Ok(Some(Old {
                uid: found.st_uid,
                gid: found.st_gid,
                mode: Mode::from_raw_mode(found.st_mode),
            })),
            _ => Err(refused("another file is put into its place".to_owned())),
        }
    }

    /// Whether only root and the owner of `old` can have put that here.
    pub(super) fn is_trusted(&self, old: &Old) -> io::Result<bool> {
        let found = fstat(&self.0)?;
        let strangers = Mode::WGRP | Mode::WOTH;
        let can_write = Mode::from_raw_mode(found.st_mode).intersects(strangers);
        Ok(!can_write && (found.st_uid == 0 || found.st_uid == old.uid))
    }

    /// A new file.
    pub(super) fn create(&self, name: &OsStr, access: Access) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = match access {
            Access::Private => Mode::RUSR | Mode::WUSR,
            Access::Public => Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH,
        };
        Ok(openat(&self.0, name, flags, mode)?.into())
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Makes a rename survive loss of power.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

impl Old {
    /// Gives a new file the owner and group of this one, and its permissions if strangers have
    /// none. Who may not give files away has a file of its own, as it was made.
    pub(super) fn keep(&self, file: &File, may_give: bool) -> io::Result<()> {
        use std::os::unix::fs::{MetadataExt as _, fchown};

        let new = file.metadata()?;
        let differs = (new.uid(), new.gid()) != (self.uid, self.gid);
        if differs && !(may_give && fchown(file, Some(self.uid), Some(self.gid)).is_ok()) {
            return Ok(());
        }
        if self.mode.intersects(Mode::RWXO) {
            return Ok(());
        }
        let owner = Mode::RUSR | Mode::WUSR;
        let group = self.mode & (Mode::RGRP | Mode::WGRP);
        Ok(rustix::fs::fchmod(file, owner | group)?)
    }
}
