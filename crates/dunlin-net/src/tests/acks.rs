//! How soon a peer is asked to acknowledge (draft-ietf-quic-ack-frequency), that a
//! peer which does not know how to be asked is not, and what peers may ask for.

use core::net::IpAddr;
use core::time::Duration;

use dunlin_base::StreamId;
use dunlin_base::transport::{CloseCause, Transport};
use quinn_proto::TransportErrorCode;

use super::certs::{dial_to, listen_on};
use super::hostile::Scene;
use super::raw::Raw;
use super::raw::forge::varint;
use super::{Ev, Pair, Side, StdInstant};
use crate::NetLimits;

/// The largest integer of variable length.
const MOST: u64 = (1 << 62) - 1;

/// `min_ack_delay`, by which a peer says that it can be asked.
const MIN_ACK_DELAY: u64 = 0xff04_de1b;

/// A listener that asks for this delay, or for none.
fn server(delay: Option<Duration>) -> (Side, core::net::SocketAddr) {
    let mut config = listen_on(Transport::Quic);
    config.quic.ack_delay = delay;
    let mut server = Side::new(NetLimits::default());
    let addr = server.net.listen(config).unwrap();
    (server, addr)
}

/// How often the client is asked, while bytes go there and back.
fn asked(delay: Option<Duration>, without: Option<u64>) -> u64 {
    let (mut server, addr) = server(delay);
    let local = IpAddr::from([127, 0, 0, 1]);
    let mut client = Raw::lacking(without, local, addr, |_| {});
    client.open(&mut server);
    let stream = client.open_stream();
    for round in 1..=10 {
        assert_eq!(client.write(stream, b"hello"), 5);
        client.until(&mut server, "bytes", |_, server| {
            server.received_len(StreamId::CONTROL) == 5 * round
        });
        let (conn, _) = server.opened().unwrap();
        let _ = server.send(conn, StreamId::CONTROL, b"world");
        client.until(&mut server, "answer", |client, _| {
            client.conn.stats().frame_rx.stream >= round as u64
        });
    }
    assert_eq!(client.lost, None);
    client.conn.stats().frame_rx.ack_frequency
}

#[test]
fn a_peer_is_asked_once_if_it_knows_how() {
    for millis in [5, 1000, 16_383] {
        let delay = Some(Duration::from_millis(millis));
        assert_eq!(asked(delay, None), 1);
        assert_eq!(asked(delay, Some(MIN_ACK_DELAY)), 0, "does not know how");
    }
    assert_eq!(asked(None, None), 0, "switched off");
}

#[test]
fn a_connection_may_end_before_the_question_has_an_answer() {
    for [ask, answer] in [[true, true], [true, false], [false, true]] {
        let delay = |asks: bool| asks.then_some(Duration::from_millis(1));
        let mut config = listen_on(Transport::Quic);
        config.quic.ack_delay = delay(answer);
        let mut pair = Pair::new();
        let addr = pair.server.net.listen(config).unwrap();
        let mut dial = dial_to(Transport::Quic, addr);
        dial.quic.ack_delay = delay(ask);
        let client = pair.client.net.dial(&dial).unwrap();
        pair.until("opened", |p| p.client.opened().is_some());
        let _ = pair.client.send(client, StreamId::CONTROL, b"goodbye");
        pair.client.net.close(client, 7);
        pair.until_closed();
        assert_eq!(pair.server.received(StreamId::CONTROL), b"goodbye");
        let peer = CloseCause::Peer { code: 7 };
        let (server, _) = pair.server.opened().unwrap();
        assert!(pair.server.events.contains(&Ev::Closed(server, peer)));
    }
}

/// A request of a client for another delay.
fn ack_frequency(number: u64, threshold: u64, micros: u64, reordering: u64) -> Vec<u8> {
    let fields = [number, threshold, micros, reordering];
    let kind = [0x40, 0xaf];
    let fields = fields.into_iter().flat_map(varint);
    kind.into_iter().chain(fields).collect()
}

/// A client may ask as often and for as much as it wants: it gets late
/// acknowledgements, or none. It costs the server no more than its packets do, and
/// others nothing.
#[test]
fn a_client_may_ask_for_any_delay() {
    let mut scene = Scene::new(NetLimits::default());
    for most in [1_000, 25_000, 16_383_000, MOST] {
        let (mut raw, conn) = scene.raw();
        let mut stream = raw.open_stream();
        for number in 0..160 {
            // Nothing comes on the stream, so that its first window has to do.
            if number % 20 == 19 {
                stream = raw.open_stream();
            }
            let delay = if most == MOST { most - number } else { most };
            raw.forge(stream, ack_frequency(number, MOST, delay, MOST));
            raw.poll();
            scene.pair.server.poll();
        }
        scene.bystander();
        assert_eq!(raw.lost, None, "{most}");
        let net = &mut scene.pair.server.net;
        let sent = net.conn(conn).stats().unwrap().quic.unwrap().udp_out;
        assert!(sent < 160, "{sent} datagrams for 160");
        assert!(net.waiting_acks() <= net.connections());
        let timers = net.timer_entries();
        assert!(timers < 1_100, "{timers} timers");
    }
}

#[test]
fn a_delay_that_no_timer_has_ends_the_connection() {
    for micros in [0, 999] {
        let mut scene = Scene::new(NetLimits::default());
        let (mut raw, _) = scene.raw();
        let stream = raw.open_stream();
        raw.forge(stream, ack_frequency(0, 1, micros, 1));
        let code = raw.until_refused(&mut scene.pair.server);
        assert_eq!(code, TransportErrorCode::PROTOCOL_VIOLATION);
        scene.bystander();
    }
}

/// Many clients send a packet each and get nothing but an acknowledgement.
#[test]
fn acknowledgements_of_many_connections_leave_together() {
    const CLIENTS: usize = 20;
    const ROUNDS: usize = 10;
    let mut pair = Pair::new();
    let addr = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
    let mut dial = dial_to(Transport::Quic, addr);
    // Long enough for a slow machine.
    dial.quic.ack_delay = Some(Duration::from_millis(25));
    let dialled: Vec<_> = (0..CLIENTS)
        .map(|_| pair.client.net.dial(&dial).unwrap())
        .collect();
    pair.until("connections", |p| {
        p.server.net.counters().opened == CLIENTS as u64
    });
    let mut before = *pair.server.net.counters();
    for round in 0..=ROUNDS {
        if round == 1 {
            before = *pair.server.net.counters();
        }
        for conn in &dialled {
            let _ = pair.client.send(*conn, StreamId::CONTROL, b"reading");
        }
        let start = StdInstant::now();
        pair.until("readings and silence", |p| {
            let all = 7 * CLIENTS * (round + 1);
            p.server.received_len(StreamId::CONTROL) == all
                && start.elapsed() > Duration::from_millis(100)
        });
    }
    let now = pair.server.net.counters();
    let calls = now.udp_send_calls - before.udp_send_calls;
    let datagrams = now.datagrams_out - before.datagrams_out;
    assert!(datagrams >= (CLIENTS * ROUNDS) as u64, "{datagrams}");
    assert!(calls * 4 < datagrams, "{calls} calls for {datagrams}");
}
