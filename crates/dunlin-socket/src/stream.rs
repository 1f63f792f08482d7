//! A stream as an application has it: what `std::net::TcpStream` has, and the
//! traits of futures and Tokio.

use core::fmt;
use core::net::SocketAddr;
#[cfg(any(feature = "futures", feature = "tokio"))]
use core::pin::Pin;
#[cfg(any(feature = "futures", feature = "tokio"))]
use core::task::{Context, Poll};
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use crate::pipe::Pipe;
use crate::shared::{Command, ConnHandle, Facts, StreamHandle};
use crate::wait::check_limit;

/// A byte stream to a peer over QUIC, to be used like
/// [`TcpStream`](std::net::TcpStream).
///
/// It reads and writes where threads block ([`Read`], [`Write`], also by
/// reference), and where tasks wait: `futures_io::AsyncRead` and `AsyncWrite`
/// with the feature `futures`, those of `tokio::io` with `tokio`; both are on. The
/// methods without `async` in their name that wait block the thread.
///
/// What is written waits in a buffer of
/// [`Limits::send_buffer`](crate::Limits::send_buffer); a writer waits when that is
/// full. What is not read fills
/// [`Limits::receive_buffer`](crate::Limits::receive_buffer) and then makes the
/// peer's writer wait. Nothing is ever held back to be sent with more.
///
/// # End
/// [`Stream::shutdown`] with [`Shutdown::Write`] ends what this side sends; the
/// peer reads it to its end, and its answer can still be read. When the last clone
/// is dropped, what was written still leaves and is followed by the end;
/// what arrives afterwards is not wanted, and the peer's writes fail. When that was
/// the last stream of its connection, the connection closes once the peer has
/// everything, or after [`Limits::linger`](crate::Limits::linger). This happens in
/// the process, unlike TCP's: a program that is about to end waits for it with
/// [`Stream::finish`] or [`wait_idle`](crate::wait_idle).
///
/// A peer that resets the stream makes reads fail with
/// [`ConnectionReset`](io::ErrorKind::ConnectionReset), after what arrived before;
/// one that is gone with [`TimedOut`](io::ErrorKind::TimedOut); one that closed
/// the connection in the middle of the stream with
/// [`ConnectionAborted`](io::ErrorKind::ConnectionAborted). A stream never
/// seems to end where it was cut off.
///
/// # Examples
/// ```
/// # let issued = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
/// # let (cert, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
/// use dunlin_socket::{ListenOptions, Options, TlsOptions};
/// use std::io::{Read, Write};
///
/// let listener = ListenOptions::pem(cert.clone(), key).bind("127.0.0.1:0")?;
/// let addr = listener.local_addr();
/// let server = std::thread::spawn(move || {
///     let (mut stream, _peer) = listener.accept()?;
///     std::io::copy(&mut stream.try_clone()?, &mut stream)
/// });
///
/// let tls = TlsOptions::new().ca_pem(cert);
/// let mut stream = Options::new().tls(tls).connect(("localhost", addr.port()))?;
/// stream.write_all(b"hello")?;
/// stream.shutdown(std::net::Shutdown::Write)?;
/// let mut echo = String::new();
/// stream.read_to_string(&mut echo)?;
/// assert_eq!(echo, "hello");
/// # server.join().expect("no panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Stream {
    handle: Arc<StreamHandle>,
}

impl Stream {
    pub(crate) const fn new(handle: Arc<StreamHandle>) -> Self {
        Self { handle }
    }

    /// Number of the stream within its connection (RFC 9000 section 2.1).
    #[must_use]
    pub fn id(&self) -> u64 {
        self.handle.pipe.id.0
    }

    /// Another handle to the same stream, as for a thread that only reads.
    ///
    /// # Errors
    /// None; the result is there because `TcpStream` has one.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.share())
    }

    fn share(&self) -> Self {
        Self::new(Arc::clone(&self.handle))
    }

    /// Address of the peer; it may change.
    ///
    /// # Errors
    /// None; as [`Stream::try_clone`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.facts().peer)
    }

    /// Address of this machine, as far as it can be known; it may change.
    ///
    /// # Errors
    /// None; as [`Stream::try_clone`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.facts().local)
    }

    /// How long a read may wait, on all clones; `None` (default): without end. Then
    /// it fails with [`WouldBlock`](io::ErrorKind::WouldBlock).
    ///
    /// # Errors
    /// The limit is zero.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        check_limit(limit)?;
        self.pipe().lock().read_patience.limit = limit;
        Ok(())
    }

    /// How long a write, or [`Stream::finish`], may wait, on all clones; `None`
    /// (default): without end.
    ///
    /// # Errors
    /// The limit is zero.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        check_limit(limit)?;
        self.pipe().lock().write_patience.limit = limit;
        Ok(())
    }

    /// What [`Stream::set_read_timeout`] set.
    ///
    /// # Errors
    /// None; as [`Stream::try_clone`].
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.pipe().lock().read_patience.limit)
    }

    /// What [`Stream::set_write_timeout`] set.
    ///
    /// # Errors
    /// None; as [`Stream::try_clone`].
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.pipe().lock().write_patience.limit)
    }

    /// Whether reads and writes that would have to wait fail with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) instead.
    ///
    /// # Errors
    /// None; as [`Stream::try_clone`].
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        let mut state = self.pipe().lock();
        state.read_patience.nonblocking = nonblocking;
        state.write_patience.nonblocking = nonblocking;
        Ok(())
    }

    /// Does nothing: nothing is held back to be sent with more. For programs that
    /// ask `TcpStream` for it.
    ///
    /// # Errors
    /// None; as [`Stream::try_clone`].
    pub fn set_nodelay(&self, _nodelay: bool) -> io::Result<()> {
        Ok(())
    }

    /// Reads what is there without taking it.
    ///
    /// # Errors
    /// As a read.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.pipe().read(into, true, &self.touch())?)
    }

    /// Ends what this side sends, after what was written (`Write`), or what it
    /// reads: what arrives is dropped, and the peer does not notice (`Read`).
    ///
    /// # Errors
    /// None; as [`Stream::try_clone`].
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.pipe().finish(&self.touch());
        }
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.pipe().shut_down_reading(&self.touch());
        }
        Ok(())
    }

    /// Ends what this side sends and waits until all of it has arrived at the peer,
    /// which may not have read it.
    ///
    /// # Errors
    /// The stream or connection failed before;
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) after
    /// [`Stream::set_write_timeout`].
    pub fn finish(&self) -> io::Result<()> {
        self.pipe().finish(&self.touch());
        Ok(self.pipe().wait_delivered()?)
    }

    /// As [`Stream::finish`], for a task.
    ///
    /// # Errors
    /// As [`Stream::finish`].
    pub async fn finish_async(&self) -> io::Result<()> {
        self.pipe().finish(&self.touch());
        let delivered =
            core::future::poll_fn(|context| self.pipe().poll_delivered(context.waker()));
        Ok(delivered.await?)
    }

    /// Abandons the stream both ways: what has not left is dropped, and the peer's
    /// reads and writes fail with this code.
    pub fn reset(&self, code: u64) {
        self.handle
            .conn
            .shared()
            .push(Command::Reset(self.pipe().id, code));
    }

    /// Its connection.
    pub(crate) fn conn(&self) -> &Arc<ConnHandle> {
        &self.handle.conn
    }

    fn facts(&self) -> Facts {
        self.conn().shared().lock().facts.clone()
    }

    fn pipe(&self) -> &Pipe {
        &self.handle.pipe
    }

    /// Asks the driver to look at the stream.
    fn touch(&self) -> impl Fn() + '_ {
        || {
            self.handle
                .conn
                .shared()
                .push(Command::Touch(self.handle.pipe.id))
        }
    }

    /// The application has a stream of the peer from now on.
    pub(crate) fn adopt(pipe: Arc<Pipe>, conn: &Arc<ConnHandle>) -> Self {
        let stream = Self::new(StreamHandle::new(pipe, Arc::clone(conn)));
        let mut state = stream.pipe().lock();
        state.taken = true;
        if state.inbound.paused {
            state.ask(&stream.touch());
        }
        drop(state);
        stream
    }

    #[cfg(any(feature = "futures", feature = "tokio"))]
    fn poll_take(&self, context: &Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = self.pipe().poll_read(into, context.waker(), &self.touch());
        read.map_err(Into::into)
    }

    #[cfg(any(feature = "futures", feature = "tokio"))]
    fn poll_put(&self, context: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self
            .pipe()
            .poll_write(bytes, context.waker(), &self.touch());
        written.map_err(Into::into)
    }

    #[cfg(any(feature = "futures", feature = "tokio"))]
    fn poll_end(&self) -> Poll<io::Result<()>> {
        self.pipe().finish(&self.touch());
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.id())
            .field("peer", &self.facts().peer)
            .finish_non_exhaustive()
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.pipe().read(into, false, &self.touch())?)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.pipe().write(bytes, &self.touch())?)
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "futures")]
impl futures_io::AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_take(context, into)
    }
}

#[cfg(feature = "futures")]
impl futures_io::AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_put(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_end()
    }
}

#[cfg(feature = "tokio")]
impl tokio::io::AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = core::task::ready!(self.poll_take(context, into.initialize_unfilled()))?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

#[cfg(feature = "tokio")]
impl tokio::io::AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_put(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_end()
    }
}
