//! Connections over Unix sockets.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use dunlin_base::transport::unix_user;

use super::certs::dial_to;
use super::*;
use crate::{Connector, NetError, UnixAccess, UnixSocket};

/// A directory of this test alone, and a socket in it.
fn socket(name: &str) -> (PathBuf, Arc<UnixSocket>) {
    let dir = std::env::temp_dir().join(format!("dunlin-net-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    let access = UnixAccess {
        mode: 0o600,
        group: None,
    };
    let socket = UnixSocket::bind(&dir.join("s"), access).unwrap();
    (dir, Arc::new(socket))
}

fn listener(socket: &Arc<UnixSocket>) -> ListenerConfig {
    let mut config = ListenerConfig::new(Transport::Unix, "[::1]:0".parse().unwrap());
    config.unix = Some(Arc::clone(socket));
    config.index = 3;
    config
}

fn dial(socket: &UnixSocket) -> DialConfig {
    let mut dial = dial_to(Transport::Unix, "[::1]:0".parse().unwrap());
    dial.connector = Some(Connector::unix(socket.path().to_owned()));
    dial
}

#[test]
fn bytes_go_both_ways_and_the_peer_is_the_user_at_the_other_end() {
    let (dir, socket) = socket("both");
    let mut pair = Pair::new();
    pair.server.net.listen(listener(&socket)).unwrap();
    let client = pair.client.net.dial(&dial(&socket)).unwrap();
    pair.until("connection", |pair| pair.server.opened().is_some());
    let (conn, peer) = pair.server.opened().unwrap();
    let user = std::fs::metadata(&dir).unwrap().uid();
    assert_eq!((unix_user(peer.addr), peer.listener), (Some(user), 3));
    assert_eq!(peer.transport, Transport::Unix);
    assert!(peer.is_private());
    let large = vec![7; 300_000];
    pair.client.send(client, StreamId::CONTROL, &large);
    pair.server.send(conn, StreamId::CONTROL, b"answer");
    pair.until("bytes", |pair| {
        pair.server.received_len(StreamId::CONTROL) == large.len()
            && pair.client.received(StreamId::CONTROL) == b"answer"
    });
    pair.client.net.close(client, 0);
    pair.until("end", |pair| pair.client.closed().is_some());
    assert!(socket.path().exists());
    pair.server.net.stop_listening();
    let path = socket.path().to_owned();
    drop(socket);
    assert!(!path.exists());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn clients_of_a_socket_do_not_count_by_address() {
    let (dir, socket) = socket("count");
    let limits = NetLimits {
        connections_per_address_max: 1,
        handshakes_per_address_per_second: 1,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    pair.server.net.listen(listener(&socket)).unwrap();
    for _ in 0..3 {
        pair.client.net.dial(&dial(&socket)).unwrap();
    }
    pair.until("connections", |pair| {
        let opened = |event: &&Ev| matches!(event, Ev::Opened(..));
        pair.server.events.iter().filter(opened).count() == 3
    });
    assert_eq!(pair.server.net.counters().refused_per_address, 0);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_path_without_a_socket_is_named() {
    let mut side = Side::new(NetLimits::default());
    let mut dial = dial_to(Transport::Unix, "[::1]:0".parse().unwrap());
    dial.connector = Some(Connector::unix("/nowhere/mqtt.sock".into()));
    let error = side.net.dial(&dial).unwrap_err();
    assert!(matches!(error, NetError::Unix(_)), "{error}");
    assert!(error.to_string().contains("/nowhere/mqtt.sock"), "{error}");
}
