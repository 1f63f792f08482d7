//! QUIC across the nodes of a cluster: tickets that are good at every node, once; connections
//! that a wrong load balancer does not end; clients of a node that died. Without a server of
//! NATS, each test says so and passes.

use core::net::SocketAddr;
use core::time::Duration;
use std::net::UdpSocket;
use std::thread;
use std::time::Instant;

use dunlin_client::{Client, Messages, Publish, QoS, TlsOptions};

use crate::cluster::{Cluster, connect, expect, publish};
use crate::early::Rig;
use crate::nats::{Broker, late_port};
use crate::relay::Relay;
use crate::support::{PATIENCE, run};

/// Time for copies of new tickets to reach all nodes; one that has none refuses early data.
const COPIED: Duration = Duration::from_millis(500);

/// Times that a recorded flight is sent to each node, and in the long form.
const REPLAYS: usize = 20;
const REPLAYS_LONG: usize = 1000;

/// A node with a listener of QUIC, its first, at this address.
struct Node {
    broker: Broker,
    quic: SocketAddr,
}

/// Three nodes with one certificate, the home first.
struct Nodes {
    rig: Rig,
    all: [Node; 3],
    _cluster: Cluster,
}

impl Nodes {
    fn start() -> Option<Self> {
        let cluster = Cluster::start()?;
        let rig = Rig::new();
        let (cert, key) = (rig.certificate("server.pem"), rig.certificate("server.key"));
        let all = ["a", "b", "c"].map(|name| {
            let quic = SocketAddr::from(([127, 0, 0, 1], late_port()));
            let listener = format!(
                "[quic]\nretry = 'never'\n[[listener]]\ntransport = 'quic'\naddress = '{quic}'\n\
                 tls = {{ cert = {cert:?}, key = {key:?} }}\n"
            );
            let broker = Broker::start(1, &(cluster.config(name) + &listener));
            Node { broker, quic }
        });
        Some(Self {
            rig,
            all,
            _cluster: cluster,
        })
    }

    /// One at the home, over TCP, that has what the device says.
    async fn subscriber(&self) -> (Client, Messages) {
        let (client, messages) = connect(&self.all[0].broker, "watcher").await;
        let subscribed = client.subscribe("reading", QoS::AtLeastOnce).await;
        subscribed.expect("subscribed");
        (client, messages)
    }

    fn lead_to(&self, at: usize) {
        self.rig.relay.lead_to(self.all[at].quic);
    }
}

/// What a node has counted, all shards together.
fn counted(node: &Node, family: &str) -> u64 {
    let text = node.broker.get("/metrics");
    let lines = text.lines().filter_map(|it| it.strip_prefix(family));
    let values = lines.filter_map(|it| it.rsplit_once(' ')?.1.parse::<u64>().ok());
    values.sum()
}

const PASSED: &str = "dunlin_cluster_datagrams_total{outcome=\"passed\"}";
const DROPPED: &str = "dunlin_cluster_datagrams_total{outcome=\"dropped\"}";
const RESIDENT: &str = "process_resident_memory_bytes";
const GONE: &str = "dunlin_cluster_datagrams_total{outcome=\"gone\"}";

/// The device wakes at another node than the one before, until that takes its early data.
async fn wake_elsewhere(nodes: &Nodes, messages: &mut Messages) {
    let begin = Instant::now();
    for round in 0.. {
        assert!(begin.elapsed() < PATIENCE, "early data is refused");
        let [first, second] = [format!("{round} first"), format!("{round} second")];
        nodes.lead_to(1);
        let _ = nodes.rig.wake(&first).await;
        // A machine that is slow for a moment gets another chance.
        tokio::time::sleep(COPIED).await;
        nodes.lead_to(2);
        let early = nodes.rig.wake(&second).await;
        expect(messages, &[&first, &second]).await;
        if early == Some(true) {
            return;
        }
    }
}

/// What the device sends first, which arrives nowhere.
async fn record(nodes: &Nodes, text: &str) -> Vec<Vec<u8>> {
    let nowhere = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    nodes
        .rig
        .relay
        .lead_to(nowhere.local_addr().expect("an address"));
    let (client, _messages, _connecting) = nodes.rig.device().start().expect("begun");
    let message = Publish::new("reading", text.to_owned()).qos(QoS::AtLeastOnce);
    let _delivery = client.start_publish(message).await.expect("queued");
    let begin = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let flight = nodes.rig.relay.recorded();
        if !flight.is_empty() {
            return flight;
        }
        assert!(begin.elapsed() < PATIENCE, "nothing is sent");
    }
}

fn replays(count: usize) {
    let Some(nodes) = Nodes::start() else {
        return;
    };
    run(async {
        let (watcher, mut messages) = nodes.subscriber().await;
        wake_elsewhere(&nodes, &mut messages).await;
        tokio::time::sleep(COPIED).await;
        let flight = record(&nodes, "recorded").await;
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        for round in 0..count {
            for node in &nodes.all {
                for datagram in &flight {
                    let sent = sockets[round % 2].send_to(datagram, node.quic);
                    sent.expect("sent");
                }
            }
            if round % 10 == 9 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        expect(&mut messages, &["recorded"]).await;
        // What else a node would take of it comes before the second of these.
        for text in ["last", "very last"] {
            tokio::time::sleep(COPIED).await;
            publish(&watcher, "reading", text, QoS::AtLeastOnce).await;
            expect(&mut messages, &[text]).await;
        }
    });
    let all = |family| nodes.all.each_ref().map(|node| counted(node, family));
    let accepted = all("dunlin_net_early_data_accepted_total{");
    let unkept = all("dunlin_net_early_data_unkept_total{");
    // Of the device at the third node, and of the recording.
    let allowed = accepted
        .iter()
        .sum::<u64>()
        .checked_sub(unkept.iter().sum());
    assert!(allowed >= Some(2), "{accepted:?}, not allowed: {unkept:?}");
}

/// Its recorded first flight, sent to all nodes many times, has one effect.
#[test]
fn a_ticket_is_good_at_every_node_and_once() {
    replays(REPLAYS);
}

#[test]
#[ignore = "the long form"]
fn a_thousand_replays_at_every_node_have_one_effect() {
    replays(REPLAYS_LONG);
}

/// The client's address changes, and its datagrams come to another node from then on. Later
/// its node dies: the other one resets it.
#[test]
fn a_connection_outlives_a_wrong_load_balancer_and_ends_with_its_node() {
    let Some(mut nodes) = Nodes::start() else {
        return;
    };
    run(async {
        let (_watcher, mut watched) = nodes.subscriber().await;
        nodes.lead_to(1);
        let connected = nodes.rig.device().connect().await;
        let (device, mut messages) = connected.expect("connected");
        let subscribed = device.subscribe("order", QoS::AtLeastOnce).await;
        subscribed.expect("subscribed");
        let (other, _none) = connect(&nodes.all[0].broker, "other").await;
        for (text, at) in [("right", 1), ("wrong", 2), ("right again", 1)] {
            nodes.lead_to(at);
            if at == 2 {
                device.migrate_at_once(None).await.expect("moved");
            }
            publish(&device, "reading", text, QoS::AtLeastOnce).await;
            expect(&mut watched, &[text]).await;
            publish(&other, "order", text, QoS::AtLeastOnce).await;
            expect(&mut messages, &[text]).await;
        }
        for at in [1, 2] {
            assert!(counted(&nodes.all[at], PASSED) > 0, "{at}");
        }
        nodes.all[1].broker.kill();
        nodes.lead_to(2);
        let begin = Instant::now();
        let message = Publish::new("reading", "lost").qos(QoS::AtLeastOnce);
        let _unanswered = device.start_publish(message).await.expect("queued");
        assert!(messages.next().await.is_none(), "it is disconnected");
        println!("reset {:?} after its node was killed", begin.elapsed());
        assert!(counted(&nodes.all[2], GONE) > 0);
    });
}

/// First flights of one copied file with tickets, each with another ClientHello.
const FLIGHTS: usize = 8;

/// Tickets in it at most: a node gives two at a time.
const TICKETS_MAX: usize = 4;

/// How often each is sent to each node.
const TIMES: usize = 40;

/// Datagrams of a kind for connections that are not there.
const STRAYS: usize = 20_000;

/// Datagrams after which another client at another node has its turn.
const TURN: usize = 500;

/// Memory that a node may take for a flood.
const GROWTH_BYTES_MAX: u64 = 128 << 20;

/// A client at each node, of which each has what all say.
struct Others {
    all: Vec<(Client, Messages)>,
    turn: usize,
}

impl Others {
    async fn connect(nodes: &Nodes) -> Self {
        let mut all = Vec::new();
        for (at, node) in nodes.all.iter().enumerate() {
            let (client, messages) = connect(&node.broker, &format!("other-{at}")).await;
            let subscribed = client.subscribe("others/#", QoS::ExactlyOnce).await;
            subscribed.expect("subscribed");
            all.push((client, messages));
        }
        Self { all, turn: 0 }
    }

    /// The next one says something, which each has once, and nothing besides.
    async fn go_on(&mut self) {
        self.turn += 1;
        let text = self.turn.to_string();
        let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][self.turn % 2];
        let (client, _) = &self.all[self.turn % self.all.len()];
        publish(client, "others/x", &text, qos).await;
        for (_, messages) in &mut self.all {
            expect(messages, &[&text]).await;
        }
    }
}

fn sockets() -> [UdpSocket; 4] {
    [(); 4].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"))
}

/// Sends so many datagrams to a node from several addresses, while others go on.
async fn flood(
    others: &mut Others,
    to: SocketAddr,
    count: usize,
    mut next: impl FnMut(usize) -> Vec<u8>,
) {
    let sockets = sockets();
    for at in 0..count {
        let datagram = next(at);
        // One that the system has no room for is lost, as on a network.
        let _ = sockets[at % sockets.len()].send_to(&datagram, to);
        if at % TURN == TURN - 1 {
            others.go_on().await;
        }
    }
}

/// Copies of a ticket and of an address token, and datagrams for connections of another node
/// and of no node, at a node that knows none of them.
#[test]
fn floods_for_other_nodes_end_no_client_and_are_bounded() {
    let Some(nodes) = Nodes::start() else {
        return;
    };
    let (watcher, mut messages, mut others) = run(async {
        let (watcher, messages) = nodes.subscriber().await;
        let mut others = Others::connect(&nodes).await;
        others.go_on().await;
        (watcher, messages, others)
    });
    let datagrams = run(async {
        wake_elsewhere(&nodes, &mut messages).await;
        tokio::time::sleep(COPIED).await;
        let copied = std::fs::read(nodes.rig.file()).expect("a file");
        let mut flights = Vec::new();
        for number in 0..FLIGHTS {
            std::fs::write(nodes.rig.file(), &copied).expect("written");
            flights.push(record(&nodes, &format!("flight {number}")).await);
        }
        flights.concat()
    });
    let before = nodes.all.each_ref().map(|node| counted(node, RESIDENT));
    run(async {
        for node in &nodes.all {
            let count = datagrams.len() * TIMES;
            let next = |at: usize| datagrams[at % datagrams.len()].clone();
            flood(&mut others, node.quic, count, next).await;
        }
        // Each ticket was good for one of them, at most once. A machine that was slow has no
        // copies of the tickets in time, and refuses them all.
        let mut came = Vec::new();
        for text in ["after the flights", "and again"] {
            tokio::time::sleep(COPIED).await;
            publish(&watcher, "reading", text, QoS::AtLeastOnce).await;
            loop {
                let next = tokio::time::timeout(PATIENCE, messages.next()).await;
                let next = next.expect("in time").expect("a message").payload;
                if next == text.as_bytes() {
                    break;
                }
                came.push(next);
            }
        }
        let count = came.len();
        came.sort_unstable();
        came.dedup();
        assert_eq!(came.len(), count, "twice: {came:?}");
        assert!(count <= TICKETS_MAX, "{came:?}");
        assert!(came.iter().all(|it| it.starts_with(b"flight ")), "{came:?}");
    });
    // A device at the second node, whose connection ids come to the third.
    // It has a relay of its own: those that were recorded may still try to connect.
    let relay = Relay::new();
    relay.lead_to(nodes.all[1].quic);
    let (device, mut orders) = run(async {
        let url = format!("quic://localhost:{}", relay.port());
        let tls = TlsOptions::new().ca_file(nodes.rig.certificate("ca.pem"));
        let builder = Client::builder(url).expect("a URL").client_id("mover");
        let builder = builder.tls(tls).no_reconnect().connect_timeout(PATIENCE);
        let connected = builder.connect().await;
        let (device, orders) = connected.expect("connected");
        let subscribed = device.subscribe("order", QoS::ExactlyOnce).await;
        subscribed.expect("subscribed");
        publish(&device, "reading", "before", QoS::AtLeastOnce).await;
        expect(&mut messages, &["before"]).await;
        (device, orders)
    });
    let of_third = |family| counted(&nodes.all[2], family);
    let earlier = [PASSED, DROPPED, GONE].map(of_third);
    run(async {
        let own = relay.last();
        assert_eq!(own[0] & 0x80, 0, "a short header: {own:x?}");
        let third = nodes.all[2].quic;
        let mut number = 0_u64;
        flood(&mut others, third, STRAYS, |at| {
            let mut datagram = own.clone();
            // What follows the connection id is not what any client sends.
            datagram.resize(60, 0);
            datagram[30..38].copy_from_slice(&(at as u64).to_le_bytes());
            datagram
        })
        .await;
        flood(&mut others, third, STRAYS, |_| {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let mut datagram = vec![0x40; 60];
            for (at, byte) in datagram[1..40].iter_mut().enumerate() {
                *byte = (number >> (at % 8 * 8)) as u8 ^ at as u8;
            }
            datagram
        })
        .await;
        for (text, qos) in [("one", QoS::AtLeastOnce), ("two", QoS::ExactlyOnce)] {
            publish(&device, "reading", text, QoS::AtLeastOnce).await;
            expect(&mut messages, &[text]).await;
            publish(&watcher, "order", text, qos).await;
            expect(&mut orders, &[text]).await;
        }
        others.go_on().await;
    });
    let [earlier_passed, ..] = earlier;
    let begin = Instant::now();
    // A page of metrics is shown again for a second.
    while of_third(PASSED) == earlier_passed {
        assert!(
            begin.elapsed() < PATIENCE,
            "nothing reached the second node"
        );
        thread::sleep(Duration::from_millis(200));
    }
    let all = |counts: [u64; 3]| counts.iter().sum::<u64>();
    let during = all([PASSED, DROPPED, GONE].map(of_third)) - all(earlier);
    assert!(during <= 2 * STRAYS as u64 + 100, "{during}");
    for (node, before) in nodes.all.iter().zip(before) {
        let now = counted(node, RESIDENT);
        println!("resident: {before} bytes before, {now} after");
        assert!(
            now < before + GROWTH_BYTES_MAX,
            "{before} bytes, then {now}"
        );
    }
}
