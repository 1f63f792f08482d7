//! What a driver and its sockets may hold. Every bound has a name here.

use core::time::Duration;

use dunlin_dial::RuntimeLimits;
use dunlin_net::{Clock, NetConfig, NetError, NetKeys, NetLimits};

use dunlin_base::ShardId;

use crate::pipe::Bounds;

/// Streams that calls of one connection may wait for at a time.
pub(crate) const OPENS_WAITING_MAX: usize = 1024;

/// Pieces, ends and resets of streams that a server may send on an attempt to
/// connect before that is chosen; their bytes are bounded by the windows.
pub(crate) const SAID_MAX: usize = 1024;

/// Bytes that wait to leave on one connection, beyond which it is aborted: more than
/// [`Limits::send_buffer`] of all its streams.
const BACKLOG_BYTES_MAX: usize = 1 << 30;

/// What a driver and its sockets may hold.
///
/// A stream holds at most `receive_buffer` (and what one turn of the driver
/// reads on top, 256 KiB) and `stream_window` of what arrives, `send_buffer` of
/// what is to leave. A connection holds `send_window` of what the peer has not
/// acknowledged besides.
///
/// # Examples
/// ```
/// use dunlin_socket::{Driver, Limits, Options};
///
/// let mut limits = Limits::default();
/// limits.stream_window = 4 << 20; // a long, fast path
/// limits.send_window = 4 << 20;
/// let driver = Driver::new(&limits)?;
/// let options = Options::new().driver(&driver);
/// # Ok::<(), dunlin_socket::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at most. Default 65,536.
    pub connections: usize,
    /// Connections of a listener that wait to be accepted; further ones are
    /// closed. Default 128.
    pub backlog: usize,
    /// Streams of a connection that the peer may have open. Default 64.
    pub streams: u32,
    /// Bytes of a stream that wait to be read, beyond which the peer has to wait.
    /// Default 256 KiB.
    pub receive_buffer: usize,
    /// Bytes of a stream that wait to leave, beyond which a writer has to wait.
    /// Default 256 KiB.
    pub send_buffer: usize,
    /// Bytes of a stream that a peer may send ahead of the driver. Default
    /// 256 KiB.
    pub stream_window: u32,
    /// Bytes of a connection that the peer has not acknowledged. Default 1 MiB.
    pub send_window: u32,
    /// Time for the handshake of an accepted connection. Default 10 s.
    pub handshake_timeout: Duration,
    /// Silence after which a connection is lost where neither side asks for a sign
    /// of life (`keep_alive`). Default 98,303 s.
    pub idle_timeout: Duration,
    /// Time in which what was written leaves after the last handle is dropped.
    /// Default 5 s.
    pub linger: Duration,
    /// Buffers asked of the kernel for UDP. Default 2 MiB.
    pub udp_buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let net = NetLimits::default();
        Self {
            connections: 65_536,
            backlog: 128,
            streams: 64,
            receive_buffer: 256 << 10,
            send_buffer: 256 << 10,
            stream_window: 256 << 10,
            send_window: 1 << 20,
            handshake_timeout: net.handshake_timeout,
            idle_timeout: net.idle_timeout_max,
            linger: net.close_linger,
            udp_buffer: net.udp_buffer_bytes,
        }
    }
}

impl Limits {
    /// Those of a pipe.
    pub(crate) const fn bounds(&self) -> Bounds {
        Bounds {
            receive: self.receive_buffer,
            send: self.send_buffer,
        }
    }

    /// Those of a background thread.
    pub(crate) fn runtime(&self) -> RuntimeLimits {
        let mut limits = RuntimeLimits::default();
        limits.clients_max = self.connections;
        limits
    }

    /// Settings of an event loop.
    pub(crate) fn net(&self) -> Result<NetConfig, NetError> {
        let mut config = NetConfig::new(ShardId(0), 1, Clock::new(), NetKeys::random()?);
        // A connection is known when the driver has given it to its listener.
        config.accepts_peers = true;
        let limits = &mut config.limits;
        limits.connections_max = self.connections;
        limits.handshake_timeout = self.handshake_timeout;
        limits.idle_timeout_max = self.idle_timeout;
        // A server may be the first to speak, and a side may end what it sends and
        // read on for as long as it likes.
        limits.first_bytes_timeout = self.idle_timeout;
        limits.half_close_linger = self.idle_timeout;
        limits.close_linger = self.linger;
        limits.quic_bidi_streams = self.streams;
        limits.quic_uni_streams = 0;
        limits.quic_stream_receive_window = self.stream_window;
        // Streams that are not read fill their own windows, not that of others.
        let streams = self.streams.saturating_add(1);
        limits.quic_receive_window = self.stream_window.saturating_mul(streams);
        limits.quic_send_window = self.send_window;
        limits.quic_datagram_receive_bytes = 0;
        // Writers wait by themselves.
        limits.backlog_bytes_max = BACKLOG_BYTES_MAX;
        limits.unread_answers_bytes_max = BACKLOG_BYTES_MAX;
        limits.udp_buffer_bytes = self.udp_buffer;
        Ok(config)
    }
}
