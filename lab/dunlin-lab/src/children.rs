//! Child processes that run, so that all can be asked to end.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

/// Processes that [`end_all`] ends.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A child process that [`end_all`] knows, until this is dropped.
#[derive(Debug)]
pub(crate) struct Known(u32);

impl Known {
    pub(crate) fn new(child: &Child) -> Self {
        let id = child.id();
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(id);
        Self(id)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.0);
    }
}

/// Asks every child process to end, so that waiting for one ends.
pub(crate) fn end_all() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for id in running.iter() {
        let _ = Command::new("kill").arg(id.to_string()).status();
    }
}
