//! Early data (0-RTT) from end to end: tickets in a file, brokers that end and
//! come back, and first flights that an attacker recorded and sends again.

use core::net::SocketAddr;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use dunlin::certs::{self, CA_DAYS, Options};
use dunlin_base::transport::Transport;
use dunlin_client::{
    Builder, Client, ConnectionEvent, Events, Messages, Publish, QoS, Runtime, RuntimeLimits,
    TicketFile, TlsOptions,
};

use crate::metrics::{get, sum};
use crate::relay::Relay;
use crate::support::{Broker, PATIENCE, run};

/// A device with a ticket file, and what brokers it meets.
pub(crate) struct Rig {
    pub(crate) relay: Relay,
    dir: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let options = Options::default();
        certs::init(&dir.path().join("certs"), CA_DAYS, &options).expect("authority");
        let relay = Relay::new();
        Self { relay, dir }
    }

    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.dir.path().join("certs").join(name)
    }

    /// Settings of all brokers: the same certificate, metrics, no other limits
    /// than the ones that this is about.
    fn settings(&self) -> Vec<String> {
        let (cert, key) = (
            self.certificate("server.pem"),
            self.certificate("server.key"),
        );
        vec![
            format!("listener.0.tls={{cert={cert:?},key={key:?}}}"),
            "metrics.address=127.0.0.1:0".into(),
            "quic.retry=never".into(),
        ]
    }

    pub(crate) fn broker(&self, shards: u16, more: &[&str]) -> Broker {
        let settings = self.settings();
        let mut all: Vec<_> = settings.iter().map(String::as_str).collect();
        all.extend(more);
        let broker = Broker::start_with(shards, &all);
        self.relay.lead_to(broker.addr(Transport::Quic));
        broker
    }

    pub(crate) fn again(&self, broker: &mut Broker, shards: u16, more: &[&str]) {
        let settings = self.settings();
        let mut all: Vec<_> = settings.iter().map(String::as_str).collect();
        all.extend(more);
        broker.start_again(shards, &all);
        self.relay.lead_to(broker.addr(Transport::Quic));
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("tickets")
    }

    /// The device, as a new process would make it.
    pub(crate) fn device(&self) -> Builder {
        let url = format!("quic://localhost:{}", self.relay.port());
        Client::builder(url)
            .expect("a URL")
            .client_id("device")
            .tls(TlsOptions::new().ca_file(self.certificate("ca.pem")))
            .tickets(TicketFile::open(self.file()).expect("a file"))
            .runtime(&Runtime::new(RuntimeLimits::default()).expect("a runtime"))
            .connect_timeout(PATIENCE)
            .no_reconnect()
    }

    /// Wakes, says `text`, sleeps; tells what became of early data.
    pub(crate) async fn wake(&self, text: &str) -> Option<bool> {
        let (client, _messages, mut connecting) = self.device().start().expect("begun");
        let mut events = connecting.events();
        let message = Publish::new("reading", text.to_owned()).qos(QoS::AtLeastOnce);
        let delivery = client.start_publish(message).await.expect("queued");
        connecting.await.expect("connected");
        delivery.await.expect("delivered");
        client.disconnect().await;
        let mut early = None;
        while let Some(event) = events.next().await {
            match event {
                ConnectionEvent::EarlyData { accepted } => early = Some(accepted),
                ConnectionEvent::Disconnected { .. } => break,
                _ => {}
            }
        }
        early
    }

    /// A receiver of what the device says.
    async fn subscriber(&self, broker: &Broker) -> (Client, Messages) {
        let connected = broker.client(Transport::Tcp).connect().await;
        let (client, messages) = connected.expect("connected");
        let subscribed = client.subscribe("reading", QoS::AtLeastOnce).await;
        subscribed.expect("subscribed");
        (client, messages)
    }
}

/// What became of early data on the way to the first connection.
async fn early(events: &mut Events) -> Option<bool> {
    let mut early = None;
    while let Some(event) = events.next().await {
        match event {
            ConnectionEvent::EarlyData { accepted } => early = Some(accepted),
            ConnectionEvent::Connected { .. } => break,
            _ => {}
        }
    }
    early
}

async fn texts<const N: usize>(messages: &mut Messages) -> [String; N] {
    let mut texts = [const { String::new() }; N];
    for text in &mut texts {
        let message = messages.next().await.expect("a message");
        *text = String::from_utf8_lossy(&message.payload).into_owned();
    }
    texts
}

/// A counter of the broker, all shards together.
fn count(broker: &Broker, family: &str, label: &str) -> u64 {
    let (_, text) = get(broker, "/metrics");
    sum(&text, &format!("dunlin_net_{family}_total"), label) as u64
}

pub(crate) fn refused(broker: &Broker, cause: &str) -> u64 {
    count(broker, "early_data_refused", &format!("cause={cause:?}"))
}

#[test]
fn a_new_process_sends_in_its_first_flight() {
    for shards in [1, 2] {
        let rig = Rig::new();
        let broker = rig.broker(shards, &[]);
        run(async {
            let (_client, mut messages) = rig.subscriber(&broker).await;
            assert_eq!(rig.wake("0").await, None, "a stranger");
            for n in 1..5 {
                assert_eq!(rig.wake(&n.to_string()).await, Some(true));
            }
            assert_eq!(texts(&mut messages).await, ["0", "1", "2", "3", "4"]);
        });
        assert_eq!(count(&broker, "early_data_accepted", ""), 4);
        assert_eq!(count(&broker, "early_data_refused", ""), 0);
    }
}

#[test]
fn what_is_refused_arrives_all_the_same_once() {
    for shards in [1, 2] {
        let rig = Rig::new();
        let broker = rig.broker(shards, &[]);
        run(async {
            assert_eq!(rig.wake("at another").await, None);
        });
        drop(broker);
        // Of the same name, and knows nothing of the other's tickets.
        let mut broker = rig.broker(shards, &[]);
        run(async {
            let (_client, mut messages) = rig.subscriber(&broker).await;
            assert_eq!(rig.wake("foreign").await, Some(false));
            assert_eq!(rig.wake("foreign too").await, Some(true));
            // A copy of the file, as of a device that was cloned.
            let copy = std::fs::read(rig.file()).expect("read");
            assert_eq!(rig.wake("first").await, Some(true));
            std::fs::write(rig.file(), copy).expect("written");
            assert_eq!(rig.wake("copy").await, Some(false));
            let expected = ["foreign", "foreign too", "first", "copy"];
            assert_eq!(texts(&mut messages).await, expected);
            assert_eq!(becomes(|| refused(&broker, "unknown"), 1), 1);
            assert_eq!(becomes(|| refused(&broker, "used"), 1), 1);
        });
        rig.again(&mut broker, shards, &["early_data.mode=off"]);
        run(async {
            let (_client, mut messages) = rig.subscriber(&broker).await;
            assert_eq!(rig.wake("off").await, Some(false));
            assert_eq!(texts(&mut messages).await, ["off"]);
            assert_eq!(refused(&broker, "off"), 1);
        });
    }
}

/// A subscriber subscribes with the first flight, whether it is taken or not;
/// a copy of that flight makes no other subscription.
#[test]
fn a_subscription_needs_no_round_trip_of_its_own() {
    for shards in [1, 2] {
        let rig = Rig::new();
        let mut broker = rig.broker(shards, &[]);
        let elsewhere = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for (mode, expected) in [("", None), ("", Some(true)), ("off", Some(false))] {
            if mode == "off" {
                rig.again(&mut broker, shards, &["early_data.mode=off"]);
            }
            run(async {
                let (client, mut messages, mut connecting) = rig.device().start().expect("begun");
                let mut events = connecting.events();
                let subscribe = client.subscribe("command", QoS::AtLeastOnce);
                let (connected, subscribed) = tokio::join!(connecting, subscribe);
                connected.expect("connected");
                subscribed.expect("subscribed");
                assert_eq!(early(&mut events).await, expected, "{mode}");
                let flight = rig.relay.recorded();
                replay(&broker, &flight, &elsewhere, 10);
                let other = broker.client(Transport::Tcp).connect().await;
                let (other, _none) = other.expect("connected");
                for text in ["once", "last"] {
                    let message = Publish::new("command", text).qos(QoS::AtLeastOnce);
                    other.publish(message).await.expect("published");
                }
                assert_eq!(texts(&mut messages).await, ["once", "last"]);
                client.disconnect().await;
            });
        }
    }
}

#[test]
fn counters_show_among_the_topics_of_the_broker() {
    let rig = Rig::new();
    let broker = rig.broker(1, &["sys.interval=1s"]);
    run(async {
        assert_eq!(rig.wake("a stranger").await, None);
        assert_eq!(rig.wake("known").await, Some(true));
        let connected = broker.client(Transport::Tcp).connect().await;
        let (client, mut messages) = connected.expect("connected");
        let filter = "$SYS/broker/shard/0/transport/early_data_accepted";
        let subscribed = client.subscribe(filter, QoS::AtMostOnce).await;
        subscribed.expect("subscribed");
        assert_eq!(texts(&mut messages).await, ["1"]);
    });
}

#[test]
fn a_damaged_file_costs_one_full_handshake() {
    let rig = Rig::new();
    let broker = rig.broker(1, &[]);
    run(async {
        let (_client, mut messages) = rig.subscriber(&broker).await;
        assert_eq!(rig.wake("first").await, None);
        let mut bytes = std::fs::read(rig.file()).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(rig.file(), bytes).expect("written");
        assert_eq!(rig.wake("damaged").await, None);
        assert_eq!(rig.wake("anew").await, Some(true));
        assert_eq!(texts(&mut messages).await, ["first", "damaged", "anew"]);
    });
    assert_eq!(count(&broker, "early_data_refused", ""), 0);
}

#[test]
fn tickets_outlive_the_broker_and_their_use_too() {
    for shards in [1, 2] {
        let rig = Rig::new();
        let mut broker = rig.broker(shards, &[]);
        run(async {
            assert_eq!(rig.wake("a").await, None);
        });
        for text in ["b", "c"] {
            rig.again(&mut broker, shards, &[]);
            run(async {
                let copy = std::fs::read(rig.file()).expect("read");
                assert_eq!(rig.wake(text).await, Some(true));
                std::fs::write(rig.file(), copy).expect("written");
                // What is stored of it is that it was used.
                rig.again(&mut broker, shards, &[]);
                assert_eq!(rig.wake("used").await, Some(false));
            });
        }
    }
}

/// The program, which can be killed.
struct Process {
    child: Child,
    quic: SocketAddr,
    tcp: SocketAddr,
}

impl Process {
    fn start(rig: &Rig) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.arg("broker").arg("--data-dir");
        command.arg(rig.dir.path().join("data"));
        let quic = r#"{transport="quic",address="127.0.0.1:0"}"#;
        let tcp = r#"{transport="tcp",address="127.0.0.1:0"}"#;
        let listeners = format!("listener=[{quic},{tcp}]");
        for setting in [listeners].iter().chain(&rig.settings()) {
            command.args(["--set", setting]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut addr = |transport: &str| {
            let line = lines.find_map(|line| {
                let line = line.expect("a line");
                let (_, rest) = line.split_once("listening")?;
                rest.trim().strip_prefix(transport).map(str::to_owned)
            });
            let line = line.expect("a listener");
            let addr = line.split_whitespace().next().expect("an address");
            addr.parse().expect("address")
        };
        let (quic, tcp) = (addr("quic"), addr("tcp"));
        rig.relay.lead_to(quic);
        Self { child, quic, tcp }
    }

    async fn subscriber(&self) -> (Client, Messages) {
        let url = format!("mqtt://{}", self.tcp);
        let builder = Client::builder(url).expect("a URL").no_reconnect();
        let (client, messages) = builder.connect().await.expect("connected");
        let subscribed = client.subscribe("reading", QoS::AtLeastOnce).await;
        subscribed.expect("subscribed");
        (client, messages)
    }
}

impl Drop for Process {
    /// As the kernel does it, without a word (SIGKILL).
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_killed_broker_knows_its_tickets_and_which_were_used() {
    let rig = Rig::new();
    let broker = Process::start(&rig);
    assert_eq!(run(rig.wake("a")), None);
    drop(broker);
    for round in 0..3 {
        let broker = Process::start(&rig);
        // A ticket that was given in the last moment may not be stored yet.
        run(rig.wake("a"));
        let copy = std::fs::read(rig.file()).expect("read");
        let flight = run(async {
            let (_client, mut messages) = broker.subscriber().await;
            assert_eq!(rig.wake("b").await, Some(true), "{round}");
            assert_eq!(texts(&mut messages).await, ["b"]);
            rig.relay.first_flight().0
        });
        drop(broker);
        std::fs::write(rig.file(), copy).expect("written");
        let broker = Process::start(&rig);
        run(async {
            let (_client, mut messages) = broker.subscriber().await;
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            for datagram in &flight {
                socket.send_to(datagram, broker.quic).expect("sent");
            }
            // Then the device itself, with the ticket that it had used.
            assert_eq!(rig.wake("c").await, Some(false), "{round}");
            assert_eq!(texts(&mut messages).await, ["c"]);
        });
        drop(broker);
    }
}

/// Sends a recorded first flight so often, and waits until the broker has read
/// all of it.
pub(crate) fn replay(broker: &Broker, flight: &[Vec<u8>], socket: &UdpSocket, times: usize) {
    /// Datagrams that a socket's buffer surely takes.
    const AT_A_TIME: usize = 40;
    let server = broker.addr(Transport::Quic);
    for n in 1..=times {
        for datagram in flight {
            socket.send_to(datagram, server).expect("sent");
        }
        if n == times || n % (AT_A_TIME / flight.len()).max(1) == 0 {
            catch_up(socket, server);
        }
    }
}

/// Waits until everything sent before has been read: then a question that has
/// nothing to do with it, which versions of QUIC there are, is answered.
fn catch_up(socket: &UdpSocket, server: SocketAddr) {
    const LONG_HEADER: u8 = 0xc0;
    let mut question = [0; 1200];
    question[..7].copy_from_slice(&[LONG_HEADER, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1]);
    let start = Instant::now();
    let mut bytes = [0; 2048];
    while start.elapsed() < PATIENCE {
        socket.send_to(&question, server).expect("sent");
        let waiting = Instant::now();
        while waiting.elapsed() < PATIENCE / 60 {
            match socket.recv_from(&mut bytes) {
                Ok(_) if bytes[1..5] == [0; 4] => return,
                _ => {}
            }
        }
    }
    panic!("the broker does not answer");
}

/// Waits until a counter says so: what is shown may be a second old.
pub(crate) fn becomes(what: impl Fn() -> u64, at_least: u64) -> u64 {
    let start = Instant::now();
    loop {
        let value = what();
        if value >= at_least || start.elapsed() > PATIENCE {
            return value;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_recorded_first_flight_delivers_nothing_again() {
    const TIMES: usize = 500;
    for shards in [1, 2] {
        let rig = Rig::new();
        let mut broker = rig.broker(shards, &[]);
        let (_client, mut messages) = run(rig.subscriber(&broker));
        assert_eq!(run(rig.wake("stranger")), None);
        assert_eq!(run(rig.wake("once")), Some(true));
        let (flight, known) = rig.relay.first_flight();
        let elsewhere = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        replay(&broker, &flight, &known, TIMES);
        replay(&broker, &flight, &elsewhere, TIMES);
        // None is in the way of others.
        assert_eq!(run(rig.wake("last")), Some(true));
        let got = run(texts(&mut messages));
        assert_eq!(got, ["stranger", "once", "last"]);
        let accepted = |broker: &Broker| count(broker, "early_data_accepted", "");
        assert_eq!(becomes(|| accepted(&broker), 2), 2);
        // As long as the connection is remembered, it is not a new one.
        let again = || {
            replay(&broker, &flight, &elsewhere, 1);
            refused(&broker, "used")
        };
        assert!(becomes(again, 1) >= 1);

        // And neither after a restart.
        rig.again(&mut broker, shards, &[]);
        let (_client, mut messages) = run(rig.subscriber(&broker));
        replay(&broker, &flight, &elsewhere, TIMES);
        assert_eq!(run(rig.wake("after")), Some(true));
        assert_eq!(run(texts(&mut messages)), ["after"]);
        assert_eq!(becomes(|| accepted(&broker), 1), 1);
        // A used ticket is forgotten by a restart.
        assert!(becomes(|| refused(&broker, "unknown"), 1) >= 1);
    }
}

/// Tickets are in the store, and so is their use: a broker on another machine, with the same
/// certificate, takes early data on a ticket of the one before, and of each ticket once.
#[cfg(feature = "cluster")]
#[test]
fn a_ticket_is_good_at_another_machine_once() {
    goes_on_at_another_machine(false);
}

/// The same with a standby, to which the first broker hands over.
#[cfg(feature = "cluster")]
#[test]
fn a_ticket_is_good_at_a_standby_once() {
    goes_on_at_another_machine(true);
}

#[cfg(feature = "cluster")]
fn goes_on_at_another_machine(standby: bool) {
    use crate::nats_server::{Server, Sync};

    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let store = [
        format!("store.nats.system_urls=['{}']", server.url("sys:s")),
        "store.nats.replicas=1".to_owned(),
        format!("store.nats.urls=['{}']", server.url("dl:d")),
        "store.nats.lease=10m".to_owned(),
        "store.nats.take=free".to_owned(),
    ];
    let waits = store.each_ref().map(String::as_str);
    let store = &waits[..4];
    let rig = Rig::new();
    let mut copy = Vec::new();
    let first = rig.broker(2, store);
    run(async {
        assert_eq!(rig.wake("0").await, None);
        copy = std::fs::read(rig.file()).expect("read");
        assert_eq!(rig.wake("1").await, Some(true));
    });
    let second = if standby {
        let waiting = {
            let settings = rig.settings();
            let settings = settings.iter().map(String::as_str);
            Broker::stand_by(1, &settings.chain(waits).collect::<Vec<_>>())
        };
        drop(first);
        let broker = waiting.serve();
        rig.relay.lead_to(broker.addr(Transport::Quic));
        broker
    } else {
        drop(first);
        rig.broker(1, store)
    };
    run(async {
        let (_client, mut messages) = rig.subscriber(&second).await;
        assert_eq!(rig.wake("2").await, Some(true));
        // What was used at the first machine is used at the second.
        std::fs::write(rig.file(), &copy).expect("written");
        assert_eq!(rig.wake("3").await, Some(false));
        assert_eq!(texts(&mut messages).await, ["2", "3"]);
    });
}
