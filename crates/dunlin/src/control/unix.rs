//! The Unix socket of a running broker: requests and replies as lines of JSON, in
//! order. Who may open the socket may do everything; that is for the permissions of
//! the file and of its directory. Each connection has a thread, so that one that does
//! not read or does not finish its line holds up no other.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use dunlin_net::{UnixAccess, UnixSocket};

use super::audit::Who;
use super::plane::Plane;
use super::values::{Code, Failure, Reply, Request, Role};

/// Who may connect: the user that the broker runs as, and root.
const ACCESS: UnixAccess = UnixAccess {
    mode: 0o600,
    group: None,
};

/// Connections at a time; a further one is answered that there are too many.
const CONNECTIONS_MAX: usize = 32;

/// Longest request: a message to publish, with escapes.
const REQUEST_BYTES_MAX: usize = 2 << 20;

/// How long a client may take for the rest of a request that it has begun.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// How long a client may be silent between two requests.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long a client may leave what it gets unread.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// Bytes read at a time.
const READ_BYTES: usize = 4096;

/// Pause when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// What answers.
pub(crate) trait Answers: core::fmt::Debug + Send + Sync {
    /// Answers a question, or carries out an order.
    fn answer(&self, who: &Who, request: &Request) -> Reply;

    /// Writes a copy of the store, until `stopping`.
    ///
    /// # Errors
    /// What `out` says.
    fn backup(
        &self,
        who: &Who,
        out: BufWriter<&UnixStream>,
        stopping: &dyn Fn() -> bool,
    ) -> io::Result<()>;
}

impl Answers for Plane {
    fn answer(&self, who: &Who, request: &Request) -> Reply {
        Self::answer(self, who, request)
    }

    fn backup(
        &self,
        who: &Who,
        out: BufWriter<&UnixStream>,
        stopping: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        Self::backup(self, who, out, stopping)
    }
}

/// The listening socket. Dropping it ends it, and the connections.
#[derive(Debug)]
pub(crate) struct Door {
    socket: Arc<UnixSocket>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    answers: Arc<dyn Answers>,
    stopping: AtomicBool,
    open: Mutex<Vec<Open>>,
}

/// A connection, to end it from another thread.
#[derive(Debug)]
struct Open {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

impl Door {
    /// Listens at a path, which a broker that was killed may have left.
    ///
    /// # Errors
    /// What the system says: a path of more than about 100 bytes, or a broker that
    /// listens there, for two.
    pub(crate) fn open(path: &Path, answers: Arc<dyn Answers>) -> io::Result<Self> {
        let socket = Arc::new(UnixSocket::bind(path, ACCESS)?);
        let shared = Arc::new(Shared {
            answers,
            stopping: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let (accepting, listening) = (Arc::clone(&shared), Arc::clone(&socket));
        let thread = std::thread::Builder::new().name("control".into());
        let thread = thread.spawn(move || accept(listening.listener(), &accepting))?;
        Ok(Self {
            socket,
            shared,
            thread: Some(thread),
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let woken = UnixStream::connect(self.socket.path());
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            // It ends with its panic, if it had one.
            let _ = thread.join();
        }
        let open = core::mem::take(&mut *self.shared.lock());
        for Open { stream, .. } in &open {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for Open { thread, .. } in open {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.is_stopping() {
            return;
        }
        match client {
            Ok(client) => enter(shared, client),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Gives a connection its thread.
fn enter(shared: &Arc<Shared>, client: UnixStream) {
    let mut open = shared.lock();
    open.retain(|open| !open.thread.is_finished());
    if open.len() >= CONNECTIONS_MAX {
        let failure = Failure::new(Code::Busy, "too many connections to this socket");
        // It fits into the buffer of the socket, or the client goes without.
        let _ = client.set_nonblocking(true);
        let _ = send(&client, &Reply::Failed(failure));
        return;
    }
    let Ok(stream) = client.try_clone() else {
        return;
    };
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("control-answer".into());
    let spawned = thread.spawn(move || {
        if let Err(error) = serve(&client, &shared) {
            tracing::debug!(%error, "a connection to the control socket ended");
        }
        let _ = client.shutdown(Shutdown::Both);
    });
    if let Ok(thread) = spawned {
        open.push(Open { stream, thread });
    }
}

/// Answers the requests of one connection, until it ends or one of them is wrong.
fn serve(client: &UnixStream, shared: &Shared) -> io::Result<()> {
    client.set_write_timeout(Some(UNREAD_TIME))?;
    let who = Who {
        door: "unix",
        name: peer(client),
        role: Role::Admin,
    };
    let mut unread = Vec::new();
    loop {
        let line = match next_line(client, &mut unread) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(failure) => return send(client, &Reply::Failed(failure)),
        };
        let request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(error) => {
                let text = format!("that is no request: {error}");
                return send(client, &Reply::Failed(Failure::new(Code::BadRequest, text)));
            }
        };
        if request == (Request::Backup {}) {
            let out = BufWriter::new(client);
            return shared.answers.backup(&who, out, &|| shared.is_stopping());
        }
        send(client, &shared.answers.answer(&who, &request))?;
    }
}

fn send(mut client: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    client.write_all(&line)
}

/// The next line, without its end; `None`: there is none. `unread`: bytes of later
/// ones.
fn next_line(mut client: &UnixStream, unread: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Failure> {
    let too_late = || Failure::new(Code::BadRequest, "the request does not come in time");
    let (mut looked, mut deadline) = (0, None);
    loop {
        if let Some(at) = unread[looked..].iter().position(|byte| *byte == b'\n') {
            let rest = unread.split_off(looked + at + 1);
            let mut line = core::mem::replace(unread, rest);
            line.pop();
            return Ok(Some(line));
        }
        looked = unread.len();
        if looked > REQUEST_BYTES_MAX {
            let text = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
            return Err(Failure::new(Code::BadRequest, text));
        }
        // What has begun has less time, however slowly it goes on.
        let now = Instant::now();
        if looked > 0 && deadline.is_none() {
            deadline = Some(now + REQUEST_TIME);
        }
        let time = match deadline {
            Some(deadline) => deadline.saturating_duration_since(now),
            None => SILENCE_MAX,
        };
        if time.is_zero() || client.set_read_timeout(Some(time)).is_err() {
            return Err(too_late());
        }
        let mut bytes = [0; READ_BYTES];
        match client.read(&mut bytes) {
            // A line that is not whole is no request.
            Ok(0) => return Ok(None),
            Ok(count) => unread.extend_from_slice(bytes.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if looked == 0 => return Ok(None),
            Err(_) => return Err(too_late()),
        }
    }
}

/// Who is at the other end.
#[cfg(target_os = "linux")]
fn peer(client: &UnixStream) -> String {
    match rustix::net::sockopt::socket_peercred(client) {
        Ok(peer) => format!(
            "uid {} pid {}",
            peer.uid.as_raw(),
            peer.pid.as_raw_nonzero()
        ),
        Err(_) => "unknown".to_owned(),
    }
}

#[cfg(not(target_os = "linux"))]
fn peer(_client: &UnixStream) -> String {
    "unknown".to_owned()
}
