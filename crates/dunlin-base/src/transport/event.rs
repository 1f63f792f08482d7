//! What happened on a connection: [`NetEvent`].

use core::net::SocketAddr;

use bytes::Bytes;

use super::{CloseCause, ConnId, Peer, StreamId};

/// Something that happened on one connection.
///
/// `B` holds the bytes. It is `&[u8]` where a transport reports: the bytes are
/// valid during the call only. It is [`Bytes`] where the event crosses to
/// another thread; [`NetEvent::into_owned`] copies them once.
///
/// # Order
/// The first event of a connection is [`NetEventKind::Opened`] and the last one
/// is [`NetEventKind::Closed`]. A dialled connection that never opens reports
/// `Closed` only. An accepted one that never opens reports nothing.
///
/// # Bounds
/// - `Bytes` carries at most what the transport reads with one call (64 KiB in
///   `dunlin-net`), `Datagram` at most one QUIC packet.
/// - The sum of all `Sent` of a connection, and of what `send` returned, never
///   exceeds the bytes given to `send`. It equals them unless the connection
///   closes first.
/// - The peer opens at most as many streams as the limits of the transport
///   allow at one time.
/// - No event is repeated, and none follows `Closed`.
#[derive(Clone, Debug)]
pub struct NetEvent<B> {
    /// The connection.
    pub conn: ConnId,
    /// What happened on it.
    pub kind: NetEventKind<B>,
}

/// What happened; see [`NetEvent`].
#[derive(Clone, Debug)]
pub enum NetEventKind<B> {
    /// The connection is ready for bytes both ways.
    Opened {
        /// The other side.
        peer: Peer,
    },
    /// Bytes arrived, in order within their stream. A new stream id means that
    /// the peer opened the stream.
    Bytes {
        /// Their stream.
        stream: StreamId,
        /// The bytes, at least one.
        data: B,
    },
    /// The peer will send nothing more on this stream.
    StreamFinished {
        /// The stream.
        stream: StreamId,
    },
    /// The peer abandoned its sending side of this stream (RESET_STREAM), or
    /// asked this side to stop sending on it (STOP_SENDING).
    StreamReset {
        /// The stream.
        stream: StreamId,
        /// Application error code.
        code: u64,
    },
    /// A datagram arrived (RFC 9221): unreliable, in no order, perhaps twice.
    Datagram {
        /// Its bytes; may be empty.
        data: B,
    },
    /// Everything sent on a stream that this side finished has arrived at the
    /// peer's transport (QUIC).
    StreamDelivered {
        /// The stream.
        stream: StreamId,
    },
    /// Answer to [`NetCommandKind::OpenStream`](super::NetCommandKind::OpenStream),
    /// in the order of the requests.
    StreamOpened {
        /// The new stream; `None`: the peer allows no more now.
        stream: Option<StreamId>,
    },
    /// The peer allows more streams of a kind than it did when opening one was
    /// refused last (QUIC).
    StreamsAvailable {
        /// Which kind.
        bidirectional: bool,
    },
    /// Bytes given to `send` left for the kernel or the QUIC send buffer: room
    /// for as many more.
    Sent {
        /// The stream that they were for; of a datagram, its fallback.
        stream: StreamId,
        /// How many.
        bytes: usize,
    },
    /// The peer takes nothing more on this stream although it would on others
    /// (QUIC: flow control of the stream), so that `bytes` given to `send` for
    /// it wait. Not reported for a few bytes. When the stream goes on, or is
    /// gone, one more event with `bytes` 0 says so; `Sent` may announce some of
    /// the bytes before.
    StreamBlocked {
        /// The stream.
        stream: StreamId,
        /// Bytes that wait; 0: the peer takes more.
        bytes: usize,
    },
    /// The peer's address changed (QUIC migration or NAT rebinding).
    Migrated {
        /// The new address.
        addr: SocketAddr,
    },
    /// The handshake of a connection that opened with early data (0-RTT) is
    /// complete. On the dialling side this is the peer's verdict; what it
    /// refused is sent again by the transport, once, and needs nothing from
    /// the caller. On the accepting side early data was accepted, and what
    /// arrives from now on cannot be a replay.
    EarlyData {
        /// Whether the peer took the early data as it was sent first.
        accepted: bool,
    },
    /// Answer to [`NetCommandKind::BindChannel`](super::NetCommandKind::BindChannel):
    /// the data of the type that [`Peer::binding`] names.
    ChannelBinding {
        /// At least one byte.
        data: Bytes,
    },
    /// A dialled connection sends from another local address now.
    Moved {
        /// The local address that it left.
        from: SocketAddr,
        /// The local address that it uses.
        to: SocketAddr,
    },
    /// No answer came over a new path; the connection stays where it is.
    MoveFailed {
        /// The local address that it was to use.
        to: SocketAddr,
    },
    /// The connection is gone; nothing more follows for it.
    Closed {
        /// Why.
        cause: CloseCause,
    },
}

impl<B> NetEvent<B> {
    /// An event of a connection.
    #[must_use]
    pub const fn new(conn: ConnId, kind: NetEventKind<B>) -> Self {
        Self { conn, kind }
    }
}

impl NetEvent<&[u8]> {
    /// The same event with a copy of its bytes.
    #[must_use]
    pub fn into_owned(self) -> NetEvent<Bytes> {
        NetEvent::new(self.conn, self.kind.into_owned())
    }
}

impl<B: AsRef<[u8]>> NetEventKind<B> {
    /// Bytes carried, for those who bound queues of events.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        match self {
            Self::Bytes { data, .. } | Self::Datagram { data } => data.as_ref().len(),
            _ => 0,
        }
    }
}

impl NetEventKind<&[u8]> {
    /// The same with a copy of the bytes.
    #[must_use]
    pub fn into_owned(self) -> NetEventKind<Bytes> {
        match self {
            Self::Opened { peer } => NetEventKind::Opened { peer },
            Self::Bytes { stream, data } => NetEventKind::Bytes {
                stream,
                data: Bytes::copy_from_slice(data),
            },
            Self::StreamFinished { stream } => NetEventKind::StreamFinished { stream },
            Self::StreamReset { stream, code } => NetEventKind::StreamReset { stream, code },
            Self::Datagram { data } => NetEventKind::Datagram {
                data: Bytes::copy_from_slice(data),
            },
            Self::StreamDelivered { stream } => NetEventKind::StreamDelivered { stream },
            Self::StreamOpened { stream } => NetEventKind::StreamOpened { stream },
            Self::StreamsAvailable { bidirectional } => {
                NetEventKind::StreamsAvailable { bidirectional }
            }
            Self::Sent { stream, bytes } => NetEventKind::Sent { stream, bytes },
            Self::StreamBlocked { stream, bytes } => NetEventKind::StreamBlocked { stream, bytes },
            Self::Migrated { addr } => NetEventKind::Migrated { addr },
            Self::EarlyData { accepted } => NetEventKind::EarlyData { accepted },
            Self::ChannelBinding { data } => NetEventKind::ChannelBinding { data },
            Self::Moved { from, to } => NetEventKind::Moved { from, to },
            Self::MoveFailed { to } => NetEventKind::MoveFailed { to },
            Self::Closed { cause } => NetEventKind::Closed { cause },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ShardId;
    use super::*;

    #[test]
    fn an_owned_event_says_the_same() {
        let conn = ConnId::new(ShardId(1), 7);
        let bytes = NetEventKind::Bytes {
            stream: StreamId(4),
            data: b"abc".as_slice(),
        };
        let owned = NetEvent::new(conn, bytes).into_owned();
        assert_eq!((owned.conn, owned.kind.payload_len()), (conn, 3));
        assert!(matches!(
            owned.kind,
            NetEventKind::Bytes { stream: StreamId(4), data } if data.as_ref() == b"abc"
        ));
        let sent = NetEventKind::<&[u8]>::Sent {
            stream: StreamId(8),
            bytes: 5,
        }
        .into_owned();
        assert!(matches!(
            sent,
            NetEventKind::Sent {
                stream: StreamId(8),
                bytes: 5
            }
        ));
        assert_eq!(sent.payload_len(), 0);
    }
}
