//! Looks after brokers and links while others wait for a load: when one fails,
//! the waiting thread learns it at once, and why. Knows nothing of experiments.

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::{Alarm, free_bytes};

use crate::children;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// Lines of a log that are shown.
const LINES: usize = 3;

/// Bytes that must be free where captures and samples are written. The largest
/// capture of an experiment has a tenth of it.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// A bit of the status of a process that has ended: what killed it.
const SIGNAL: u32 = 0x7f;

/// A process that is killed so has logged nothing of it.
const KILLED: &str = "by signal 9";

/// Servers that should be running, by their process, with name and log.
static SERVERS: Mutex<BTreeMap<u32, (String, PathBuf)>> = Mutex::new(BTreeMap::new());

/// Links that are running.
static LINKS: Mutex<Vec<Alarm>> = Mutex::new(Vec::new());

/// What was found.
static FOUND: Mutex<Option<String>> = Mutex::new(None);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks after a server.
pub(crate) fn serve(process: u32, name: &str, log: &Path) {
    lock(&SERVERS).insert(process, (name.to_owned(), log.to_owned()));
}

/// Not any more.
pub(crate) fn dismiss(process: u32) {
    lock(&SERVERS).remove(&process);
}

/// Looks after a link, or a network.
pub(crate) fn listen(alarm: Alarm) {
    let mut links = lock(&LINKS);
    links.retain(|link| !link.is_over());
    links.push(alarm);
}

/// What is wrong, if a [`Watch`] has found something.
pub(crate) fn found() -> Option<String> {
    lock(&FOUND).clone()
}

/// The end of what a program said, in one line.
pub(crate) fn last_words(log: &Path) -> String {
    let said = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = said.trim().lines().rev().take(LINES).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    lines.join(" | ")
}

/// Looks again and again until it is dropped or ended; at the first trouble it
/// ends all child processes, so that waiting for them ends.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        *lock(&FOUND) = None;
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if let Some(what) = look() {
                    *lock(&FOUND) = Some(what);
                    children::end_all();
                    return;
                }
            }
        });
        Self { stop, thread }
    }

    /// Ends it; what it found.
    pub(crate) fn end(self) -> Option<String> {
        let _ = self.stop.send(());
        let _ = self.thread.join();
        lock(&FOUND).take()
    }
}

fn look() -> Option<String> {
    let failed = lock(&LINKS).iter().find_map(Alarm::failure);
    failed.or_else(|| {
        let servers = lock(&SERVERS);
        servers.iter().find_map(|(process, (name, log))| {
            let how = ended(*process)?;
            let said = match how.ends_with(KILLED) {
                true => String::new(),
                false => format!(": {}", last_words(log)),
            };
            Some(format!(
                "the broker {name} {how} while it was measured{said}"
            ))
        })
    })
}

/// How a process ended that has not been waited for yet; `None` if it runs.
fn ended(process: u32) -> Option<String> {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return Some("is gone".to_owned());
    };
    // The name may have spaces and brackets.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if !matches!(fields.next(), Some("Z" | "X")) {
        return None;
    }
    let status: u32 = fields.next_back()?.parse().ok()?;
    Some(match status & SIGNAL {
        0 => format!("ended with code {}", status >> 8),
        signal => format!("was killed by signal {signal}"),
    })
}

/// Fails when there is no room for captures and samples in one of these.
pub(crate) fn room(folders: &[&Path]) -> Result<()> {
    for folder in folders {
        let shown = folder.display();
        let free = free_bytes(folder).with_context(|| format!("cannot look into {shown}"))?;
        if free < FREE_BYTES_MIN {
            let (free, min) = (free >> 20, FREE_BYTES_MIN >> 20);
            bail!(
                "no space for captures in {shown}: {free} MiB are free, {min} MiB are needed; \
                 make room and run the same command again, it goes on where this one stopped"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn processes_that_ended_and_those_that_run_are_distinguished() {
        assert_eq!(ended(std::process::id()), None);
        for (script, want) in [
            ("exit 3", "ended with code 3"),
            ("kill -9 $$", "was killed by signal 9"),
        ] {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let how = loop {
                if let Some(how) = ended(child.id()) {
                    break how;
                }
                thread::yield_now();
            };
            assert_eq!(how, want);
            child.wait().unwrap();
            assert_eq!(ended(child.id()), Some("is gone".to_owned()));
        }
    }

    #[test]
    fn there_is_room_or_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        assert!(room(&[folder.path()]).is_ok());
        let error = room(&[Path::new("/proc")]).unwrap_err().to_string();
        assert!(
            error.starts_with("no space for captures in /proc: 0 MiB"),
            "{error}"
        );
        assert!(room(&[Path::new("/nowhere")]).is_err());
    }
}
