//! The server of a run: quinn-proto with rustls, echoing streams or answering
//! them. Knows nothing of the client but its datagrams.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto as quic;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, StreamEvent, StreamId,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::CipherSuite;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::{Link, To};

/// The application protocol of all runs.
pub(crate) const ALPN: &[u8] = b"mqtt";
/// The name in the server's certificate.
pub(crate) const NAME: &[u8] = b"broker.example.net";

/// A certificate with its key, and the key's point.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: KeyPair,
    pub(crate) point: [u8; 65],
}

impl Identity {
    pub(crate) fn own() -> Self {
        Self::with(|_| {})
    }

    /// A self-signed certificate with changes.
    pub(crate) fn with(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let name = String::from_utf8(NAME.to_vec()).unwrap();
        let mut params = CertificateParams::new(vec![name]).unwrap();
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        let point = key.public_key_raw().try_into().unwrap();
        Self {
            chain: vec![certificate.der().clone()],
            key,
            point,
        }
    }
}

/// What a server may be set to do differently.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habits {
    pub(crate) retry: bool,
    pub(crate) early: bool,
    /// Windows of the transport, to make flow control bite.
    pub(crate) window: Option<u32>,
    /// Streams that a client may have at a time.
    pub(crate) streams: Option<u8>,
    /// Milliseconds between signs of life.
    pub(crate) pings: Option<u16>,
    /// Exchanges keys with P-256 only, which is not what the client begins with.
    pub(crate) one_group: bool,
    /// The only cipher suite, but for Initial packets.
    pub(crate) suite: Option<CipherSuite>,
}

/// A server and its connections.
pub(crate) struct Server {
    endpoint: Endpoint,
    config: Arc<quic::ServerConfig>,
    own: Arc<quic::EndpointConfig>,
    connections: HashMap<ConnectionHandle, Peer>,
    epoch: Instant,
    retry: bool,
    /// Responses of the endpoint are sent at once; this is their buffer.
    buf: Vec<u8>,
    pub(crate) lost: Vec<quic::ConnectionError>,
    /// Echoed bytes of all connections.
    pub(crate) echoed: u64,
    /// What answers to the bytes of a stream, and takes them, instead of an echo.
    pub(crate) answer: Option<Answer>,
}

/// Takes what it understands from the front of a stream and gives an answer.
pub(crate) type Answer = Box<dyn FnMut(&mut Vec<u8>) -> Vec<u8>>;

struct Peer {
    connection: Connection,
    /// What is to be echoed on each stream, and whether it ends.
    streams: HashMap<StreamId, (Vec<u8>, bool, bool)>,
}

pub(crate) fn tls(identity: &Identity, habits: Habits) -> rustls::ServerConfig {
    asking(identity, habits, WebPkiClientVerifier::no_client_auth())
}

/// A server that asks clients for certificates, or not.
pub(crate) fn asking(
    identity: &Identity,
    habits: Habits,
    clients: Arc<dyn ClientCertVerifier>,
) -> rustls::ServerConfig {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if habits.one_group {
        provider.kx_groups = vec![rustls::crypto::aws_lc_rs::kx_group::SECP256R1];
    }
    if let Some(only) = habits.suite {
        provider.cipher_suites.retain(|suite| suite.suite() == only);
    }
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let key = PrivateKeyDer::try_from(identity.key.serialize_der()).unwrap();
    let mut tls = builder
        .with_client_cert_verifier(clients)
        .with_single_cert(identity.chain.clone(), key)
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    if habits.early {
        tls.max_early_data_size = u32::MAX;
    }
    tls
}

impl Server {
    pub(crate) fn new(tls: rustls::ServerConfig, habits: Habits, seed: u64) -> Self {
        // Initial packets have their suite, apart from what is allowed.
        let initial = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let initial = initial
            .tls13()
            .and_then(|suite| suite.quic_suite())
            .unwrap();
        let crypto = QuicServerConfig::with_initial(Arc::new(tls), initial).unwrap();
        let mut config = quic::ServerConfig::with_crypto(Arc::new(crypto));
        let mut transport = quic::TransportConfig::default();
        transport.max_idle_timeout(Some(Duration::from_secs(30).try_into().unwrap()));
        if let Some(window) = habits.window {
            transport.stream_receive_window(window.into());
            transport.receive_window((window * 2).into());
        }
        if let Some(streams) = habits.streams {
            transport.max_concurrent_bidi_streams(streams.into());
        }
        let pings = habits.pings.map(u64::from).map(Duration::from_millis);
        transport.keep_alive_interval(pings);
        config.transport_config(Arc::new(transport));
        let config = Arc::new(config);
        let mut own = quic::EndpointConfig::default();
        // Ids without a key in them are known for what they are after a restart.
        own.cid_generator(|| Box::<quic::RandomConnectionIdGenerator>::default());
        let own = Arc::new(own);
        let mut rng_seed = [0; 32];
        rng_seed[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            endpoint: Endpoint::new(own.clone(), Some(config.clone()), true, Some(rng_seed)),
            config,
            own,
            connections: HashMap::new(),
            epoch: Instant::now(),
            retry: habits.retry,
            buf: Vec::new(),
            lost: Vec::new(),
            echoed: 0,
            answer: None,
        }
    }

    fn at(&self, now: u64) -> Instant {
        self.epoch + Duration::from_millis(now)
    }

    /// Connections that are alive.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Forgets all connections, as a restart does, but not the key that
    /// stateless resets are made with.
    pub(crate) fn restart(&mut self) {
        self.connections.clear();
        let config = Some(self.config.clone());
        self.endpoint = Endpoint::new(self.own.clone(), config, true, None);
    }

    /// The connections, to do things to them.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.connections
            .values_mut()
            .map(|peer| &mut peer.connection)
    }

    /// Milliseconds at which a timer is due.
    pub(crate) fn next_at(&mut self) -> Option<u64> {
        let epoch = self.epoch;
        let timeouts = self.connections.values_mut();
        let earliest = timeouts
            .filter_map(|peer| peer.connection.poll_timeout())
            .min()?;
        let micros = earliest.saturating_duration_since(epoch).as_micros();
        Some(u64::try_from(micros.div_ceil(1000)).unwrap())
    }

    pub(crate) fn receive(&mut self, now: u64, port: u16, data: &[u8], link: &mut Link) {
        let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let at = self.at(now);
        self.buf.clear();
        let data = BytesMut::from(data);
        let event = self
            .endpoint
            .handle(at, remote, None, None, data, &mut self.buf);
        match event {
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.buf.clear();
                if self.retry && !incoming.remote_address_validated() {
                    if let Ok(transmit) = self.endpoint.retry(incoming, &mut self.buf) {
                        link.send(now, To::Client, port, &self.buf[..transmit.size]);
                    }
                    return;
                }
                match self.endpoint.accept(incoming, at, &mut self.buf, None) {
                    Ok((handle, connection)) => {
                        let streams = HashMap::new();
                        let peer = Peer {
                            connection,
                            streams,
                        };
                        self.connections.insert(handle, peer);
                    }
                    Err(error) => {
                        self.lost.push(error.cause);
                        if let Some(transmit) = error.response {
                            link.send(now, To::Client, port, &self.buf[..transmit.size]);
                        }
                    }
                }
            }
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(peer) = self.connections.get_mut(&handle) {
                    peer.connection.handle_event(event);
                }
            }
            Some(DatagramEvent::Response(transmit)) => {
                link.send(now, To::Client, port, &self.buf[..transmit.size]);
            }
            None => {}
        }
        self.drive(now, link);
    }

    /// Timers, events, echoes and datagrams of all connections.
    pub(crate) fn drive(&mut self, now: u64, link: &mut Link) {
        let at = self.at(now);
        let mut gone = Vec::new();
        for (&handle, peer) in &mut self.connections {
            if peer.connection.poll_timeout().is_some_and(|due| due <= at) {
                peer.connection.handle_timeout(at);
            }
            loop {
                while let Some(event) = peer.connection.poll_endpoint_events() {
                    if event.is_drained() {
                        gone.push(handle);
                    }
                    if let Some(event) = self.endpoint.handle_event(handle, event) {
                        peer.connection.handle_event(event);
                    }
                }
                let mut busy = false;
                while let Some(event) = peer.connection.poll() {
                    busy = true;
                    match event {
                        Event::ConnectionLost { reason } => self.lost.push(reason),
                        Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                            while let Some(id) = peer.connection.streams().accept(Dir::Bi) {
                                peer.streams.insert(id, (Vec::new(), false, false));
                            }
                        }
                        _ => {}
                    }
                }
                self.echoed += peer.echo(self.answer.as_mut());
                if !busy {
                    break;
                }
            }
            let mut buf = Vec::new();
            while let Some(transmit) = peer.connection.poll_transmit(at, 1, &mut buf) {
                let port = transmit.destination.port();
                link.send(now, To::Client, port, &buf[..transmit.size]);
                buf.clear();
            }
        }
        for handle in gone {
            self.connections.remove(&handle);
        }
    }
}

impl Peer {
    /// Reads what came and writes it back, or the answer to it.
    fn echo(&mut self, mut answer: Option<&mut Answer>) -> u64 {
        let mut echoed = 0;
        for (&id, (data, fin, done)) in &mut self.streams {
            if *done {
                continue;
            }
            let mut stream = self.connection.recv_stream(id);
            if let Ok(mut chunks) = stream.read(true) {
                loop {
                    match chunks.next(usize::MAX) {
                        Ok(Some(chunk)) => data.extend_from_slice(&chunk.bytes),
                        Ok(None) => {
                            *fin = true;
                            break;
                        }
                        Err(_) => break,
                    }
                }
                let _ = chunks.finalize();
            }
            let mut stream = self.connection.send_stream(id);
            if let Some(answer) = &mut answer {
                // Answers are short: the window has room for them.
                let answered = answer(data);
                if !answered.is_empty() {
                    assert_eq!(stream.write(&answered).ok(), Some(answered.len()));
                }
                continue;
            }
            while !data.is_empty() {
                let Ok(n) = stream.write(&Bytes::copy_from_slice(data)) else {
                    break;
                };
                data.drain(..n);
                echoed += n as u64;
            }
            if *fin && data.is_empty() {
                *done = stream.finish().is_ok();
            }
        }
        echoed
    }
}
