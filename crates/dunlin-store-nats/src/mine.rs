//! What this machine remembers of its take-overs: the subjects that it let the stream listen
//! to, in a file beside the copy that is synced, as the copy is not.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Bytes of the file that are read: it has two subjects at most.
const FILE_BYTES_MAX: u64 = 4096;

/// The subjects under which this machine may have the partition.
pub(crate) struct Mine {
    file: PathBuf,
    subjects: Vec<String>,
}

impl Mine {
    /// Reads what is remembered beside this copy.
    pub(crate) fn load(copy: &Path) -> io::Result<Self> {
        let file = copy.with_extension("owner");
        let mut text = String::new();
        match File::open(&file) {
            Ok(open) => drop(open.take(FILE_BYTES_MAX).read_to_string(&mut text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let subjects = text.lines().map(str::to_owned).collect();
        Ok(Self { file, subjects })
    }

    /// Whether no other machine has taken the partition over since.
    pub(crate) fn has(&self, subject: Option<&str>) -> bool {
        subject.is_some_and(|subject| self.subjects.iter().any(|own| own == subject))
    }

    /// Before the stream listens to `next`: one of both is the subject after a crash.
    pub(crate) fn remember(&mut self, now: Option<&str>, next: &str) -> io::Result<()> {
        let now = now.filter(|now| self.has(Some(now))).map(str::to_owned);
        self.subjects = now.into_iter().chain([next.to_owned()]).collect();
        let beside = self.file.with_extension("owner-new");
        let mut out = File::create(&beside)?;
        out.write_all(self.subjects.join("\n").as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&beside, &self.file)?;
        match self.file.parent() {
            // Without a name, it is the directory of the process.
            Some(dir) if !dir.as_os_str().is_empty() => File::open(dir)?.sync_all(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_subjects_of_a_take_over_are_own() {
        let dir = tempfile::tempdir().expect("a folder");
        let copy = dir.path().join("log.redb");
        let load = || Mine::load(&copy).expect("read");
        assert!(!load().has(Some("a")) && !load().has(None));
        load().remember(Some("other"), "a").expect("written");
        assert!(load().has(Some("a")) && !load().has(Some("other")));
        load().remember(Some("a"), "b").expect("written");
        assert!(load().has(Some("a")) && load().has(Some("b")));
        // Another machine had it in between.
        load().remember(Some("other"), "c").expect("written");
        assert!(!load().has(Some("a")) && load().has(Some("c")));
    }
}
