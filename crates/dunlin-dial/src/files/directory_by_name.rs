//! A directory by its name, where the system has no owners that could be kept.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::Access;

/// A file that is replaced, of which nothing is kept.
#[derive(Clone, Copy)]
pub(super) struct Old;

pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(path.to_owned()))
    }

    pub(super) fn find(&self, _: &OsStr) -> io::Result<Option<Old>> {
        Ok(None)
    }

    pub(super) fn is_trusted(&self, _: &Old) -> io::Result<bool> {
        Ok(false)
    }

    pub(super) fn create(&self, name: &OsStr, _: Access) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        options.open(self.0.join(name))
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Old {
    pub(super) fn keep(&self, _: &File, _: bool) -> io::Result<()> {
        Ok(())
    }
}
