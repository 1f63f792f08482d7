//! A connection between a simulated client and a shard: bytes in order both
//! ways, late, in pieces of any size.

use std::collections::VecDeque;

use dunlin_base::{Instant, StreamId};

/// What a client sees of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToClient {
    /// Bytes of a stream.
    Bytes(StreamId, Vec<u8>),
    /// The server sends no more on this stream.
    Finished(StreamId),
    /// The server abandoned this stream.
    Reset(StreamId, u64),
    /// The connection is gone.
    Closed(u64),
}

/// What a client does on its connection.
#[derive(Clone, Debug)]
pub(crate) enum ToServer {
    Bytes(StreamId, Vec<u8>),
    Finished(StreamId),
    Reset(StreamId, u64),
}

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Arrival of the last thing in each direction: nothing overtakes.
    pub(crate) last_to_server: Instant,
    pub(crate) last_to_client: Instant,
    /// The server does not read.
    pub(crate) paused: bool,
    pub(crate) waiting: VecDeque<ToServer>,
    /// The client does not read: what the server sent waits here.
    pub(crate) stalled: bool,
    pub(crate) unread: VecDeque<ToClient>,
    pub(crate) unread_bytes: usize,
    /// Streams that the server abandoned.
    pub(crate) dead: Vec<StreamId>,
    /// Idle timeout that the shard asked for, in microseconds.
    pub(crate) idle_timeout: u64,
    /// Bytes that the client has got.
    pub(crate) received: u64,
}
