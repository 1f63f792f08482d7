//! The quinn-proto endpoint on a UDP socket.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use std::io;
use std::sync::Arc;

use aws_lc_rs::{hkdf, hmac};
use dunlin_base::ShardId;
use mio::net::UdpSocket;
use quinn_proto::crypto::HandshakeTokenKey;
use quinn_proto::{
    ConnectionHandle, Endpoint, EndpointConfig, IdleTimeout, Incoming, ServerConfig,
    TransportConfig, ValidationTokenConfig, VarInt,
};
use sha2::{Digest, Sha256};

use super::cid::{CidCodec, ShardCids};
use super::conn::{BIDI_STREAMS_FIRST, UNI_STREAMS_FIRST};
use super::datagrams::READY_BYTES_MAX;
use super::lean::LeanConfig;
use super::port::UdpPort;
use crate::qlog::{LogStart, Qlog};
use crate::tickets::{Front, Seen};
use crate::tls::quic_server;
use crate::tokens::UsedTokens;
use crate::{CertName, NetConfig, NetError, NetLimits, QuicTuning, ServerTls, TicketRegister};

/// Bytes of a datagram that every path carries (RFC 9000 section 14).
const DATAGRAM_BYTES_MIN: u16 = 1200;

/// What all endpoints of a loop share.
pub(crate) struct QuicSettings {
    pub(crate) cids: CidCodec,
    endpoint: Arc<EndpointConfig>,
    token_key: Arc<dyn HandshakeTokenKey>,
    used_tokens: Arc<UsedTokens>,
    /// Of the dialled connection before; most are alike.
    dialled: Option<(QuicTuning, Arc<TransportConfig>)>,
    shard: ShardId,
    tickets: Option<Arc<TicketRegister>>,
    /// What TLS asked of the tickets.
    pub(crate) seen: Seen,
}

impl QuicSettings {
    pub(crate) fn new(config: &NetConfig) -> Result<Self, NetError> {
        let (shard, keys) = (config.shard, &config.keys);
        let cids = CidCodec::new(keys.cid, config.shards, config.lb.clone())?;
        let reset_key = hmac::Key::new(hmac::HMAC_SHA256, &keys.reset);
        let mut endpoint = EndpointConfig::new(Arc::new(reset_key));
        let codec = cids.clone();
        endpoint.cid_generator(move || Box::new(ShardCids::new(codec.clone(), shard)));
        let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&keys.token);
        Ok(Self {
            cids,
            endpoint: Arc::new(endpoint),
            token_key: Arc::new(token_key),
            used_tokens: Arc::clone(&config.shared.used_tokens),
            dialled: None,
            shard,
            tickets: config.tickets.clone(),
            seen: Seen::default(),
        })
    }

    /// Whether early data is taken, and waits until its ticket's use is kept.
    pub(crate) fn strikes_wait(&self) -> bool {
        self.tickets.as_ref().is_some_and(|t| t.is_kept())
    }

    pub(crate) const fn takes_early_data(&self) -> bool {
        self.tickets.is_some()
    }

    /// TLS for QUIC: with tickets of the register and early data, or with
    /// tickets that the client carries and without.
    fn tls(&self, tls: &ServerTls, limits: &NetLimits) -> Result<LeanConfig, NetError> {
        /// The only size besides 0 that QUIC knows (RFC 9001 section 4.6.1).
        const EARLY_DATA: u32 = u32::MAX;
        let mut config = tls.quic.clone();
        match &self.tickets {
            Some(register) => {
                // A client remembers our limits with its ticket, and RFC 9000
                // section 7.4.1 does not let us lower them for it.
                let limits = format!("{limits:?}");
                let scope = Sha256::new_with_prefix(tls.scope).chain_update(limits);
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
        quic_server(config).map_err(|e| NetError::Loop(io::Error::other(e)))
    }

    pub(crate) fn server_config(
        &self,
        tls: &ServerTls,
        tuning: &QuicTuning,
        limits: &NetLimits,
    ) -> Result<ServerConfig, NetError> {
        let crypto = Arc::new(self.tls(tls, limits)?);
        let mut config = ServerConfig::new(crypto, Arc::clone(&self.token_key));
        config.transport_config(Arc::new(transport_config(tuning, limits)?));
        config.migration(tuning.migration);
        let mut tokens = ValidationTokenConfig::default();
        tokens
            .lifetime(limits.quic_token_lifetime)
            .log(Arc::clone(&self.used_tokens) as _)
            .sent(if limits.quic_token_lifetime.is_zero() {
                0
            } else {
                limits.quic_tokens
            });
        config.validation_token_config(tokens);
        Ok(config)
    }

    /// Settings of a connection to dial.
    pub(crate) fn client_transport(
        &mut self,
        tuning: &QuicTuning,
        limits: &NetLimits,
    ) -> Result<Arc<TransportConfig>, NetError> {
        match &self.dialled {
            Some((same, transport)) if same == tuning => Ok(Arc::clone(transport)),
            _ => {
                let transport = Arc::new(transport_config(tuning, limits)?);
                self.dialled = Some((tuning.clone(), Arc::clone(&transport)));
                Ok(transport)
            }
        }
    }
}

impl fmt::Debug for QuicSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicSettings").finish_non_exhaustive()
    }
}

fn transport_config(tuning: &QuicTuning, limits: &NetLimits) -> Result<TransportConfig, NetError> {
    tuning.check()?;
    let mut config = TransportConfig::default();
    let bidi = limits.quic_bidi_streams.min(BIDI_STREAMS_FIRST);
    let uni = limits.quic_uni_streams.min(UNI_STREAMS_FIRST);
    let datagrams = limits.quic_datagram_receive_bytes as usize;
    let datagrams = (datagrams > 0).then_some(datagrams);
    let idle = IdleTimeout::try_from(limits.idle_timeout_max)
        .map_err(|_| NetError::Config("the longest idle timeout is too long for QUIC"))?;
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(bidi))
        .max_concurrent_uni_streams(VarInt::from_u32(uni))
        .max_idle_timeout(Some(idle))
        .receive_window(VarInt::from_u32(limits.quic_receive_window))
        .stream_receive_window(VarInt::from_u32(limits.quic_stream_receive_window))
        .send_window(u64::from(limits.quic_send_window))
        .datagram_receive_buffer_size(datagrams)
        .datagram_send_buffer_size(READY_BYTES_MAX);
    tuning.apply(&mut config);
    Ok(config)
}

/// Settings of a connection that is logged.
pub(crate) fn logged_transport(
    tuning: &QuicTuning,
    limits: &NetLimits,
    log: &LogStart,
) -> Result<TransportConfig, NetError> {
    let mut config = transport_config(tuning, limits)?;
    config.qlog_stream(log.stream());
    Ok(config)
}

/// A UDP socket with the connections that began on it.
pub(crate) struct UdpEndpoint {
    pub(crate) port: UdpPort,
    pub(crate) proto: Endpoint,
    /// Serial numbers by connection handle, which are small and dense.
    serials: Vec<u64>,
    /// Number of the listener; `None`: for dialled connections.
    pub(crate) listener: Option<u16>,
    /// The address asked for, by which a dialled connection finds its socket.
    pub(crate) bound_to: SocketAddr,
    /// As the listener says; for dialled connections what [`Self::shares`]
    /// looks at.
    pub(crate) tuning: QuicTuning,
    /// Which name in a client's certificate is its name.
    pub(crate) cert_name: CertName,
    /// What it accepts with.
    server: Option<Arc<ServerConfig>>,
    refuses: bool,
}

impl fmt::Debug for UdpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpEndpoint")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl UdpEndpoint {
    pub(crate) fn new(
        socket: UdpSocket,
        bound_to: SocketAddr,
        listener: Option<u16>,
        server: Option<ServerConfig>,
        tuning: QuicTuning,
        settings: &QuicSettings,
        limits: &NetLimits,
    ) -> io::Result<Self> {
        let port = UdpPort::new(socket, tuning.ecn, limits)?;
        let allow_mtud = port.allows_mtu_discovery();
        let mut endpoint = Arc::clone(&settings.endpoint);
        if listener.is_none() && !tuning.mtu_discovery {
            // Nobody shall search for us either.
            let config = Arc::make_mut(&mut endpoint);
            let _ = config.max_udp_payload_size(DATAGRAM_BYTES_MIN);
        }
        let server = server.map(Arc::new);
        Ok(Self {
            proto: Endpoint::new(endpoint, server.clone(), allow_mtud, None),
            port,
            server,
            serials: Vec::new(),
            listener,
            bound_to,
            tuning,
            cert_name: CertName::Any,
            refuses: false,
        })
    }

    /// Accepts with these settings from now on, unless it accepts nothing.
    pub(crate) fn set_server(&mut self, config: ServerConfig, cert_name: CertName) {
        self.cert_name = cert_name;
        if !self.refuses {
            let config = Arc::new(config);
            self.server = Some(Arc::clone(&config));
            self.proto.set_server_config(Some(config));
        }
    }

    /// The log of a connection that is about to be accepted, if it is wanted,
    /// and its settings then: as those of all, and where to write.
    pub(crate) fn logged(
        &self,
        qlog: Option<&Qlog>,
        ip: IpAddr,
        incoming: &Incoming,
        limits: &NetLimits,
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

    /// Stops to accept; connections stay.
    pub(crate) fn refuse_new(&mut self) {
        self.refuses = true;
        self.proto.set_server_config(None);
    }

    /// Whether connections tuned like this may use it.
    pub(crate) const fn shares(&self, tuning: &QuicTuning) -> bool {
        self.tuning.ecn == tuning.ecn && self.tuning.mtu_discovery == tuning.mtu_discovery
    }

    pub(crate) fn bind_serial(&mut self, handle: ConnectionHandle, serial: u64) {
        if self.serials.len() <= handle.0 {
            self.serials.resize(handle.0 + 1, 0);
        }
        if let Some(slot) = self.serials.get_mut(handle.0) {
            *slot = serial;
        }
    }

    pub(crate) fn serial(&self, handle: ConnectionHandle) -> u64 {
        self.serials.get(handle.0).copied().unwrap_or(0)
    }
}
