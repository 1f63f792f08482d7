//! Connections that change their address, between loops on loopback: what a
//! NAT does, what a client does on purpose, and what a forger does.

use std::collections::BTreeSet;
use std::net::UdpSocket;

use super::certs::{dial_to, listen_on};
use super::*;
use crate::{Move, MoveError};

/// The second address of the loopback interface's network.
fn second() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], 0))
}

fn open(pair: &mut Pair) -> (ConnId, ConnId) {
    let opened = pair.connect(listen_on(Transport::Quic), |to| {
        dial_to(Transport::Quic, to)
    });
    pair.until("confirmation", |p| {
        !matches!(
            p.client
                .net
                .migrate(opened.0, Some(loopback6()), Move::Probed),
            Err(MoveError::Handshaking)
        )
    });
    opened
}

/// An address of another family, to which nothing can move.
fn loopback6() -> SocketAddr {
    "[::1]:0".parse().unwrap()
}

fn migrated(side: &Side) -> Vec<SocketAddr> {
    let of = |e: &Ev| match e {
        Ev::Migrated(_, addr) => Some(*addr),
        _ => None,
    };
    side.events.iter().filter_map(of).collect()
}

fn moved(side: &Side) -> Vec<(SocketAddr, SocketAddr)> {
    let of = |e: &Ev| match e {
        Ev::Moved(_, from, to) => Some((*from, *to)),
        _ => None,
    };
    side.events.iter().filter_map(of).collect()
}

#[test]
fn a_connection_survives_another_port_and_another_address() {
    for how in [Move::Rebound, Move::AtOnce, Move::Probed] {
        for to in [loopback(), second()] {
            let mut pair = Pair::new();
            let (client, server) = open(&mut pair);
            let _ = pair.client.send(client, StreamId::CONTROL, b"before");
            pair.until_server_has(b"before");
            pair.client.net.migrate(client, Some(to), how).unwrap();
            let _ = pair.client.send(client, StreamId::CONTROL, b" after");
            pair.until("new address", |p| migrated(&p.server).len() == 1);
            pair.until_server_has(b"before after");
            let (from, now_at) = moved(&pair.client)[0];
            assert_eq!(migrated(&pair.server), [now_at], "{how:?} {to}");
            assert_eq!(from.ip(), loopback().ip());
            assert_eq!(now_at.ip(), to.ip());
            let _ = pair.server.send(server, StreamId::CONTROL, b"seen");
            pair.until_client_has(b"seen");
            assert_eq!(pair.server.net.counters().migrations, 1);
            assert_eq!(pair.server.net.counters().migrations_unproved, 0);
            assert_eq!(pair.client.net.counters().moves, 1);
        }
    }
}

#[test]
fn without_an_answer_over_the_new_path_it_stays() {
    let limits = NetLimits {
        quic_probe_timeout: Duration::from_millis(100),
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(limits, NetLimits::default());
    let (client, _) = open(&mut pair);
    // From the unspecified address everything is reachable, but nothing comes
    // back to a port whose owner is another: the server never hears of it.
    pair.client
        .net
        .migrate(client, Some(loopback()), Move::Probed)
        .unwrap();
    let busy = pair.client.net.migrate(client, None, Move::Probed);
    assert!(matches!(busy, Err(MoveError::Busy)), "{busy:?}");
    // The server is not polled, so that it gives no answer.
    let start = StdInstant::now();
    while !pair
        .client
        .events
        .iter()
        .any(|e| matches!(e, Ev::MoveFailed(..)))
    {
        assert!(start.elapsed() < PATIENCE);
        pair.client.poll();
    }
    assert_eq!(pair.client.net.counters().moves_failed, 1);
    let _ = pair.client.send(client, StreamId::CONTROL, b"stayed");
    pair.until_server_has(b"stayed");
    assert_eq!(migrated(&pair.server), []);
    assert_eq!(moved(&pair.client), []);
}

#[test]
fn what_cannot_move_says_why() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let no = |r: Result<(), MoveError>| r.unwrap_err().to_string();
    let net = &mut pair.client.net;
    let far = Some(SocketAddr::from(([203, 0, 113, 7], 0)));
    assert!(no(net.migrate(client, far, Move::AtOnce)).contains("cannot send from 203.0.113.7:0"));
    assert!(no(net.migrate(client, Some(loopback6()), Move::AtOnce)).contains("families"));
    let gone = ConnId::new(ShardId(0), 1 << 30);
    assert!(matches!(
        net.migrate(gone, None, Move::AtOnce),
        Err(MoveError::Unknown)
    ));
    let accepted = pair.server.net.migrate(server, None, Move::AtOnce);
    assert!(matches!(accepted, Err(MoveError::Accepted)));
    let mut pair = Pair::new();
    let listen = listen_on(Transport::Tcp);
    let (client, _) = pair.connect(listen, |to| dial_to(Transport::Tcp, to));
    let tcp = pair.client.net.migrate(client, None, Move::AtOnce);
    assert!(matches!(tcp, Err(MoveError::NotQuic)));
}

#[test]
fn moving_often_loses_nothing_and_leaves_no_sockets() {
    const MOVES: usize = 40;
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let (mut up, mut down) = (b"first".to_vec(), Vec::new());
    let _ = pair.client.send(client, StreamId::CONTROL, &up);
    pair.until_server_has(&up);
    for n in 0..MOVES {
        let to = if n % 2 == 0 { second() } else { loopback() };
        let how = [Move::AtOnce, Move::Probed, Move::Rebound][n % 3];
        pair.client.net.migrate(client, Some(to), how).unwrap();
        let chunk = pattern(3000 + n);
        let _ = pair.client.send(client, StreamId::CONTROL, &chunk);
        up.extend(&chunk);
        let _ = pair.server.send(server, StreamId::CONTROL, &chunk);
        down.extend(chunk);
        pair.until("move", |p| moved(&p.client).len() == n + 1);
    }
    pair.until("all bytes", |p| {
        p.server.received_len(StreamId::CONTROL) == up.len()
            && p.client.received_len(StreamId::CONTROL) == down.len()
    });
    assert!(pair.server.received(StreamId::CONTROL) == up);
    assert!(pair.client.received(StreamId::CONTROL) == down);
    assert_eq!(pair.server.closed(), None);
    let sockets = pair.client.net.sockets();
    assert!(sockets <= 4, "{sockets} sockets are open");
    pair.client.net.close(client, 0);
    pair.until("drained", |p| p.client.net.connections() == 0);
    assert_eq!(pair.client.net.sockets(), 1, "the first stays for others");
}

/// Between the two sides: forwards everything and remembers it. Its own
/// outgoing address can be changed, as a NAT does.
struct Nat {
    inside: UdpSocket,
    outside: UdpSocket,
    server: SocketAddr,
    client: Option<SocketAddr>,
    /// Destination ids of short-header packets towards the server.
    ids: Vec<Vec<u8>>,
    last: Vec<u8>,
}

impl Nat {
    fn new(server: SocketAddr) -> Self {
        let socket = |at: SocketAddr| {
            let socket = UdpSocket::bind(at).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        Self {
            inside: socket(loopback()),
            outside: socket(loopback()),
            server,
            client: None,
            ids: Vec::new(),
            last: Vec::new(),
        }
    }

    fn step(&mut self) {
        let mut buf = [0; 2000];
        while let Ok((n, from)) = self.inside.recv_from(&mut buf) {
            self.client = Some(from);
            if buf[0] & 0x80 == 0 {
                self.ids.push(buf[1..9].to_vec());
                self.last = buf[..n].to_vec();
            }
            self.outside.send_to(&buf[..n], self.server).unwrap();
        }
        while let Ok((n, _)) = self.outside.recv_from(&mut buf) {
            if let Some(client) = self.client {
                self.inside.send_to(&buf[..n], client).unwrap();
            }
        }
    }
}

/// Opens a connection through a NAT.
fn behind_nat(pair: &mut Pair) -> (ConnId, ConnId, Nat) {
    let server = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
    let mut nat = Nat::new(server);
    let through = nat.inside.local_addr().unwrap();
    let client = pair
        .client
        .net
        .dial(&dial_to(Transport::Quic, through))
        .unwrap();
    pair.until("connection", |p| {
        nat.step();
        p.client.opened().is_some() && p.server.opened().is_some()
    });
    let (server, _) = pair.server.opened().unwrap();
    let _ = pair.client.send(client, StreamId::CONTROL, b"hello");
    pair.until("bytes", |p| {
        nat.step();
        let spare_ids = p
            .client
            .net
            .migrate(client, Some(loopback6()), Move::AtOnce);
        p.server.received(StreamId::CONTROL) == b"hello"
            && !matches!(spare_ids, Err(MoveError::Handshaking))
    });
    (client, server, nat)
}

#[test]
fn every_path_has_ids_of_its_own() {
    let mut pair = Pair::new();
    let (client, _, mut nat) = behind_nat(&mut pair);
    let mut paths: Vec<BTreeSet<Vec<u8>>> = vec![nat.ids.drain(..).collect()];
    for n in 0..12 {
        pair.client
            .net
            .migrate(client, Some(loopback()), Move::AtOnce)
            .unwrap();
        let _ = pair.client.send(client, StreamId::CONTROL, b".");
        pair.until("byte", |p| {
            nat.step();
            p.server.received_len(StreamId::CONTROL) == 6 + n
        });
        // New ids come with the answers.
        (0..10).for_each(|_| {
            pair.client.poll();
            pair.server.poll();
            nat.step();
        });
        paths.push(nat.ids.drain(..).collect());
    }
    for (n, ids) in paths.iter().enumerate() {
        assert!(!ids.is_empty());
        for later in &paths[n + 1..] {
            assert!(ids.is_disjoint(later), "an id was used on two paths");
        }
    }
}

#[test]
fn a_forged_source_address_moves_nothing() {
    let limits = NetLimits {
        connections_per_address_max: 2,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    let (client, server, mut nat) = behind_nat(&mut pair);
    let was = pair.server.net.conn(server).stats().unwrap().addr;
    // Someone who sees the packets sends the newest from elsewhere, first.
    let forger = UdpSocket::bind(second()).unwrap();
    let _ = pair.client.send(client, StreamId::CONTROL, b" forged");
    let mut buf = [0; 2000];
    let start = StdInstant::now();
    let n = loop {
        assert!(start.elapsed() < PATIENCE);
        pair.client.poll();
        if let Ok((n, _)) = nat.inside.recv_from(&mut buf) {
            break n;
        }
    };
    forger.send_to(&buf[..n], nat.server).unwrap();
    pair.until_server_has(b"hello forged");
    assert_eq!(migrated(&pair.server), []);
    assert_eq!(pair.server.net.conn(server).stats().unwrap().addr, was);
    assert_eq!(pair.server.net.counters().migrations, 0);
    // The client speaks again, and all goes on.
    let _ = pair.client.send(client, StreamId::CONTROL, b" mine");
    pair.until("bytes", |p| {
        nat.step();
        p.server.received(StreamId::CONTROL) == b"hello forged mine"
    });
    pair.until("forgotten", |p| {
        nat.step();
        p.server.net.counters().migrations_unproved == 1
    });
    assert_eq!(pair.server.net.conn(server).stats().unwrap().addr, was);
    assert_eq!(pair.server.closed(), None);
}

#[test]
fn limits_follow_an_address_that_is_proved() {
    let limits = NetLimits {
        connections_per_address_max: 1,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    let (client, _) = open(&mut pair);
    let to = pair.server.net.sources_addr();
    let dial_from = |pair: &mut Pair, from: SocketAddr| {
        let mut dial = dial_to(Transport::Quic, to);
        dial.local_addr = Some(from);
        pair.client.net.dial(&dial).unwrap()
    };
    let refused = |p: &Pair| p.server.net.counters().refused_per_address;
    dial_from(&mut pair, loopback());
    pair.until("refusal", |p| refused(p) == 1);
    pair.client
        .net
        .migrate(client, Some(second()), Move::AtOnce)
        .unwrap();
    pair.until("new address", |p| migrated(&p.server).len() == 1);
    // Now the first has room, and the second has not.
    dial_from(&mut pair, second());
    pair.until("refusal there", |p| refused(p) == 2);
    let opened = |p: &Pair| {
        let of = |e: &&Ev| matches!(e, Ev::Opened(..));
        p.server.events.iter().filter(of).count()
    };
    let other = dial_from(&mut pair, loopback());
    pair.until("room", |p| opened(p) == 2);
    // One may move to a full address, and stays.
    pair.until("confirmation", |p| {
        p.client
            .net
            .migrate(other, Some(second()), Move::AtOnce)
            .is_ok()
    });
    pair.until("both there", |p| migrated(&p.server).len() == 2);
    assert_eq!(pair.server.net.counters().migrations_over_limit, 1);
    let _ = pair.client.send(other, StreamId::CONTROL, b"alive");
    pair.until_server_has(b"alive");
}
