//! Peers that the application does not know yet cost the others nothing.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::certs::{dial_to, listen_on};
use super::raw::Raw;
use super::*;
use crate::RetryMode;
use crate::net::newcomers::{BEGUN_MAX, WAITING_MAX};

/// A side whose application says when it knows a peer.
fn accepting(limits: NetLimits) -> Side {
    let mut config = NetConfig::new(ShardId(0), 1, Clock::new(), NetKeys::random().unwrap());
    config.limits = limits;
    config.accepts_peers = true;
    Side {
        net: Net::new(config).unwrap(),
        events: Vec::new(),
    }
}

fn few_pending() -> NetLimits {
    NetLimits {
        handshakes_pending_max: 8,
        ..NetLimits::default()
    }
}

#[test]
fn silent_sockets_make_room_on_every_listener() {
    for accepts in [false, true] {
        let mut pair = Pair::with_limits(NetLimits::default(), few_pending());
        if accepts {
            pair.server = accepting(few_pending());
        }
        let tls = pair.server.net.listen(listen_on(Transport::Tls)).unwrap();
        let mut silent = Vec::new();
        for _ in 0..4 {
            // More than there are places, and a client after each.
            silent.extend((0..20).map(|_| TcpStream::connect(tls).unwrap()));
            for transport in [Transport::Tls, Transport::Tcp, Transport::Quic] {
                let addr = pair.server.net.listen(listen_on(transport)).unwrap();
                let dial = dial_to(transport, addr);
                pair.client.events.clear();
                pair.client.net.dial(&dial).unwrap();
                pair.until("open", |p| p.client.opened().is_some());
            }
        }
        let counters = pair.server.net.counters();
        assert!(counters.made_room > 60, "{}", counters.made_room);
        assert_eq!(counters.refused_pending, 0);
        assert!(pair.server.net.handshakes_pending() <= 8);
    }
}

#[test]
fn half_handshakes_of_quic_make_room() {
    for retry in [RetryMode::Never, RetryMode::UnderLoad] {
        let limits = NetLimits {
            quic_retry: retry,
            ..few_pending()
        };
        let mut pair = Pair::with_limits(NetLimits::default(), limits);
        let addr = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
        let mut begun = Vec::new();
        for round in 0..4 {
            // More than there are places, all at one address and silent.
            for _ in 0..20 {
                let mut raw = Raw::new(addr);
                raw.flush();
                begun.push(raw);
                pair.server.poll();
            }
            // One at the same address, and one elsewhere.
            for ip in ["127.0.0.1:0", "127.0.0.2:0"] {
                let mut dial = dial_to(Transport::Quic, addr);
                dial.local_addr = Some(ip.parse().unwrap());
                pair.client.events.clear();
                pair.client.net.dial(&dial).unwrap();
                pair.until("open", |p| p.client.opened().is_some());
            }
            assert!(pair.server.net.handshakes_pending() <= 8, "round {round}");
        }
        let counters = pair.server.net.counters();
        assert!(counters.made_room > 60, "{}", counters.made_room);
        assert_eq!(counters.refused_pending, 0);
    }
}

#[test]
fn few_handshakes_of_quic_begin_in_a_turn() {
    const CROWD: usize = 20;
    let mut pair = Pair::with_limits(NetLimits::default(), NetLimits::default());
    let listen = listen_on(Transport::Quic);
    let (client, _) = pair.connect(listen, |addr| dial_to(Transport::Quic, addr));
    let addr = pair.server.net.sources_addr();
    let crowd: Vec<Raw> = (0..CROWD)
        .map(|_| {
            let mut raw = Raw::new(addr);
            raw.flush();
            raw
        })
        .collect();
    // Behind all of them.
    pair.server.events.clear();
    let _ = pair.client.send(client, StreamId::CONTROL, b"hello");
    pair.client.net.flush();
    let before = pair.server.net.counters().accepted as usize;
    let mut turns = 0;
    let mut begun = 0;
    while begun < CROWD {
        pair.server.poll();
        turns += 1;
        let now = pair.server.net.counters().accepted as usize - before;
        assert!(now - begun <= BEGUN_MAX, "{} in turn {turns}", now - begun);
        if turns == 1 {
            assert_eq!(now, BEGUN_MAX);
            assert_eq!(pair.server.received_len(StreamId::CONTROL), 5);
        }
        begun = now;
    }
    assert_eq!(turns, CROWD.div_ceil(BEGUN_MAX));
    let counters = pair.server.net.counters();
    assert_eq!((counters.newcomers_dropped, counters.retries_sent), (0, 0));
    drop(crowd);
}

#[test]
fn clients_that_wait_for_their_handshake_have_a_bound() {
    for retry in [RetryMode::Never, RetryMode::UnderLoad] {
        let limits = NetLimits {
            quic_retry: retry,
            ..NetLimits::default()
        };
        let mut pair = Pair::with_limits(NetLimits::default(), limits);
        let addr = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
        let mut crowd = Vec::new();
        // More come in each turn than begin.
        let (mut dropped, mut retried) = (0, 0);
        while dropped + retried == 0 {
            for _ in 0..4 * BEGUN_MAX {
                let mut raw = Raw::new(addr);
                raw.flush();
                crowd.push(raw);
            }
            pair.server.poll();
            let counters = pair.server.net.counters();
            (dropped, retried) = (counters.newcomers_dropped, counters.retries_sent);
            assert!(crowd.len() <= 2 * WAITING_MAX, "no bound");
        }
        assert_eq!(dropped == 0, retry == RetryMode::UnderLoad);
        assert_eq!(pair.server.net.newcomers_waiting(), WAITING_MAX - BEGUN_MAX);
        // Who comes with a proof goes first.
        if retry == RetryMode::UnderLoad {
            pair.client
                .net
                .dial(&dial_to(Transport::Quic, addr))
                .unwrap();
            pair.until("open", |p| p.client.opened().is_some());
        }
        // No connection begins any more when the listeners are closed.
        pair.server.net.stop_listening();
        assert_eq!(pair.server.net.newcomers_waiting(), 0);
    }
}

#[test]
fn a_crowd_at_one_address_makes_room_for_another() {
    let mut pair = Pair::with_limits(NetLimits::default(), few_pending());
    pair.server = accepting(few_pending());
    let addr = pair.server.net.listen(listen_on(Transport::Tcp)).unwrap();
    let mut crowd: Vec<_> = (0..8).map(|_| TcpStream::connect(addr).unwrap()).collect();
    crowd.iter_mut().for_each(|s| s.write_all(b"x").unwrap());
    pair.until("bytes", |p| p.server.received_len(StreamId::CONTROL) == 8);
    // One more of them is refused: none is silent.
    let mut late = TcpStream::connect(addr).unwrap();
    pair.until("refusal", |p| p.server.net.counters().refused_pending == 1);
    assert!(matches!(late.read(&mut [0; 1]), Ok(0) | Err(_)));
    let mut dial = dial_to(Transport::Tcp, addr);
    dial.local_addr = Some("127.0.0.2:0".parse().unwrap());
    pair.client.net.dial(&dial).unwrap();
    pair.until("open", |p| p.server.net.counters().made_room == 1);
    assert!(matches!(crowd[0].read(&mut [0; 1]), Ok(0) | Err(_)));
    // Who is accepted takes no place.
    let known: Vec<ConnId> = pair
        .server
        .events
        .iter()
        .filter_map(|e| match e {
            Ev::Opened(conn, _) => Some(*conn),
            _ => None,
        })
        .collect();
    for conn in known {
        let _ = pair
            .server
            .net
            .command(&mut NetCommand::new(conn, NetCommandKind::Accept));
    }
    assert_eq!(pair.server.net.handshakes_pending(), 0);
}

#[test]
fn bytes_of_unknown_peers_have_a_bound_by_address_and_in_all() {
    for (here, all) in [(10_000, 1 << 20), (1 << 20, 10_000)] {
        let limits = NetLimits {
            unknown_bytes_per_address_max: here,
            unknown_bytes_max: all,
            ..NetLimits::default()
        };
        let mut pair = Pair::with_limits(NetLimits::default(), limits.clone());
        pair.server = accepting(limits);
        let addr = pair.server.net.listen(listen_on(Transport::Tcp)).unwrap();
        let mut one = TcpStream::connect(addr).unwrap();
        one.write_all(&[0; 9_000]).unwrap();
        pair.until("bytes", |p| {
            p.server.received_len(StreamId::CONTROL) == 9_000
        });
        let (conn, _) = pair.server.opened().unwrap();
        let mut two = TcpStream::connect(addr).unwrap();
        two.write_all(&[0; 2_000]).unwrap();
        pair.until("the end", |p| p.server.closed().is_some());
        let counters = pair.server.net.counters();
        assert_eq!(counters.unknown_bytes_exceeded, 1);
        // Bytes of a peer that is known do not count.
        pair.server.net.conn(conn).accept();
        pair.server.events.clear();
        let mut three = TcpStream::connect(addr).unwrap();
        three.write_all(&[0; 9_000]).unwrap();
        pair.until("bytes", |p| {
            p.server.received_len(StreamId::CONTROL) == 9_000
        });
        assert_eq!(pair.server.net.counters().unknown_bytes_exceeded, 1);
    }
}

/// Bytes of the events since the last call.
fn take_bytes(side: &mut Side) -> usize {
    let events = side.events.drain(..);
    let len = |event| match event {
        Ev::Bytes(_, _, data) => data.len(),
        _ => 0,
    };
    events.map(len).sum()
}

/// Answers everything that was heard by as much.
fn answer(side: &mut Side, conn: ConnId) -> usize {
    let heard = take_bytes(side);
    let _ = side.send(conn, StreamId::CONTROL, &vec![b'a'; heard]);
    heard
}

#[test]
fn who_reads_no_answers_is_not_read() {
    const BOUND: usize = 1 << 20;
    const ASKED: usize = 32 << 20;
    for transport in [
        Transport::Tcp,
        Transport::Ws,
        Transport::Tls,
        Transport::Quic,
    ] {
        let limits = NetLimits {
            unread_answers_bytes_max: BOUND,
            ..NetLimits::default()
        };
        let mut pair = Pair::with_limits(NetLimits::default(), limits);
        let listen = listen_on(transport);
        let (client, server) = pair.connect(listen, |addr| dial_to(transport, addr));
        pair.client.net.conn(client).pause_reading(true);
        let _ = pair
            .client
            .send(client, StreamId::CONTROL, &vec![b'q'; ASKED]);
        let mut heard = 0;
        pair.until("a pause", |p| {
            let turn = answer(&mut p.server, server);
            // A report of the kernel and what was left over: one budget each.
            assert!(turn <= 512 << 10, "{turn} bytes in one turn");
            heard += turn;
            p.server.net.counters().input_held > 0
        });
        for _ in 0..20 {
            pair.client.poll();
            pair.server.poll();
            heard += answer(&mut pair.server, server);
        }
        // The bound, and one turn of reading.
        let stats = pair.server.net.conn(server).stats().unwrap();
        assert!(stats.backlog_bytes <= BOUND + (512 << 10), "{stats:?}");
        assert!(heard < ASKED, "all of it was read");
        // Once it reads, everything goes on.
        pair.client.net.conn(client).pause_reading(false);
        pair.client.events.clear();
        let mut answered = 0;
        pair.until("the rest", |p| {
            heard += answer(&mut p.server, server);
            answered += take_bytes(&mut p.client);
            answered == ASKED
        });
    }
}
