//! The socket beside the store on which a running broker hands out a copy of it:
//! only processes of the same user can use it. One line asks; the answer is a
//! copy in lines of JSON, of one moment, while the broker goes on.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use dunlin_store_redb::Snapshots;

use crate::store::json::Writer;

/// Longest request.
const REQUEST_BYTES_MAX: u64 = 64;

/// How long a client may take for its request.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// How long a client may leave what it gets unread.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// What asks for a copy.
const BACKUP: &str = "backup\n";

/// Where a broker listens whose store is this file.
#[must_use]
pub fn socket_path(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".sock");
    PathBuf::from(name)
}

/// The listening thread. Dropping it ends it, and the copy under way.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens beside the store `store`, which this process has open.
    ///
    /// # Errors
    /// What the system says; a path of more than about 100 bytes, for one.
    pub fn start(store: &Path, snapshots: Snapshots) -> io::Result<Self> {
        let path = socket_path(store);
        // Left by a broker that was killed: the store is ours.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let is_stopping = Arc::clone(&stopping);
        let run = move || {
            for client in listener.incoming() {
                if is_stopping.load(Ordering::Relaxed) {
                    break;
                }
                let answered = client.and_then(|client| answer(&client, &snapshots, &is_stopping));
                if let Err(error) = answered {
                    tracing::warn!(%error, "a backup was not finished");
                }
            }
        };
        let thread = std::thread::Builder::new().name("control".into());
        Ok(Self {
            path,
            stopping,
            thread: Some(thread.spawn(run)?),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let woken = UnixStream::connect(&self.path);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            // It ends with its panic, if it had one.
            let _ = thread.join();
        }
        // What cannot be removed is removed at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(client: &UnixStream, snapshots: &Snapshots, stopping: &AtomicBool) -> io::Result<()> {
    client.set_read_timeout(Some(REQUEST_TIME))?;
    client.set_write_timeout(Some(UNREAD_TIME))?;
    let mut request = String::new();
    BufReader::new(client.take(REQUEST_BYTES_MAX)).read_line(&mut request)?;
    let mut lines = Writer::new(BufWriter::new(client))?;
    if request != BACKUP {
        return lines.fail("the broker does not know this request".to_owned());
    }
    let copied = snapshots.take().and_then(|view| {
        view.read(&mut |op| match stopping.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the broker stops")),
            false => lines.write(&op),
        })
    });
    match copied {
        Ok(report) => {
            tracing::info!(lines = lines.lines(), lost = report.lost(), "backup made");
            lines.end(report.lost())
        }
        Err(error) => lines.fail(error.to_string()),
    }
}

/// Asks the broker whose store is `store` for a copy, which is read from what is
/// returned.
///
/// # Errors
/// No broker listens there.
pub fn request(store: &Path) -> io::Result<impl Read + use<>> {
    let mut broker = UnixStream::connect(socket_path(store))?;
    broker.set_read_timeout(Some(UNREAD_TIME))?;
    broker.write_all(BACKUP.as_bytes())?;
    Ok(broker)
}
