//! What worked on which network: whether QUIC gets through to a server, and
//! how long it took. Bounded, expiring, and in a file if wanted.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::plan::Plan;
use crate::files::{self, Access};

/// Networks remembered; the one seen longest ago makes room.
const NETWORKS_MAX: usize = 256;

/// A network not seen for this long is forgotten.
const FORGET_SECS: u64 = 30 * 24 * 3600;

/// A success is relied on for this long.
const SUCCESS_SECS: u64 = 24 * 3600;

/// First and longest time until a blocked QUIC is tried again; it doubles with
/// every failure.
const PROBE_MIN_SECS: u64 = 60;
const PROBE_MAX_SECS: u64 = 3600;

/// Largest file that is read, and longest name of a network.
const FILE_BYTES_MAX: u64 = 64 * 1024;
const NAME_BYTES_MAX: usize = 200;

/// First line of the file.
const MAGIC: &str = "dunlin-race 1";

/// What is known of QUIC on one network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// When it was last tried, in seconds since 1970.
    seen: u64,
    /// Failures in a row.
    failures: u32,
    /// How long the handshake took when it last worked, in milliseconds.
    millis: Option<u32>,
}

impl Entry {
    fn probe_at(&self) -> Option<u64> {
        let doublings = self.failures.checked_sub(1)?.min(16);
        let wait = (PROBE_MIN_SECS << doublings).min(PROBE_MAX_SECS);
        Some(self.seen.saturating_add(wait))
    }
}

/// Remembers for several clients, and in a file across processes, on which
/// networks QUIC gets through. Cheap to clone: clones remember together.
#[derive(Clone, Default)]
pub struct RaceMemory {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<String, Entry>,
    file: Option<PathBuf>,
}

impl RaceMemory {
    /// Remembers as long as the process lives.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What all clients of this process share that say nothing else.
    pub(crate) fn global() -> Self {
        static GLOBAL: OnceLock<RaceMemory> = OnceLock::new();
        GLOBAL.get_or_init(Self::new).clone()
    }

    /// Remembers in a file, which need not exist. A file that cannot be
    /// understood is begun again.
    ///
    /// # Errors
    /// It exists and cannot be read, or not be replaced: a device, for one.
    pub fn file(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        files::replaceable(&path)?;
        let entries = read(&path)?;
        let inner = Inner {
            entries,
            file: Some(path),
        };
        Ok(Self {
            inner: Arc::new(Mutex::new(inner)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How to connect on a network.
    pub(crate) fn plan(&self, network: &str, now: u64) -> Plan {
        let Some(entry) = self.lock().entries.get(network).copied() else {
            return Plan::UNKNOWN;
        };
        let age = now.saturating_sub(entry.seen);
        match (entry.probe_at(), entry.millis) {
            (Some(at), _) if now < at => Plan::BLOCKED,
            (Some(_), _) => Plan::PROBE,
            (None, Some(millis)) if age < SUCCESS_SECS => {
                Plan::after_success(Duration::from_millis(millis.into()))
            }
            _ => Plan::UNKNOWN,
        }
    }

    /// How long until a blocked QUIC is to be tried again.
    pub(crate) fn probe_in(&self, network: &str, now: u64) -> Option<Duration> {
        let entry = self.lock().entries.get(network).copied()?;
        let at = entry.probe_at()?;
        Some(Duration::from_secs(at.saturating_sub(now)))
    }

    /// QUIC got through.
    pub(crate) fn worked(&self, network: &str, took: Duration, now: u64) {
        let millis = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
        self.note(
            network,
            Entry {
                seen: now,
                failures: 0,
                millis: Some(millis),
            },
        );
    }

    /// It did not, while TLS did.
    pub(crate) fn blocked(&self, network: &str, now: u64) {
        let before = self.lock().entries.get(network).copied();
        let before = before.unwrap_or_default();
        self.note(
            network,
            Entry {
                seen: now,
                failures: before.failures.saturating_add(1),
                millis: before.millis,
            },
        );
    }

    fn note(&self, network: &str, entry: Entry) {
        if !is_name(network) {
            return;
        }
        let mut inner = self.lock();
        inner.entries.insert(network.into(), entry);
        let now = entry.seen;
        let entries = &mut inner.entries;
        entries.retain(|_, entry| now.saturating_sub(entry.seen) < FORGET_SECS);
        while entries.len() > NETWORKS_MAX {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.seen);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                return;
            };
            entries.remove(&oldest);
        }
    }

    /// Whether there is a file to write.
    pub(crate) fn has_file(&self) -> bool {
        self.lock().file.is_some()
    }

    /// Writes the file, as a whole or not at all, for its owner only.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save(&self) -> io::Result<()> {
        let (text, path) = {
            let inner = self.lock();
            let Some(path) = inner.file.clone() else {
                return Ok(());
            };
            (show(&inner.entries), path)
        };
        files::replace(&path, text.as_bytes(), Access::Private)
    }
}

impl fmt::Debug for RaceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaceMemory")
            .field("networks", &self.lock().entries.len())
            .finish_non_exhaustive()
    }
}

/// Seconds since 1970 by the system's clock.
pub(crate) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// One word, so that a line of the file can be taken apart.
fn is_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_graphic();
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_word)
}

fn show(entries: &BTreeMap<String, Entry>) -> String {
    use core::fmt::Write as _;
    let mut text = format!("{MAGIC}\n");
    for (name, entry) in entries {
        let millis = entry
            .millis
            .map_or_else(|| "-".into(), |millis| millis.to_string());
        let _ = writeln!(text, "{name} {} {} {millis}", entry.seen, entry.failures);
    }
    text
}

fn parse(text: &str) -> BTreeMap<String, Entry> {
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return BTreeMap::new();
    }
    lines.filter_map(parse_line).take(NETWORKS_MAX).collect()
}

fn parse_line(line: &str) -> Option<(String, Entry)> {
    let mut words = line.split(' ');
    let name = words.next().filter(|name| is_name(name))?;
    let entry = Entry {
        seen: words.next()?.parse().ok()?,
        failures: words.next()?.parse().ok()?,
        millis: match words.next()? {
            "-" => None,
            millis => Some(millis.parse().ok()?),
        },
    };
    Some((name.into(), entry))
}

fn read(path: &Path) -> io::Result<BTreeMap<String, Entry>> {
    use std::io::Read as _;
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NET: &str = "10.0.0.0/24-aa:bb>broker:14567";

    #[test]
    fn a_blocked_network_is_tried_again_ever_more_rarely() {
        let memory = RaceMemory::new();
        assert_eq!(memory.plan(NET, 1000), Plan::UNKNOWN);
        let mut now = 1000;
        let mut waits = Vec::new();
        for _ in 0..9 {
            memory.blocked(NET, now);
            assert_eq!(memory.plan(NET, now), Plan::BLOCKED);
            let wait = memory.probe_in(NET, now).expect("blocked").as_secs();
            waits.push(wait);
            now += wait;
            assert_eq!(memory.plan(NET, now), Plan::PROBE);
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        memory.worked(NET, Duration::from_millis(40), now);
        let plan = Plan::after_success(Duration::from_millis(40));
        assert_eq!(memory.plan(NET, now), plan);
        assert_eq!(memory.probe_in(NET, now), None);
        assert_eq!(memory.plan(NET, now + SUCCESS_SECS), Plan::UNKNOWN);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_expires() {
        let memory = RaceMemory::new();
        for n in 0..2 * NETWORKS_MAX {
            memory.blocked(&format!("net{n}"), n as u64);
        }
        assert_eq!(memory.lock().entries.len(), NETWORKS_MAX);
        assert_eq!(memory.plan("net0", 0), Plan::UNKNOWN);
        memory.blocked("late", FORGET_SECS + 10_000);
        assert_eq!(memory.lock().entries.len(), 1);
        for name in ["", "a b", "a\n", "ü", &"x".repeat(NAME_BYTES_MAX + 1)] {
            memory.blocked(name, FORGET_SECS + 10_000);
            assert_eq!(memory.lock().entries.len(), 1, "{name:?}");
        }
    }

    #[test]
    fn files_survive_and_broken_ones_are_begun_again() {
        let mut entries = BTreeMap::new();
        let entry = Entry {
            seen: 5,
            failures: 2,
            millis: None,
        };
        entries.insert(NET.to_owned(), entry);
        let other = Entry {
            millis: Some(7),
            ..entry
        };
        entries.insert("b".to_owned(), other);
        assert_eq!(parse(&show(&entries)), entries);
        let broken = [
            "",
            "something else\na 1 2 3",
            "dunlin-race 1\na",
            "dunlin-race 1\na x 1 -",
            "dunlin-race 1\na 1 1",
            "dunlin-race 1\n 1 1 -",
        ];
        for text in broken {
            assert!(parse(text).is_empty(), "{text:?}");
        }
    }
}
