//! When many connections end at once, those that stay get turns in between.

use core::time::Duration;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, StreamId};

use super::certs::{dial_to, listen_on};
use super::{Ev, Pair, Side, StdInstant};
use crate::NetLimits;
use crate::net::ENDS_MAX;
use crate::stream::UDP_BATCH;

const CROWD: usize = 150;

fn closed(server: &Side) -> usize {
    let ends = |e: &&Ev| matches!(e, Ev::Closed(..));
    server.events.iter().filter(ends).count()
}

/// Streams whose end has come, by now.
fn finished(server: &Side) -> usize {
    let ends = |e: &&Ev| matches!(e, Ev::Finished(..));
    server.events.iter().filter(ends).count()
}

fn opened(server: &Side) -> usize {
    let begins = |e: &&Ev| matches!(e, Ev::Opened(..));
    server.events.iter().filter(begins).count()
}

/// Polls until so many have ended; returns the most that ended in one turn.
fn most_in_a_turn(server: &mut Side, ended: fn(&Side) -> usize, all: usize) -> usize {
    let start = StdInstant::now();
    let mut most = 0;
    while ended(server) < all {
        assert!(start.elapsed() < Duration::from_secs(60), "they do not end");
        let before = ended(server);
        server.poll();
        most = most.max(ended(server) - before);
    }
    most
}

#[test]
fn peers_that_go_at_once_over_tcp() {
    let mut server = Side::new(NetLimits::default());
    let addr = server.net.listen(listen_on(Transport::Tcp)).unwrap();
    let connect = |_| TcpStream::connect(addr).unwrap();
    let mut stays = connect(0);
    let crowd: Vec<_> = (0..CROWD).map(connect).collect();
    while opened(&server) <= CROWD {
        server.poll();
    }
    drop(crowd);
    stays.write_all(b"still here").unwrap();
    server.poll();
    let heard = |server: &Side| server.received(StreamId::CONTROL) == b"still here";
    let (first, mut turns) = (finished(&server), 1);
    while !heard(&server) {
        server.poll();
        turns += 1;
    }
    assert!(turns < 4, "{turns} turns until who stays is heard");
    let most = most_in_a_turn(&mut server, finished, CROWD).max(first);
    assert!(most <= ENDS_MAX, "{most} in a turn");
    // They have no owner that closes them.
    let most = most_in_a_turn(&mut server, closed, CROWD);
    assert!(most <= ENDS_MAX, "{most} in a turn");
    assert_eq!(server.net.connections(), 1);
}

/// What a client sent before it went is taken before what it sends when it is back.
#[test]
fn who_is_back_at_once_comes_after_what_went() {
    let mut server = Side::new(NetLimits::default());
    let addr = server.net.listen(listen_on(Transport::Tcp)).unwrap();
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| TcpStream::connect(addr).unwrap())
        .collect();
    while opened(&server) < CROWD {
        server.poll();
    }
    for mut client in crowd {
        client.write_all(b"bye").unwrap();
    }
    let _back = TcpStream::connect(addr).unwrap();
    while opened(&server) == CROWD {
        server.poll();
    }
    let words = |e: &&Ev| matches!(e, Ev::Bytes(_, _, data) if data == b"bye");
    assert_eq!(server.events.iter().filter(words).count(), CROWD);
}

/// So many clients over QUIC, connected, which ask for signs of life.
fn over_quic(count: usize) -> (Pair, Vec<ConnId>) {
    let mut pair = Pair::new();
    let addr = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
    let mut dial = dial_to(Transport::Quic, addr);
    dial.quic.keep_alive = Some(Duration::from_secs(1));
    let dialled = (0..count)
        .map(|_| pair.client.net.dial(&dial).unwrap())
        .collect();
    pair.until("connections", |p| {
        opened(&p.server) == count && opened(&p.client) == count
    });
    (pair, dialled)
}

#[test]
fn peers_that_go_at_once_over_quic() {
    let (mut pair, dialled) = over_quic(CROWD);
    for conn in dialled {
        pair.client.net.close(conn, 0);
    }
    pair.client.net.flush();
    let most = most_in_a_turn(&mut pair.server, closed, CROWD);
    assert!(most < ENDS_MAX + UDP_BATCH, "{most} in a turn");
}

#[test]
fn peers_that_vanish_at_once() {
    const COUNT: usize = 50;
    let (mut pair, _) = over_quic(COUNT);
    // The clients' loop does not run any more: after three of their silences all are
    // lost, and due when this loop runs again.
    thread::sleep(Duration::from_secs(5));
    let most = most_in_a_turn(&mut pair.server, closed, COUNT);
    assert!(most <= ENDS_MAX, "{most} in a turn");
}
