//! Which messages the process was working on when it ended, on disk: a message during which
//! it ended twice is not tried again. Knows neither messages nor databases, only their
//! marks.
//!
//! A file of records of one size: marks of messages during which the process ended, with
//! how often, and then one for each worker: what it is working on. It is written without
//! `fsync`: the process ends, not the machine.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Most messages that are remembered; the oldest is forgotten.
const SUSPECTS_MAX: usize = 64;

/// How often the process may end during a message.
const ENDS_MAX: u64 = 2;

const RECORD: usize = 24;

/// What stands for a message.
pub(crate) type Mark = u128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    mark: Mark,
    ends: u64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Marks {
    suspects: Mutex<Vec<Suspect>>,
    file: Mutex<File>,
}

impl Marks {
    /// Opens or makes the file, for so many workers.
    pub(crate) fn open(path: &Path, workers: usize) -> io::Result<Self> {
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        lock(&file)?;
        let mut bytes = Vec::new();
        let longest = RECORD * (SUSPECTS_MAX + crate::config::WORKERS_MAX);
        (&mut file).take(longest as u64).read_to_end(&mut bytes)?;
        let (records, _) = bytes.as_chunks::<RECORD>();
        let mut suspects: Vec<Suspect> = Vec::new();
        for record in records {
            let found = read(record);
            if found.mark == 0 {
                continue;
            }
            match suspects.iter_mut().find(|it| it.mark == found.mark) {
                Some(known) => known.ends = known.ends.saturating_add(found.ends),
                None => suspects.push(found),
            }
        }
        let surplus = suspects.len().saturating_sub(SUSPECTS_MAX);
        suspects.drain(..surplus);
        for suspect in &suspects {
            tracing::warn!(
                mark = format_args!("{:032x}", suspect.mark),
                times = suspect.ends,
                "the sink ended while it worked on a message"
            );
        }
        let marks = Self {
            suspects: Mutex::new(suspects),
            file: Mutex::new(file),
        };
        marks.write_suspects()?;
        marks.clear(workers)?;
        Ok(marks)
    }

    fn write_suspects(&self) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(RECORD * SUSPECTS_MAX);
        let suspects = self.suspects.lock();
        for suspect in suspects.unwrap_or_else(PoisonError::into_inner).iter() {
            bytes.extend_from_slice(&record(*suspect));
        }
        bytes.resize(RECORD * SUSPECTS_MAX, 0);
        self.write(0, &bytes)
    }

    fn clear(&self, workers: usize) -> io::Result<()> {
        self.write(SUSPECTS_MAX, &vec![0; RECORD * workers])
    }

    fn write(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.lock();
        let mut file = file.unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start((at * RECORD) as u64))?;
        file.write_all(bytes)
    }

    /// Begins to work on a message, unless the process ended during it too often.
    fn begin(&self, worker: usize, mark: Mark) -> bool {
        let suspects = self.suspects.lock();
        let suspects = suspects.unwrap_or_else(PoisonError::into_inner);
        let known = suspects.iter().find(|it| it.mark == mark);
        if known.is_some_and(|it| it.ends >= ENDS_MAX) {
            return false;
        }
        drop(suspects);
        let ends = 1;
        self.note(worker, Suspect { mark, ends });
        true
    }

    /// The work on a message has ended, and the process has not.
    fn end(&self, worker: usize, mark: Mark) {
        let nothing = Suspect { mark: 0, ends: 0 };
        self.note(worker, nothing);
        let suspects = self.suspects.lock();
        let mut suspects = suspects.unwrap_or_else(PoisonError::into_inner);
        let before = suspects.len();
        suspects.retain(|it| it.mark != mark);
        let changed = suspects.len() != before;
        drop(suspects);
        if changed && let Err(error) = self.write_suspects() {
            tracing::warn!(%error, "`state` cannot be written");
        }
    }

    fn note(&self, worker: usize, suspect: Suspect) {
        if let Err(error) = self.write(SUSPECTS_MAX + worker, &record(suspect)) {
            tracing::warn!(%error, "`state` cannot be written");
        }
    }
}

/// Keeps other processes from the file for as long as it is open: two would write over
/// each other's marks.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another `dunlin sink` that runs has it: give each a `name` or a `state` of its own",
        )),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            tracing::warn!("the file system of `state` has no locks: no two sinks may share it");
            Ok(())
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The marks of one worker.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) marks: Arc<Marks>,
    pub(crate) number: usize,
}

impl Worker {
    /// Does what may end the process; nothing if it did so too often.
    pub(crate) fn during<T>(&self, mark: Mark, work: impl FnOnce() -> T) -> Option<T> {
        // No message is 0.
        let mark = mark.max(1);
        if !self.marks.begin(self.number, mark) {
            return None;
        }
        let done = work();
        self.marks.end(self.number, mark);
        Some(done)
    }
}

fn record(suspect: Suspect) -> [u8; RECORD] {
    let mut out = [0; RECORD];
    let (mark, ends) = out.split_at_mut(16);
    mark.copy_from_slice(&suspect.mark.to_le_bytes());
    ends.copy_from_slice(&suspect.ends.to_le_bytes());
    out
}

fn read(record: &[u8; RECORD]) -> Suspect {
    let (mark, ends) = record.split_at(16);
    Suspect {
        mark: mark.try_into().map_or(0, u128::from_le_bytes),
        ends: ends.try_into().map_or(0, u64::from_le_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins to work and ends, as a process does that is killed.
    fn ends_during(path: &Path, mark: Mark) {
        let marks = Marks::open(path, 2).expect("a file");
        assert!(marks.begin(1, mark), "it is worked on");
    }

    fn worker(path: &Path) -> Worker {
        let marks = Arc::new(Marks::open(path, 2).expect("a file"));
        Worker { marks, number: 1 }
    }

    #[test]
    fn a_message_during_which_the_process_ended_twice_is_not_tried_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("state");
        ends_during(&path, 7);
        // Another one in between, which is done.
        assert_eq!(worker(&path).during(8, || 1), Some(1));
        ends_during(&path, 7);
        for _ in 0..3 {
            let worker = worker(&path);
            assert_eq!(worker.during(7, || 1), None, "not tried again");
            assert_eq!(worker.during(8, || 1), Some(1), "others are");
        }
    }

    #[test]
    fn what_is_done_in_between_is_no_suspect() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("state");
        for _ in 0..5 {
            ends_during(&path, 7);
            assert_eq!(worker(&path).during(7, || 1), Some(1));
        }
    }

    #[test]
    fn two_at_a_time_do_not_share_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("state");
        let first = Marks::open(&path, 2).expect("a file");
        assert!(first.begin(0, 7));
        let before = std::fs::read(&path).expect("read");
        let error = Marks::open(&path, 2).expect_err("it is in use");
        assert!(
            error.to_string().contains("another `dunlin sink`"),
            "{error}"
        );
        assert!(std::fs::read(&path).expect("read") == before, "untouched");
        drop(first);
        Marks::open(&path, 2).expect("free again");
    }

    #[test]
    fn the_file_has_a_bound_and_may_hold_anything() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("state");
        std::fs::write(&path, vec![0xff; 1_000_003]).expect("written");
        drop(worker(&path));
        for mark in 1..1_000 {
            ends_during(&path, mark);
        }
        let worker = worker(&path);
        let suspects = worker.marks.suspects.lock().expect("no panic").clone();
        assert_eq!(suspects.len(), SUSPECTS_MAX);
        assert_eq!(suspects.last(), Some(&Suspect { mark: 999, ends: 1 }));
        assert!(Marks::open(dir.path(), 1).is_err(), "a folder");
    }
}
