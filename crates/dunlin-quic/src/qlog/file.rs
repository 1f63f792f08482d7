//! The thread that writes files, and the way to it: bounded, and never waited
//! for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use core::sync::atomic::{AtomicBool, Ordering};

/// Extension of qlog in its sequential form.
pub(super) const EXTENSION: &str = "sqlog";

/// Pieces that wait to be written at most; each is up to
/// [`super::sink::PIECE_BYTES`] long, or a little more.
const PIECES_MAX: usize = 1024;

/// Names tried for a file whose name is taken.
const NAMES_MAX: u32 = 100;

pub(super) enum Piece {
    /// Bytes for the file of this number, which is made with the first.
    Bytes {
        id: u64,
        path: PathBuf,
        bytes: Vec<u8>,
    },
    /// Nothing more comes for it.
    End { id: u64 },
    /// Answer when everything before is written.
    Flush(SyncSender<()>),
}

/// How a file is made.
pub(super) type Create = fn(&Path) -> io::Result<File>;

/// Why nothing is written any more. A disk that is full is full for all logs:
/// the first error ends them, until logs are asked for again.
#[derive(Default)]
pub(super) struct Failure {
    failed: AtomicBool,
    why: Mutex<Option<String>>,
}

impl Failure {
    pub(super) fn is_there(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn why(&self) -> Option<String> {
        self.lock().clone()
    }

    pub(super) fn forget(&self) {
        *self.lock() = None;
        self.failed.store(false, Ordering::Relaxed);
    }

    fn note(&self, error: &io::Error) {
        tracing::warn!(%error, "qlog ends until it is asked for again");
        *self.lock() = Some(error.to_string());
        self.failed.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to the thread.
pub(super) struct Writer {
    pieces: SyncSender<Piece>,
}

impl Writer {
    pub(super) fn start(create: Create, failure: Arc<Failure>) -> io::Result<Self> {
        let (pieces, receiver) = sync_channel(PIECES_MAX);
        std::thread::Builder::new()
            .name("qlog".into())
            .spawn(move || run(&receiver, create, &failure))?;
        Ok(Self { pieces })
    }

    /// Gives it something to write; `false`: it has too much.
    pub(super) fn put(&self, piece: Piece) -> bool {
        self.pieces.try_send(piece).is_ok()
    }

    pub(super) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.pieces.send(Piece::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }
}

/// A file, and its length up to the last piece that was written whole.
struct Open {
    file: File,
    whole: u64,
}

impl Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        match written {
            Ok(()) => self.whole += bytes.len() as u64,
            // Half a record is of no use; that it stays is no further error.
            Err(_) => drop(self.file.set_len(self.whole)),
        }
        written
    }
}

/// Ends with the last way to it.
fn run(pieces: &Receiver<Piece>, create: Create, failure: &Failure) {
    let mut files: HashMap<u64, Open> = HashMap::new();
    for piece in pieces {
        match piece {
            // They were on their way when it failed.
            Piece::Bytes { .. } if failure.is_there() => files.clear(),
            Piece::Bytes { id, path, bytes } => {
                let written = match files.entry(id) {
                    Entry::Occupied(open) => open.into_mut().write(&bytes),
                    Entry::Vacant(place) => create(&path)
                        .and_then(|file| place.insert(Open { file, whole: 0 }).write(&bytes)),
                };
                if let Err(error) = written {
                    failure.note(&error);
                    files.clear();
                }
            }
            Piece::End { id } => drop(files.remove(&id)),
            Piece::Flush(done) => drop(done.send(())),
        }
    }
}

/// Makes a file that is not there yet, readable by its owner alone: it shows
/// addresses and sizes. A client chooses its name, so a name may be taken.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut made = options.open(path);
    for number in 1..=NAMES_MAX {
        match &made {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                made = options.open(path.with_extension(format!("{number}.{EXTENSION}")));
            }
            _ => break,
        }
    }
    made
}
