//! Connections that follow the network, in a network namespace of their own:
//! needs root and the programs `unshare` and `ip`, and says so otherwise.

use std::process::{Command, Stdio};

use super::certs::{dial_to, listen_on};
use super::*;
use crate::{Move, MoveError};

/// Addresses of the server and of the client.
const SERVER: [u8; 4] = [10, 77, 0, 9];
const FIRST: [u8; 4] = [10, 77, 0, 1];

/// Runs a test of this file that is marked as ignored, in a new namespace.
fn in_namespace(test: &str) {
    let run = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.arg("--net").args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.output()
    };
    match run(&["ip", "link"]) {
        Ok(output) if output.status.success() => {}
        other => {
            let why = other.map(|o| String::from_utf8_lossy(&o.stderr).into_owned());
            eprintln!("skipped {test}: no network namespace of its own: {why:?}");
            return;
        }
    }
    let program = std::env::current_exe().unwrap();
    let name = format!("tests::follow::{test}");
    let output = run(&[
        program.to_str().unwrap(),
        "--exact",
        &name,
        "--ignored",
        "--nocapture",
    ]);
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{errors}"
    );
}

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status().unwrap();
    assert!(status.success(), "ip {args}");
}

/// Gives the namespace both addresses; not every kernel has other devices.
fn addresses() {
    for args in [
        "link set lo up",
        "addr add 10.77.0.9/32 dev lo",
        "addr add 10.77.0.1/32 dev lo",
    ] {
        ip(args);
    }
}

fn open(pair: &mut Pair, local: Option<[u8; 4]>, follow: bool) -> (ConnId, ConnId) {
    let mut listen = listen_on(Transport::Quic);
    listen.addr = (SERVER, 0).into();
    let opened = pair.connect(listen, |to| {
        let mut dial = dial_to(Transport::Quic, to);
        dial.local_addr = local.map(|ip| (ip, 0).into());
        dial.quic.follow_network = follow;
        dial
    });
    let _ = pair.client.send(opened.0, StreamId::CONTROL, b"hello");
    // An address of another family is refused, but not before confirmation.
    let other = Some("[::1]:0".parse().unwrap());
    pair.until("confirmation", |p| {
        let refused = p.client.net.migrate(opened.0, other, Move::AtOnce);
        p.server.received(StreamId::CONTROL) == b"hello"
            && !matches!(refused, Err(MoveError::Handshaking))
    });
    opened
}

#[test]
fn an_address_that_disappears_is_left() {
    in_namespace("address_removed");
}

#[test]
#[ignore = "changes addresses: run by the test above"]
fn address_removed() {
    addresses();
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair, Some(FIRST), true);
    // Nothing is sent, so that the change itself must be heard of.
    ip("addr del 10.77.0.1/32 dev lo");
    pair.until("move", |p| {
        p.client.events.iter().any(|e| matches!(e, Ev::Moved(..)))
    });
    let _ = pair.server.send(server, StreamId::CONTROL, b"still there");
    pair.until_client_has(b"still there");
    pair.until("new address", |p| p.server.net.counters().migrations == 1);
    let _ = pair.client.send(client, StreamId::CONTROL, b", and here");
    pair.until_server_has(b"hello, and here");
    let moved = pair.client.events.iter().find_map(|e| match e {
        Ev::Moved(_, from, to) => Some((from.ip(), to.ip())),
        _ => None,
    });
    let (from, to) = moved.unwrap();
    assert_eq!(from, core::net::IpAddr::from(FIRST));
    assert_ne!(to, from);
}

#[test]
fn a_connection_that_does_not_follow_stays() {
    in_namespace("address_removed_unfollowed");
}

#[test]
#[ignore = "changes addresses: run by the test above"]
fn address_removed_unfollowed() {
    addresses();
    let mut pair = Pair::new();
    let (client, _) = open(&mut pair, Some(FIRST), false);
    ip("addr del 10.77.0.1/32 dev lo");
    let _ = pair.client.send(client, StreamId::CONTROL, b" lost");
    let start = StdInstant::now();
    pair.until("time", |_| start.elapsed() > Duration::from_millis(500));
    assert_eq!(pair.client.net.counters().moves, 0);
    // The application can still move it.
    let moved = pair.client.net.migrate(client, None, Move::AtOnce);
    assert!(moved.is_ok(), "{moved:?}");
    pair.until_server_has(b"hello lost");
}

#[test]
fn a_better_route_is_tried_before_it_is_taken() {
    in_namespace("route_changed");
}

/// Both addresses are up; another is preferred from now on.
#[test]
#[ignore = "changes routes: run by the test above"]
fn route_changed() {
    addresses();
    ip("addr add 10.77.0.2/32 dev lo");
    let prefer = |from: &str| {
        ip(&format!(
            "route change local 10.77.0.9 dev lo table local src {from}"
        ))
    };
    prefer("10.77.0.1");
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair, None, true);
    let probes = pair.client.net.counters().datagrams_out;
    prefer("10.77.0.2");
    pair.until("move", |p| {
        p.client.events.iter().any(|e| matches!(e, Ev::Moved(..)))
    });
    assert!(
        pair.client.net.counters().datagrams_out > probes,
        "no probe"
    );
    let moved = pair.client.events.iter().find_map(|e| match e {
        Ev::Moved(_, from, to) => Some((from.ip(), to.ip())),
        _ => None,
    });
    let ends = [FIRST, [10, 77, 0, 2]].map(core::net::IpAddr::from);
    assert_eq!(moved, Some((ends[0], ends[1])));
    pair.until("new address", |p| p.server.net.counters().migrations == 1);
    assert_eq!(
        pair.server
            .net
            .conn(server)
            .stats()
            .map(|stats| stats.addr.ip()),
        Some(ends[1])
    );
    let _ = pair.client.send(client, StreamId::CONTROL, b", and there");
    pair.until_server_has(b"hello, and there");
}

#[test]
fn a_connection_that_may_not_move_learns_at_once_that_it_is_lost() {
    in_namespace("address_removed_unmovable");
}

#[test]
#[ignore = "changes addresses: run by the test above"]
fn address_removed_unmovable() {
    addresses();
    let mut pair = Pair::new();
    let mut listen = listen_on(Transport::Quic);
    listen.addr = (SERVER, 0).into();
    listen.quic.migration = false;
    let (client, _) = pair.connect(listen, |to| {
        let mut dial = dial_to(Transport::Quic, to);
        dial.local_addr = Some((FIRST, 0).into());
        dial
    });
    pair.until("confirmation", |p| {
        let refused = p.client.net.migrate(client, None, Move::Probed);
        matches!(refused, Err(MoveError::Forbidden))
    });
    ip("addr del 10.77.0.1/32 dev lo");
    pair.until("end", |p| p.client.closed().is_some());
    assert_eq!(pair.client.closed(), Some(CloseCause::AddressGone));
}

#[test]
fn a_connection_over_tcp_ends_with_its_address() {
    in_namespace("address_of_tcp_removed");
}

/// Nothing is sent, so that without the news neither side would notice.
#[test]
#[ignore = "changes addresses: run by the test above"]
fn address_of_tcp_removed() {
    addresses();
    for (transport, follow) in [
        (Transport::Tcp, true),
        (Transport::Tls, true),
        (Transport::Tls, false),
    ] {
        let mut pair = Pair::new();
        let mut listen = listen_on(transport);
        listen.addr = (SERVER, 0).into();
        pair.connect(listen, |to| {
            let mut dial = dial_to(transport, to);
            dial.local_addr = Some((FIRST, 0).into());
            dial.quic.follow_network = follow;
            dial
        });
        // Another address comes and goes: that is none of its business.
        ip("addr add 10.77.0.2/32 dev lo");
        ip("addr del 10.77.0.2/32 dev lo");
        let start = StdInstant::now();
        let settled = 5 * Duration::from_millis(100);
        pair.until("time", |_| start.elapsed() > settled);
        assert_eq!(pair.client.closed(), None);
        ip("addr del 10.77.0.1/32 dev lo");
        if follow {
            pair.until("end", |p| p.client.closed().is_some());
            assert_eq!(pair.client.closed(), Some(CloseCause::AddressGone));
        } else {
            let start = StdInstant::now();
            pair.until("time", |_| start.elapsed() > settled);
            assert_eq!(pair.client.closed(), None);
        }
        ip("addr add 10.77.0.1/32 dev lo");
    }
}
