//! TLS of one connection as bytes in and bytes out. It knows no socket and
//! keeps no buffer while nothing is half received, so that an idle connection
//! costs no more than the keys.

use core::fmt;
use std::sync::Arc;

use dunlin_base::Text;
use rustls::HandshakeKind;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedConnectionCommon, UnbufferedStatus,
};

use bytes::Bytes;
use dunlin_quic::{Backlog, CertName, ConnStats, end_point, identity};

/// Room that is enough for most of what is encoded at once.
const OUT_BYTES: usize = 72 << 10;

/// What TLS has encoded and is to be written; reused by all connections.
#[derive(Debug, Default)]
pub(crate) struct OutBuf {
    buf: Vec<u8>,
    used: usize,
}

impl OutBuf {
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.buf.get(..self.used).unwrap_or_default()
    }

    /// Lets `write` fill the free part; it says how much it wrote or needs.
    fn put<E>(
        &mut self,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, Need<E>>,
    ) -> Result<(), E> {
        if self.buf.is_empty() {
            self.buf.resize(OUT_BYTES, 0);
        }
        loop {
            let free = self.buf.get_mut(self.used..).unwrap_or_default();
            match write(free) {
                Ok(n) => {
                    self.used += n;
                    return Ok(());
                }
                Err(Need::Room(bytes)) => self.buf.resize(self.used + bytes, 0),
                Err(Need::Other(error)) => return Err(error),
            }
        }
    }
}

enum Need<E> {
    Room(usize),
    Other(E),
}

/// What came out of received bytes.
pub(crate) enum TlsEvent<'a> {
    /// The handshake is complete.
    Open {
        /// Name in the peer's verified certificate.
        identity: Option<Text>,
    },
    /// Application data.
    Plain(&'a [u8]),
    /// The peer sends no more.
    Finished,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// The TLS state of one connection.
pub(crate) struct TlsLayer {
    side: Side,
    /// A record, or handshake message, of which the rest is to come.
    partial: Vec<u8>,
    open: bool,
    /// Which name of the peer to tell.
    name: CertName,
    /// It must not be used any more: the input it refers to is gone.
    failed: bool,
    /// Encoded bytes that the kernel did not take.
    pub(crate) wire: Backlog,
    /// Application bytes among them.
    pub(crate) in_wire: usize,
    /// The end of our side is encoded.
    pub(crate) notified: bool,
}

impl fmt::Debug for TlsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsLayer")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl TlsLayer {
    pub(crate) fn client(
        config: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        UnbufferedClientConnection::new(config, name).map(|c| Self::new(Side::Client(c)))
    }

    pub(crate) fn server(
        config: Arc<rustls::ServerConfig>,
        name: CertName,
    ) -> Result<Self, rustls::Error> {
        let mut layer =
            UnbufferedServerConnection::new(config).map(|c| Self::new(Side::Server(c)))?;
        layer.name = name;
        Ok(layer)
    }

    fn new(side: Side) -> Self {
        Self {
            side,
            partial: Vec::new(),
            open: false,
            name: CertName::Any,
            failed: false,
            wire: Backlog::default(),
            in_wire: 0,
            notified: false,
        }
    }

    /// Whether the handshake is complete.
    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    /// Dialled: what is bound to the certificate of the server, if anything can.
    pub(crate) fn end_point(&self) -> Option<Bytes> {
        match &self.side {
            Side::Client(c) => end_point(c.peer_certificates()?.first()?),
            Side::Server(_) => None,
        }
    }

    pub(crate) fn protocol(&self) -> Option<Vec<u8>> {
        match &self.side {
            Side::Client(c) => c.alpn_protocol(),
            Side::Server(c) => c.alpn_protocol(),
        }
        .map(<[u8]>::to_vec)
    }

    /// The certificate that the peer presented, in DER.
    pub(crate) fn peer_certificate(&self) -> Option<Vec<u8>> {
        let chain = match &self.side {
            Side::Client(c) => c.peer_certificates(),
            Side::Server(c) => c.peer_certificates(),
        };
        chain?.first().map(|certificate| certificate.to_vec())
    }

    /// Adds what was negotiated.
    pub(crate) fn describe(&self, stats: &mut ConnStats) {
        match &self.side {
            Side::Client(c) => describe(c, stats),
            Side::Server(c) => describe(c, stats),
        }
    }

    /// Takes received bytes; answers go to `out`.
    ///
    /// # Errors
    /// The handshake failed or the peer broke the protocol; the alert for the
    /// peer is in `out`.
    pub(crate) fn input(
        &mut self,
        data: &mut [u8],
        out: &mut OutBuf,
        sink: &mut dyn FnMut(TlsEvent<'_>),
    ) -> Result<(), rustls::Error> {
        if self.partial.is_empty() {
            let used = self.process(data, out, sink)?;
            if let Some(rest) = data.get(used..).filter(|rest| !rest.is_empty()) {
                self.partial = rest.to_vec();
            }
            return Ok(());
        }
        let mut all = core::mem::take(&mut self.partial);
        all.extend_from_slice(data);
        let used = self.process(&mut all, out, sink)?;
        if used < all.len() {
            all.drain(..used);
            self.partial = all;
        }
        Ok(())
    }

    fn process(
        &mut self,
        data: &mut [u8],
        out: &mut OutBuf,
        sink: &mut dyn FnMut(TlsEvent<'_>),
    ) -> Result<usize, rustls::Error> {
        if self.failed {
            return Ok(data.len());
        }
        let (open, name) = (&mut self.open, self.name);
        let result = match &mut self.side {
            Side::Client(c) => drive(c, data, out, (open, name), sink),
            Side::Server(c) => drive(c, data, out, (open, name), sink),
        };
        self.failed = result.is_err();
        result
    }

    /// Encrypts application data.
    ///
    /// # Errors
    /// The keys may not be used any more.
    pub(crate) fn encrypt(&mut self, plain: &[u8], out: &mut OutBuf) -> Result<(), rustls::Error> {
        self.write(Some(plain), out)
    }

    /// Encodes the end of our side.
    pub(crate) fn close_notify(&mut self, out: &mut OutBuf) {
        self.notified = true;
        // Before the handshake is complete there is nothing to end.
        let _ = self.write(None, out);
    }

    fn write(&mut self, plain: Option<&[u8]>, out: &mut OutBuf) -> Result<(), rustls::Error> {
        if self.failed {
            return Err(rustls::Error::General(
                "the connection failed before".into(),
            ));
        }
        let partial = &mut self.partial;
        match &mut self.side {
            Side::Client(c) => write(c, partial, plain, out),
            Side::Server(c) => write(c, partial, plain, out),
        }
    }
}

/// Both kinds of connection, which rustls gives no common trait.
fn describe<D>(conn: &UnbufferedConnectionCommon<D>, stats: &mut ConnStats) {
    let suite = conn.negotiated_cipher_suite();
    stats.cipher_suite = suite.and_then(|suite| suite.suite().as_str());
    let group = conn.negotiated_key_exchange_group();
    stats.key_exchange = group.and_then(|group| group.name().as_str());
    let kind = conn.handshake_kind();
    stats.resumed = kind.map(|kind| kind == HandshakeKind::Resumed);
}

trait Unbuffered {
    type Data;
    fn records<'c, 'i>(&'c mut self, data: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn common(&self) -> &UnbufferedConnectionCommon<Self::Data>;
}

impl Unbuffered for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    fn records<'c, 'i>(&'c mut self, data: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(data)
    }
    fn common(&self) -> &UnbufferedConnectionCommon<Self::Data> {
        self
    }
}

impl Unbuffered for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    fn records<'c, 'i>(&'c mut self, data: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(data)
    }
    fn common(&self) -> &UnbufferedConnectionCommon<Self::Data> {
        self
    }
}

/// Runs the state machine over `data`; returns how much of it was used.
fn drive<C: Unbuffered>(
    conn: &mut C,
    data: &mut [u8],
    out: &mut OutBuf,
    (open, name): (&mut bool, CertName),
    sink: &mut dyn FnMut(TlsEvent<'_>),
) -> Result<usize, rustls::Error> {
    let mut used = 0;
    loop {
        let input = data.get_mut(used..).unwrap_or_default();
        let UnbufferedStatus { mut discard, state } = conn.records(input);
        let mut more = true;
        match state {
            // Not popped yet: it comes again after the handshake's end was
            // reported, which needs the connection.
            Ok(ConnectionState::ReadTraffic(_)) if !*open => {}
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    sink(TlsEvent::Plain(record.payload));
                }
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out)?,
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => sink(TlsEvent::Finished),
            // Early data is not enabled on TCP; other states need input.
            Ok(_) => more = false,
            Err(error) => {
                let rest = data.get_mut(used + discard..).unwrap_or_default();
                alert(conn, rest, out);
                return Err(error);
            }
        }
        used += discard;
        if !*open && !conn.common().is_handshaking() {
            *open = true;
            let certs = conn.common().peer_certificates();
            let identity = certs.and_then(|certs| identity(certs, name));
            sink(TlsEvent::Open { identity });
        }
        if !more {
            return Ok(used);
        }
    }
}

/// Encrypts `plain`, or encodes the end of our side. rustls must be shown what
/// it has not used of the input each time: it keeps positions in it.
fn write<C: Unbuffered>(
    conn: &mut C,
    partial: &mut Vec<u8>,
    plain: Option<&[u8]>,
    out: &mut OutBuf,
) -> Result<(), rustls::Error> {
    loop {
        let UnbufferedStatus { discard, state } = conn.records(partial);
        // It needs no state that borrows the input for anything done here.
        let mut done = false;
        match state? {
            ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out)?,
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => {}
            ConnectionState::WriteTraffic(mut traffic) => {
                out.put(|free| {
                    let result = match plain {
                        Some(plain) => traffic.encrypt(plain, free),
                        None => traffic.queue_close_notify(free),
                    };
                    result.map_err(|e| match e {
                        EncryptError::InsufficientSize(size) => Need::Room(size.required_size),
                        EncryptError::EncryptExhausted => Need::Other(rustls::Error::EncryptError),
                    })
                })?;
                done = true;
            }
            _ => return Err(rustls::Error::HandshakeNotComplete),
        }
        partial.drain(..discard.min(partial.len()));
        if done {
            return Ok(());
        }
    }
}

fn encode<D>(
    data: &mut rustls::unbuffered::EncodeTlsData<'_, D>,
    out: &mut OutBuf,
) -> Result<(), rustls::Error> {
    out.put(|free| {
        data.encode(free).map_err(|e| match e {
            EncodeError::InsufficientSize(size) => Need::Room(size.required_size),
            EncodeError::AlreadyEncoded => Need::Other(rustls::Error::EncryptError),
        })
    })
}

/// After an error: what was queued before it, and the alert that tells the
/// peer. Asked only while there is something, because rustls would look at the
/// damaged input again.
fn alert<C: Unbuffered>(conn: &mut C, rest: &mut [u8], out: &mut OutBuf) {
    while conn.common().wants_write() {
        let Ok(ConnectionState::EncodeTlsData(mut data)) = conn.records(rest).state else {
            break;
        };
        if encode(&mut data, out).is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerTls;
    use crate::tests::certs::{client_builder, protocols, server_options};

    struct Lone(TlsLayer, Vec<u8>, bool);

    impl Lone {
        fn take(&mut self, data: &[u8]) -> Result<Vec<u8>, rustls::Error> {
            let (mut out, mut data) = (OutBuf::default(), data.to_vec());
            let (plain, open) = (&mut self.1, &mut self.2);
            self.0
                .input(&mut data, &mut out, &mut |event| match event {
                    TlsEvent::Open { .. } => *open = true,
                    TlsEvent::Plain(bytes) => plain.extend_from_slice(bytes),
                    TlsEvent::Finished => {}
                })?;
            Ok(out.bytes().to_vec())
        }
    }

    fn pair(fragment: Option<usize>) -> (Lone, Lone) {
        let server = ServerTls::new(&server_options()).unwrap();
        let mut config = (*server.over_tcp(&protocols())).clone();
        config.max_fragment_size = fragment;
        let server = TlsLayer::server(Arc::new(config), CertName::Any).unwrap();
        let client = client_builder().build().unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let client = TlsLayer::client(client.over_tcp(&protocols()), name).unwrap();
        (
            Lone(client, Vec::new(), false),
            Lone(server, Vec::new(), false),
        )
    }

    /// rustls keeps positions in input that it has not used; writing between
    /// the pieces of a fragmented message must show it that input.
    #[test]
    fn writing_between_fragments_of_a_handshake_message_is_safe() {
        let (mut client, mut server) = pair(Some(40));
        let mut to_server = client.take(&[]).unwrap();
        let mut wrote = 0;
        for _ in 0..10 {
            let to_client = server.take(&core::mem::take(&mut to_server)).unwrap();
            for byte in to_client {
                to_server.extend(client.take(&[byte]).unwrap());
                if client.2 {
                    let mut out = OutBuf::default();
                    client.0.encrypt(b"x", &mut out).unwrap();
                    to_server.extend_from_slice(out.bytes());
                    wrote += 1;
                }
            }
        }
        assert!(wrote > 40, "a session ticket came in many pieces");
        assert_eq!(server.1, vec![b'x'; wrote]);
        assert!(client.0.partial.is_empty() && server.0.partial.is_empty());
    }

    #[test]
    fn damaged_records_fail_with_an_alert_and_never_again() {
        let (mut client, mut server) = pair(None);
        let hello = client.take(&[]).unwrap();
        for at in (0..hello.len()).step_by(7) {
            let (_, mut server) = pair(None);
            let mut bad = hello.clone();
            bad[at] ^= 0x55;
            let _ = server.take(&bad);
            let _ = server.take(&bad);
            server.0.close_notify(&mut OutBuf::default());
        }
        let flight = server.take(&hello).unwrap();
        for at in (0..flight.len()).step_by(11) {
            let (mut client, mut server) = pair(None);
            let mut flight = server.take(&client.take(&[]).unwrap()).unwrap();
            let Some(byte) = flight.get_mut(at) else {
                continue;
            };
            *byte ^= 0x55;
            let cut = flight.len() / 2;
            let result = client
                .take(&flight[..cut])
                .and_then(|_| client.take(&flight[cut..]));
            let mut out = OutBuf::default();
            if result.is_err() {
                assert!(client.0.encrypt(b"x", &mut out).is_err());
                assert!(out.bytes().is_empty());
            }
            client.0.close_notify(&mut out);
        }
    }
}
