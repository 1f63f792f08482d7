//! QUIC.

use std::sync::Arc;

use super::certs::{certs, client_builder, dial_to, listen_on, server_options};
use super::*;
use crate::{Move, ServerTls};

fn listen() -> ListenerConfig {
    listen_on(Transport::Quic)
}

fn dial(addr: SocketAddr) -> DialConfig {
    dial_to(Transport::Quic, addr)
}

fn open(pair: &mut Pair) -> (ConnId, ConnId) {
    pair.connect(listen(), dial)
}

#[test]
fn echo() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    assert_eq!(
        pair.server
            .net
            .conn(server)
            .stats()
            .unwrap()
            .protocol
            .unwrap(),
        b"mqtt"
    );
    every::echo(pair, client, server, Transport::Quic);
}

/// A stream without bytes is announced by an empty frame, and what the server
/// had said on it before, and its end, follow.
#[test]
fn a_server_may_be_the_first_to_speak() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let taken = pair.server.send(server, StreamId::CONTROL, b"ready");
    pair.server
        .net
        .conn(server)
        .finish_stream(StreamId::CONTROL);
    assert_eq!(taken, 0);
    let sides = pair.client.net.conn(client).open_stream(true);
    assert_eq!(sides, Some(StreamId::CONTROL));
    let mut conn = pair.client.net.conn(client);
    conn.announce_stream(StreamId::CONTROL);
    assert_eq!(conn.stream_sides(StreamId::CONTROL), (true, true));
    pair.until("all", |p| {
        p.client
            .events
            .contains(&Ev::Finished(client, StreamId::CONTROL))
    });
    assert_eq!(pair.client.received(StreamId::CONTROL), b"ready");
    assert_eq!(pair.server.sent(), 5);
    let mut conn = pair.client.net.conn(client);
    assert_eq!(conn.stream_sides(StreamId::CONTROL), (false, true));
    let _ = pair.client.send(client, StreamId::CONTROL, b"thanks");
    pair.until_server_has(b"thanks");
}

/// Both directions of a stream that are abandoned are one event; which is meant is
/// asked for.
#[test]
fn the_abandoned_side_of_a_stream_is_known() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let _ = pair.client.send(client, StreamId::CONTROL, b"x");
    pair.until("a byte", |p| p.server.received_len(StreamId::CONTROL) == 1);
    let reset = |p: &Pair| {
        let is_it = |e: &&Ev| matches!(e, Ev::Reset(c, ..) if *c == server);
        p.server.events.iter().filter(is_it).count()
    };
    let sides = |p: &mut Pair| p.server.net.conn(server).stream_sides(StreamId::CONTROL);
    assert_eq!(sides(&mut pair), (true, true));
    pair.client
        .net
        .conn(client)
        .stop_stream(StreamId::CONTROL, 7);
    pair.until("stopped", |p| reset(p) == 1);
    assert_eq!(sides(&mut pair), (true, false));
    pair.client
        .net
        .conn(client)
        .reset_stream(StreamId::CONTROL, 7);
    pair.until("reset", |p| reset(p) == 2);
    assert_eq!(sides(&mut pair), (false, false));
}

#[test]
fn the_local_address_is_known() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let (_, peer) = pair.server.opened().unwrap();
    assert_eq!(pair.client.net.local_addr(client), Some(peer.addr));
    let (_, peer) = pair.client.opened().unwrap();
    assert_eq!(pair.server.net.local_addr(server), Some(peer.addr));
}

#[test]
fn a_listener_asks_for_acknowledgements_now_and_then() {
    const ROUNDS: usize = 300;
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let before = pair.server.net.pings(server);
    for round in 1..=ROUNDS {
        // Two packets are acknowledged at once.
        for _ in 0..2 {
            let _ = pair.client.send(client, StreamId::CONTROL, b"!");
            pair.client.net.flush();
        }
        let acked = pair.server.net.counters().datagrams_out;
        pair.until("messages and their acknowledgement", |p| {
            p.server.received_len(StreamId::CONTROL) == round * 2
                && p.server.net.counters().datagrams_out > acked
        });
    }
    let asked = pair.server.net.pings(server) - before;
    assert!((2..=10).contains(&asked), "{asked} questions");
}

#[test]
fn bulk_with_back_pressure() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    every::bulk_with_back_pressure(pair, client, server);
}

#[test]
fn idle_timeout() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    every::idle_timeout(pair, client, server);
}

#[test]
fn paused_is_not_idle() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    every::paused_is_not_idle(pair, client, server);
}

#[test]
fn silent_client() {
    let mut pair = Pair::with_limits(NetLimits::default(), every::awaiting_bytes());
    open(&mut pair);
    every::silent_client(pair);
}

#[test]
fn half_close() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let finish = |p: &mut Pair| {
        let _ = p.client.send(client, StreamId::CONTROL, b"question");
        p.client.net.conn(client).finish_stream(StreamId::CONTROL);
    };
    every::half_close_by(pair, finish, server);
}

#[test]
fn close_flushes_what_the_windows_did_not_take() {
    let mut pair = Pair::new();
    let (client, _) = open(&mut pair);
    let data = pattern(3 << 20);
    let left = pair.client.send(client, StreamId::CONTROL, &data);
    assert!(left < data.len());
    pair.client.net.close(client, 7);
    pair.until_closed();
    assert!(pair.server.received(StreamId::CONTROL) == data);
    assert_eq!(pair.server.closed(), Some(CloseCause::Peer { code: 7 }));
    assert_eq!(pair.client.closed(), Some(CloseCause::Local));
    pair.until("drained", |p| {
        p.client.net.connections() + p.server.net.connections() == 0
    });
}

#[test]
fn what_arrived_before_the_end_is_delivered_although_paused() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    pair.server.net.conn(server).pause_reading(true);
    let _ = pair.client.send(client, StreamId::CONTROL, b"last words");
    pair.client.net.close(client, 0);
    pair.until("closed", |p| p.server.closed().is_some());
    assert_eq!(pair.server.received(StreamId::CONTROL), b"last words");
}

#[test]
fn streams_of_both_kinds_and_directions() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let _ = pair.client.send(client, StreamId::CONTROL, b"control");
    let bidi = pair.client.net.conn(client).open_stream(true).unwrap();
    let uni = pair.client.net.conn(client).open_stream(false).unwrap();
    assert_eq!((bidi, uni), (StreamId(4), StreamId(2)));
    let _ = pair.client.send(client, bidi, b"bidi");
    let _ = pair.client.send(client, uni, b"uni");
    pair.client.net.conn(client).finish_stream(uni);
    pair.until("three streams", |p| {
        p.server.received(bidi) == b"bidi"
            && p.server.received(uni) == b"uni"
            && p.server.events.contains(&Ev::Finished(server, uni))
    });
    let _ = pair.server.send(server, bidi, b"answer");
    let own = pair.server.net.conn(server).open_stream(false).unwrap();
    let _ = pair.server.send(server, own, b"pushed");
    // A stream that only the client sends on takes nothing from the server.
    assert_eq!(pair.server.send(server, uni, b"nowhere"), 7);
    pair.until("answers", |p| {
        p.client.received(bidi) == b"answer" && p.client.received(own) == b"pushed"
    });
    pair.client.net.conn(client).reset_stream(bidi, 0x9b);
    pair.server.net.conn(server).reset_stream(own, 3);
    pair.until("resets", |p| {
        p.server.events.contains(&Ev::Reset(server, bidi, 0x9b))
            && p.client.events.contains(&Ev::Reset(client, own, 3))
    });
    let _ = pair.client.send(client, StreamId::CONTROL, b" lives");
    pair.until_server_has(b"control lives");
}

#[test]
fn stopping_a_stream_returns_the_credit_of_what_it_drops() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    pair.server.net.conn(server).pause_reading(true);
    let data = pattern(1 << 20);
    let _ = pair.client.send(client, StreamId::CONTROL, b"x");
    let stream = pair.client.net.conn(client).open_stream(false).unwrap();
    let left = pair.client.send(client, stream, &data);
    pair.until("window full", |p| {
        p.server.net.counters().udp_bytes_in > 16 << 10
    });
    pair.server.net.conn(server).stop_stream(stream, 9);
    pair.until("stopped", |p| {
        p.client.events.contains(&Ev::Reset(client, stream, 9))
    });
    assert_eq!(left + pair.client.sent(), data.len());
    assert_eq!(pair.client.send(client, stream, b"dropped"), 7);
}

#[test]
fn stream_credit_is_bounded_and_comes_back() {
    let limits = NetLimits {
        quic_bidi_streams: 3,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    let (client, server) = open(&mut pair);
    let open = |p: &mut Pair| p.client.net.conn(client).open_stream(true);
    let streams: Vec<_> = core::iter::from_fn(|| open(&mut pair)).collect();
    assert_eq!(streams.len(), 3);
    for s in &streams {
        let _ = pair.client.send(client, *s, b"x");
        pair.client.net.conn(client).finish_stream(*s);
    }
    pair.until("all finished", |p| {
        streams
            .iter()
            .all(|s| p.server.events.contains(&Ev::Finished(server, *s)))
    });
    streams
        .iter()
        .for_each(|s| pair.server.net.conn(server).finish_stream(*s));
    pair.until("more credit", |p| open(p).is_some());
}

#[test]
fn a_wrong_authority_is_refused_with_a_clear_cause() {
    let mut pair = Pair::new();
    let addr = pair.server.net.listen(listen()).unwrap();
    let mut config = dial(addr);
    let tls = crate::ClientTls::builder()
        .ca_pem(certs().stranger.as_bytes())
        .unwrap();
    config.tls = Some(Arc::new(tls.build().unwrap()));
    pair.client.net.dial(&config).unwrap();
    pair.until("refusal", |p| p.client.closed().is_some());
    let Some(CloseCause::Failed(text)) = pair.client.closed() else {
        panic!("{:?}", pair.client.closed());
    };
    assert!(text.contains("not signed by a trusted authority"), "{text}");
    pair.until("server told", |p| {
        p.server.net.counters().handshake_failures == 1
    });
    assert_eq!(pair.server.events, []);
}

#[test]
fn a_client_certificate_gives_its_identity() {
    let mut options = server_options();
    options.client_ca_pem = Some(certs().ca.clone().into());
    options.require_client_cert = true;
    let mut listen = listen();
    listen.tls = Some(Arc::new(ServerTls::new(&options).unwrap()));
    let mut pair = Pair::new();
    let (cert, key) = &certs().device;
    let tls = client_builder().client_cert_pem(cert.as_bytes(), key.as_bytes());
    let tls = Arc::new(tls.unwrap().build().unwrap());
    pair.connect(listen, |addr| {
        let mut config = dial(addr);
        config.tls = Some(tls);
        config
    });
    let (_, peer) = pair.server.opened().unwrap();
    assert_eq!(peer.identity.as_deref(), Some("device-7"));
}

#[test]
fn a_silent_server_ends_in_a_handshake_timeout() {
    let hole = std::net::UdpSocket::bind(loopback()).unwrap();
    let mut side = Side::new(every::impatient());
    side.net.dial(&dial(hole.local_addr().unwrap())).unwrap();
    while side.closed().is_none() {
        side.poll();
    }
    assert_eq!(side.closed(), Some(CloseCause::HandshakeTimeout));
    assert_eq!(side.net.counters().handshake_timeouts, 1);
}

#[test]
fn half_a_handshake_is_forgotten() {
    let mut pair = Pair::with_limits(NetLimits::default(), every::impatient());
    let addr = pair.server.net.listen(listen()).unwrap();
    pair.client.net.dial(&dial(addr)).unwrap();
    pair.client.net.flush();
    // The client is never polled again.
    while pair.server.net.counters().closed == 0 {
        pair.server.poll();
    }
    assert_eq!(pair.server.net.counters().handshake_timeouts, 1);
    assert_eq!(pair.server.events, []);
}

#[test]
fn garbage_is_ignored() {
    let mut pair = Pair::new();
    let (client, _) = open(&mut pair);
    let mut addr_of = loopback();
    addr_of.set_port(0);
    let socket = std::net::UdpSocket::bind(addr_of).unwrap();
    let to = pair.server.net.sources_addr();
    let mut bytes = pattern(1200);
    for first in 0..=255u8 {
        bytes[0] = first;
        for len in [0, 1, 5, 21, 1200] {
            socket.send_to(&bytes[..len], to).unwrap();
        }
    }
    let _ = pair.client.send(client, StreamId::CONTROL, b"well");
    pair.until_server_has(b"well");
}

#[test]
fn many_pending_handshakes_lead_to_retry_and_then_refusal() {
    let limits = NetLimits {
        quic_retry_pending: 0,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    open(&mut pair);
    assert_eq!(pair.server.net.counters().retries_sent, 1);
    let limits = NetLimits {
        handshakes_pending_max: 0,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    let addr = pair.server.net.listen(listen()).unwrap();
    pair.client.net.dial(&dial(addr)).unwrap();
    pair.until("refusal", |p| p.client.closed().is_some());
    assert!(matches!(pair.client.closed(), Some(CloseCause::Failed(_))));
    assert_eq!(pair.server.net.counters().refused_pending, 1);
}

#[test]
fn many_connections_share_one_client_socket() {
    let mut pair = Pair::new();
    let addr = pair.server.net.listen(listen()).unwrap();
    let config = dial(addr);
    let conns: Vec<_> = (0..50)
        .map(|_| pair.client.net.dial(&config).unwrap())
        .collect();
    let opened = |s: &Side| {
        s.events
            .iter()
            .filter(|e| matches!(e, Ev::Opened(..)))
            .count()
    };
    pair.until("all open", |p| {
        opened(&p.client) == 50 && opened(&p.server) == 50
    });
    for conn in conns {
        let _ = pair.client.send(conn, StreamId::CONTROL, b"!");
    }
    pair.until("all heard", |p| {
        p.server.received_len(StreamId::CONTROL) == 50
    });
    let addrs = pair.server.events.iter().filter_map(|e| match e {
        Ev::Opened(_, peer) => Some(peer.addr),
        _ => None,
    });
    assert_eq!(addrs.collect::<std::collections::BTreeSet<_>>().len(), 1);
}

/// Two shards on one port. The datagrams of a connection are handed to the
/// wrong one, as the kernel does after a migration.
#[test]
fn datagrams_find_their_shard() {
    let keys = NetKeys::random().unwrap();
    let shard = |n| Side::shard(n, 2, NetLimits::default(), keys.clone());
    let mut shards = [shard(0), shard(1)];
    let mut config = listen();
    config.reuse_port = true;
    config.addr = shards[0].net.listen(config.clone()).unwrap();
    shards[1].net.listen(config.clone()).unwrap();
    let mut client = Side::new(NetLimits::default());
    // From enough ports that the kernel uses both sockets.
    let conns: Vec<_> = (0..16)
        .map(|_| {
            let port = std::net::UdpSocket::bind(loopback()).unwrap();
            let mut dial = dial(config.addr);
            dial.local_addr = Some(port.local_addr().unwrap());
            drop(port);
            client.net.dial(&dial).unwrap()
        })
        .collect();
    let opened = |s: &Side| {
        s.events
            .iter()
            .filter(|e| matches!(e, Ev::Opened(..)))
            .count()
    };
    let step = |client: &mut Side, shards: &mut [Side; 2]| {
        client.poll();
        for n in 0..2 {
            shards[n].poll();
            while let Some((to, datagram)) = shards[n].net.poll_foreign() {
                assert_eq!(usize::from(to.0), 1 - n);
                assert!(!datagram.is_empty());
                shards[1 - n].net.handle_foreign(datagram);
            }
        }
    };
    while opened(&client) < 16 || shards.iter().map(opened).sum::<usize>() < 16 {
        step(&mut client, &mut shards);
    }
    assert!(
        shards.iter().all(|s| opened(s) > 0),
        "both sockets were used"
    );
    // Every client moves to another port, where the kernel may choose again.
    for conn in &conns {
        while client.net.migrate(*conn, None, Move::Rebound).is_err() {
            step(&mut client, &mut shards);
        }
        let _ = client.send(*conn, StreamId::CONTROL, b"moved");
    }
    let heard = |s: &Side| s.received_len(StreamId::CONTROL);
    while shards.iter().map(heard).sum::<usize>() < 16 * 5 {
        step(&mut client, &mut shards);
    }
    let foreign: u64 = shards
        .iter()
        .map(|s| s.net.counters().datagrams_foreign)
        .sum();
    assert!(foreign > 0, "no datagram arrived at the wrong shard");
    // All prove their new address.
    let migrated = |s: &Side| s.net.counters().migrations;
    while shards.iter().map(migrated).sum::<u64>() < 16 {
        step(&mut client, &mut shards);
    }
    assert!(shards.iter().all(|s| s.closed().is_none()));
}

#[test]
fn limits_by_address_hold_for_quic() {
    let limits = NetLimits {
        connections_per_address_max: 2,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    let addr = pair.server.net.listen(listen()).unwrap();
    let config = dial(addr);
    let conns: Vec<_> = (0..3)
        .map(|_| pair.client.net.dial(&config).unwrap())
        .collect();
    let count = |p: &Pair, opened: bool| {
        let of = |e: &&Ev| matches!(e, Ev::Opened(..)) == opened && !matches!(e, Ev::Sent(..));
        p.client.events.iter().filter(of).count()
    };
    pair.until("two open, one refused", |p| {
        count(p, true) == 2 && count(p, false) == 1
    });
    assert_eq!(pair.server.net.counters().refused_per_address, 1);
    // Room again once one is gone for good.
    conns.iter().for_each(|c| pair.client.net.close(*c, 0));
    pair.until("drained", |p| p.server.net.connections() == 0);
    pair.client.events.clear();
    pair.client.net.dial(&config).unwrap();
    pair.until("open", |p| p.client.opened().is_some());
}

#[test]
fn control_is_opened_by_sending_whatever_was_opened_before() {
    let mut pair = Pair::new();
    let (client, _) = open(&mut pair);
    let uni = pair.client.net.conn(client).open_stream(false).unwrap();
    let _ = pair.client.send(client, uni, b"data");
    let _ = pair.client.send(client, StreamId::CONTROL, b"control");
    pair.until("both", |p| {
        p.server.received(uni) == b"data" && p.server.received(StreamId::CONTROL) == b"control"
    });
}

#[test]
fn a_peer_that_uses_its_streams_may_open_more_up_to_the_limit() {
    let limits = NetLimits {
        quic_uni_streams: 20,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    let (client, _) = open(&mut pair);
    let mut opened = 0;
    pair.until("twenty streams", |p| {
        while let Some(stream) = p.client.net.conn(client).open_stream(false) {
            let _ = p.client.send(client, stream, b"topic");
            opened += 1;
        }
        let heard = |e: &&Ev| matches!(e, Ev::Bytes(..));
        p.server.events.iter().filter(heard).count() >= 20
    });
    (0..20).for_each(|_| pair.client.poll());
    assert_eq!(pair.client.net.conn(client).open_stream(false), None);
    assert_eq!(opened, 20);
}
