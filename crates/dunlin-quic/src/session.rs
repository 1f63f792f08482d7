//! TLS of an accepted QUIC connection. When the handshake is over and its last
//! bytes are written, the TLS library's connection, 4 KB that a server has no
//! more use for, is let go: what QUIC still asks for is the secrets of the next
//! keys and who the peer is, and what SASL may be bound by is kept aside. Knows
//! no connection of ours.

use core::any::Any;
use std::sync::Arc;

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{Connection, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::pki_types::CertificateDer;
use rustls::quic::{self, KeyChange, Secrets, ServerConnection, Version};
use rustls::{AlertDescription, HandshakeKind};

use crate::ack_request::LongDelay;
use crate::allowance;
use crate::inspect::{Inspector, export};

/// Drafts that differ from version 1 in what TLS is given.
const DRAFTS: core::ops::RangeInclusive<u32> = 0xff00_001d..=0xff00_0020;

/// TLS of a listener.
pub(crate) struct ListenerTls {
    tls: Arc<rustls::ServerConfig>,
    /// For what has nothing to do with a connection.
    stateless: QuicServerConfig,
    initial: quic::Suite,
    ack_delay: Option<LongDelay>,
}

impl ListenerTls {
    pub(crate) const fn new(
        tls: Arc<rustls::ServerConfig>,
        stateless: QuicServerConfig,
        initial: quic::Suite,
        ack_delay: Option<LongDelay>,
    ) -> Self {
        Self {
            tls,
            stateless,
            initial,
            ack_delay,
        }
    }
}

impl ServerConfig for ListenerTls {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.stateless.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.stateless.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        let version = match version {
            version if DRAFTS.contains(&version) => Version::V1Draft,
            // No other comes here: `initial_keys` was asked before.
            _ => Version::V1,
        };
        debug_assert!(self.tls.max_early_data_size == 0 || self.tls.max_early_data_size == !0);
        let mut bytes = Vec::new();
        params.write(&mut bytes);
        allowance::lower_first(&mut bytes);
        let tls = ServerConnection::new(Arc::clone(&self.tls), version, bytes);
        let failure = tls.as_ref().err().map(ToString::to_string);
        Box::new(TlsSession {
            version,
            initial: self.initial,
            ack_delay: self.ack_delay,
            handshake: tls.ok().map(|tls| Box::new(tls.into())),
            failure: failure.map(String::into_boxed_str),
            is_known: false,
            next: None,
            protocol: None,
            is_resumed: false,
            chain: None,
            inspector: Arc::default(),
        })
    }
}

/// What a connection asks of its TLS, once the client's first message was read.
pub(crate) struct Accepted {
    pub(crate) protocol: Option<Vec<u8>>,
    is_resumed: bool,
    inspector: Arc<Inspector>,
}

/// What the keys of an accepted connection look at.
pub(crate) fn inspector(proto: &Connection) -> Option<Arc<Inspector>> {
    let data = proto.crypto_session().handshake_data()?;
    let accepted = data.downcast::<Accepted>().ok()?;
    Some(accepted.inspector)
}

/// Whether the handshake of an accepted connection resumed an earlier session.
pub(crate) fn is_resumed(proto: &Connection) -> bool {
    let data = proto.crypto_session().handshake_data();
    let accepted = data.and_then(|data| data.downcast::<Accepted>().ok());
    accepted.is_some_and(|accepted| accepted.is_resumed)
}

/// TLS of one connection.
struct TlsSession {
    version: Version,
    initial: quic::Suite,
    ack_delay: Option<LongDelay>,
    /// `None`: it is over.
    handshake: Option<Box<quic::Connection>>,
    /// Why it could not even begin.
    failure: Option<Box<str>>,
    /// The application protocol was reported.
    is_known: bool,
    next: Option<Secrets>,
    /// Of a handshake that is over, like the next two.
    protocol: Option<Box<[u8]>>,
    is_resumed: bool,
    chain: Option<Box<[CertificateDer<'static>]>>,
    inspector: Arc<Inspector>,
}

impl TlsSession {
    fn end_handshake(&mut self) {
        if let Some(tls) = self.handshake.take() {
            self.protocol = tls.alpn_protocol().map(Into::into);
            self.is_resumed = is_resumption(&tls);
            let exported = export(|data, label, context| {
                let exported = tls.export_keying_material(data, label, Some(context));
                exported.map(|_| ())
            });
            self.inspector.set_exported(exported.map(Box::new));
            let chain = tls.peer_certificates();
            self.chain = chain.map(|chain| {
                let owned = chain.iter().map(|cert| cert.clone().into_owned());
                owned.collect()
            });
        }
    }

    fn one_rtt(&self, local: PacketKeyBox, remote: PacketKeyBox) -> KeyPair<Box<dyn PacketKey>> {
        KeyPair {
            local: self.inspector.one_rtt(local),
            remote: self.inspector.one_rtt(remote),
        }
    }

    fn refusal(&self) -> TransportError {
        match &self.failure {
            Some(why) => error(TransportErrorCode::INTERNAL_ERROR, why.to_string()),
            // A client has nothing to say to TLS after its Finished (RFC 9001
            // sections 4.4 and 6).
            None => error(
                TransportErrorCode::crypto(AlertDescription::UnexpectedMessage.into()),
                "handshake data after the handshake".into(),
            ),
        }
    }
}

fn is_resumption(tls: &quic::Connection) -> bool {
    tls.handshake_kind() == Some(HandshakeKind::Resumed)
}

fn error(code: TransportErrorCode, reason: String) -> TransportError {
    TransportError {
        code,
        frame: None,
        reason,
    }
}

type HeaderKeyBox = Box<dyn quic::HeaderProtectionKey>;
type PacketKeyBox = Box<dyn quic::PacketKey>;

fn header(local: HeaderKeyBox, remote: HeaderKeyBox) -> KeyPair<Box<dyn HeaderKey>> {
    KeyPair {
        local: Box::new(local),
        remote: Box::new(remote),
    }
}

fn boxed(keys: quic::Keys) -> Keys {
    Keys {
        header: header(keys.local.header, keys.remote.header),
        packet: KeyPair {
            local: Box::new(keys.local.packet),
            remote: Box::new(keys.remote.packet),
        },
    }
}

impl Session for TlsSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        boxed(self.initial.keys(dst_cid, side.into(), self.version))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let tls = self.handshake.as_ref();
        let protocol = match tls {
            Some(tls) => tls.alpn_protocol().map(<[u8]>::to_vec),
            None => self.protocol.as_deref().map(<[u8]>::to_vec),
        };
        self.is_known.then(|| {
            let data: Box<dyn Any> = Box::new(Accepted {
                protocol,
                is_resumed: tls.map_or(self.is_resumed, |tls| is_resumption(tls)),
                inspector: Arc::clone(&self.inspector),
            });
            data
        })
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let chain = match &self.handshake {
            Some(tls) => tls.peer_certificates(),
            None => self.chain.as_deref(),
        };
        let owned = chain?.iter().map(|cert| cert.clone().into_owned());
        Some(Box::new(owned.collect::<Vec<CertificateDer<'static>>>()))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.handshake.as_ref()?.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        let tls = self.handshake.as_ref();
        self.failure.is_some() || tls.is_some_and(|tls| tls.is_handshaking())
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let Some(tls) = &mut self.handshake else {
            return Err(self.refusal());
        };
        tls.read_hs(buf).map_err(|e| match tls.alert() {
            Some(alert) => error(TransportErrorCode::crypto(alert.into()), e.to_string()),
            None => error(
                TransportErrorCode::PROTOCOL_VIOLATION,
                format!("TLS error: {e}"),
            ),
        })?;
        let is_named =
            matches!(&**tls, quic::Connection::Server(tls) if tls.server_name().is_some());
        let is_known = tls.alpn_protocol().is_some() || is_named;
        let is_news = !self.is_known && (is_known || !tls.is_handshaking());
        self.is_known |= is_news;
        Ok(is_news)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        // The client's, which are wanted once, at its first message.
        let tls = self.handshake.as_ref();
        let bytes = tls.and_then(|tls| tls.quic_transport_parameters());
        let read = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            allowance::lower_ids(&mut bytes);
            if let Some(delay) = self.ack_delay {
                delay.apply(&mut bytes);
            }
            TransportParameters::read(Side::Server, &mut &bytes[..])
        };
        Ok(bytes.map(read).transpose()?)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let before = buf.len();
        let tls = self.handshake.as_mut()?;
        let change = tls.write_hs(buf);
        if change.is_none() && buf.len() == before && !tls.is_handshaking() {
            // All of it was read and written, tickets included.
            self.end_handshake();
        }
        Some(match change? {
            KeyChange::Handshake { keys } => Keys {
                header: header(keys.local.header, keys.remote.header),
                packet: KeyPair {
                    local: Box::new(keys.local.packet),
                    remote: self.inspector.handshake(keys.remote.packet),
                },
            },
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                Keys {
                    header: header(keys.local.header, keys.remote.header),
                    packet: self.one_rtt(keys.local.packet, keys.remote.packet),
                }
            }
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(self.one_rtt(keys.local, keys.remote))
    }

    /// Retry is for clients.
    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false
    }

    /// The inspector has what is asked for later.
    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each idle connection keeps of TLS, besides the keys in use.
    #[test]
    fn little_is_kept() {
        assert!(
            size_of::<TlsSession>() <= 400,
            "{}",
            size_of::<TlsSession>()
        );
    }
}
