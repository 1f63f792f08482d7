//! SCRAM that is bound to the connection it is on, against one in the middle that
//! ends TLS or QUIC with a certificate of its own, which the client trusts.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use dunlin::auth::passwords::{Change, changed};
use dunlin::certs::{self, CA_DAYS, Options};
use dunlin_base::transport::{NetEventKind, Transport};
use dunlin_base::{ConnId, SendBuf, StreamId, Text};
use dunlin_client::TlsOptions;
use dunlin_net::{ClientTls, Clock, DialConfig, ListenerConfig, Net, NetConfig, ServerTls};

use crate::support::{Broker, run};

/// Listeners for both protocols.
const BOTH: &str = r#"listener=[
    {transport="quic",address="127.0.0.1:0"},
    {transport="tcp",address="127.0.0.1:0"},
    {transport="tls",address="127.0.0.1:0"},
    {transport="wss",address="127.0.0.1:0"}]"#;

/// A broker that lets in the user `u` with the password `right`, and others not.
fn broker(dir: &Path) -> Broker {
    let path = dir.join("passwords");
    let change = Change::Set {
        password: b"right",
        iterations: 4096,
    };
    let text = changed(&path, None, "u", change).expect("a line");
    std::fs::write(&path, text).expect("written");
    let file = format!("auth.password_file={:?}", path.display().to_string());
    Broker::start_with(2, &[BOTH, &file, "auth.anonymous=never"])
}

/// One in the middle: a thread that carries bytes on.
struct Middle {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Middle {
    /// Serves with the certificate in `dir`, and connects to the broker by another
    /// transport, or the same.
    fn start(
        dir: &Path,
        protocol: &'static str,
        transport: Transport,
        broker: &Broker,
        onward: Transport,
    ) -> Self {
        let protocols = vec![Text::from_static(protocol)];
        let mut net = Net::new(NetConfig::client(Clock::new()).expect("keys")).expect("a loop");
        let (cert, key) = (dir.join("server.pem"), dir.join("server.key"));
        let tls = ServerTls::from_pem_files(&cert, &key, None, false).expect("certificates");
        let mut listener = ListenerConfig::new(transport, SocketAddr::from(([127, 0, 0, 1], 0)));
        listener.tls = Some(Arc::new(tls));
        listener.protocols.clone_from(&protocols);
        let addr = net.listen(listener).expect("a port");
        let tls = ClientTls::builder().ca_pem_file(&broker.ca());
        let tls = Arc::new(tls.and_then(|tls| tls.build()).expect("an authority"));
        let mut dial = DialConfig::new(onward, broker.addr(onward), "localhost");
        dial.tls = Some(tls);
        dial.protocols = protocols;
        let mut carrier = Carrier {
            net,
            dial,
            peers: HashMap::new(),
            early: HashMap::new(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                carrier.turn();
            }
        });
        Self {
            addr,
            stop,
            thread: Some(thread),
        }
    }
}

/// What its thread has.
struct Carrier {
    net: Net,
    dial: DialConfig,
    peers: HashMap<ConnId, ConnId>,
    /// What came before there is a stream for it.
    early: HashMap<ConnId, SendBuf>,
}

impl Carrier {
    fn turn(&mut self) {
        let (wait, mut events) = (Some(Duration::from_millis(5)), Vec::new());
        let polled = self
            .net
            .poll(wait, &mut |event| events.push(event.into_owned()));
        polled.expect("a loop");
        for event in events {
            self.handle(event.conn, event.kind);
        }
    }

    fn handle(&mut self, conn: ConnId, event: NetEventKind<Bytes>) {
        let to = self.peers.get(&conn).copied();
        match (event, to) {
            (NetEventKind::Opened { .. }, None) => {
                let there = self.net.dial(&self.dial).expect("a socket");
                self.peers.extend([(conn, there), (there, conn)]);
                self.early.insert(there, SendBuf::new());
            }
            (NetEventKind::Opened { .. }, Some(_)) => {
                let _ = self.net.conn(conn).open_stream(true);
                if let Some(mut bytes) = self.early.remove(&conn) {
                    let _ = self.net.send(conn, StreamId::CONTROL, &mut bytes);
                }
            }
            (
                NetEventKind::Bytes {
                    stream: StreamId::CONTROL,
                    data,
                },
                Some(to),
            ) => {
                let mut bytes = SendBuf::new();
                bytes.put_slice(&data);
                match self.early.get_mut(&to) {
                    Some(waiting) => waiting.put_slice(&data),
                    None => {
                        let _ = self.net.send(to, StreamId::CONTROL, &mut bytes);
                    }
                }
            }
            (NetEventKind::Closed { .. } | NetEventKind::StreamFinished { .. }, Some(to)) => {
                self.net.close(to, 0);
            }
            _ => {}
        }
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|it| it.is_ok()));
    }
}

/// Whether SCRAM lets a client of this protocol in at a port.
fn is_let_in(protocol: &str, transport: Transport, port: u16, ca: &Path) -> bool {
    let tls = TlsOptions::new().ca_file(ca);
    let error = run(async {
        if protocol == "mqtt" {
            let url = format!("{}://localhost:{port}", dunlin_client::scheme(transport));
            let client = dunlin_client::Client::builder(url).expect("a URL");
            let client = client.no_reconnect().tls(tls).scram("u", "right");
            return client.connect().await.err().map(|it| it.to_string());
        }
        let scheme = dunlin_dial::Protocol::Amqp.scheme(transport);
        let url = format!("{scheme}://u:right@localhost:{port}");
        let client = dunlin_amqp_client::Client::builder(url).expect("a URL");
        let client = client.tls(tls).sasl(dunlin_amqp_client::Sasl::ScramSha256);
        client.connect().await.err().map(|it| it.to_string())
    });
    if let Some(error) = &error {
        let error = error.to_lowercase();
        let is_refusal = error.contains("not authorized") || error.contains("credentials");
        assert!(is_refusal, "{protocol} {transport:?}: {error}");
    }
    error.is_none()
}

const PROTOCOLS: [&str; 2] = ["mqtt", "amqp"];

#[test]
fn who_comes_straight_is_let_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    for transport in [Transport::Quic, Transport::Tls, Transport::Wss] {
        let port = broker.addr(transport).port();
        // The path of a WebSocket is that of MQTT.
        let protocols = if transport == Transport::Wss { 1 } else { 2 };
        for protocol in PROTOCOLS.into_iter().take(protocols) {
            let let_in = is_let_in(protocol, transport, port, &broker.ca());
            assert!(let_in, "{protocol} {transport:?}");
        }
    }
}

/// Whether clients are let in that come by one in the middle.
fn by_the_middle(transport: Transport, onward: Transport) -> [bool; 2] {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    certs::init(dir.path(), CA_DAYS, &Options::default()).expect("an authority");
    let ca = dir.path().join("ca.pem");
    PROTOCOLS.map(|protocol| {
        let middle = Middle::start(dir.path(), protocol, transport, &broker, onward);
        is_let_in(protocol, transport, middle.addr.port(), &ca)
    })
}

#[test]
fn one_in_the_middle_is_refused_with_a_certificate_that_the_client_trusts() {
    for (transport, onward) in [
        (Transport::Tls, Transport::Tls),
        (Transport::Quic, Transport::Quic),
        (Transport::Tls, Transport::Quic),
        (Transport::Quic, Transport::Tls),
    ] {
        let let_in = by_the_middle(transport, onward);
        assert_eq!(let_in, [false; 2], "{transport:?} {onward:?}");
    }
}

/// As a gateway does: the broker has nothing there to be bound to, and says so.
#[test]
fn one_that_ends_tls_before_a_plain_listener_carries_clients() {
    for transport in [Transport::Tls, Transport::Quic] {
        let let_in = by_the_middle(transport, Transport::Tcp);
        assert_eq!(let_in, [true; 2], "{transport:?}");
    }
}
