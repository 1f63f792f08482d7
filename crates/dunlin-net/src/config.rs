//! Settings of a loop, its listeners and its dialled connections.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use core::time::Duration;
use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::hkdf;
use dunlin_base::transport::Transport;
use dunlin_base::{ShardId, Text};
use dunlin_quic::datagram::Datagram;

use crate::proxy::Proxies;
use crate::unix;
use crate::{
    AddressTokens, ClientTls, Clock, LbConfig, NetError, NetLimits, NetShared, Qlog, QuicTuning,
    ServerTls, SessionTickets, TicketRegister, UnixSocket,
};

/// Application protocols, by preference.
pub(crate) type Protocols = Arc<[Text]>;

/// Path of a WebSocket unless another is set.
const WS_PATH: &str = "/";

/// Settings of one [`crate::Net`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetConfig {
    /// Which shard of this process the loop serves, from 0 on.
    pub shard: ShardId,
    /// The number that the first shard of this process has among those of all processes;
    /// default 0. With `shard`, part of its connections' ids.
    pub first: ShardId,
    /// How many shards share the listeners' addresses.
    pub shards: u16,
    /// Numbers that shards of all processes with the same keys have; a datagram for one that
    /// is not of this process is yielded by [`Net::poll_foreign`](crate::Net::poll_foreign).
    /// `None` (default): there are no others.
    pub known: Option<Range<u16>>,
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
    /// The application says by
    /// [`Accept`](dunlin_base::transport::NetCommandKind::Accept) when it knows
    /// a peer. `false` (default): a peer is known once it has said something.
    pub accepts_peers: bool,
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
            first: ShardId(0),
            shards: shards.max(1),
            known: None,
            clock,
            limits: NetLimits::default(),
            keys,
            lb: None,
            qlog: None,
            shared: NetShared::default(),
            accepts_peers: false,
            tickets: None,
        }
    }

    /// The number of a shard of this process among those of all.
    pub(crate) const fn number(&self, shard: ShardId) -> ShardId {
        ShardId(self.first.0.wrapping_add(shard.0))
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
        Self::expanded(b"dunlin", secret)
    }

    /// The keys that all processes have which know this secret, of any length: as
    /// [`NetKeys::derived`], and others than those.
    #[must_use]
    pub fn of_cluster(secret: &[u8]) -> Self {
        Self::expanded(b"dunlin cluster", secret)
    }

    fn expanded(salt: &[u8], secret: &[u8]) -> Self {
        let master = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
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
            getrandom::fill(part).map_err(|e| NetError::Loop(io::Error::other(e)))?;
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
    /// Web pages that may open a WebSocket. Default all.
    pub origins: Origins,
    /// Proxies in front of it, except for QUIC. Default none.
    pub proxies: Option<Arc<Proxies>>,
    /// The socket to accept from; for [`Transport::Unix`], which has no address. All
    /// shards have the same.
    pub unix: Option<Arc<UnixSocket>>,
}

/// Web pages that may open a WebSocket, by the `Origin` that browsers send with
/// the request. Other clients send none, and need none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// Origins such as `https://app.example`, or `*` for all. The listener
    /// itself is one under `localhost` or an address.
    pub allowed: Arc<[Text]>,
    /// At which clients it is looked at.
    pub checked: OriginCheck,
}

/// At which clients the `Origin` is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OriginCheck {
    /// At none.
    #[default]
    Never,
    /// At those on this machine.
    Loopback,
    /// At all.
    Always,
}

impl Origins {
    /// Those from which a client with this address may come; `None`: any.
    pub(crate) fn of(&self, client: IpAddr) -> Option<Arc<[Text]>> {
        let checked = match self.checked {
            OriginCheck::Never => false,
            OriginCheck::Loopback => client.to_canonical().is_loopback(),
            OriginCheck::Always => true,
        };
        checked.then(|| Arc::clone(&self.allowed))
    }
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
            origins: Origins::default(),
            proxies: None,
            unix: None,
        }
    }
}

/// Gives connected stream sockets in place of dialled ones, where both ends are in
/// this process: the other end goes to [`Net::adopt`](crate::Net::adopt).
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn() -> io::Result<TcpStream> + Send + Sync>);

impl Connector {
    /// Calls `connect`, which must not wait, for each connection. It may give any
    /// stream socket, one end of a pair as well.
    pub fn new(connect: impl Fn() -> io::Result<TcpStream> + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    /// Connects to the Unix socket at a path. A server that has no room for another
    /// connection refuses this one at once.
    #[must_use]
    pub fn unix(path: PathBuf) -> Self {
        Self::new(move || unix::connect(&path))
    }

    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        (self.0)()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector(..)")
    }
}

/// A connection from within this process, for [`Net::adopt`](crate::Net::adopt).
#[derive(Debug)]
pub struct Adopted {
    /// Any stream socket that is connected.
    pub socket: TcpStream,
    /// What is reported as [`Peer::listener`](dunlin_base::transport::Peer).
    pub listener: u16,
    /// What is spoken.
    pub protocol: Text,
    /// Who the peer is, as if a certificate had said it.
    pub identity: Text,
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
    /// Where sockets come from, other than from `addr`; not for QUIC. A Unix socket needs
    /// one: [`Connector::unix`]. Default none.
    pub connector: Option<Connector>,
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
            connector: None,
        }
    }
}

/// A QUIC datagram that arrived at one shard and belongs to another, perhaps of another
/// process.
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
