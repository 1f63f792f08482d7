//! The quinn-proto endpoint behind one UDP socket: datagrams go in, and what
//! begins with them comes out. The socket is the loop's.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use aws_lc_rs::{hkdf, hmac};
use bytes::BytesMut;
use dunlin_base::{ShardId, Text};
use quinn_proto::crypto::HandshakeTokenKey;
use quinn_proto::{
    Connection, ConnectionEvent, ConnectionHandle, ConnectionId, DatagramEvent, EcnCodepoint,
    Endpoint, EndpointConfig, EndpointEvent, IdleTimeout, ServerConfig, TransportConfig,
    ValidationTokenConfig, VarInt,
};
use sha2::{Digest, Sha256};

use crate::ack_request::LongDelay;
use crate::allowance;
use crate::cid::{CidCodec, ShardCids, shard_of_datagram};
use crate::conn::{BIDI_STREAMS_FIRST, READY_BYTES_MAX, UNI_STREAMS_FIRST, carries_early_data};
use crate::datagram::{Datagram, ECN_CONGESTED, Transmit};
use crate::error::{ConnectError, QuicError};
use crate::limits::QuicLimits;
use crate::qlog::{LogStart, Qlog};
use crate::resume::{Counted, SessionTickets};
use crate::session::ListenerTls;
use crate::tickets::{Front, Notes, Seen};
use crate::tls::{alpn, quic_server};
use crate::tokens::UsedTokens;
use crate::{
    AddressTokens, CertName, ClientTls, LbConfig, LbError, QuicTuning, ServerTls, TicketRegister,
};

/// Bytes that quinn-proto believes to have come from a new address: three
/// times as many leave in the round trip in which that proves itself.
pub(crate) const CREDIT_BYTES: usize = 16 << 10;

/// Bytes that are kept of what a client sends behind its first packet while that
/// waits to be accepted: a first flight.
const BEHIND_FIRST_BYTES_MAX: u64 = 16 << 10;

/// Those of all clients of an endpoint.
const BEHIND_FIRST_BYTES_ALL: u64 = 1 << 20;

/// Bytes of a datagram that every path carries (RFC 9000 section 14).
const DATAGRAM_BYTES_MIN: u16 = 1200;

/// Least time between two stateless resets of an endpoint. All clients of a process that
/// has died ask at about the same time; what is not answered is asked again.
const RESET_EVERY: Duration = Duration::from_micros(200);

/// What the endpoints of all shards must share, and what this shard is.
#[derive(Clone, Debug)]
pub struct EndpointKeys<'a> {
    /// This shard, from 0 on.
    pub shard: ShardId,
    /// How many there are.
    pub shards: u16,
    /// The number of the first one in connection ids.
    pub first: ShardId,
    /// Shards of all processes whose connection ids have the same keys; `None`: those of
    /// this one.
    pub known: Option<Range<u16>>,
    /// Masks the shard within connection ids.
    pub cid: [u8; 16],
    /// Derives stateless reset tokens (RFC 9000 section 10.3).
    pub reset: &'a [u8; 32],
    /// Seals Retry and address validation tokens (RFC 9000 section 8.1).
    pub token: &'a [u8; 32],
    /// Layout of connection ids for a load balancer.
    pub lb: Option<LbConfig>,
}

/// What all endpoints of a loop share.
pub struct QuicSettings {
    limits: QuicLimits,
    cids: CidCodec,
    endpoint: Arc<EndpointConfig>,
    /// From which the keys of stateless reset tokens are derived.
    reset_key: hmac::Key,
    token_key: Arc<dyn HandshakeTokenKey>,
    used_tokens: Arc<UsedTokens>,
    /// Of the dialled connection before; most are alike.
    dialled: Option<(QuicTuning, Arc<TransportConfig>)>,
    shard: ShardId,
    tickets: Option<Arc<TicketRegister>>,
    /// What TLS asked of the tickets.
    seen: Seen,
}

impl QuicSettings {
    /// Settings of one loop.
    ///
    /// # Errors
    /// Connection ids cannot be laid out as asked for.
    pub fn new(
        keys: &EndpointKeys<'_>,
        limits: QuicLimits,
        used_tokens: &Arc<UsedTokens>,
        tickets: Option<Arc<TicketRegister>>,
    ) -> Result<Self, LbError> {
        let shard = keys.shard;
        let number = |shard: u16| keys.first.0.saturating_add(shard);
        let known = keys.known.clone();
        let known = known.unwrap_or_else(|| number(0)..number(keys.shards));
        let cids = CidCodec::new(keys.cid, keys.shards, keys.lb.clone())?.among(known);
        let reset_key = hmac::Key::new(hmac::HMAC_SHA256, keys.reset);
        let mut endpoint = EndpointConfig::default();
        let (codec, own) = (cids.clone(), ShardId(number(shard.0)));
        endpoint.cid_generator(move || Box::new(ShardCids::new(codec.clone(), own)));
        endpoint.min_reset_interval(RESET_EVERY);
        let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(keys.token);
        Ok(Self {
            limits,
            cids,
            endpoint: Arc::new(endpoint),
            reset_key,
            token_key: Arc::new(token_key),
            used_tokens: Arc::clone(used_tokens),
            dialled: None,
            shard,
            tickets,
            seen: Seen::default(),
        })
    }

    /// What an endpoint begins with. Each listener has its own key of stateless reset
    /// tokens: an endpoint answers what it does not know, and what that gives away must end no
    /// connection of another one (RFC 9000 section 21.11). Dialled connections have a random
    /// one; they end with the process.
    fn endpoint_of(&self, listener: Option<u16>) -> EndpointConfig {
        let mut endpoint = EndpointConfig::clone(&self.endpoint);
        let mut random = [0; 32];
        let key = match listener {
            Some(listener) => hmac::sign(&self.reset_key, &listener.to_be_bytes()),
            // Without random numbers, no connection begins.
            None if getrandom::fill(&mut random).is_err() => return endpoint,
            None => hmac::sign(&self.reset_key, &random),
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
        endpoint.reset_key(Arc::new(key));
        endpoint
    }

    /// Draws what quinn-proto draws, as the packet numbers that it leaves out,
    /// from this seed. Such a gap is acknowledged at once.
    #[cfg(test)]
    pub(crate) fn draw_from(&mut self, seed: u64) {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Arc::make_mut(&mut self.endpoint).rng_seed(Some(bytes));
    }

    /// Limits and deadlines of its connections.
    #[must_use]
    pub const fn limits(&self) -> &QuicLimits {
        &self.limits
    }

    /// The number of the shard whose connection a datagram is for; `None`: any may take it.
    #[must_use]
    pub fn shard_of(&self, datagram: &[u8]) -> Option<ShardId> {
        shard_of_datagram(&self.cids, datagram)
    }

    /// What TLS asked of the tickets since the last call.
    #[must_use]
    pub fn take_notes(&self) -> Notes {
        self.seen.take()
    }

    /// Whether early data is taken, and waits until its ticket's use is kept.
    #[must_use]
    pub fn strikes_wait(&self) -> bool {
        self.tickets.as_ref().is_some_and(|t| t.is_kept())
    }

    /// Whether early data is taken.
    #[must_use]
    pub const fn takes_early_data(&self) -> bool {
        self.tickets.is_some()
    }

    /// TLS for QUIC: with tickets of the register and early data, or with
    /// tickets that the client carries and without.
    fn tls(
        &self,
        tls: &ServerTls,
        protocols: &[Text],
        tuning: &QuicTuning,
    ) -> Result<ListenerTls, QuicError> {
        /// The only size besides 0 that QUIC knows (RFC 9001 section 4.6.1).
        const EARLY_DATA: u32 = u32::MAX;
        let mut config = tls.quic.clone();
        config.alpn_protocols = alpn(protocols);
        match &self.tickets {
            Some(register) => {
                // A client remembers our limits with its ticket, and RFC 9000
                // section 7.4.1 does not let us lower them for it.
                let limits = format!("{:?}{}", self.limits, allowance::NAME);
                let protocols = format!("{protocols:?}");
                let scope = Sha256::new_with_prefix(tls.scope)
                    .chain_update(protocols)
                    .chain_update(limits);
                config.session_storage = Arc::new(Front {
                    register: Arc::clone(register),
                    scope: scope.finalize().into(),
                    shard: self.shard,
                    seen: self.seen.clone(),
                });
                config.max_early_data_size = EARLY_DATA;
                config.send_tls13_tickets = register.limits().per_connection;
            }
            None => {
                config.ticketer = Arc::clone(&tls.ticketer);
                config.send_tls13_tickets = 1;
            }
        }
        Ok(quic_server(config, LongDelay::of(tuning.ack_delay))?)
    }

    fn server_config(
        &self,
        tls: &ServerTls,
        protocols: &[Text],
        tuning: &QuicTuning,
    ) -> Result<ServerConfig, QuicError> {
        let limits = &self.limits;
        let crypto = Arc::new(self.tls(tls, protocols, tuning)?);
        let mut config = ServerConfig::new(crypto, Arc::clone(&self.token_key));
        config
            .transport_config(Arc::new(transport_config(tuning, limits)?))
            .incoming_buffer_size(BEHIND_FIRST_BYTES_MAX)
            .incoming_buffer_size_total(BEHIND_FIRST_BYTES_ALL);
        config.migration(tuning.migration);
        let mut tokens = ValidationTokenConfig::default();
        tokens
            .lifetime(limits.token_lifetime)
            .log(Arc::clone(&self.used_tokens) as _)
            .sent(if limits.token_lifetime.is_zero() {
                0
            } else {
                limits.tokens
            });
        config.validation_token_config(tokens);
        Ok(config)
    }

    /// Settings of a connection to dial.
    fn client_transport(&mut self, tuning: &QuicTuning) -> Result<Arc<TransportConfig>, QuicError> {
        match &self.dialled {
            Some((same, transport)) if same == tuning => Ok(Arc::clone(transport)),
            _ => {
                let transport = Arc::new(transport_config(tuning, &self.limits)?);
                self.dialled = Some((tuning.clone(), Arc::clone(&transport)));
                Ok(transport)
            }
        }
    }
}

dunlin_base::opaque_debug!(QuicSettings);

fn transport_config(
    tuning: &QuicTuning,
    limits: &QuicLimits,
) -> Result<TransportConfig, QuicError> {
    tuning.check()?;
    let mut config = TransportConfig::default();
    let bidi = limits.bidi_streams.min(BIDI_STREAMS_FIRST);
    let uni = limits.uni_streams.min(UNI_STREAMS_FIRST);
    let datagrams = limits.datagram_receive_bytes as usize;
    let datagrams = (datagrams > 0).then_some(datagrams);
    let idle =
        IdleTimeout::try_from(limits.idle_timeout_max).map_err(|_| QuicError::IdleTimeout)?;
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(bidi))
        .max_concurrent_uni_streams(VarInt::from_u32(uni))
        .max_idle_timeout(Some(idle))
        .receive_window(VarInt::from_u32(limits.receive_window))
        .stream_receive_window(VarInt::from_u32(limits.stream_receive_window))
        .send_window(u64::from(limits.send_window))
        .datagram_receive_buffer_size(datagrams)
        .datagram_send_buffer_size(READY_BYTES_MAX);
    tuning.apply(&mut config);
    Ok(config)
}

/// Settings of a connection that is logged.
fn logged_transport(
    tuning: &QuicTuning,
    limits: &QuicLimits,
    log: &LogStart,
) -> Result<TransportConfig, QuicError> {
    let mut config = transport_config(tuning, limits)?;
    config.qlog_stream(log.stream());
    Ok(config)
}

/// How an endpoint knows one of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub(crate) ConnectionHandle);

/// A datagram for a connection.
#[derive(Debug)]
pub struct Input {
    pub(crate) event: ConnectionEvent,
    pub(crate) remote: SocketAddr,
    /// The connection id to which it came, if its header is short.
    pub(crate) to: ConnectionId,
    pub(crate) at: StdInstant,
    pub(crate) bytes: usize,
    pub(crate) is_congested: bool,
}

impl Input {
    /// Whether the network had marked the datagram for congestion.
    #[must_use]
    pub const fn is_congested(&self) -> bool {
        self.is_congested
    }
}

/// What a datagram led to.
#[derive(Debug)]
pub enum Handled {
    /// It is for this connection.
    Conn(u64, Input),
    /// It begins one.
    New(Incoming),
    /// It is answered without keeping anything, by what is in the buffer.
    Answer(Transmit),
    /// Nothing.
    Nothing,
}

/// A client's first packet.
pub struct Incoming {
    inner: quinn_proto::Incoming,
    bytes: usize,
}

dunlin_base::opaque_debug!(Incoming);

impl Incoming {
    /// Where it comes from.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// Whether its client has proved that it receives there.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        self.inner.remote_address_validated()
    }
}

/// The datagram with which an accepted connection begins, and what came behind it
/// before it was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstDatagram {
    pub(crate) bytes: usize,
    /// It has a token that shows that its sender receives at its address.
    pub(crate) proves_address: bool,
}

/// A connection that quinn-proto has begun.
pub struct Begun {
    pub(crate) handle: ConnectionHandle,
    pub(crate) proto: Connection,
    /// The listener that accepted it; `None`: dialled.
    pub(crate) listener: Option<u16>,
    pub(crate) first: Option<FirstDatagram>,
    /// Which name in the peer's certificate is its name.
    pub(crate) cert_name: CertName,
    pub(crate) tuning: QuicTuning,
    /// Dialled: where tickets go.
    pub(crate) tickets: Option<Arc<Counted>>,
    pub(crate) log: Option<LogStart>,
}

dunlin_base::opaque_debug!(Begun);

impl Begun {
    /// How its endpoint knows it.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        Handle(self.handle)
    }
}

/// A connection could not be accepted.
#[derive(Debug)]
pub struct NotAccepted {
    /// Why, for people.
    pub cause: String,
    /// The answer to the client, in the buffer.
    pub answer: Option<Transmit>,
}

/// What is to be dialled.
pub struct Dial<'a> {
    /// Where to.
    pub addr: SocketAddr,
    /// The name to verify.
    pub server_name: &'a str,
    /// Whom to trust.
    pub tls: &'a ClientTls,
    /// Application protocols to offer, by preference.
    pub protocols: &'a [Text],
    /// Whether to send early data.
    pub early_data: bool,
    /// Where session tickets are kept; `None`: in `tls`.
    pub tickets: Option<&'a Arc<dyn SessionTickets>>,
    /// Where address tokens are kept; `None`: in `tls`.
    pub tokens: Option<&'a Arc<dyn AddressTokens>>,
    /// How to behave towards the network.
    pub tuning: &'a QuicTuning,
    /// Logs, if there are any.
    pub qlog: Option<&'a Qlog>,
}

impl fmt::Debug for Dial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

/// The connections of one UDP socket, as far as datagrams are concerned.
pub struct QuicEndpoint {
    proto: Endpoint,
    /// Serial numbers by connection handle, which are small and dense.
    serials: Vec<u64>,
    /// Octets of a connection id.
    id_len: usize,
    /// Number of the listener; `None`: for dialled connections.
    listener: Option<u16>,
    /// As the listener says; for dialled connections what [`Self::shares`]
    /// looks at.
    tuning: QuicTuning,
    cert_name: CertName,
    /// Application protocols of the listener, by preference.
    protocols: Vec<Text>,
    /// What it accepts with.
    server: Option<Arc<ServerConfig>>,
    /// It takes no new connections any more.
    refuses: bool,
}

impl fmt::Debug for QuicEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicEndpoint")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

impl QuicEndpoint {
    /// An endpoint for dialled connections. `mtu_discovery`: the socket lets
    /// packets go unfragmented.
    #[must_use]
    pub fn dialling(tuning: QuicTuning, settings: &QuicSettings, mtu_discovery: bool) -> Self {
        let mut endpoint = settings.endpoint_of(None);
        if !tuning.mtu_discovery {
            // The peer is not to search either.
            let _ = endpoint.max_udp_payload_size(DATAGRAM_BYTES_MIN);
        }
        let endpoint = Arc::new(endpoint);
        let mut dialling = Self::with(endpoint, None, None, CertName::Any, tuning, mtu_discovery);
        dialling.id_len = settings.cids.id_len();
        dialling
    }

    /// An endpoint that accepts connections.
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn listening(
        listener: u16,
        tls: &ServerTls,
        protocols: &[Text],
        tuning: QuicTuning,
        settings: &QuicSettings,
        mtu_discovery: bool,
    ) -> Result<Self, QuicError> {
        let server = Arc::new(settings.server_config(tls, protocols, &tuning)?);
        let endpoint = Arc::new(settings.endpoint_of(Some(listener)));
        let (listener, server) = (Some(listener), Some(server));
        let mut endpoint = Self::with(endpoint, listener, server, tls.name, tuning, mtu_discovery);
        endpoint.protocols = protocols.to_vec();
        endpoint.id_len = settings.cids.id_len();
        Ok(endpoint)
    }

    fn with(
        endpoint: Arc<EndpointConfig>,
        listener: Option<u16>,
        server: Option<Arc<ServerConfig>>,
        cert_name: CertName,
        tuning: QuicTuning,
        mtu_discovery: bool,
    ) -> Self {
        Self {
            proto: Endpoint::new(endpoint, server.clone(), mtu_discovery, None),
            serials: Vec::new(),
            id_len: 0,
            listener,
            tuning,
            cert_name,
            protocols: Vec::new(),
            server,
            refuses: false,
        }
    }

    /// Number of the listener; `None`: it is for dialled connections.
    #[must_use]
    pub const fn listener(&self) -> Option<u16> {
        self.listener
    }

    /// Whether its connections mark packets as capable of ECN.
    #[must_use]
    pub const fn uses_ecn(&self) -> bool {
        self.tuning.ecn
    }

    /// Accepts with this certificate from now on, unless it accepts nothing.
    pub fn set_tls(&mut self, tls: &ServerTls, settings: &QuicSettings) {
        // The same settings were good when it was made.
        let Ok(config) = settings.server_config(tls, &self.protocols, &self.tuning) else {
            return;
        };
        self.cert_name = tls.name;
        if !self.refuses {
            let config = Arc::new(config);
            self.server = Some(Arc::clone(&config));
            self.proto.set_server_config(Some(config));
        }
    }

    /// Stops to accept; connections stay.
    pub fn refuse_new(&mut self) {
        self.refuses = true;
        self.proto.set_server_config(None);
    }

    /// Whether connections tuned like this may use it.
    #[must_use]
    pub const fn shares(&self, tuning: &QuicTuning) -> bool {
        self.tuning.ecn == tuning.ecn && self.tuning.mtu_discovery == tuning.mtu_discovery
    }

    /// Takes a datagram. `buf` is empty, and holds an answer afterwards.
    pub fn handle(&mut self, now: StdInstant, datagram: Datagram, buf: &mut Vec<u8>) -> Handled {
        let bytes = datagram.data.len();
        let ecn = datagram.ecn.and_then(EcnCodepoint::from_bits);
        let is_congested = datagram.ecn == Some(ECN_CONGESTED);
        let (remote, local_ip) = (datagram.remote, datagram.local_ip);
        let to = datagram.data.get(1..=self.id_len).unwrap_or_default();
        let to = ConnectionId::new(to);
        let event = self
            .proto
            .handle(now, remote, local_ip, ecn, datagram.data, buf);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let serial = self.serials.get(handle.0).copied().unwrap_or(0);
                let input = Input {
                    event,
                    remote,
                    to,
                    at: now,
                    bytes,
                    is_congested,
                };
                Handled::Conn(serial, input)
            }
            Some(DatagramEvent::NewConnection(inner)) => Handled::New(Incoming { inner, bytes }),
            Some(DatagramEvent::Response(transmit)) => Handled::Answer(transmit.into()),
            None => Handled::Nothing,
        }
    }

    /// Whether a datagram is for a connection of this endpoint.
    pub fn knows(&mut self, now: StdInstant, datagram: &Datagram) -> bool {
        let (remote, local_ip) = (datagram.remote, datagram.local_ip);
        let (data, mut answer) = (datagram.data.clone(), Vec::new());
        let event = self
            .proto
            .handle(now, remote, local_ip, None, data, &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(..)) => true,
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.proto.ignore(incoming);
                false
            }
            _ => false,
        }
    }

    /// Whether a datagram may carry early data for this endpoint.
    #[must_use]
    pub fn may_carry_early_data(&self, datagram: &[u8]) -> bool {
        self.listener.is_some() && carries_early_data(datagram)
    }

    /// Asks a client to prove its address first (Retry); the answer, if it has
    /// not proved it.
    pub fn retry(&mut self, incoming: Incoming, buf: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self.proto.retry(incoming.inner, buf).ok()?;
        Some(transmit.into())
    }

    /// Forgets a client without an answer.
    pub fn ignore(&mut self, incoming: Incoming) {
        self.proto.ignore(incoming.inner);
    }

    /// Refuses a client; the answer.
    pub fn refuse(&mut self, incoming: Incoming, buf: &mut Vec<u8>) -> Transmit {
        self.proto.refuse(incoming.inner, buf).into()
    }

    /// Accepts a client.
    ///
    /// # Errors
    /// Its first packet is not good, or its TLS message is not.
    pub fn accept(
        &mut self,
        incoming: Incoming,
        ip: IpAddr,
        now: StdInstant,
        qlog: Option<&Qlog>,
        limits: &QuicLimits,
        buf: &mut Vec<u8>,
    ) -> Result<Begun, NotAccepted> {
        let mut first = FirstDatagram {
            bytes: incoming.bytes,
            proves_address: incoming.is_proved(),
        };
        let incoming = incoming.inner;
        let (log, logged) = self.logged(qlog, ip, &incoming, limits);
        let behind = self.proto.incoming_buffer_bytes();
        let accepted = self.proto.accept(incoming, now, buf, logged);
        let behind = behind.saturating_sub(self.proto.incoming_buffer_bytes());
        first.bytes += usize::try_from(behind).unwrap_or(0);
        match accepted {
            Ok((handle, proto)) => Ok(Begun {
                handle,
                proto,
                listener: self.listener,
                first: Some(first),
                cert_name: self.cert_name,
                tuning: self.tuning.clone(),
                tickets: None,
                log,
            }),
            Err(error) => Err(NotAccepted {
                cause: error.cause.to_string(),
                answer: error.response.map(Into::into),
            }),
        }
    }

    /// The log of a connection that is about to be accepted, if it is wanted,
    /// and its settings then: as those of all, and where to write.
    fn logged(
        &self,
        qlog: Option<&Qlog>,
        ip: IpAddr,
        incoming: &quinn_proto::Incoming,
        limits: &QuicLimits,
    ) -> (Option<LogStart>, Option<Arc<ServerConfig>>) {
        let begin = |qlog| LogStart::accepted(qlog, ip, incoming.orig_dst_cid());
        let Some(log) = qlog.and_then(begin) else {
            return (None, None);
        };
        let transport = logged_transport(&self.tuning, limits, &log);
        let config = self.server.as_deref().zip(transport.ok());
        let config = config.map(|(server, transport)| {
            let mut config = ServerConfig::clone(server);
            config.transport_config(Arc::new(transport));
            Arc::new(config)
        });
        (Some(log), config)
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// The server name is not valid, or quinn-proto refuses.
    pub fn connect(
        &mut self,
        prepared: Prepared,
        dial: &Dial<'_>,
        now: StdInstant,
    ) -> Result<Begun, ConnectError> {
        let tickets = dial.tickets.map(|tickets| Arc::new(Counted::new(tickets)));
        let (early, tokens) = (dial.early_data, dial.tokens);
        let tls = dial.tls;
        let ack_delay = LongDelay::of(dial.tuning.ack_delay);
        let mut client = tls.quic(dial.protocols, early, tokens, tickets.as_ref(), ack_delay)?;
        client.transport_config(prepared.transport);
        let begun = self.proto.connect(now, client, dial.addr, dial.server_name);
        let (handle, proto) = begun.map_err(|error| match error {
            quinn_proto::ConnectError::InvalidServerName(name) => ConnectError::ServerName(name),
            other => ConnectError::Refused(other),
        })?;
        Ok(Begun {
            handle,
            proto,
            listener: None,
            first: None,
            cert_name: CertName::Any,
            tuning: dial.tuning.clone(),
            tickets,
            log: prepared.log,
        })
    }

    /// The number by which the loop knows a connection.
    pub fn bind_serial(&mut self, handle: Handle, serial: u64) {
        let index = handle.0.0;
        if self.serials.len() <= index {
            self.serials.resize(index + 1, 0);
        }
        if let Some(slot) = self.serials.get_mut(index) {
            *slot = serial;
        }
    }

    /// Has quinn-proto count bytes as received from an address that it has begun
    /// to use: it sends three times as many there until that is validated. It
    /// gets a packet of the handshake, which it counts and, as that is over,
    /// drops unread.
    pub(crate) fn credit(
        &mut self,
        to: ConnectionId,
        from: SocketAddr,
        at: StdInstant,
    ) -> Option<(ConnectionEvent, usize)> {
        const HANDSHAKE: u8 = 0xe0;
        const VERSION_1: [u8; 4] = [0, 0, 0, 1];
        /// A length in four bytes (RFC 9000 section 16).
        const LENGTH: u32 = 0x8000_0000 | CREDIT_BYTES as u32;
        let mut packet = BytesMut::with_capacity(CREDIT_BYTES + 64);
        packet.extend_from_slice(&[HANDSHAKE]);
        packet.extend_from_slice(&VERSION_1);
        packet.extend_from_slice(&[to.len() as u8]);
        packet.extend_from_slice(&to);
        packet.extend_from_slice(&[0]);
        packet.extend_from_slice(&LENGTH.to_be_bytes());
        packet.resize(packet.len() + CREDIT_BYTES, 0);
        let (bytes, mut answer) = (packet.len(), Vec::new());
        match self.proto.handle(at, from, None, None, packet, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => Some((event, bytes)),
            _ => None,
        }
    }

    /// Forgets a connection that has no place.
    pub fn forget(&mut self, handle: Handle) {
        self.proto.handle_event(handle.0, EndpointEvent::drained());
    }

    pub(crate) fn handle_event(
        &mut self,
        handle: ConnectionHandle,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        self.proto.handle_event(handle, event)
    }
}

/// Settings of one connection that is about to be dialled.
pub struct Prepared {
    transport: Arc<TransportConfig>,
    log: Option<LogStart>,
}

dunlin_base::opaque_debug!(Prepared);

impl QuicSettings {
    /// Settings of one connection to dial.
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn prepare(&mut self, dial: &Dial<'_>) -> Result<Prepared, QuicError> {
        let ip = dial.addr.ip();
        let log = dial.qlog.and_then(|qlog| LogStart::dialled(qlog, ip));
        let transport = match &log {
            Some(log) => Arc::new(logged_transport(dial.tuning, &self.limits, log)?),
            None => self.client_transport(dial.tuning)?,
        };
        Ok(Prepared { transport, log })
    }
}
