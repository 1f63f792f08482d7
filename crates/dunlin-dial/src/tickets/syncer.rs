//! A thread that makes changes of a file and brings them to the disk, so that no
//! connection waits for the file or the disk. Must not know what is in the file.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Requests that may wait. One is enough: it covers all changes before it.
const WAITING_MAX: usize = 1;

/// Changes that may wait. A connection brings a few; who brings more makes them.
const CHANGES_MAX: usize = 64;

/// Something that is done with the file.
pub(super) type Change = Box<dyn FnOnce() + Send>;

/// Changes that are not made yet, in their order.
#[derive(Default)]
pub(super) struct Changes {
    waiting: Mutex<VecDeque<Change>>,
    /// Held by who makes them, so that they stay in order.
    making: Mutex<()>,
}

impl Changes {
    /// Adds one behind the others.
    fn add(&self, change: Change) {
        while lock(&self.waiting).len() >= CHANGES_MAX {
            self.make();
        }
        lock(&self.waiting).push_back(change);
    }

    /// Makes all that wait; returns when they are made.
    pub(super) fn make(&self) {
        let _making = lock(&self.making);
        loop {
            let next = lock(&self.waiting).pop_front();
            match next {
                Some(change) => change(),
                None => return,
            }
        }
    }
}

dunlin_base::opaque_debug!(Changes);

/// A change that panicked was logged; the others are made.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends when it is dropped, after what was asked for is done.
#[derive(Debug)]
pub(super) struct Syncer {
    changes: Arc<Changes>,
    ask: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Begins the thread. Where there can be none, changes are made at once, and the
    /// system brings them to the disk at its own pace.
    pub(super) fn new(path: &Path, changes: Arc<Changes>) -> Self {
        let (ask, asked) = sync_channel(WAITING_MAX);
        let (path, theirs) = (path.to_owned(), Arc::clone(&changes));
        let begun = thread::Builder::new()
            .name("dunlin-tickets".into())
            .spawn(move || run(&path, &theirs, &asked));
        if let Err(error) = &begun {
            tracing::warn!(%error, "no thread to bring tickets to the disk");
        }
        let thread = begun.ok();
        Self {
            changes,
            ask: thread.is_some().then_some(ask),
            thread,
        }
    }

    /// Has the change made, and the file brought to the disk.
    pub(super) fn ask(&self, change: Change) {
        self.changes.add(change);
        match &self.ask {
            // Where one waits already, it has not begun, and covers this change.
            Some(ask) => {
                let _ = ask.try_send(());
            }
            None => self.changes.make(),
        }
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

fn run(path: &Path, changes: &Changes, asked: &Receiver<()>) {
    while asked.recv().is_ok() {
        changes.make();
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
