//! Limits and deadlines of QUIC connections.

use core::time::Duration;

/// Limits and deadlines of the connections of one loop. Their meaning and
/// defaults are those of the fields of `NetLimits` in `dunlin-net`, which this
/// is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicLimits {
    /// Bidirectional streams a peer may have open, once it uses the first 10.
    pub bidi_streams: u32,
    /// Unidirectional streams a peer may have open, once it uses the first 3.
    pub uni_streams: u32,
    /// Bytes a peer may send ahead on a connection.
    pub receive_window: u32,
    /// Bytes a peer may send ahead on a stream.
    pub stream_receive_window: u32,
    /// Unacknowledged bytes kept for a connection.
    pub send_window: u32,
    /// Bytes of received datagrams kept until they are read; 0: none are taken.
    pub datagram_receive_bytes: u32,
    /// Bytes of datagrams that wait to be sent.
    pub datagram_queue_bytes: usize,
    /// Address tokens that a client is given.
    pub tokens: u32,
    /// How long such a token is good.
    pub token_lifetime: Duration,
    /// The longest idle timeout.
    pub idle_timeout_max: Duration,
    /// Time in which an accepted connection must say something.
    pub first_bytes_timeout: Duration,
    /// Time in which a closing connection may still flush.
    pub close_linger: Duration,
    /// Bytes read from one connection before others get a turn.
    pub read_budget_bytes: usize,
    /// Bytes waiting to leave on one connection, beyond which it is aborted.
    pub backlog_bytes_max: usize,
    /// Those of an accepted connection, beyond which it is not read until half
    /// of them have left.
    pub unread_answers_bytes_max: usize,
}
