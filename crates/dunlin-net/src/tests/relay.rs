//! Two processes with the same keys behind a load balancer that is wrong.

use core::net::SocketAddr;
use std::net::UdpSocket;
use std::time::Instant as StdInstant;

use dunlin_base::transport::{CloseCause, Transport};
use dunlin_base::{ConnId, ShardId, StreamId};

use super::certs::{dial_to, listen_on};
use super::{PATIENCE, Side, loopback};
use crate::{
    Answer, Clock, ForeignDatagram, LbConfig, ListenerConfig, Net, NetConfig, NetKeys, NetLimits,
};

/// The numbers of the first shards of both.
const NUMBERS: [u16; 2] = [64, 128];

/// A load balancer with one client, which forwards datagrams from an address of its own.
struct Balancer {
    front: UdpSocket,
    back: UdpSocket,
    to: SocketAddr,
    client: Option<SocketAddr>,
    /// What the client sent last.
    last: Vec<u8>,
    /// Datagrams of another address than it sends to.
    strange: u32,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(loopback()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

impl Balancer {
    fn new(to: SocketAddr) -> Self {
        Self {
            front: socket(),
            back: socket(),
            to,
            client: None,
            last: Vec::new(),
            strange: 0,
        }
    }

    fn pump(&mut self) {
        let mut buf = [0; 2048];
        while let Ok((len, from)) = self.front.recv_from(&mut buf) {
            self.client = Some(from);
            self.last = buf[..len].to_vec();
            self.back.send_to(&buf[..len], self.to).unwrap();
        }
        while let Ok((len, from)) = self.back.recv_from(&mut buf) {
            match self.client.filter(|_| from == self.to) {
                Some(client) => _ = self.front.send_to(&buf[..len], client).unwrap(),
                None => self.strange += 1,
            }
        }
    }
}

struct Rig {
    client: Side,
    /// `None`: it has died.
    nodes: [Option<Side>; 2],
    addrs: [SocketAddr; 2],
    balancer: Balancer,
    conn: ConnId,
    /// The same at the first.
    served: ConnId,
}

fn node(at: usize, keys: &NetKeys, lb: Option<LbConfig>) -> Side {
    let mut config = NetConfig::new(ShardId(0), 1, Clock::new(), keys.clone());
    config.first = ShardId(NUMBERS[at]);
    config.known = Some(64..192);
    config.lb = lb;
    Side {
        net: Net::new(config).unwrap(),
        events: Vec::new(),
    }
}

impl Rig {
    /// A client that has connected to the first.
    fn new(layout: impl Fn(u8) -> Option<LbConfig>) -> Self {
        Self::with(&[], layout)
    }

    /// The listener has these addresses too.
    fn with(others: &[SocketAddr], layout: impl Fn(u8) -> Option<LbConfig>) -> Self {
        let keys = NetKeys::of_cluster(b"what both know");
        let mut nodes = [0, 1].map(|at| node(at, &keys, layout(at as u8)));
        let listen = || listen_on(Transport::Quic);
        for node in &mut nodes {
            for addr in others {
                let addr = *addr;
                let other = ListenerConfig { addr, ..listen() };
                node.net.listen(other).unwrap();
            }
        }
        let addrs = nodes.each_mut().map(|it| it.net.listen(listen()).unwrap());
        let mut client = Side::new(NetLimits::default());
        let balancer = Balancer::new(addrs[0]);
        let front = balancer.front.local_addr().unwrap();
        let conn = client.net.dial(&dial_to(Transport::Quic, front)).unwrap();
        let nodes = nodes.map(Some);
        let mut rig = Self {
            client,
            nodes,
            addrs,
            balancer,
            conn,
            served: conn,
        };
        rig.until("open", |it| {
            it.client.opened().is_some() && it.first().opened().is_some()
        });
        rig.served = rig.first().opened().unwrap().0;
        // Nothing of the handshake is under way any more.
        rig.say(b"hello");
        rig.answer(b"hello");
        rig
    }

    fn first(&self) -> &Side {
        self.nodes[0].as_ref().unwrap()
    }

    fn second(&self) -> &Side {
        self.nodes[1].as_ref().unwrap()
    }

    fn step(&mut self) {
        self.client.poll();
        self.balancer.pump();
        for at in [0, 1] {
            let Some(node) = &mut self.nodes[at] else {
                continue;
            };
            node.poll();
            let foreign: Vec<_> = core::iter::from_fn(|| node.net.poll_foreign()).collect();
            for (to, datagram) in foreign {
                assert_eq!(to, ShardId(NUMBERS[1 - at]));
                if let Some(other) = &mut self.nodes[1 - at] {
                    let mut bytes = Vec::new();
                    datagram.encode(&mut bytes);
                    let read = ForeignDatagram::decode(&bytes).unwrap();
                    other.net.handle_relayed(ShardId(NUMBERS[at]), read);
                } else if let Some(node) = &mut self.nodes[at] {
                    node.net.handle_foreign(datagram);
                }
            }
            self.carry_answers(at);
        }
        self.balancer.pump();
    }

    fn carry_answers(&mut self, at: usize) {
        let answers: Vec<_> = self.nodes[at]
            .iter_mut()
            .flat_map(|node| {
                node.net.flush();
                core::iter::from_fn(|| node.net.poll_answer()).collect::<Vec<_>>()
            })
            .collect();
        for (to, answer) in answers {
            assert_eq!(to, ShardId(NUMBERS[1 - at]));
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            if let Some(other) = &mut self.nodes[1 - at] {
                other.net.send_answer(Answer::decode(&bytes).unwrap());
                other.net.flush();
            }
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = StdInstant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "no {what}");
            self.step();
        }
    }

    /// The client sends, and the first has it.
    fn say(&mut self, bytes: &[u8]) {
        self.nodes[0].as_mut().unwrap().events.clear();
        let _ = self.client.send(self.conn, StreamId::CONTROL, bytes);
        self.until("bytes", |it| {
            it.first().received(StreamId::CONTROL) == bytes
        });
    }

    /// The first sends, and the client has it.
    fn answer(&mut self, bytes: &[u8]) {
        self.client.events.clear();
        let (conn, node) = (self.served, self.nodes[0].as_mut().unwrap());
        let _ = node.send(conn, StreamId::CONTROL, bytes);
        self.until("answer", |it| {
            it.client.received(StreamId::CONTROL) == bytes
        });
    }
}

fn encrypted(at: u8) -> Option<LbConfig> {
    Some(LbConfig::new(1, &[at], 15, Some([7; 16])).unwrap())
}

/// The client has another address, and the load balancer gives it to the other process.
#[test]
fn a_move_to_the_wrong_process_keeps_the_connection() {
    for layout in [|_| None, encrypted] {
        let mut rig = Rig::new(layout);
        rig.balancer.back = socket();
        rig.balancer.to = rig.addrs[1];
        rig.say(b"moved");
        rig.answer(b"heard");
        rig.until("proved", |it| it.first().net.counters().migrations == 1);
        let relayed = rig.first().net.counters().answers_relayed;
        assert!(relayed > 0);
        assert!(rig.second().net.counters().datagrams_foreign > 0);
        // The load balancer is right again.
        rig.balancer.to = rig.addrs[0];
        rig.say(b"right");
        let relayed = rig.first().net.counters().answers_relayed;
        rig.answer(b"directly");
        assert_eq!(rig.first().net.counters().answers_relayed, relayed);
        assert_eq!(rig.second().net.counters().accepted, 0);
        assert_eq!(rig.client.closed(), None);
    }
}

/// Who has only seen a datagram cannot say which way answers go.
#[test]
fn a_copy_at_the_wrong_process_diverts_nothing() {
    let mut rig = Rig::new(|_| None);
    rig.say(b"one");
    let copy = rig.balancer.last.clone();
    for _ in 0..3 {
        rig.balancer.back.send_to(&copy, rig.addrs[1]).unwrap();
    }
    rig.until("copies", |it| {
        it.second().net.counters().datagrams_foreign >= 3
    });
    rig.answer(b"two");
    assert_eq!(rig.first().net.counters().answers_relayed, 0);
    assert_eq!(rig.balancer.strange, 0);
}

#[test]
fn clients_of_a_process_that_died_are_reset_by_the_other() {
    for layout in [|_| None, encrypted] {
        let mut rig = Rig::new(layout);
        rig.nodes[0] = None;
        rig.balancer.to = rig.addrs[1];
        let begin = StdInstant::now();
        let _ = rig
            .client
            .send(rig.conn, StreamId::CONTROL, b"are you there");
        rig.until("end", |it| it.client.closed().is_some());
        let why = "the peer does not know the connection any more";
        assert_eq!(rig.client.closed(), Some(CloseCause::failed(why)));
        println!("reset after {:?}", begin.elapsed());
        assert!(rig.second().net.counters().stateless_resets > 0);
        assert_eq!(rig.second().net.connections(), 0);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_listener_may_have_several_addresses() {
    let others = [SocketAddr::from(([127, 0, 0, 2], 0))];
    let mut rig = Rig::with(&others, |_| None);
    rig.balancer.back = socket();
    rig.balancer.to = rig.addrs[1];
    rig.say(b"moved");
    rig.answer(b"heard");
    assert!(rig.first().net.counters().answers_relayed > 0);
    assert_eq!(rig.first().net.counters().stateless_resets, 0);
    // The first begins again, and what it does not know any more is reset through the other.
    let keys = NetKeys::of_cluster(b"what both know");
    let mut again = node(0, &keys, None);
    again.net.listen(listen_on(Transport::Quic)).unwrap();
    rig.nodes[0] = Some(again);
    let _ = rig.client.send(rig.conn, StreamId::CONTROL, b"there?");
    rig.until("end", |it| it.client.closed().is_some());
    let why = "the peer does not know the connection any more";
    assert_eq!(rig.client.closed(), Some(CloseCause::failed(why)));
    assert!(rig.first().net.counters().stateless_resets > 0);
    assert_eq!(rig.second().net.counters().stateless_resets, 0);
}

/// What begins a connection is not answered by the process that it was passed to.
#[test]
fn only_resets_are_sent_through_the_other_process() {
    let mut rig = Rig::new(|_| None);
    let keys = NetKeys::of_cluster(b"what both know");
    let mut again = node(0, &keys, None);
    again.net.listen(listen_on(Transport::Quic)).unwrap();
    rig.nodes[0] = Some(again);
    let last = rig.balancer.last.clone();
    // The connection id of the first in a datagram with a long header, of a version that is
    // not known.
    let mut long = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
    long.extend(&last[1..9]);
    long.extend([0; 1200]);
    for datagram in [long.clone(), last.clone(), long] {
        rig.balancer.back.send_to(&datagram, rig.addrs[1]).unwrap();
    }
    rig.until("a reset", |it| {
        it.first().net.counters().stateless_resets == 1
    });
    for _ in 0..10 {
        rig.step();
    }
    let counters = *rig.first().net.counters();
    assert_eq!(counters.answers_relayed, 1);
    assert_eq!(
        (counters.versions_sent, counters.stateless_refusals),
        (0, 0)
    );
}

/// What one listener answers must end no connection of another.
#[test]
fn a_token_of_another_listener_ends_nothing() {
    let mut rig = Rig::new(|_| None);
    let other = ListenerConfig {
        index: 7,
        ..listen_on(Transport::Quic)
    };
    let other = rig.nodes[1].as_mut().unwrap().net.listen(other).unwrap();
    rig.nodes[0] = None;
    rig.balancer.to = other;
    let resets = |it: &Rig| it.second().net.counters().stateless_resets;
    let _ = rig.client.send(rig.conn, StreamId::CONTROL, b"there?");
    rig.until("resets", |it| resets(it) > 1);
    for _ in 0..10 {
        rig.step();
    }
    assert_eq!(rig.client.closed(), None);
    rig.balancer.to = rig.addrs[1];
    rig.until("end", |it| it.client.closed().is_some());
}

/// Proofs of an address that one process sealed are good at the other.
#[test]
fn keys_of_a_cluster_are_the_same_for_the_same_secret() {
    let [one, two, other] =
        [&b"secret of all"[..], b"secret of all", b"another secret"].map(NetKeys::of_cluster);
    assert_eq!(
        (one.cid, one.reset, one.token),
        (two.cid, two.reset, two.token)
    );
    assert_ne!(one.reset, other.reset);
    assert_ne!(one.reset, one.token);
    let single = NetKeys::derived(&[7; 32]);
    assert_ne!(single.reset, NetKeys::of_cluster(&[7; 32]).reset);
}
