//! A connection as an application has it: its streams, its facts, its moves.

use core::fmt;
use core::net::SocketAddr;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use dunlin_base::transport::Transport;
use dunlin_net::Move;

use crate::error::Error;
use crate::pipe::Pipe;
use crate::shared::{Command, ConnHandle, ConnShared, ConnState, Facts, StreamHandle};
use crate::stats::{EarlyData, Stats};
use crate::stream::Stream;
use crate::wait::{Answer, Asked, Patience, ask, block, check_limit};

/// A connection: streams, each a byte stream of its own, over one handshake.
///
/// A program that needs one stream needs none of this: see [`Stream`]. The
/// connection is closed when this, all its clones and all its [`Stream`]s are
/// dropped; what was written still leaves, as [`Stream`] says.
///
/// A stream that one side opens shows at the other with its first byte.
///
/// # Examples
/// ```no_run
/// use dunlin_socket::Connection;
/// use std::io::{Read, Write};
///
/// let connection = Connection::connect("example.org:4433")?;
/// for question in ["one", "two"] {
///     let mut stream = connection.open_stream()?;
///     stream.write_all(question.as_bytes())?;
///     stream.shutdown(std::net::Shutdown::Write)?;
///     let mut answer = Vec::new();
///     stream.read_to_end(&mut answer)?;
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Connection {
    handle: Arc<ConnHandle>,
}

impl Connection {
    pub(crate) const fn new(handle: Arc<ConnHandle>) -> Self {
        Self { handle }
    }

    /// Opens a stream. Waits until the peer allows one more.
    ///
    /// # Errors
    /// The connection is over; [`Error::WouldBlock`] after
    /// [`Connection::set_timeout`]; [`Error::NotQuic`].
    pub fn open_stream(&self) -> io::Result<Stream> {
        let asked = self.ask_stream();
        Ok(Stream::new(asked.wait(self.patience())?))
    }

    /// As [`Connection::open_stream`], for a task.
    ///
    /// # Errors
    /// As [`Connection::open_stream`].
    pub async fn open_stream_async(&self) -> io::Result<Stream> {
        Ok(Stream::new(self.ask_stream().await?))
    }

    fn ask_stream(&self) -> Asked<Arc<StreamHandle>> {
        self.ask(|answer| Command::Open(Arc::downgrade(&self.handle), answer))
    }

    /// Waits for the next stream that the peer opens. Those that are not accepted
    /// are not read, and [`Limits::streams`](crate::Limits::streams) bounds them.
    ///
    /// # Errors
    /// The connection is over; [`Error::WouldBlock`] after
    /// [`Connection::set_timeout`].
    pub fn accept_stream(&self) -> io::Result<Stream> {
        let ConnShared { state, changed, .. } = self.handle.shared();
        let pipe = block(
            state,
            changed,
            self.patience(),
            |state| &mut state.waiters,
            ConnState::next_incoming,
        )?;
        Ok(Stream::adopt(pipe, &self.handle))
    }

    /// As [`Connection::accept_stream`], for a task. Nothing is lost when the future
    /// is dropped.
    ///
    /// # Errors
    /// As [`Connection::accept_stream`].
    pub async fn accept_stream_async(&self) -> io::Result<Stream> {
        let pipe = core::future::poll_fn(|context| self.poll_incoming(context.waker())).await?;
        Ok(Stream::adopt(pipe, &self.handle))
    }

    fn poll_incoming(&self, task: &Waker) -> Poll<Result<Arc<Pipe>, Error>> {
        let mut state = self.handle.shared().lock();
        match state.next_incoming() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waiters.register(task);
                Poll::Pending
            }
        }
    }

    /// How long [`Connection::open_stream`] and [`Connection::accept_stream`] may
    /// wait; `None` (default): without end.
    ///
    /// # Errors
    /// The limit is zero.
    pub fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        check_limit(limit)?;
        self.handle.shared().lock().patience.limit = limit;
        Ok(())
    }

    fn patience(&self) -> Patience {
        self.handle.shared().lock().patience
    }

    /// Address of the peer; it may change.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.facts().peer
    }

    /// Address of this machine, as far as it can be known; it may change.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.facts().local
    }

    /// The application protocol that both sides agreed on.
    #[must_use]
    pub fn protocol(&self) -> String {
        self.facts().protocol
    }

    /// Name in the certificate that the peer has proved, if it has.
    #[must_use]
    pub fn peer_identity(&self) -> Option<String> {
        self.facts().identity
    }

    /// Whether it is QUIC; else it had to take TLS over TCP
    /// ([`Options::race`](crate::Options::race)).
    #[must_use]
    pub fn is_quic(&self) -> bool {
        self.facts().transport == Transport::Quic
    }

    fn facts(&self) -> Facts {
        self.handle.shared().lock().facts.clone()
    }

    /// What became of early data.
    #[must_use]
    pub fn early_data(&self) -> EarlyData {
        self.handle.shared().lock().early
    }

    /// What is known of the path.
    ///
    /// # Errors
    /// The connection is over; [`Error::NotQuic`].
    pub fn stats(&self) -> io::Result<Stats> {
        Ok(self.ask(Command::Stats).wait(Patience::default())?)
    }

    /// Moves to another address of this machine, once the server answers over the
    /// new path; `None`: one that the system chooses. Streams go on. Returns the
    /// new address. Only the side that connected can move, and only while the server's
    /// listener is there, which answers on the new path. By itself a connection
    /// moves when its own address disappears, without that.
    ///
    /// # Errors
    /// [`Error::Move`], [`Error::NoPath`]; the connection stays where it is then.
    pub fn migrate(&self, to: Option<SocketAddr>) -> io::Result<SocketAddr> {
        Ok(self.ask_move(to, Move::Probed).wait(Patience::default())?)
    }

    /// As [`Connection::migrate`], for a task.
    ///
    /// # Errors
    /// As [`Connection::migrate`].
    pub async fn migrate_async(&self, to: Option<SocketAddr>) -> io::Result<SocketAddr> {
        Ok(self.ask_move(to, Move::Probed).await?)
    }

    /// Goes on from another port at once and without notice, as behind a NAT that
    /// forgot the old one; for trials.
    ///
    /// # Errors
    /// [`Error::Move`].
    pub fn rebind(&self) -> io::Result<SocketAddr> {
        Ok(self
            .ask_move(None, Move::Rebound)
            .wait(Patience::default())?)
    }

    fn ask_move(&self, to: Option<SocketAddr>, how: Move) -> Asked<SocketAddr> {
        self.ask(|answer| Command::Move { to, how, answer })
    }

    /// Closes the connection with an application error code, after what was written
    /// on its streams and their ends; what the peer sends is dropped. Does not wait.
    pub fn close(&self, code: u64) {
        self.handle.shared().push(Command::Close(code));
    }

    fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Asked<T> {
        let (asked, answer) = ask();
        let end = self.handle.shared().lock().end.clone();
        match end {
            Some(error) => answer.give(Err(error)),
            None => self.handle.shared().push(command(answer)),
        }
        asked
    }
}

impl Stream {
    /// Its connection, for more streams.
    #[must_use]
    pub fn connection(&self) -> Connection {
        Connection::new(Arc::clone(self.conn()))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts();
        f.debug_struct("Connection")
            .field("peer", &facts.peer)
            .field("local", &facts.local)
            .finish_non_exhaustive()
    }
}
