//! A thread that brings a replaced file to the disk, so that no connection
//! waits for the disk. Must not know what is in the file.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Requests that may wait. One is enough: it covers all changes before it.
const WAITING_MAX: usize = 1;

/// Ends when it is dropped, after what was asked for is done.
#[derive(Debug)]
pub(super) struct Syncer {
    ask: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Begins the thread.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let (ask, asked) = sync_channel(WAITING_MAX);
        let path = path.to_owned();
        let thread = thread::Builder::new()
            .name("dunlin-tickets".into())
            .spawn(move || run(&path, &asked))?;
        Ok(Self {
            ask: Some(ask),
            thread: Some(thread),
        })
    }

    /// Asks for the file, as it is now, to be brought to the disk.
    pub(super) fn ask(&self) {
        // Where one waits already, it has not begun, and covers this change.
        let _ = self.ask.as_ref().map(|ask| ask.try_send(()));
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(path: &Path, asked: &Receiver<()>) {
    while asked.recv().is_ok() {
        if let Err(error) = sync(path) {
            tracing::warn!(path = %path.display(), %error, "cannot bring tickets to the disk");
        }
    }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    if cfg!(unix) {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
