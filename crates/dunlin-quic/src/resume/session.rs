//! A dialled connection's TLS: begins with a stored ticket, and stores those
//! that the server gives; asks the server to let acknowledgements wait.

use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::crypto::{
    ClientConfig as QuicCrypto, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, NamedGroup};

use super::record::Record;
use super::restore::{Restored, restore};
use super::{SessionTickets, hkdf};
use crate::ack_request::LongDelay;
use crate::tls::quic_client;

/// Bytes of a handshake message that has not arrived whole: as much as a
/// ticket of the largest size needs.
const PARTIAL_BYTES_MAX: usize = 128 << 10;
/// NewSessionTicket (RFC 8446 section 4).
const NEW_SESSION_TICKET: u8 = 4;
/// Type and length of a handshake message.
const HEADER_BYTES: usize = 4;

/// Settings of one connection that resumes with a ticket of `tickets`, if it
/// has one, and puts new ones there.
pub(crate) struct Dialled {
    /// With watched cipher suites, if there are `tickets`.
    pub(crate) config: ClientConfig,
    pub(crate) verifier: Arc<dyn ServerCertVerifier>,
    /// Hash of the client's certificate.
    pub(crate) client: [u8; 32],
    /// `None`: those of `config`, in memory.
    pub(crate) tickets: Option<Arc<Counted>>,
    pub(crate) ack_delay: Option<LongDelay>,
}

/// Tickets, of which it is known how many came on one connection.
#[derive(Debug)]
pub(crate) struct Counted {
    tickets: Arc<dyn SessionTickets>,
    came: AtomicUsize,
}

impl Counted {
    pub(crate) fn new(tickets: &Arc<dyn SessionTickets>) -> Self {
        Self {
            tickets: Arc::clone(tickets),
            came: AtomicUsize::new(0),
        }
    }

    pub(crate) fn came(&self) -> usize {
        self.came.load(Ordering::Relaxed)
    }

    fn insert(&self, ticket: Vec<u8>) {
        self.came.fetch_add(1, Ordering::Relaxed);
        self.tickets.insert(ticket);
    }
}

impl Dialled {
    /// The stored ticket, if it is good for this server now.
    fn restored(&self, tickets: &Counted, server_name: &str) -> Option<Restored> {
        let name = ServerName::try_from(server_name).ok()?.to_owned();
        let record = Record::decode(&tickets.tickets.take()?)?;
        if record.client != self.client {
            return None;
        }
        restore(&self.config, &self.verifier, &name, &record)
    }
}

impl QuicCrypto for Dialled {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let mut config = self.config.clone();
        let keeping = self.tickets.as_ref().map(|tickets| {
            let store = Arc::new(OneShot::default());
            if let Some(restored) = self.restored(tickets, server_name) {
                store.with(|shelf| shelf.ticket = Some(restored.session));
                config
                    .dangerous()
                    .set_certificate_verifier(restored.verifier);
            }
            config.resumption = Resumption::store(Arc::clone(&store) as _);
            Keeping {
                store,
                client: self.client,
                tickets: Arc::clone(tickets),
                partial: Vec::new(),
            }
        });
        let config = quic_client(config).map_err(|_| ConnectError::UnsupportedVersion)?;
        let inner = Arc::new(config).start_session(version, server_name, params)?;
        Ok(Box::new(Watching {
            inner,
            keeping,
            ack_delay: self.ack_delay,
        }))
    }
}

/// A TLS session whose tickets may be stored.
struct Watching {
    inner: Box<dyn Session>,
    keeping: Option<Keeping>,
    ack_delay: Option<LongDelay>,
}

/// Where the tickets of one connection are stored.
struct Keeping {
    store: Arc<OneShot>,
    client: [u8; 32],
    tickets: Arc<Counted>,
    /// The beginning of a handshake message after the handshake.
    partial: Vec<u8>,
}

impl Keeping {
    /// Pairs the tickets within `bytes` with what TLS made of them.
    fn keep_tickets(&mut self, inner: &dyn Session, bytes: &[u8], keys: Vec<Vec<u8>>) {
        self.partial.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some((kind, body, used)) = first_message(&self.partial) {
            if kind == NEW_SESSION_TICKET {
                messages.push(body.to_vec());
            }
            self.partial.drain(..used);
        }
        if self.partial.len() > PARTIAL_BYTES_MAX {
            self.partial = Vec::new();
        }
        let given = self.store.with(|shelf| core::mem::take(&mut shelf.given));
        for ((message, key), given) in messages.into_iter().zip(keys).zip(given) {
            let record = self.record(inner, message, key, given);
            if let Some(ticket) = record.and_then(|record| record.encode()) {
                self.tickets.insert(ticket);
            }
        }
    }

    fn record(
        &self,
        inner: &dyn Session,
        message: Vec<u8>,
        key: Vec<u8>,
        given: Given,
    ) -> Option<Record> {
        let chain = inner.peer_identity()?;
        let chain = chain.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        let data = inner.handshake_data()?;
        let data = data.downcast::<HandshakeData>().ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(Record {
            suite: given.suite,
            issued: now.as_secs(),
            client: self.client,
            key,
            alpn: data.protocol?,
            message,
            params: given.params,
            chain: *chain,
        })
    }
}

/// Type and body of the first handshake message, and the bytes it takes;
/// `None`: it is not whole.
fn first_message(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let &[kind, a, b, c] = bytes.first_chunk::<HEADER_BYTES>()?;
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    let body = bytes.get(HEADER_BYTES..HEADER_BYTES + len)?;
    Some((kind, body, HEADER_BYTES + len))
}

impl Session for Watching {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let Some(keeping) = &mut self.keeping else {
            return self.inner.read_handshake(buf);
        };
        if self.inner.is_handshaking() {
            return self.inner.read_handshake(buf);
        }
        let (result, keys) = hkdf::watch(|| self.inner.read_handshake(buf));
        if result.is_ok() {
            keeping.keep_tickets(&*self.inner, buf, keys);
        }
        result
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let parameters = self.inner.transport_parameters()?;
        match (parameters, self.ack_delay) {
            (Some(parameters), Some(delay)) => {
                let mut bytes = Vec::new();
                parameters.write(&mut bytes);
                delay.apply(&mut bytes);
                Ok(Some(TransportParameters::read(
                    Side::Client,
                    &mut &bytes[..],
                )?))
            }
            (parameters, _) => Ok(parameters),
        }
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.inner.write_handshake(buf)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.inner.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

/// The store of one connection: the ticket to begin with, and what came.
#[derive(Debug, Default)]
struct OneShot(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    ticket: Option<Tls13ClientSessionValue>,
    given: Vec<Given>,
}

/// What of a ticket TLS tells.
#[derive(Debug)]
struct Given {
    suite: u16,
    params: Vec<u8>,
}

impl OneShot {
    fn with<R>(&self, f: impl FnOnce(&mut Shelf) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientSessionStore for OneShot {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let given = Given {
            suite: value.suite().common.suite.into(),
            params: value.quic_params(),
        };
        self.with(|shelf| shelf.given.push(given));
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.with(|shelf| shelf.ticket.take())
    }
}
