//! Streams of bytes to servers that are spoken to here, encrypted or not, and addresses.

use tokio::io::{AsyncRead, AsyncWrite};

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
