//! What a transport tells an engine, and what an engine asks of a transport,
//! as values: the same for sockets, a simulator and a microcontroller.

use alloc::sync::Arc;
use core::fmt;
use core::net::SocketAddr;

use crate::Text;

/// A shard of the broker, from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A transport connection, unique in one process and never reused: the shard
/// that owns its socket in the top 16 bits, a serial number in the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(u64);

impl ConnId {
    const SERIAL_BITS: u32 = 48;

    /// The connection with this serial number on this shard.
    #[must_use]
    pub const fn new(shard: ShardId, serial: u64) -> Self {
        Self(((shard.0 as u64) << Self::SERIAL_BITS) | (serial & ((1 << Self::SERIAL_BITS) - 1)))
    }

    /// The shard that owns the socket.
    #[must_use]
    pub const fn shard(self) -> ShardId {
        ShardId((self.0 >> Self::SERIAL_BITS) as u16)
    }

    /// The serial number within the shard.
    #[must_use]
    pub const fn serial(self) -> u64 {
        self.0 & ((1 << Self::SERIAL_BITS) - 1)
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shard().0, self.serial())
    }
}

/// A stream within a connection: the QUIC stream id (RFC 9000 section 2.1);
/// transports with one byte stream have only [`StreamId::CONTROL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The first bidirectional stream that the client opened.
    pub const CONTROL: Self = Self(0);

    /// Whether only its initiator sends on it (RFC 9000 section 2.1).
    #[must_use]
    pub const fn is_unidirectional(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether the server opened it.
    #[must_use]
    pub const fn is_server_initiated(self) -> bool {
        self.0 & 1 != 0
    }
}

/// When small packets are sent a second time without being lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Repeat {
    /// Never.
    #[default]
    Never,
    /// For a while after a packet was lost.
    OnLoss,
    /// Always.
    Always,
}

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// QUIC version 1 (RFC 9000).
    Quic,
    /// Plain TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// WebSocket over TCP.
    Ws,
    /// WebSocket over TLS.
    Wss,
}

impl Transport {
    /// URL scheme, as in `quic://`.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Tcp => "mqtt",
            Self::Tls => "mqtts",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Whether bytes are encrypted on the wire.
    #[must_use]
    pub const fn is_encrypted(self) -> bool {
        matches!(self, Self::Quic | Self::Tls | Self::Wss)
    }
}

/// What is known of the other side of a connection when it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub addr: SocketAddr,
    /// How it is connected.
    pub transport: Transport,
    /// Index of the listener that accepted it; 0 for a dialled connection.
    pub listener: u16,
    /// Application protocol that both sides agreed on (ALPN), if it is not
    /// the usual one of the transport: `MQTT-next` on QUIC.
    pub protocol: Option<Text>,
    /// Common name, or first subject alternative name, of its verified
    /// certificate.
    pub identity: Option<Text>,
    /// Accepted: its first bytes came as 0-RTT data; the ticket they were
    /// sent with was struck off before, so they are no replay. Dialled: bytes
    /// leave as 0-RTT data until [`NetEvent::EarlyData`].
    pub early_data: bool,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseCause {
    /// The peer closed it, with its QUIC application code (0 for TCP).
    Peer {
        /// Application error code.
        code: u64,
    },
    /// This side closed it.
    Local,
    /// Nothing arrived within the idle timeout.
    IdleTimeout,
    /// The handshake (TCP, TLS, WebSocket or QUIC) did not end in time.
    HandshakeTimeout,
    /// The local address that it was sent from is gone, and the connection
    /// cannot move to another.
    AddressGone,
    /// Connection lost or refused, handshake failed, protocol violated; the
    /// text is for people.
    Failed(Arc<str>),
}

impl fmt::Display for CloseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer { code: 0 } => f.write_str("closed by the peer"),
            Self::Peer { code } => write!(f, "closed by the peer with code {code}"),
            Self::Local => f.write_str("closed"),
            Self::IdleTimeout => f.write_str("idle timeout"),
            Self::HandshakeTimeout => f.write_str("handshake timeout"),
            Self::AddressGone => f.write_str("the local address is gone"),
            Self::Failed(text) => f.write_str(text),
        }
    }
}

/// One thing that happened on a transport.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NetEvent<'a> {
    /// A connection is ready for bytes both ways.
    Opened {
        /// The connection.
        conn: ConnId,
        /// Who is there.
        peer: Peer,
    },
    /// Bytes arrived, in order within their stream.
    Bytes {
        /// The connection.
        conn: ConnId,
        /// The stream; a new id means that the peer opened it.
        stream: StreamId,
        /// The bytes; valid only during the call.
        data: &'a [u8],
    },
    /// The peer will send nothing more on this stream.
    StreamFinished {
        /// The connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
    },
    /// The peer abandoned its sending side of this stream (RESET_STREAM), or
    /// asked us to stop sending on it (STOP_SENDING).
    StreamReset {
        /// The connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
        /// Application error code.
        code: u64,
    },
    /// A datagram arrived (RFC 9221): unreliable, in no order, perhaps twice.
    Datagram {
        /// The connection.
        conn: ConnId,
        /// The bytes; valid only during the call. May be empty.
        data: &'a [u8],
    },
    /// Everything sent on a stream that this side finished has arrived at the
    /// peer's transport (QUIC).
    StreamDelivered {
        /// The connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
    },
    /// Answer to a request by value to open a stream: its id, or `None`
    /// because the peer allows no more now. A transport that opens streams
    /// when called does not emit it.
    StreamOpened {
        /// The connection.
        conn: ConnId,
        /// The new stream.
        stream: Option<StreamId>,
    },
    /// The peer allows more streams of a kind than it did when opening one
    /// was refused last (QUIC).
    StreamsAvailable {
        /// The connection.
        conn: ConnId,
        /// Which kind.
        bidirectional: bool,
    },
    /// Bytes given to `send` left for the kernel or the QUIC send buffer: room
    /// for as many more.
    Sent {
        /// The connection.
        conn: ConnId,
        /// How many bytes.
        bytes: usize,
    },
    /// The peer takes nothing more on this stream although it would on others
    /// (QUIC: flow control of the stream), so that `bytes` given to `send` for
    /// it wait. Not told of a few bytes. When it goes on, or is gone, that is
    /// told once with `bytes` 0; `Sent` may announce some of them before.
    StreamBlocked {
        /// The connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
        /// Bytes that wait; 0: the peer takes more.
        bytes: usize,
    },
    /// The peer's address changed (QUIC migration or NAT rebinding).
    Migrated {
        /// The connection.
        conn: ConnId,
        /// The new address.
        addr: SocketAddr,
    },
    /// The handshake of a connection that opened with early data (0-RTT) is
    /// complete. On the dialling side this is the peer's verdict; what it
    /// refused is sent again by the transport, once, and needs nothing from
    /// the caller. On the accepting side early data was accepted, and what
    /// arrives from now on cannot be a replay.
    EarlyData {
        /// The connection.
        conn: ConnId,
        /// Whether the peer took the early data as it was sent first.
        accepted: bool,
    },
    /// A dialled connection sends from another local address now.
    Moved {
        /// The connection.
        conn: ConnId,
        /// The local address that it left.
        from: SocketAddr,
        /// The local address that it uses.
        to: SocketAddr,
    },
    /// No answer came over a new path; the connection stays where it is.
    MoveFailed {
        /// The connection.
        conn: ConnId,
        /// The local address that it was to use.
        to: SocketAddr,
    },
    /// The connection is gone; nothing more follows for it. Also the only
    /// event of a dialled connection that never opened.
    Closed {
        /// The connection.
        conn: ConnId,
        /// Why.
        cause: CloseCause,
    },
}

/// QUIC application error codes of a connection (DESIGN section 4, as EMQX).
pub mod close_code {
    /// Normal end.
    pub const NO_ERROR: u64 = 0;
    /// The control stream failed.
    pub const CONTROL_STREAM_DOWN: u64 = 1;
    /// The server is overloaded or shutting down.
    pub const OVERLOADED: u64 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_ids_carry_their_shard() {
        let conn = ConnId::new(ShardId(513), 77);
        assert_eq!((conn.shard(), conn.serial()), (ShardId(513), 77));
    }
}
