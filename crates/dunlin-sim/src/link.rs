//! A connection between a simulated client and a shard: bytes in order both
//! ways, late, in pieces of any size.

use std::collections::{BTreeMap, VecDeque};

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
    /// A datagram.
    Datagram(Vec<u8>),
    /// The connection is gone.
    Closed(u64),
}

impl ToClient {
    /// Bytes of a stream, if it is that.
    pub(crate) const fn sent(&self) -> Option<(StreamId, usize)> {
        match self {
            Self::Bytes(stream, bytes) => Some((*stream, bytes.len())),
            _ => None,
        }
    }
}

/// What a client does on its connection.
#[derive(Clone, Debug)]
pub(crate) enum ToServer {
    Bytes(StreamId, Vec<u8>),
    Finished(StreamId),
    Reset(StreamId, u64),
    Datagram(Vec<u8>),
    /// Everything of a stream that the server ended has arrived.
    Delivered(StreamId),
}

/// One connection.
#[derive(Debug, Default)]
pub struct Link {
    /// Arrival of the last thing in each direction: nothing overtakes.
    pub(crate) last_to_server: Instant,
    pub(crate) last_to_client: Instant,
    /// As `last_to_client` where streams do not wait for each other.
    pub(crate) last_on_stream: BTreeMap<StreamId, Instant>,
    /// Streams that the server may still open, and has opened.
    pub(crate) credit: u64,
    pub(crate) opened: u64,
    /// The server was refused a stream.
    pub(crate) refused: bool,
    /// The server does not read.
    pub(crate) paused: bool,
    pub(crate) waiting: VecDeque<ToServer>,
    pub(crate) waiting_bytes: usize,
    /// Streams that the server does not read.
    pub(crate) paused_streams: Vec<StreamId>,
    /// The only stream besides control that the server reads.
    pub(crate) read_only: Option<StreamId>,
    /// The client does not read: what the server sent waits here.
    pub(crate) stalled: bool,
    pub(crate) unread: VecDeque<ToClient>,
    pub(crate) unread_bytes: usize,
    /// Streams that the client does not read, with what waits on them.
    pub(crate) stalled_streams: BTreeMap<StreamId, Vec<Vec<u8>>>,
    /// Streams that the server abandoned.
    pub(crate) dead: Vec<StreamId>,
}

impl Link {
    /// Bytes that the server gave to streams that the client does not read.
    #[must_use]
    pub fn stalled_bytes(&self) -> usize {
        let streams = self.stalled_streams.values();
        streams.flatten().map(Vec::len).sum()
    }

    /// Bytes that the server gave to the connection while its client does not
    /// read.
    #[must_use]
    pub const fn unread_bytes(&self) -> usize {
        self.unread_bytes
    }

    /// Bytes that the client has sent and the server does not read.
    #[must_use]
    pub const fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Something waits until the server reads.
    pub(crate) fn wait(&mut self, what: ToServer) {
        if let ToServer::Bytes(_, bytes) | ToServer::Datagram(bytes) = &what {
            self.waiting_bytes += bytes.len();
        }
        self.waiting.push_back(what);
    }

    pub(crate) fn take_waiting(&mut self) -> VecDeque<ToServer> {
        self.waiting_bytes = 0;
        core::mem::take(&mut self.waiting)
    }

    /// Whether the server reads the stream that this came on.
    pub(crate) fn is_read(&self, what: &ToServer) -> bool {
        let (ToServer::Bytes(stream, _) | ToServer::Finished(stream) | ToServer::Reset(stream, _)) =
            what
        else {
            return true;
        };
        let only = self.read_only;
        let others = *stream == StreamId::CONTROL || only.is_none_or(|only| only == *stream);
        others && !self.paused_streams.contains(stream)
    }

    pub(crate) fn pause_stream(&mut self, stream: StreamId, paused: bool) {
        self.paused_streams.retain(|it| *it != stream);
        if paused {
            self.paused_streams.push(stream);
        }
    }

    /// Opens a stream from the server's side, if there is credit.
    pub(crate) fn open(&mut self) -> Option<StreamId> {
        if self.credit == 0 {
            self.refused = true;
            return None;
        }
        self.credit -= 1;
        self.opened += 1;
        Some(StreamId(4 * self.opened - 3))
    }
}
