//! Streams and clocks of Tokio as hyper takes them; a stream whose peer does not read
//! for too long fails.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::io;
use std::time::Instant;

use hyper::rt::{ReadBufCursor, Sleep, Timer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long a client may leave what it gets unread.
pub(super) const UNREAD_TIME: Duration = Duration::from_secs(60);

/// Bytes read at a time.
const READ_BYTES: usize = 8192;

/// A stream that fails where its peer reads nothing for too long.
#[derive(Debug)]
pub(super) struct Steady<S> {
    stream: S,
    unread_max: Duration,
    /// Since the peer does not read.
    waiting: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl<S> Steady<S> {
    pub(super) const fn new(stream: S, unread_max: Duration) -> Self {
        Self {
            stream,
            unread_max,
            waiting: None,
        }
    }

    /// Counts the time as long as a write waits.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let time = self.unread_max;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Steady<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Steady<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, shut)
    }
}

/// A stream of Tokio as one of hyper.
#[derive(Debug)]
pub(super) struct Io<S>(pub(super) S);

impl<S: AsyncRead + Unpin> hyper::rt::Read for Io<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; READ_BYTES];
        let (bytes, _) = bytes.split_at_mut(into.remaining().min(READ_BYTES));
        let mut read = ReadBuf::new(bytes);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut read))?;
        into.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for Io<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// The clock of Tokio.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch;

/// An alarm of that clock.
struct Alarm(Pin<Box<tokio::time::Sleep>>);

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl Sleep for Alarm {}

impl Timer for Watch {
    fn sleep(&self, time: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Alarm(Box::pin(tokio::time::sleep(time))))
    }

    fn sleep_until(&self, at: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Alarm(Box::pin(tokio::time::sleep_until(at.into()))))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn a_peer_that_does_not_read_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (ours, _theirs) = tokio::io::duplex(16);
            let time = Duration::from_millis(20);
            let mut steady = Steady::new(ours, time);
            let since = Instant::now();
            let error = steady.write_all(&[0; 64]).await.expect_err("unread");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(since.elapsed() >= time);
        });
    }
}
