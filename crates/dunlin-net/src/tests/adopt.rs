//! Connections whose two ends are in this process.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use dunlin_base::Text;

use super::certs::dial_to;
use super::*;
use crate::{Adopted, Connector, NetShared};

fn adopted(socket: UnixStream) -> Adopted {
    Adopted {
        socket: TcpStream::from(OwnedFd::from(socket)),
        listener: 7,
        protocol: Text::from_static("mqtt"),
        identity: Text::from_static("$own"),
    }
}

/// A pair of loops whose connection is a pair of sockets, and its id at the server.
fn joined(server: Side) -> (Pair, ConnId) {
    let far = Arc::new(Mutex::new(None));
    let given = Arc::clone(&far);
    let mut dial = dial_to(Transport::Tcp, "127.0.0.1:1".parse().unwrap());
    dial.connector = Some(Connector::new(move || {
        let (near, other) = UnixStream::pair()?;
        *given.lock().unwrap() = Some(other);
        Ok(TcpStream::from(OwnedFd::from(near)))
    }));
    let mut pair = Pair {
        client: Side::new(NetLimits::default()),
        server,
    };
    pair.client.net.dial(&dial).unwrap();
    let socket = far.lock().unwrap().take().expect("the connector was asked");
    let conn = pair.server.net.adopt(adopted(socket)).unwrap();
    pair.until("connection", |pair| {
        pair.client.opened().is_some() && pair.server.opened().is_some()
    });
    (pair, conn)
}

#[test]
fn both_ends_of_a_pair_are_connections_and_the_peer_has_the_name_it_was_given() {
    let (mut pair, conn) = joined(Side::new(NetLimits::default()));
    let (opened, peer) = pair.server.opened().unwrap();
    assert_eq!((opened, peer.listener), (conn, 7));
    assert_eq!(peer.identity.as_deref(), Some("$own"));
    assert_eq!(peer.protocol.as_str(), "mqtt");
    assert!(peer.is_private());
    let (dialled, _) = pair.client.opened().unwrap();
    let large = vec![7; 300_000];
    pair.client.send(dialled, StreamId::CONTROL, &large);
    pair.server.send(conn, StreamId::CONTROL, b"answer");
    pair.until("bytes", |pair| {
        pair.server.received_len(StreamId::CONTROL) == large.len()
            && pair.client.received(StreamId::CONTROL) == b"answer"
    });
    pair.client.net.close(dialled, 0);
    pair.until("end", |pair| {
        let finished = |event: &Ev| matches!(event, Ev::Finished(..) | Ev::Closed(..));
        pair.server.events.iter().any(finished)
    });
}

#[test]
fn an_adopted_connection_takes_no_place_of_clients_at_this_machine() {
    let limits = NetLimits {
        connections_per_address_max: 1,
        handshakes_per_address_per_second: 1,
        ..NetLimits::default()
    };
    let mut server = Side::new(limits);
    let mut others = Vec::new();
    for _ in 0..3 {
        let (near, far) = UnixStream::pair().unwrap();
        others.push(near);
        server.net.adopt(adopted(far)).unwrap();
    }
    assert_eq!(server.net.counters().refused_per_address, 0);
}

#[test]
fn an_adopted_connection_keeps_its_name_when_it_moves() {
    let (shared, keys) = (NetShared::default(), NetKeys::random().unwrap());
    let side = |shard| {
        let mut config = NetConfig::new(ShardId(shard), 2, Clock::new(), keys.clone());
        config.shared = shared.clone();
        Side {
            net: Net::new(config).unwrap(),
            events: Vec::new(),
        }
    };
    let (mut pair, conn) = joined(side(0));
    let detached = pair.server.net.detach(conn).expect("open");
    assert_eq!(detached.peer().identity.as_deref(), Some("$own"));
    assert_eq!(detached.peer().listener, 7);
    let mut other = side(1);
    let moved = other.net.attach(detached).unwrap();
    let (dialled, _) = pair.client.opened().unwrap();
    pair.client.send(dialled, StreamId::CONTROL, b"after");
    let start = StdInstant::now();
    while other.received(StreamId::CONTROL) != b"after" {
        assert!(start.elapsed() < PATIENCE, "no bytes");
        pair.client.poll();
        other.poll();
    }
    assert_eq!(moved.shard(), ShardId(1));
}

#[test]
fn a_connector_that_fails_ends_the_attempt() {
    let mut client = Side::new(NetLimits::default());
    let mut dial = dial_to(Transport::Tcp, "127.0.0.1:1".parse().unwrap());
    dial.connector = Some(Connector::new(|| {
        Err(std::io::ErrorKind::Unsupported.into())
    }));
    client.net.dial(&dial).expect_err("refused");
    assert_eq!(client.net.connections(), 0);
}
