//! Streams of bytes to servers that are spoken to here, encrypted or not, and addresses.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};

/// Most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

/// A stream of bytes of either kind.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Bytes for T {}

/// Host and port of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
pub(super) fn address(text: &str, port: u16) -> Option<(&str, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty() && !host.contains(['@', '/'])).then_some((host, port))
}

/// Connects to a server at the first of its addresses that takes a connection, and leaves
/// part of the time for what is said over it.
pub(super) async fn connect(host: &str, port: u16, time: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + time;
    let found = timeout_at(until, lookup_host((host, port))).await;
    let found = found.map_err(|_| io::ErrorKind::TimedOut)??;
    let addrs: Vec<_> = found.take(ADDRESSES_MAX).collect();
    first_of(&addrs, until, TcpStream::connect).await
}

/// Tries addresses in turn. One that does not answer takes no more than an equal share of the
/// time that is left, of which another share stays at the end.
async fn first_of<T, F>(
    addrs: &[SocketAddr],
    until: Instant,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for (shares, addr) in (2..=addrs.len() + 1).rev().zip(addrs) {
        let left = until.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(shares).unwrap_or(u32::MAX);
        match timeout(share, connect(*addr)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use core::future::pending;

    use super::*;

    const TIME: Duration = Duration::from_millis(300);

    fn addrs(count: u16) -> Vec<SocketAddr> {
        (1..=count)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect()
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next_one() {
        let until = Instant::now() + Duration::from_secs(2);
        let addrs = addrs(2);
        let connected = first_of(&addrs, until, async |addr: SocketAddr| match addr.port() {
            1 => pending().await,
            port => Ok(port),
        });
        assert_eq!(connected.await.expect("the second answers"), 2);
    }

    #[tokio::test]
    async fn each_address_is_tried_in_its_share_of_the_time() {
        for count in [1, 2, 5] {
            let (begin, tried) = (Instant::now(), core::cell::Cell::new(0));
            let connected: io::Result<()> = first_of(&addrs(count), begin + TIME, |_| {
                tried.set(tried.get() + 1);
                pending()
            })
            .await;
            let error = connected.expect_err("none answers");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(tried.get(), count);
            // All shares but the last one, and no timer ends early.
            let shares = TIME * u32::from(count) / (u32::from(count) + 1);
            assert!(begin.elapsed() >= shares, "{count}");
        }
    }

    #[tokio::test]
    async fn the_last_error_is_reported() {
        let until = Instant::now() + TIME;
        let addrs = addrs(3);
        let connected = first_of(&addrs, until, async |addr: SocketAddr| {
            Err::<(), _>(io::Error::other(addr.port().to_string()))
        });
        let error = connected.await.expect_err("none connects");
        assert_eq!(error.to_string(), "3");
        let none = first_of(&[], until, async |_| Ok(())).await;
        let error = none.expect_err("there is none");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
