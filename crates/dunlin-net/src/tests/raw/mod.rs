//! A QUIC client of one connection whose every datagram the test sees, and
//! may change, on its way out and in.

pub(crate) mod forge;

use core::net::{IpAddr, SocketAddr};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, StreamId as QuicStreamId, TransportConfig, TransportErrorCode,
};

use super::PATIENCE;
use super::certs::{ca_der, provider};
use forge::{Forged, ForgingConfig};

/// Largest datagram read.
const DATAGRAM_BYTES: usize = 65_536;

/// What becomes of a datagram on its way out.
pub(crate) type Tamper = Box<dyn FnMut(Vec<u8>) -> Vec<Vec<u8>>>;

pub(crate) struct Raw {
    pub(crate) socket: UdpSocket,
    pub(crate) to: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub(crate) conn: Connection,
    pub(crate) tamper: Option<Tamper>,
    /// Everything sent, before it was changed.
    pub(crate) sent: Vec<Vec<u8>>,
    /// Everything received.
    pub(crate) received: Vec<Vec<u8>>,
    pub(crate) is_open: bool,
    pub(crate) lost: Option<ConnectionError>,
    pub(crate) forged: Forged,
}

impl Raw {
    pub(crate) fn new(to: SocketAddr) -> Self {
        Self::from_ip(IpAddr::from([127, 0, 0, 1]), to)
    }

    /// Sends from a local address of the test's choice.
    pub(crate) fn from_ip(ip: IpAddr, to: SocketAddr) -> Self {
        Self::with(ip, to, |_| {})
    }

    pub(crate) fn with(
        ip: IpAddr,
        to: SocketAddr,
        change: impl FnOnce(&mut TransportConfig),
    ) -> Self {
        Self::lacking(None, ip, to, change)
    }

    /// Does not send that transport parameter.
    pub(crate) fn lacking(
        without: Option<u64>,
        ip: IpAddr,
        to: SocketAddr,
        change: impl FnOnce(&mut TransportConfig),
    ) -> Self {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let forged = Forged::default();
        let mut config = ClientConfig::new(Arc::new(ForgingConfig {
            inner: Arc::new(QuicClientConfig::try_from(tls()).unwrap()),
            forged: Arc::clone(&forged),
            without,
        }));
        let mut transport = TransportConfig::default();
        transport.mtu_discovery_config(None);
        change(&mut transport);
        config.transport_config(Arc::new(transport));
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let now = StdInstant::now();
        let (handle, conn) = endpoint.connect(now, config, to, "localhost").unwrap();
        Self {
            socket,
            to,
            endpoint,
            handle,
            conn,
            tamper: None,
            sent: Vec::new(),
            received: Vec::new(),
            is_open: false,
            lost: None,
            forged,
        }
    }

    /// Sends what is to be sent.
    pub(crate) fn flush(&mut self) {
        let now = StdInstant::now();
        while let Some(event) = self.conn.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.conn.handle_event(event);
            }
        }
        let mut buf = Vec::new();
        while let Some(transmit) = self.conn.poll_transmit(now, 1, &mut buf) {
            let datagram = buf[..transmit.size].to_vec();
            self.sent.push(datagram.clone());
            let changed = match &mut self.tamper {
                Some(tamper) => tamper(datagram),
                None => vec![datagram],
            };
            for datagram in changed {
                self.send(&datagram);
            }
            buf.clear();
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&self, datagram: &[u8]) {
        // A full buffer loses them, as a network would.
        let _ = self.socket.send_to(datagram, self.to);
    }

    /// Takes what has arrived, without giving it to the protocol.
    pub(crate) fn listen(&mut self) -> Vec<Vec<u8>> {
        let mut buf = vec![0; DATAGRAM_BYTES];
        let mut new = Vec::new();
        loop {
            match self.socket.recv_from(&mut buf) {
                Ok((n, _)) => new.push(buf[..n].to_vec()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {}
            }
        }
        self.received.extend(new.iter().cloned());
        new
    }

    /// One turn: time, input, events, output.
    pub(crate) fn poll(&mut self) {
        let now = StdInstant::now();
        if self.conn.poll_timeout().is_some_and(|at| at <= now) {
            self.conn.handle_timeout(now);
        }
        let mut answer = Vec::new();
        for datagram in self.listen() {
            let data = BytesMut::from(&datagram[..]);
            let event = self
                .endpoint
                .handle(now, self.to, None, None, data, &mut answer);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.conn.handle_event(event);
            }
        }
        while let Some(event) = self.conn.poll() {
            match event {
                Event::Connected => self.is_open = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                _ => {}
            }
        }
        self.flush();
    }

    /// Polls this and the server until `done`.
    pub(crate) fn until(
        &mut self,
        server: &mut super::Side,
        what: &str,
        mut done: impl FnMut(&mut Self, &mut super::Side) -> bool,
    ) {
        let start = StdInstant::now();
        while !done(self, server) {
            assert!(
                start.elapsed() < PATIENCE,
                "no {what}; lost: {:?}; server: {:?}",
                self.lost,
                super::brief(&server.events)
            );
            self.poll();
            server.poll();
        }
    }

    /// Polls both until the server has refused what came; the error that it says.
    pub(crate) fn until_refused(&mut self, server: &mut super::Side) -> TransportErrorCode {
        self.until(server, "refusal", |raw, _| raw.lost.is_some());
        match &self.lost {
            Some(ConnectionError::ConnectionClosed(close)) => close.error_code,
            other => panic!("{other:?}"),
        }
    }

    /// Completes the handshake.
    pub(crate) fn open(&mut self, server: &mut super::Side) {
        self.until(server, "handshake", |raw, _| raw.is_open);
    }

    /// Writes on a stream as much as it takes.
    pub(crate) fn write(&mut self, stream: QuicStreamId, bytes: &[u8]) -> usize {
        self.conn.send_stream(stream).write(bytes).unwrap_or(0)
    }

    /// Opens a bidirectional stream.
    pub(crate) fn open_stream(&mut self) -> QuicStreamId {
        self.conn.streams().open(Dir::Bi).unwrap()
    }

    /// Sends a packet with these frames instead of its own; a stream must be
    /// given that takes bytes.
    pub(crate) fn forge(&mut self, stream: QuicStreamId, frames: Vec<u8>) {
        let bytes = vec![0; frames.len() + 100];
        self.forged.lock().unwrap().push_back(frames);
        assert_eq!(self.write(stream, &bytes), bytes.len());
        self.flush();
    }
}

/// Trusts the authority of the tests.
fn tls() -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca_der()).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"mqtt".to_vec()];
    config
}

/// First datagram of a client that no one answers yet.
pub(crate) fn first_datagram(to: SocketAddr) -> Vec<u8> {
    let mut raw = Raw::new(to);
    raw.tamper = Some(Box::new(|_| Vec::new()));
    raw.flush();
    raw.sent.swap_remove(0)
}
