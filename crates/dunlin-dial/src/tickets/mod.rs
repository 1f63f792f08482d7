//! A file with session tickets and address tokens, from which a process that
//! is started again resumes where the one before ended.
//!
//! The file is replaced in one step, under a lock that processes share. What
//! is taken out is gone from it before it is used. No connection waits for what
//! is new: a thread puts it into the file, and brings that to the disk.

#[cfg(test)]
mod corpus;
mod format;
mod syncer;

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dunlin_base::transport::Transport;
use dunlin_net::{AddressTokens, SessionTickets};

use crate::files::{self, Access};
use crate::protocol::Protocol;
use crate::url::Url;
pub(crate) use format::PathRtt;
use format::{ENTRIES_MAX, Entry, FILE_BYTES_MAX, ITEM_BYTES_MAX, TICKETS_MAX, TOKENS_MAX};
use syncer::{Change, Changes, Syncer};

/// How long to wait for another process that works on the file. It needs
/// milliseconds; one that was stopped in between must not stop this one.
const LOCK_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });
/// Pause between looks at the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// A file with session tickets and address tokens of servers: with it, a
/// client sends its opening and its first messages in the first datagram
/// (0-RTT), even when the process was started again. Several clients
/// and processes may share one file; each ticket is used once.
///
/// The file is private (mode 0600) and must stay so: who has it can
/// connect as the client.
#[derive(Clone, Debug)]
pub struct TicketFile {
    shared: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    path: PathBuf,
    notice: Option<String>,
    changes: Arc<Changes>,
    /// Begun by the first change that may wait.
    syncer: OnceLock<Syncer>,
}

impl Place {
    /// Has a change made that no connection waits for, and that should survive a
    /// power cut.
    fn change_soon(&self, change: Change) {
        let begin = || Syncer::new(&self.path, Arc::clone(&self.changes));
        self.syncer.get_or_init(begin).ask(change);
    }

    /// What is in the file, when all changes that wait are made.
    fn read(&self) -> io::Result<(Vec<Entry>, Option<String>)> {
        self.changes.make();
        read(&self.path)
    }
}

impl TicketFile {
    /// Uses this file, which need not exist. One that is damaged, or that
    /// others may read, is begun again, and [`TicketFile::notice`] says so.
    ///
    /// # Errors
    /// The file cannot be read, or not be replaced: a device, for one.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        files::replaceable(&path)?;
        let _lock = lock(&path)?;
        let (entries, notice) = read(&path)?;
        // That it could be written, the lock beside it has shown.
        if notice.is_some() {
            write(&path, &entries)?;
        }
        Ok(Self {
            shared: Arc::new(Place {
                path,
                notice,
                changes: Arc::default(),
                syncer: OnceLock::new(),
            }),
        })
    }

    /// What was wrong with the file, for people.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.shared.notice.as_deref()
    }

    /// What belongs to one server, QUIC port, and client: a ticket is good for
    /// one protocol.
    pub(crate) fn scope(&self, url: &Url, id: &str) -> Arc<Scope> {
        let (host, port) = (url.host(), url.port_of(Transport::Quic));
        let name = match url.protocol() {
            Protocol::Mqtt => format!("{host}:{port}\0{id}"),
            other => format!("{host}:{port}\0{}\0{id}", other.name()),
        };
        Arc::new(Scope {
            place: Arc::clone(&self.shared),
            name,
            token: Mutex::default(),
        })
    }
}

/// The part of a file that belongs to one server and client.
#[derive(Debug)]
pub(crate) struct Scope {
    place: Arc<Place>,
    name: String,
    /// An address token that left the file together with a ticket: a connection
    /// takes one after the other, and the file is written once.
    token: Mutex<Option<Vec<u8>>>,
}

impl Scope {
    /// Where the server was found the last time, and how far away.
    pub(crate) fn place(&self) -> (Option<SocketAddr>, Option<PathRtt>) {
        let Ok((entries, _)) = self.place.read() else {
            return (None, None);
        };
        let entry = entries.into_iter().find(|e| e.scope == self.name);
        entry.map_or((None, None), |entry| (entry.addr, entry.rtt))
    }

    /// The server was found there. What is known of the way to another address
    /// is forgotten.
    pub(crate) fn found(&self, addr: SocketAddr) {
        self.change_soon("remember an address", move |entry| {
            let is_new = entry.addr != Some(addr);
            if is_new {
                (entry.addr, entry.rtt) = (Some(addr), None);
            }
            is_new
        });
    }

    /// So long takes a round trip to where the server was found.
    pub(crate) fn measured(&self, rtt: PathRtt) {
        self.change_soon("remember a round-trip time", move |entry| {
            entry.rtt = Some(rtt);
            true
        });
    }

    /// Waits until what is new is in the file: the process may end.
    pub(crate) fn settle(&self) {
        self.place.changes.make();
    }

    /// Has the entry changed by a thread, unless `f` says that it is as it was.
    fn change_soon(&self, what: &'static str, f: impl FnOnce(&mut Entry) -> bool + Send + 'static) {
        let (path, name) = (self.place.path.clone(), self.name.clone());
        self.place.change_soon(Box::new(move || {
            change(&path, &name, what, |entry| f(entry).then_some(()));
        }));
    }

    fn token(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes something out of the entry, which needs not survive a power cut: a server
    /// takes a ticket once, and refuses it if a power cut brings it back.
    fn take_out<R>(&self, what: &str, f: impl FnOnce(&mut Entry) -> Option<R>) -> Option<R> {
        self.place.changes.make();
        change(&self.place.path, &self.name, what, f)
    }
}

/// Changes an entry under the lock; `None`: nothing was changed.
fn change<R>(
    path: &Path,
    name: &str,
    what: &str,
    f: impl FnOnce(&mut Entry) -> Option<R>,
) -> Option<R> {
    let result = try_change(path, name, f);
    if let Err(error) = &result {
        tracing::warn!(path = %path.display(), %error, "cannot {what}");
    }
    result.ok().flatten()
}

fn try_change<R>(
    path: &Path,
    name: &str,
    f: impl FnOnce(&mut Entry) -> Option<R>,
) -> io::Result<Option<R>> {
    let _lock = lock(path)?;
    let (mut entries, notice) = read(path)?;
    if let Some(notice) = notice {
        tracing::warn!("{notice}");
    }
    let mut entry = match entries.iter().position(|e| e.scope == name) {
        Some(at) => entries.remove(at),
        None => Entry {
            scope: name.to_owned(),
            ..Entry::default()
        },
    };
    let Some(result) = f(&mut entry) else {
        return Ok(None);
    };
    entry.used = seconds();
    bound(&mut entry.tickets, TICKETS_MAX);
    bound(&mut entry.tokens, TOKENS_MAX);
    entries.push(entry);
    write(path, &entries)?;
    Ok(Some(result))
}

impl SessionTickets for Scope {
    fn insert(&self, ticket: Vec<u8>) {
        if ticket.len() <= ITEM_BYTES_MAX {
            self.change_soon("store a session ticket", |entry| {
                entry.tickets.push(ticket);
                true
            });
        }
    }

    fn take(&self) -> Option<Vec<u8>> {
        // The newest is good for longest.
        let taken = self.take_out("take a session ticket", |entry| {
            let ticket = entry.tickets.pop()?;
            Some((ticket, entry.tokens.pop()))
        });
        let (ticket, token) = taken?;
        if token.is_some() {
            *self.token() = token;
        }
        Some(ticket)
    }
}

impl AddressTokens for Scope {
    fn insert(&self, _: &str, token: Bytes) {
        if token.len() <= ITEM_BYTES_MAX {
            let token = token.to_vec();
            self.change_soon("store an address token", |entry| {
                entry.tokens.push(token);
                true
            });
        }
    }

    fn take(&self, _: &str) -> Option<Bytes> {
        let held = self.token().take();
        let token =
            held.or_else(|| self.take_out("take an address token", |entry| entry.tokens.pop()));
        token.map(Bytes::from)
    }
}

/// Lets the oldest go.
fn bound(items: &mut Vec<Vec<u8>>, max: usize) {
    let over = items.len().saturating_sub(max);
    items.drain(..over);
}

fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// What is in the file, and what is wrong with it.
fn read(path: &Path) -> io::Result<(Vec<Entry>, Option<String>)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), None)),
        Err(error) => return Err(error),
    };
    let name = path.display();
    let afresh =
        |why: fmt::Arguments<'_>| Ok((Vec::new(), Some(format!("{why}; it is begun again"))));
    if is_exposed(&file)? {
        return afresh(format_args!("{name} may be read by others"));
    }
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    Read::take(&mut file, limit).read_to_end(&mut bytes)?;
    match format::decode(&bytes) {
        Some(entries) if bytes.len() <= FILE_BYTES_MAX => Ok((entries, None)),
        _ => afresh(format_args!("{name} is no ticket file, or damaged")),
    }
}

#[cfg(unix)]
fn is_exposed(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(file.metadata()?.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_exposed(_: &File) -> io::Result<bool> {
    Ok(false)
}

/// Replaces the file in one step: when the process dies it holds either the
/// old entries or the new.
fn write(path: &Path, entries: &[Entry]) -> io::Result<()> {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.used);
    let mut bytes = format::encode(&entries);
    while entries.len() > ENTRIES_MAX || bytes.len() > FILE_BYTES_MAX {
        entries.remove(0);
        bytes = format::encode(&entries);
    }
    files::replace_soon(path, &bytes, Access::Private)
}

/// Locks the file beside it, because the file itself is replaced.
fn lock(path: &Path) -> io::Result<File> {
    let file = private()
        .create(true)
        .truncate(false)
        .open(beside(path, "lock")?)?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::Error(error)) => return Err(error),
            Err(fs::TryLockError::WouldBlock) if start.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(fs::TryLockError::WouldBlock) => {
                return Err(io::Error::other("another process holds the file"));
            }
        }
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn beside(path: &Path, ending: &str) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("not the name of a file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(".");
    hidden.push(ending);
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(dir: &Path, client_id: &str) -> Arc<Scope> {
        let file = TicketFile::open(dir.join("tickets")).expect("opened");
        file.scope(&"quic://host".parse().expect("a URL"), client_id)
    }

    #[test]
    fn what_is_taken_is_gone_for_everybody() {
        let dir = tempfile::tempdir().expect("directory");
        let (one, other) = (scope(dir.path(), "a"), scope(dir.path(), "b"));
        for n in 0..10_u8 {
            SessionTickets::insert(&*one, vec![n]);
        }
        AddressTokens::insert(&*one, "host", Bytes::from_static(b"token"));
        let addr = "192.0.2.1:14567".parse().expect("an address");
        one.found(addr);
        one.settle();
        // As another process finds it.
        let again = scope(dir.path(), "a");
        assert_eq!(again.place(), (Some(addr), None));
        let rtt = PathRtt {
            micros: 7,
            network: "n".into(),
        };
        again.measured(rtt.clone());
        again.settle();
        one.found(addr);
        one.settle();
        assert_eq!(again.place(), (Some(addr), Some(rtt)));
        assert_eq!(SessionTickets::take(&*other), None);
        let tickets: Vec<_> = core::iter::from_fn(|| SessionTickets::take(&*again)).collect();
        let newest: Vec<_> = (10 - TICKETS_MAX as u8..10)
            .rev()
            .map(|n| vec![n])
            .collect();
        assert_eq!(tickets, newest);
        assert_eq!(SessionTickets::take(&*one), None);
        assert_eq!(
            AddressTokens::take(&*again, "host").as_deref(),
            Some(&b"token"[..])
        );
        assert_eq!(AddressTokens::take(&*one, "host"), None);
    }

    #[test]
    #[cfg(unix)]
    fn a_ticket_and_a_token_leave_the_file_in_one_step() {
        use std::os::unix::fs::MetadataExt as _;

        let dir = tempfile::tempdir().expect("directory");
        let (one, other) = (scope(dir.path(), "a"), scope(dir.path(), "a"));
        SessionTickets::insert(&*one, vec![1]);
        AddressTokens::insert(&*one, "host", Bytes::from_static(b"token"));
        one.settle();
        let inode = || {
            let found = fs::metadata(dir.path().join("tickets"));
            found.expect("there").ino()
        };
        assert_eq!(SessionTickets::take(&*one), Some(vec![1]));
        let after = inode();
        assert_eq!(AddressTokens::take(&*other, "host"), None);
        assert_eq!(
            AddressTokens::take(&*one, "host").as_deref(),
            Some(&b"token"[..])
        );
        assert_eq!(AddressTokens::take(&*one, "host"), None);
        assert_eq!(inode(), after, "not written again");
    }

    #[test]
    fn no_connection_waits_for_a_file_that_another_process_holds() {
        let dir = tempfile::tempdir().expect("directory");
        let one = scope(dir.path(), "a");
        let held = lock(&dir.path().join("tickets")).expect("locked");
        for n in 0..3 {
            SessionTickets::insert(&*one, vec![n]);
        }
        AddressTokens::insert(&*one, "host", Bytes::from_static(b"token"));
        drop(held);
        one.settle();
        // As another process finds it.
        let again = scope(dir.path(), "a");
        let tickets: Vec<_> = core::iter::from_fn(|| SessionTickets::take(&*again)).collect();
        assert_eq!(tickets, [[2], [1], [0]]);
        assert!(AddressTokens::take(&*again, "host").is_some());
    }

    #[test]
    fn what_is_new_is_in_the_file_when_the_last_user_is_gone() {
        let dir = tempfile::tempdir().expect("directory");
        for n in 0..2 * TICKETS_MAX as u8 {
            // Also of what was given just before.
            let one = scope(dir.path(), "a");
            SessionTickets::insert(&*one, vec![n]);
            AddressTokens::insert(&*one, "host", Bytes::from_static(b"token"));
        }
        let last = scope(dir.path(), "a");
        let newest = 2 * TICKETS_MAX as u8 - 1;
        assert_eq!(SessionTickets::take(&*last), Some(vec![newest]));
        let rest = core::iter::from_fn(|| SessionTickets::take(&*last)).count();
        assert_eq!(rest, TICKETS_MAX - 1);
    }

    #[test]
    fn a_ticket_is_for_one_protocol() {
        let dir = tempfile::tempdir().expect("directory");
        let file = TicketFile::open(dir.path().join("tickets")).expect("opened");
        let scope = |url: &str| file.scope(&url.parse().expect("a URL"), "a");
        let (mqtt, amqp) = (scope("quic://h:7"), scope("amqp+quic://h:7"));
        SessionTickets::insert(&*mqtt, vec![1]);
        assert_eq!(SessionTickets::take(&*amqp), None);
        assert_eq!(SessionTickets::take(&*mqtt), Some(vec![1]));
    }

    #[test]
    fn two_at_a_time_share_without_loss() {
        const EACH: usize = 3;
        let dir = tempfile::tempdir().expect("directory");
        std::thread::scope(|threads| {
            for name in ["a", "b"] {
                let scope = scope(dir.path(), name);
                threads.spawn(move || {
                    for n in 0..EACH {
                        SessionTickets::insert(&*scope, vec![n as u8]);
                    }
                });
            }
        });
        for name in ["a", "b"] {
            let scope = scope(dir.path(), name);
            let all = core::iter::from_fn(|| SessionTickets::take(&*scope)).count();
            assert_eq!(all, EACH, "{name}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn what_is_no_regular_file_is_refused_and_stays() {
        use std::os::unix::net::UnixListener;

        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("socket");
        let _listener = UnixListener::bind(&path).expect("bound");
        let refused = [
            TicketFile::open(&path).expect_err("a socket"),
            crate::RaceMemory::file(&path).expect_err("a socket"),
        ];
        for error in refused {
            assert!(error.to_string().contains("it is a socket"), "{error}");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
    }

    #[test]
    fn a_file_that_is_no_good_is_begun_again_and_kept_private() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("tickets");
        let scope = scope(dir.path(), "a");
        SessionTickets::insert(&*scope, b"ticket".to_vec());
        scope.settle();
        assert_eq!(TicketFile::open(&path).expect("good").notice(), None);
        let whole = fs::read(&path).expect("read");
        let long = vec![0; FILE_BYTES_MAX + 1];
        let damaged = [&whole[..whole.len() - 1], &whole[1..], b"", &long];
        for bytes in damaged {
            fs::write(&path, bytes).expect("written");
            let file = TicketFile::open(&path).expect("begun again");
            assert!(file.notice().is_some_and(|n| n.contains("damaged")));
            assert_eq!(TicketFile::open(&path).expect("good").notice(), None);
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = || fs::metadata(&path).expect("there").permissions().mode() & 0o777;
            assert_eq!(mode(), 0o600);
            SessionTickets::insert(&*scope, b"ticket".to_vec());
            scope.settle();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
            let file = TicketFile::open(&path).expect("begun again");
            assert!(file.notice().is_some_and(|n| n.contains("others")));
            assert_eq!(mode(), 0o600);
            assert_eq!(SessionTickets::take(&*scope), None);
        }
    }

    #[test]
    fn a_file_has_a_bound() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("tickets");
        let entries: Vec<_> = (0..200)
            .map(|n| Entry {
                scope: format!("server {n}"),
                used: n,
                tickets: vec![vec![0; ITEM_BYTES_MAX]; 3],
                ..Entry::default()
            })
            .collect();
        write(&path, &entries).expect("written");
        let (left, notice) = read(&path).expect("read");
        assert_eq!(notice, None);
        assert!(left.len() <= ENTRIES_MAX);
        assert!(fs::metadata(&path).expect("there").len() <= FILE_BYTES_MAX as u64);
        assert_eq!(left.last(), entries.last(), "the oldest went");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error() {
        assert!(TicketFile::open("/").is_err());
        let dir = tempfile::tempdir().expect("directory");
        assert!(TicketFile::open(dir.path().join("no/such/dir")).is_err());
        assert!(TicketFile::open(dir.path()).is_err(), "a directory");
    }
}
