//! Connections over TCP that move from one loop to another while bytes are on
//! their way.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::certs::{dial_to, listen_on};
use super::*;
use crate::{DetachedConn, NetShared};

const STREAMS: [Transport; 4] = [
    Transport::Tcp,
    Transport::Tls,
    Transport::Ws,
    Transport::Wss,
];

/// A client, and two loops of one process between which its connection moves.
struct Movable {
    client: Side,
    loops: [Side; 2],
    /// Which loop has the connection, and its id there.
    at: usize,
    conn: ConnId,
    /// Of the client's side.
    dialled: ConnId,
    received: Vec<u8>,
    /// Announced to the server's side by `Sent`.
    announced: usize,
}

fn loops(limits: &NetLimits) -> [Side; 2] {
    let (shared, keys) = (NetShared::default(), NetKeys::random().unwrap());
    [0, 1].map(|shard| {
        let mut config = NetConfig::new(ShardId(shard), 2, Clock::new(), keys.clone());
        config.limits = limits.clone();
        config.shared = shared.clone();
        Side {
            net: Net::new(config).unwrap(),
            events: Vec::new(),
        }
    })
}

impl Movable {
    fn open(transport: Transport, limits: &NetLimits) -> Self {
        let mut loops = loops(limits);
        let addr = loops[0].net.listen(listen_on(transport)).unwrap();
        Self::dial(loops, transport, addr, |_| {})
    }

    /// Dials `addr`; `pump` carries bytes to the first loop if `addr` is not
    /// that loop.
    fn dial(
        mut loops: [Side; 2],
        transport: Transport,
        addr: SocketAddr,
        mut pump: impl FnMut(usize),
    ) -> Self {
        let mut client = Side::new(NetLimits::default());
        let dialled = client.net.dial(&dial_to(transport, addr)).unwrap();
        let start = StdInstant::now();
        while client.opened().is_none() || loops[0].opened().is_none() {
            assert!(start.elapsed() < PATIENCE, "{:?}", brief(&client.events));
            client.poll();
            pump(usize::MAX);
            loops[0].poll();
        }
        let conn = loops[0].opened().unwrap().0;
        Self {
            client,
            loops,
            at: 0,
            conn,
            dialled,
            received: Vec::new(),
            announced: 0,
        }
    }

    fn here(&mut self) -> &mut Side {
        &mut self.loops[self.at]
    }

    fn detach(&mut self) -> DetachedConn {
        let conn = self.conn;
        self.here().net.detach(conn).expect("an open connection")
    }

    fn attach(&mut self, detached: DetachedConn) {
        self.at = 1 - self.at;
        self.conn = self.here().net.attach(detached).expect("a place");
        assert_eq!(usize::from(self.conn.shard().0), self.at);
    }

    fn change_loop(&mut self) {
        let detached = self.detach();
        self.attach(detached);
    }

    /// Polls both loops and collects what they report.
    fn poll(&mut self) {
        self.client.poll();
        for (index, side) in self.loops.iter_mut().enumerate() {
            side.poll();
            for event in side.events.drain(..) {
                match event {
                    Ev::Opened(..) => {}
                    Ev::Bytes(conn, _, data) => {
                        assert_eq!((conn, index), (self.conn, self.at));
                        self.received.extend(data);
                    }
                    Ev::Sent(conn, bytes) => {
                        assert_eq!((conn, index), (self.conn, self.at));
                        self.announced += bytes;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = StdInstant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "no {what}");
            self.poll();
        }
    }
}

#[test]
fn bytes_in_flight_both_ways_are_neither_lost_nor_doubled() {
    for transport in STREAMS {
        let mut pair = Movable::open(transport, &NetLimits::default());
        let data = pattern(3 << 20);
        let mut left = 0;
        for (round, part) in data.chunks(30_011).enumerate() {
            let client = pair.dialled;
            let _ = pair.client.send(client, StreamId::CONTROL, part);
            let conn = pair.conn;
            left += pair.here().send(conn, StreamId::CONTROL, part);
            if round % 3 > 0 {
                pair.change_loop();
            }
            if round % 2 == 0 {
                pair.poll();
            }
        }
        pair.until("everything", |p| {
            p.received.len() == data.len() && p.client.received_len(StreamId::CONTROL) == data.len()
        });
        assert!(pair.received == data, "{transport:?}");
        assert!(
            pair.client.received(StreamId::CONTROL) == data,
            "{transport:?}"
        );
        pair.until("credit", |p| left + p.announced == data.len());
        let count = |of: fn(&crate::Counters) -> u64| -> u64 {
            pair.loops.iter().map(|side| of(side.net.counters())).sum()
        };
        assert_eq!((count(|c| c.accepted), count(|c| c.opened)), (1, 1));
        assert_eq!(count(|c| c.detached), count(|c| c.attached));
        let held: usize = pair.loops.iter().map(|s| s.net.connections()).sum();
        assert_eq!(held, 1);
    }
}

#[test]
fn a_large_backlog_moves_along() {
    for transport in STREAMS {
        let mut pair = Movable::open(transport, &NetLimits::default());
        let data = pattern(12 << 20);
        let conn = pair.conn;
        let left = pair.here().send(conn, StreamId::CONTROL, &data);
        let detached = pair.detach();
        assert_eq!(detached.unsent(), data.len() - left, "{transport:?}");
        assert!(
            detached.unsent() > 0,
            "{transport:?} took everything at once"
        );
        assert_eq!(detached.peer().transport, transport);
        pair.attach(detached);
        pair.until("the backlog", |p| {
            p.client.received_len(StreamId::CONTROL) == data.len()
        });
        assert!(pair.client.received(StreamId::CONTROL) == data);
        pair.until("credit", |p| left + p.announced == data.len());
    }
}

/// Carries bytes between a client and the loops, at most a given number at once.
struct Relay {
    client: TcpStream,
    server: TcpStream,
    waiting: Vec<u8>,
}

impl Relay {
    fn pump(&mut self, most: usize) {
        let mut buf = [0; 64 << 10];
        loop {
            match self.server.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => self.client.write_all(&buf[..n]).unwrap(),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => panic!("{e}"),
            }
        }
        match self.client.read(&mut buf) {
            Ok(n) => self.waiting.extend(&buf[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => panic!("{e}"),
        }
        let n = self.waiting.len().min(most);
        self.server.write_all(&self.waiting[..n]).unwrap();
        self.waiting.drain(..n);
    }
}

#[test]
fn a_connection_moves_between_any_two_bytes() {
    for transport in STREAMS {
        let mut sides = loops(&NetLimits::default());
        let addr = sides[0].net.listen(listen_on(transport)).unwrap();
        let front = TcpListener::bind(loopback()).unwrap();
        let mut relay = None;
        let mut pair = Movable::dial(sides, transport, front.local_addr().unwrap(), |most| {
            let relay = relay.get_or_insert_with(|| {
                let (client, _) = front.accept().unwrap();
                let server = TcpStream::connect(addr).unwrap();
                for socket in [&client, &server] {
                    socket.set_nodelay(true).unwrap();
                    socket.set_nonblocking(true).unwrap();
                }
                Relay {
                    client,
                    server,
                    waiting: Vec::new(),
                }
            });
            relay.pump(most);
        });
        let mut relay = relay.unwrap();
        let data = pattern(700);
        for part in data.chunks(70) {
            let client = pair.dialled;
            let _ = pair.client.send(client, StreamId::CONTROL, part);
        }
        let start = StdInstant::now();
        while pair.received.len() < data.len() {
            assert!(start.elapsed() < PATIENCE, "{} bytes", pair.received.len());
            relay.pump(1);
            pair.poll();
            pair.change_loop();
        }
        assert!(pair.received == data, "{transport:?}");
        let conn = pair.conn;
        let _ = pair.here().send(conn, StreamId::CONTROL, b"answer");
        pair.until("answer", |p| {
            relay.pump(0);
            p.client.received(StreamId::CONTROL) == b"answer"
        });
    }
}

#[test]
fn what_is_not_an_open_accepted_stream_stays() {
    for transport in [Transport::Tcp, Transport::Quic] {
        let mut pair = Pair::new();
        let (client, server) = pair.connect(listen_on(transport), |addr| dial_to(transport, addr));
        assert!(pair.client.net.detach(client).is_none(), "dialled");
        if transport == Transport::Quic {
            assert!(pair.server.net.detach(server).is_none(), "{transport:?}");
            continue;
        }
        let unknown = ConnId::new(ShardId(1), server.serial());
        assert!(
            pair.server.net.detach(unknown).is_none(),
            "of another shard"
        );
        pair.server.net.close(server, 0);
        assert!(pair.server.net.detach(server).is_none(), "closing");
        pair.client.net.close(client, 0);
        pair.until("end", |p| p.server.net.connections() == 0);
        assert!(pair.server.net.detach(server).is_none(), "closed");
    }
    let mut pair = Movable::open(Transport::Tcp, &NetLimits::default());
    let (old, detached) = (pair.conn, pair.detach());
    assert!(pair.here().net.detach(old).is_none(), "gone");
    pair.attach(detached);
}

#[test]
fn limits_count_a_connection_once_and_give_its_place_back() {
    let limits = NetLimits {
        connections_per_address_max: 1,
        ..NetLimits::default()
    };
    let mut pair = Movable::open(Transport::Tcp, &limits);
    pair.change_loop();
    let addr = pair.loops[1].net.listen(listen_on(Transport::Tcp)).unwrap();
    let refused = TcpStream::connect(addr).unwrap();
    pair.until("refusal", |p| {
        p.loops[1].net.counters().refused_per_address == 1
    });
    drop(pair.detach());
    pair.until("end", |p| {
        let ended = |e: &Ev| matches!(e, Ev::Finished(..) | Ev::Closed(..));
        p.client.events.iter().any(ended)
    });
    let accepted = TcpStream::connect(addr).unwrap();
    pair.until("its place", |p| p.loops[1].net.counters().accepted == 1);
    drop((refused, accepted));
}

#[test]
fn pause_idle_timeout_and_end_of_the_peer_move_along() {
    const IDLE: Duration = Duration::from_millis(30);
    for transport in STREAMS {
        let mut pair = Movable::open(transport, &NetLimits::default());
        let conn = pair.conn;
        let client = pair.dialled;
        let _ = pair.client.send(client, StreamId::CONTROL, b"x");
        pair.until("byte", |p| p.received == b"x");
        pair.here().net.conn(conn).set_idle_timeout(IDLE);
        pair.here().net.conn(conn).pause_reading(true);
        let _ = pair.client.send(client, StreamId::CONTROL, b"y");
        pair.change_loop();
        let start = StdInstant::now();
        pair.until("time", |_| start.elapsed() > IDLE * 2);
        assert_eq!(pair.received, b"x", "{transport:?} is paused");
        let conn = pair.conn;
        pair.here().net.conn(conn).pause_reading(false);
        pair.until("the other byte", |p| p.received == b"xy");
        let side = pair.here();
        while side.closed().is_none() {
            side.poll();
        }
        assert_eq!(side.closed(), Some(CloseCause::IdleTimeout));
    }
    let mut pair = Movable::open(Transport::Tcp, &NetLimits::default());
    let client = pair.dialled;
    pair.client
        .net
        .conn(client)
        .finish_stream(StreamId::CONTROL);
    let fin = |e: &Ev| matches!(e, Ev::Finished(..));
    while !pair.here().events.iter().any(fin) {
        pair.here().poll();
    }
    pair.here().events.clear();
    pair.change_loop();
    while !pair.here().events.iter().any(fin) {
        pair.here().poll();
    }
}
