//! Settings of a loop, its listeners and its dialled connections. Every limit
//! of this crate that someone may want to change is in [`NetLimits`].

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use aws_lc_rs::hkdf;
use dunlin_base::transport::Transport;
use dunlin_base::{ShardId, Text};
use dunlin_quic::QuicLimits;
use dunlin_quic::datagram::Datagram;

use crate::slots::SLOTS_MAX;
use crate::{
    AddressTokens, ClientTls, Clock, LbConfig, NetError, NetShared, Qlog, QuicTuning, ServerTls,
    SessionTickets, TicketRegister,
};

/// Path of a WebSocket unless another is set.
const WS_PATH: &str = "/";

/// Settings of one [`crate::Net`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetConfig {
    /// Which shard this loop serves; part of its connections' ids.
    pub shard: ShardId,
    /// How many shards share the listeners' addresses.
    pub shards: u16,
    /// The process clock.
    pub clock: Clock,
    /// Limits and deadlines.
    pub limits: NetLimits,
    /// Secrets shared by all shards, and across restarts.
    pub keys: NetKeys,
    /// Layout of QUIC connection ids for a load balancer; default none.
    pub lb: Option<LbConfig>,
    /// Logs of QUIC connections; `None` (default): there are none.
    pub qlog: Option<Qlog>,
    /// What loops of one process share; give all of them the same.
    pub shared: NetShared,
    /// Session tickets of QUIC listeners, shared by all shards; `None`
    /// (default): early data is refused.
    pub tickets: Option<Arc<TicketRegister>>,
}

impl NetConfig {
    /// Settings with default limits.
    #[must_use]
    pub fn new(shard: ShardId, shards: u16, clock: Clock, keys: NetKeys) -> Self {
        Self {
            shard,
            shards: shards.max(1),
            clock,
            limits: NetLimits::default(),
            keys,
            lb: None,
            qlog: None,
            shared: NetShared::default(),
            tickets: None,
        }
    }

    /// Settings of a loop that only dials.
    ///
    /// # Errors
    /// The operating system gave no random keys.
    pub fn client(clock: Clock) -> Result<Self, NetError> {
        Ok(Self::new(ShardId(0), 1, clock, NetKeys::random()?))
    }
}

/// Secrets that every shard must share, so that a datagram is understood at
/// whichever socket it arrives.
#[derive(Clone)]
#[non_exhaustive]
pub struct NetKeys {
    /// Masks the shard within QUIC connection ids.
    pub cid: [u8; 16],
    /// Derives QUIC stateless reset tokens (RFC 9000 section 10.3).
    pub reset: [u8; 32],
    /// Seals QUIC Retry and address validation tokens (RFC 9000 section 8.1).
    pub token: [u8; 32],
}

/// Bytes of the secret that [`NetKeys::derived`] wants.
pub const NET_SECRET_BYTES: usize = 32;

impl NetKeys {
    /// The keys that belong to a secret: always the same, and none of them
    /// tells anything about another (HKDF, RFC 5869).
    #[must_use]
    pub fn derived(secret: &[u8; NET_SECRET_BYTES]) -> Self {
        let master = hkdf::Salt::new(hkdf::HKDF_SHA256, b"dunlin").extract(secret);
        let mut keys = Self {
            cid: [0; 16],
            reset: [0; 32],
            token: [0; 32],
        };
        for (part, label) in [
            (&mut keys.cid[..], &b"connection ids"[..]),
            (&mut keys.reset[..], b"stateless reset"),
            (&mut keys.token[..], b"address tokens"),
        ] {
            let info = [label];
            let filled = master
                .expand(&info, Length(part.len()))
                .and_then(|okm| okm.fill(part));
            // HKDF-SHA256 gives up to 8,160 bytes.
            debug_assert!(filled.is_ok());
        }
        keys
    }

    /// Fresh keys.
    ///
    /// # Errors
    /// The operating system's random source failed.
    pub fn random() -> Result<Self, NetError> {
        let mut keys = Self {
            cid: [0; 16],
            reset: [0; 32],
            token: [0; 32],
        };
        for part in [&mut keys.cid[..], &mut keys.reset[..], &mut keys.token[..]] {
            getrandom::fill(part).map_err(|e| NetError::Loop(std::io::Error::other(e)))?;
        }
        Ok(keys)
    }
}

/// How many bytes to derive.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl fmt::Debug for NetKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NetKeys(..)")
    }
}

/// When a QUIC client must prove its address before anything is kept for it,
/// at the cost of a round trip (Retry, RFC 9000 section 8.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryMode {
    /// Never. Forged addresses can use up the limits of those they belong to.
    Never,
    /// When [`NetLimits::quic_retry_pending`] handshakes are going on, or when
    /// a limit by address comes near and the address is not proved.
    #[default]
    UnderLoad,
    /// Always, unless it has a token from an earlier connection.
    Always,
}

/// Limits and deadlines of one loop.
///
/// Worst-case memory of a TCP connection is
/// [`backlog_bytes_max`](Self::backlog_bytes_max); of a QUIC connection that
/// plus `quic_receive_window` and `quic_send_window`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetLimits {
    /// Accepted connections at most, of all loops with the same
    /// [`NetShared`], and dialled ones of each. Default 1,048,576, which is
    /// also the most that one loop can hold.
    pub connections_max: usize,
    /// Connections from one IPv4 address, or one IPv6 /64, at most, over all
    /// loops with the same [`NetShared`]; 0: no limit (default).
    pub connections_per_address_max: u32,
    /// New connections from one IPv4 address, or one IPv6 /64, per second at
    /// most, counted likewise; 0: no limit (default).
    pub handshakes_per_address_per_second: u32,
    /// Handshakes pending at most, all transports together, counted likewise.
    /// Default 8,192.
    pub handshakes_pending_max: usize,
    /// When a QUIC client must first prove its address. Default
    /// [`RetryMode::UnderLoad`].
    pub quic_retry: RetryMode,
    /// Pending handshakes, counted likewise, from which on it must under load.
    /// Default 1,024.
    pub quic_retry_pending: usize,
    /// Address tokens that a QUIC client is given for later connections.
    /// Default 1.
    pub quic_tokens: u32,
    /// How long such a token is good; zero: not at all. Default 7 days.
    pub quic_token_lifetime: Duration,
    /// Time for a handshake: TCP connect, TLS, WebSocket or QUIC. Default 10 s.
    pub handshake_timeout: Duration,
    /// Time in which an accepted connection must say something after its
    /// handshake. Default 10 s.
    pub first_bytes_timeout: Duration,
    /// Idle timeout of a connection until `set_idle_timeout`, and its maximum;
    /// also QUIC's `max_idle_timeout`, which cannot be raised later. Default
    /// 98,303 s: one and a half times 65,535 s.
    pub idle_timeout_max: Duration,
    /// Time in which a closing connection may still flush. Default 5 s.
    pub close_linger: Duration,
    /// Time in which a peer that ended its side may still read. Default 10 s.
    pub half_close_linger: Duration,
    /// Bytes waiting to leave on one connection, beyond which it is aborted.
    /// The caller's own bound should be well below. Default 64 MiB.
    pub backlog_bytes_max: usize,
    /// Bytes read from one connection before others get a turn. Default
    /// 256 KiB.
    pub read_budget_bytes: usize,
    /// Connections accepted from one listener before others get a turn.
    /// Default 64.
    pub accept_budget: usize,
    /// Bytes of a WebSocket upgrade request or answer. Default 8 KiB.
    pub ws_handshake_bytes_max: usize,
    /// Bytes of one WebSocket message, summed over its fragments. Default
    /// 256 MiB + 5.
    pub ws_message_bytes_max: u64,
    /// Bidirectional streams a QUIC peer may have open, once it uses the 10
    /// that it may open at first. Default 64.
    pub quic_bidi_streams: u32,
    /// Unidirectional streams a QUIC peer may have open, once it uses the 3
    /// that it may open at first. Default 128.
    pub quic_uni_streams: u32,
    /// Bytes a QUIC peer may send ahead of us on a connection. Default
    /// 256 KiB.
    pub quic_receive_window: u32,
    /// Bytes a QUIC peer may send ahead of us on a stream. Default 128 KiB.
    pub quic_stream_receive_window: u32,
    /// Unacknowledged bytes kept for a QUIC connection. Default 256 KiB.
    pub quic_send_window: u32,
    /// Bytes of received QUIC datagrams (RFC 9221) kept until they are read;
    /// 0: peers learn that none are taken, and none can be sent. Default
    /// 64 KiB.
    pub quic_datagram_receive_bytes: u32,
    /// Bytes of QUIC datagrams that wait to be sent on a connection; the
    /// oldest make room for new ones. Default 64 KiB.
    pub quic_datagram_queue_bytes: usize,
    /// Time in which a server must answer over a new path before a dialled
    /// QUIC connection moves to it. Default 3 s.
    pub quic_probe_timeout: Duration,
    /// Receive and send buffers asked of the kernel for UDP sockets. Default
    /// 2 MiB.
    pub udp_buffer_bytes: usize,
}

impl NetLimits {
    /// Whether connections are counted by address.
    pub(crate) const fn counts_addresses(&self) -> bool {
        self.connections_per_address_max > 0
    }

    /// Those of QUIC connections.
    pub(crate) const fn of_quic(&self) -> QuicLimits {
        QuicLimits {
            bidi_streams: self.quic_bidi_streams,
            uni_streams: self.quic_uni_streams,
            receive_window: self.quic_receive_window,
            stream_receive_window: self.quic_stream_receive_window,
            send_window: self.quic_send_window,
            datagram_receive_bytes: self.quic_datagram_receive_bytes,
            datagram_queue_bytes: self.quic_datagram_queue_bytes,
            tokens: self.quic_tokens,
            token_lifetime: self.quic_token_lifetime,
            idle_timeout_max: self.idle_timeout_max,
            first_bytes_timeout: self.first_bytes_timeout,
            close_linger: self.close_linger,
            read_budget_bytes: self.read_budget_bytes,
            backlog_bytes_max: self.backlog_bytes_max,
        }
    }
}

impl Default for NetLimits {
    fn default() -> Self {
        Self {
            connections_max: SLOTS_MAX,
            connections_per_address_max: 0,
            handshakes_per_address_per_second: 0,
            handshakes_pending_max: 8192,
            quic_retry: RetryMode::UnderLoad,
            quic_retry_pending: 1024,
            quic_tokens: 1,
            quic_token_lifetime: Duration::from_secs(7 * 24 * 3600),
            handshake_timeout: Duration::from_secs(10),
            first_bytes_timeout: Duration::from_secs(10),
            idle_timeout_max: Duration::from_secs(98_303),
            close_linger: Duration::from_secs(5),
            half_close_linger: Duration::from_secs(10),
            backlog_bytes_max: 64 << 20,
            read_budget_bytes: 256 << 10,
            accept_budget: 64,
            ws_handshake_bytes_max: 8 << 10,
            ws_message_bytes_max: (256 << 20) + 5,
            quic_bidi_streams: 64,
            quic_uni_streams: 128,
            quic_receive_window: 256 << 10,
            quic_stream_receive_window: 128 << 10,
            quic_send_window: 256 << 10,
            quic_datagram_receive_bytes: 64 << 10,
            quic_datagram_queue_bytes: 64 << 10,
            quic_probe_timeout: Duration::from_secs(3),
            udp_buffer_bytes: 2 << 20,
        }
    }
}

/// Where to accept connections.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenerConfig {
    /// What to speak.
    pub transport: Transport,
    /// Address; port 0 lets the system choose.
    pub addr: SocketAddr,
    /// Number of the listener, reported in `Peer::listener`. Shards that share
    /// an address must give it the same number.
    pub index: u16,
    /// Share the address with other shards (`SO_REUSEPORT`). Must be set in
    /// the first that binds as well.
    pub reuse_port: bool,
    /// Application protocols, by preference: names for ALPN, and for the
    /// subprotocol of a WebSocket. QUIC and WebSocket need one. Default none.
    pub protocols: Vec<Text>,
    /// Certificate and key; needed by every transport that is encrypted.
    pub tls: Option<Arc<ServerTls>>,
    /// How QUIC behaves towards the network.
    pub quic: QuicTuning,
    /// Path of a WebSocket. Default `/`.
    pub ws_path: String,
}

impl ListenerConfig {
    /// A listener that shares its address with no other shard.
    #[must_use]
    pub fn new(transport: Transport, addr: SocketAddr) -> Self {
        Self {
            transport,
            addr,
            index: 0,
            reuse_port: false,
            protocols: Vec::new(),
            tls: None,
            quic: QuicTuning::default(),
            ws_path: WS_PATH.into(),
        }
    }
}

/// Where to connect to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DialConfig {
    /// What to speak.
    pub transport: Transport,
    /// Address.
    pub addr: SocketAddr,
    /// Name to verify in the server's certificate, and to send (SNI, HTTP
    /// `Host`).
    pub server_name: String,
    /// Local address to send from; port 0 lets the system choose.
    pub local_addr: Option<SocketAddr>,
    /// Time for the whole handshake; `None`: as [`NetLimits`] says.
    pub handshake_timeout: Option<Duration>,
    /// Application protocols to offer, by preference, as
    /// [`ListenerConfig::protocols`].
    pub protocols: Vec<Text>,
    /// Whom to trust; needed by every transport that is encrypted.
    pub tls: Option<Arc<ClientTls>>,
    /// How QUIC behaves towards the network. Connections that differ in
    /// [`QuicTuning::ecn`] do not share a socket.
    pub quic: QuicTuning,
    /// Path of a WebSocket. Default `/`.
    pub ws_path: String,
    /// Open at once when there is a session ticket, and send early data
    /// (QUIC). Default false.
    pub early_data: bool,
    /// Session tickets of this server (QUIC); `None` (default): `tls` keeps
    /// them while it lives.
    pub tickets: Option<Arc<dyn SessionTickets>>,
    /// Address validation tokens of this server (QUIC); `None` (default): `tls`
    /// keeps them while it lives.
    pub tokens: Option<Arc<dyn AddressTokens>>,
}

impl DialConfig {
    /// A connection to `addr`, verified as `server_name` where encrypted.
    #[must_use]
    pub fn new(transport: Transport, addr: SocketAddr, server_name: &str) -> Self {
        Self {
            transport,
            addr,
            server_name: server_name.into(),
            local_addr: None,
            handshake_timeout: None,
            protocols: Vec::new(),
            tls: None,
            quic: QuicTuning::default(),
            ws_path: WS_PATH.into(),
            early_data: false,
            tickets: None,
            tokens: None,
        }
    }
}

/// A QUIC datagram that arrived at one shard and belongs to another.
#[derive(Debug)]
pub struct ForeignDatagram {
    /// Number of the listener it arrived at.
    pub(crate) listener: u16,
    pub(crate) datagram: Datagram,
}

impl ForeignDatagram {
    /// Bytes held, for the bound of the queue that carries it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagram.data.len()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.datagram.data.is_empty()
    }
}
