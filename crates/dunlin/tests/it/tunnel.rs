//! TCP clients that a tunnel carries over QUIC: MQTT to the broker, AMQP to a
//! server that sends back what it receives on a stream.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use dunlin::tunnel::{Settings, Stop, Tunnel};
use dunlin_amqp_client::{Client as AmqpClient, Message, Outcome};
use dunlin_base::transport::{NetEventKind, Transport};
use dunlin_base::{ConnId, SendBuf, StreamId, Text};
use dunlin_client::{Client, Publish, QoS, TlsOptions};
use dunlin_net::{Clock, ListenerConfig, Net, NetConfig, ServerTls, ServerTlsOptions};
use dunlin_socket::Options;

use crate::metrics::{get, sum};
use crate::support::{Broker, PATIENCE, run};

/// MQTT 5.0, Clean Start, keep alive 60 s, no client identifier.
const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00";
const PINGREQ: &[u8] = b"\xc0\x00";
const PINGRESP: &[u8] = b"\xd0\x00";
const DISCONNECT: &[u8] = b"\xe0\x00";

/// A tunnel on a thread of its own.
struct Running {
    addr: SocketAddr,
    stop: Stop,
    complaints: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Running {
    fn start(url: &str, tls: TlsOptions) -> Self {
        let options = Options::new()
            .tls(tls)
            .connect_timeout(Duration::from_secs(5))
            .keep_alive(Some(Duration::from_secs(1)));
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&complaints);
        let tunnel = Tunnel::bind(Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            url: url.parse().expect("a URL"),
            options,
            early_data: true,
            connections_max: 64,
            streams_max: 32,
            complain: Box::new(move |what| heard.lock().expect("whole").push(what.to_string())),
        });
        let tunnel = tunnel.expect("bound");
        let (addr, stop) = (tunnel.addr(), tunnel.stop());
        Self {
            addr,
            stop,
            complaints,
            thread: Some(thread::spawn(|| tunnel.run())),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended
                .expect("a thread")
                .expect("no panic")
                .expect("no error");
        }
    }
}

/// Sends back what it receives, stream by stream.
struct Echo {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Bytes that wait on the stream where most do.
    waiting: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(addr: SocketAddr) -> Self {
        let mut config = NetConfig::client(Clock::new()).expect("keys");
        // It reads on, however much waits to be sent back.
        config.limits.unread_answers_bytes_max = 64 << 20;
        let mut net = Net::new(config).expect("an event loop");
        let cert = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("made");
        let (pem, key) = (cert.cert.pem(), cert.signing_key.serialize_pem());
        let options = ServerTlsOptions::new(pem.into(), key.into());
        let mut listener = ListenerConfig::new(Transport::Quic, addr);
        listener.protocols = vec![Text::from_static("amqp")];
        listener.tls = Some(Arc::new(ServerTls::new(&options).expect("TLS")));
        let addr = net.listen(listener).expect("a port");
        let (connections, waiting) = (Arc::<AtomicUsize>::default(), Arc::default());
        let over = Arc::<AtomicBool>::default();
        let shared = (
            Arc::clone(&connections),
            Arc::clone(&waiting),
            Arc::clone(&over),
        );
        let thread = thread::spawn(move || echo(net, &shared.0, &shared.1, &shared.2));
        Self {
            addr,
            connections,
            waiting,
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn echo(mut net: Net, connections: &AtomicUsize, waiting: &AtomicUsize, over: &AtomicBool) {
    let mut streams: Vec<(ConnId, StreamId)> = Vec::new();
    while !over.load(Ordering::Acquire) {
        let mut news: Vec<(ConnId, StreamId, SendBuf, bool)> = Vec::new();
        net.poll(
            Some(Duration::from_millis(5)),
            &mut |event| match event.kind {
                NetEventKind::Opened { .. } => {
                    connections.fetch_add(1, Ordering::AcqRel);
                }
                NetEventKind::Bytes { stream, data } => {
                    let mut bytes = SendBuf::new();
                    bytes.put_slice(data);
                    news.push((event.conn, stream, bytes, false));
                }
                NetEventKind::StreamFinished { stream } => {
                    news.push((event.conn, stream, SendBuf::new(), true));
                }
                _ => {}
            },
        )
        .expect("polled");
        for (conn, stream, mut bytes, finished) in news {
            if !streams.contains(&(conn, stream)) {
                streams.push((conn, stream));
            }
            let _ = net.send(conn, stream, &mut bytes);
            if finished {
                net.conn(conn).finish_stream(stream);
            }
        }
        let backlogs = streams
            .iter()
            .map(|(conn, s)| net.conn(*conn).stream_backlog(*s));
        waiting.store(backlogs.max().unwrap_or(0), Ordering::Release);
        net.flush();
    }
}

fn mqtt(broker: &Broker) -> Running {
    let port = broker.addr(Transport::Quic).port();
    let tls = TlsOptions::new().ca_file(broker.ca());
    Running::start(&format!("quic://localhost:{port}"), tls)
}

fn to_echo(echo: &Echo) -> Running {
    let tls = TlsOptions::new().dangerous_no_verification();
    Running::start(&format!("amqp+quic://{}", echo.addr), tls)
}

fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("its end");
    bytes
}

#[test]
fn bytes_of_mqtt_and_their_end_go_through() {
    let broker = Broker::start(1);
    let tunnel = mqtt(&broker);
    let mut stream = tunnel.connect();
    stream.write_all(CONNECT).expect("written");
    let mut head = [0; 4];
    stream.read_exact(&mut head).expect("CONNACK");
    assert_eq!((head[0], head[3]), (0x20, 0), "{head:?}");
    let mut properties = vec![0; usize::from(head[1]) - 2];
    stream.read_exact(&mut properties).expect("its rest");
    stream.write_all(PINGREQ).expect("written");
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, PINGRESP);
    stream.write_all(DISCONNECT).expect("written");
    stream.shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(rest(stream), b"");
    assert_eq!(*tunnel.complaints.lock().expect("whole"), [""; 0]);
}

#[test]
fn clients_of_mqtt_talk_to_each_other() {
    let broker = Broker::start(2);
    let tunnel = mqtt(&broker);
    run(async {
        let url = format!("mqtt://{}", tunnel.addr);
        let connect = async || {
            let builder = Client::builder(&url).expect("a URL").no_reconnect();
            builder.connect().await.expect("connected")
        };
        let (receiver, mut messages) = connect().await;
        let (sender, _) = connect().await;
        let filter = receiver.subscribe("t", QoS::AtLeastOnce).await;
        filter.expect("subscribed");
        let payload = vec![7; 500_000];
        for _ in 0..8 {
            let publish = Publish::new("t", payload.clone()).qos(QoS::AtLeastOnce);
            sender.publish(publish).await.expect("published");
        }
        for _ in 0..8 {
            let message = messages.next().await.expect("a message");
            assert_eq!(message.payload, payload);
        }
    });
}

/// A client that does not read holds up neither the others of the shared
/// connection nor the memory of the tunnel, and loses nothing.
#[test]
fn streams_of_one_connection_wait_for_their_own_clients() {
    const BYTES: usize = 16 << 20;
    let echo = Echo::start(SocketAddr::from(([127, 0, 0, 1], 0)));
    let tunnel = to_echo(&echo);
    let mut slow = tunnel.connect();
    let sent: Vec<u8> = (0..BYTES).map(|n| (n / 7) as u8).collect();
    slow.write_all(&sent).expect("written");
    slow.shutdown(Shutdown::Write).expect("half closed");
    for turn in 0..3_u8 {
        let mut quick = tunnel.connect();
        quick.write_all(&[turn; 1000]).expect("written");
        quick.shutdown(Shutdown::Write).expect("half closed");
        assert_eq!(rest(quick), [turn; 1000]);
    }
    // Windows, the tunnel and the kernel hold less than 14 MiB together.
    let waiting = echo.waiting.load(Ordering::Acquire);
    assert!(waiting > 2 << 20, "{waiting}");
    assert_eq!(echo.connections.load(Ordering::Acquire), 1);
    assert!(rest(slow) == sent);
}

/// The server goes without a word: its clients are closed.
#[test]
fn the_next_client_has_the_broker_dialled_again() {
    let echo = Echo::start(SocketAddr::from(([127, 0, 0, 1], 0)));
    let tunnel = to_echo(&echo);
    let mut first = tunnel.connect();
    first.write_all(b"one").expect("written");
    let mut answer = [0; 3];
    first.read_exact(&mut answer).expect("an answer");
    let addr = echo.addr;
    drop(echo);
    assert_eq!(rest(first), b"");
    let again = Echo::start(addr);
    let until = Instant::now() + PATIENCE;
    loop {
        let mut next = tunnel.connect();
        next.write_all(b"two").expect("written");
        // It may still come upon the end of the connection before.
        match next.read_exact(&mut answer) {
            Ok(()) => break,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
    assert_eq!(answer, *b"two");
    assert!(again.connections.load(Ordering::Acquire) >= 1);
}

#[test]
fn a_client_without_a_broker_is_closed() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let addr = closed.local_addr().expect("an address");
    drop(closed);
    let tls = TlsOptions::new().dangerous_no_verification();
    let tunnel = Running::start(&format!("quic://{addr}"), tls);
    let mut client = tunnel.connect();
    client.write_all(CONNECT).expect("written");
    let mut bytes = Vec::new();
    // Closed or reset, but not left waiting.
    let _ = client.read_to_end(&mut bytes);
    assert_eq!(bytes, b"");
    let complaints = tunnel.complaints.lock().expect("whole");
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].contains("cannot connect"), "{complaints:?}");
}

/// A client of AMQP that has sent a message.
async fn through(tunnel: SocketAddr) -> AmqpClient {
    let builder = AmqpClient::builder(format!("amqp://{tunnel}")).expect("a URL");
    let client = builder.no_reconnect().connect().await.expect("connected");
    let sender = client.sender("there/a").attach().await.expect("attached");
    let sent = sender.send(Message::new("through the tunnel")).await;
    assert_eq!(sent.expect("sent"), Outcome::Accepted);
    client
}

#[test]
fn clients_of_amqp_share_a_quic_connection() {
    let broker = Broker::start_with(2, &["metrics.address=127.0.0.1:0"]);
    let port = broker.addr(Transport::Quic).port();
    let tls = TlsOptions::new().ca_file(broker.ca());
    let tunnel = Running::start(&format!("amqp+quic://localhost:{port}"), tls);
    let now = || {
        let (_, metrics) = get(&broker, "/metrics");
        let count = |name| sum(&metrics, name, "shard") as usize;
        (
            count("dunlin_connections{"),
            count("dunlin_connections_on_streams{"),
        )
    };
    let wait = |expected| {
        let until = Instant::now() + PATIENCE;
        while now() != expected {
            assert!(Instant::now() < until, "{:?} is not {expected:?}", now());
            thread::sleep(Duration::from_millis(10));
        }
    };
    let client = || run(through(tunnel.addr));
    let mut clients: Vec<_> = (0..5).map(|_| client()).collect();
    wait((1, 5));
    // One that goes takes no other with it.
    clients.remove(2);
    wait((1, 4));
    clients.push(client());
    wait((1, 5));
    clients.clear();
    wait((0, 0));
    let complaints = tunnel.complaints.lock().expect("whole");
    assert!(complaints.is_empty(), "{complaints:?}");
}
