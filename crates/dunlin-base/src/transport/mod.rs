//! What a transport reports to an engine ([`NetEvent`]) and what an engine asks
//! of a transport ([`NetCommand`]), as values: one vocabulary for sockets, the
//! simulator, and the bus between shards.

use alloc::sync::Arc;
use core::fmt;
use core::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::Text;

mod command;
mod event;
mod numbers;
mod repeat;

pub use command::{NetCommand, NetCommandKind};
pub use event::{NetEvent, NetEventKind};
pub use repeat::Repeat;

/// A shard of the broker: of one process from zero on, of several wherever those of each
/// begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The highest one that a [`ConnId`] can name.
    pub const MAX: Self = Self(0x7fff);
}

/// A transport connection, unique in one process and never reused: the shard
/// that owns its socket in the top bits, a serial number in the rest.
///
/// Where a protocol has a connection for each stream of a transport, its engine
/// names these by ids of their own ([`ConnId::carried`]), which no transport
/// knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(u64);

impl ConnId {
    const SERIAL_BITS: u32 = 48;

    /// Marks a connection that another one carries.
    const CARRIED: u64 = 1 << 63;

    /// The connection with this serial number on this shard.
    #[must_use]
    pub const fn new(shard: ShardId, serial: u64) -> Self {
        Self(((shard.0 as u64) << Self::SERIAL_BITS) | (serial & ((1 << Self::SERIAL_BITS) - 1)))
    }

    /// A connection that another one of this shard carries, with a serial number
    /// among those.
    #[must_use]
    pub const fn carried(shard: ShardId, serial: u64) -> Self {
        Self(Self::new(shard, serial).0 | Self::CARRIED)
    }

    /// Whether another connection carries it.
    #[must_use]
    pub const fn is_carried(self) -> bool {
        self.0 & Self::CARRIED != 0
    }

    /// The shard that owns the socket.
    #[must_use]
    pub const fn shard(self) -> ShardId {
        ShardId(((self.0 & !Self::CARRIED) >> Self::SERIAL_BITS) as u16)
    }

    /// The serial number within the shard.
    #[must_use]
    pub const fn serial(self) -> u64 {
        self.0 & ((1 << Self::SERIAL_BITS) - 1)
    }

    /// All of it as a number, for encodings.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The one that has this as its [`ConnId::number`].
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_carried() { "s" } else { "" };
        write!(f, "{}:{mark}{}", self.shard().0, self.serial())
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
    /// A Unix socket: bytes between two processes of one machine.
    Unix,
}

impl Transport {
    /// Its name, for people and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Unix => "unix",
        }
    }

    /// Whether bytes are encrypted on the wire.
    #[must_use]
    pub const fn is_encrypted(self) -> bool {
        matches!(self, Self::Quic | Self::Tls | Self::Wss)
    }
}

/// How an application binds what it authenticates to an encrypted connection
/// (RFC 5056).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BindingType {
    /// Keying material that only the two ends have (RFC 9266).
    TlsExporter,
    /// Hash of the server's certificate (RFC 5929 section 4).
    TlsServerEndPoint,
}

impl BindingType {
    /// Its registered name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TlsExporter => "tls-exporter",
            Self::TlsServerEndPoint => "tls-server-end-point",
        }
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
    /// Application protocol that both sides agreed on, by ALPN or as the
    /// subprotocol of a WebSocket. Where nothing is negotiated, the first one of
    /// the listener, or of what was dialled; empty: it has none.
    pub protocol: Text,
    /// Common name, or first subject alternative name, of its verified
    /// certificate.
    pub identity: Option<Text>,
    /// Accepted: its first bytes came as 0-RTT data; the ticket they were
    /// sent with was struck off before, so they are no replay. Dialled: bytes
    /// leave as 0-RTT data until [`NetEventKind::EarlyData`].
    pub early_data: bool,
    /// Accepted: what SASL on it can be bound by;
    /// [`NetCommandKind::BindChannel`] asks for the data.
    pub binding: Option<BindingType>,
}

impl Peer {
    /// Whether a secret may be sent: the transport is encrypted, or ends on this
    /// machine.
    #[must_use]
    pub const fn is_private(&self) -> bool {
        // An IPv4 client of a dual-stack socket arrives as ::ffff:127.0.0.1.
        self.transport.is_encrypted() || self.addr.ip().to_canonical().is_loopback()
    }
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

impl CloseCause {
    /// A failure, with a text for people.
    #[must_use]
    pub fn failed(text: &str) -> Self {
        Self::Failed(Arc::from(text))
    }
}

/// An IPv4 address as such, even where a socket for both families shows it
/// mapped into IPv6: limits and logs must see one address for one peer.
#[must_use]
pub const fn plain_addr(addr: SocketAddr) -> SocketAddr {
    match unix_user(addr) {
        Some(_) => addr,
        None => SocketAddr::new(addr.ip().to_canonical(), addr.port()),
    }
}

/// The address of a client of a Unix socket whose user has this number: `::1`, with the
/// user as its zone and no port, which no client of a network has.
#[must_use]
pub const fn unix_addr(user: u32) -> SocketAddr {
    SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, user))
}

/// The user in an address that [`unix_addr`] made.
#[must_use]
pub const fn unix_user(addr: SocketAddr) -> Option<u32> {
    match addr {
        SocketAddr::V6(v6) if v6.port() == 0 && v6.ip().is_loopback() => Some(v6.scope_id()),
        _ => None,
    }
}

/// An address for people: that of a client of a Unix socket is `unix:` and the number of
/// its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownAddr(pub SocketAddr);

impl fmt::Display for ShownAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match unix_user(self.0) {
            // As the kernel says that it does not know.
            Some(u32::MAX) => f.write_str("unix"),
            Some(user) => write!(f, "unix:{user}"),
            None => self.0.fmt(f),
        }
    }
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

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn clients_of_unix_sockets_have_addresses_of_this_machine_with_their_user() {
        let addr = unix_addr(1000);
        assert_eq!(ShownAddr(addr).to_string(), "unix:1000");
        assert_eq!(ShownAddr(unix_addr(u32::MAX)).to_string(), "unix");
        assert_eq!((plain_addr(addr), addr.ip().is_loopback()), (addr, true));
        let other: SocketAddr = "[::1]:7".parse().expect("an address");
        assert_eq!((unix_user(addr), unix_user(other)), (Some(1000), None));
        assert_eq!(ShownAddr(other).to_string(), "[::1]:7");
    }

    #[test]
    fn connection_ids_carry_their_shard() {
        let conn = ConnId::new(ShardId(513), 77);
        assert_eq!((conn.shard(), conn.serial()), (ShardId(513), 77));
        let stream = ConnId::carried(ShardId(513), 77);
        assert_eq!((stream.shard(), stream.serial()), (ShardId(513), 77));
        assert_eq!(ConnId::from_number(stream.number()), stream);
        assert!(stream != conn && stream.is_carried() && !conn.is_carried());
    }
}
