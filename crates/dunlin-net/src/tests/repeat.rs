//! Packets that are sent twice.

use bytes::Bytes;

use super::certs::{dial_to, listen_on};
use super::paths::{drain, through_nat};
use super::*;

fn repeating() -> (Pair, ConnId, ConnId) {
    let mut pair = Pair::new();
    let (client, server) = pair.connect(listen_on(Transport::Quic), |addr| {
        dial_to(Transport::Quic, addr)
    });
    pair.client.net.conn(client).repeat_packets(Repeat::Always);
    (pair, client, server)
}

fn repeated(pair: &Pair) -> u64 {
    pair.client.net.counters().quic_packets_repeated
}

#[test]
fn what_is_sent_twice_arrives_once() {
    let (mut pair, client, server) = repeating();
    let _ = pair.client.send(client, StreamId::CONTROL, b"hello");
    pair.until("the copy", |p| repeated(p) == 1);
    let expires = pair.client.net.now() + Duration::from_secs(60);
    let data = Bytes::from_static(b"a datagram");
    let sent = pair.client.net.conn(client).send_datagram(data, expires);
    assert_eq!(sent, Ok(()));
    pair.until("its copy", |p| repeated(p) == 2);
    let _ = pair.client.send(client, StreamId::CONTROL, b", bye");
    pair.until_server_has(b"hello, bye");
    let datagrams = pair.server.events.iter();
    let datagrams = datagrams.filter(|e| matches!(e, Ev::Datagram(conn, _) if *conn == server));
    assert_eq!(datagrams.count(), 1);
    // Not asked for on this side, and not lost on either.
    assert_eq!(pair.server.net.counters().quic_packets_repeated, 0);
    assert_eq!(pair.client.net.counters().quic_packets_lost, 0);
}

#[test]
fn bulk_is_sent_once_beyond_the_allowance() {
    const TOTAL: usize = 2 << 20;
    let (mut pair, client, _) = repeating();
    let _ = pair.client.send(client, StreamId::CONTROL, &pattern(TOTAL));
    pair.until("all of it", |p| {
        p.server.received_len(StreamId::CONTROL) == TOTAL
    });
    let counters = pair.client.net.counters();
    assert!(repeated(&pair) * 2 < counters.datagrams_out, "{counters:?}");
    // No more copies once it is not wanted.
    pair.client.net.conn(client).repeat_packets(Repeat::Never);
    let before = repeated(&pair);
    let _ = pair.client.send(client, StreamId::CONTROL, b"once");
    pair.until("the rest", |p| {
        p.server.received_len(StreamId::CONTROL) == TOTAL + 4
    });
    assert_eq!(repeated(&pair), before);
}

#[test]
fn after_a_loss_packets_are_sent_twice_for_a_while() {
    let mut pair = Pair::new();
    let (client, _, mut between) = through_nat(&mut pair);
    pair.client.net.conn(client).repeat_packets(Repeat::OnLoss);
    let _ = pair.client.send(client, StreamId::CONTROL, b", once");
    pair.until("what is sent once", |p| {
        between.step();
        p.server.received(StreamId::CONTROL) == b"hello, once"
    });
    assert_eq!(repeated(&pair), 0);
    let _ = pair.client.send(client, StreamId::CONTROL, b", lost");
    pair.until("the loss", |p| {
        p.client.poll();
        drain(&between.inside) > 0
    });
    pair.until("what was lost", |p| {
        between.step();
        p.server.received(StreamId::CONTROL) == b"hello, once, lost"
    });
    // It is known to be lost once something later is acknowledged.
    pair.until("a copy", |p| {
        between.step();
        let _ = p.client.send(client, StreamId::CONTROL, b".");
        repeated(p) > 0
    });
}
