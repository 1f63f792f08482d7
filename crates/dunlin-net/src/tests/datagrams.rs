//! Datagrams of QUIC (RFC 9221), priorities and credit of streams.

use bytes::Bytes;
use dunlin_base::Instant;

use super::certs::{dial_to, listen_on};
use super::*;
use crate::DatagramError;

fn open(pair: &mut Pair) -> (ConnId, ConnId) {
    pair.connect(listen_on(Transport::Quic), |addr| {
        dial_to(Transport::Quic, addr)
    })
}

fn later(side: &Side) -> Instant {
    side.net.now() + Duration::from_secs(60)
}

#[test]
fn datagrams_go_both_ways_and_an_empty_one_arrives() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let expires = later(&pair.client);
    let net = &mut pair.client.net;
    net.conn(client)
        .send_datagram(Bytes::from_static(b"up"), expires)
        .unwrap();
    net.conn(client)
        .send_datagram(Bytes::new(), expires)
        .unwrap();
    pair.until("two datagrams", |p| {
        p.server
            .events
            .contains(&Ev::Datagram(server, b"up".to_vec()))
            && p.server.events.contains(&Ev::Datagram(server, Vec::new()))
    });
    let expires = later(&pair.server);
    let answer = Bytes::from_static(b"down");
    pair.server
        .net
        .conn(server)
        .send_datagram(answer, expires)
        .unwrap();
    pair.until("an answer", |p| {
        p.client
            .events
            .contains(&Ev::Datagram(client, b"down".to_vec()))
    });
    assert_eq!(pair.server.net.counters().app_datagrams_in, 2);
    assert_eq!(pair.client.net.counters().app_datagrams_out, 2);
}

#[test]
fn a_datagram_that_does_not_fit_or_is_not_wanted_is_refused() {
    let limits = NetLimits {
        quic_datagram_receive_bytes: 0,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    let (client, _) = open(&mut pair);
    let expires = later(&pair.client);
    let data = Bytes::from_static(b"x");
    let sent = pair
        .client
        .net
        .conn(client)
        .send_datagram(data.clone(), expires);
    assert_eq!(sent, Err(DatagramError::Unsupported));
    assert_eq!(pair.client.net.conn(client).datagram_max_size(), None);

    let mut pair = Pair::new();
    let (client, _) = open(&mut pair);
    let max = pair.client.net.conn(client).datagram_max_size().unwrap();
    assert!((1000..1500).contains(&max), "{max}");
    let large = Bytes::from(vec![0; max + 1]);
    let sent = pair.client.net.conn(client).send_datagram(large, expires);
    assert_eq!(sent, Err(DatagramError::TooLarge { max }));
    let gone = ConnId::new(ShardId(0), 77);
    let sent = pair.client.net.conn(gone).send_datagram(data, expires);
    assert_eq!(sent, Err(DatagramError::Unsupported));
}

#[test]
fn a_full_queue_drops_the_oldest_and_age_drops_the_rest() {
    let limits = NetLimits {
        quic_datagram_queue_bytes: 4000,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(limits, NetLimits::default());
    let (client, _) = open(&mut pair);
    let expires = later(&pair.client);
    for n in 0..10u8 {
        let data = Bytes::from(vec![n; 900]);
        let net = &mut pair.client.net;
        // The last two are too old before they can leave.
        let expires = if n < 8 { expires } else { Instant::ZERO };
        net.conn(client).send_datagram(data, expires).unwrap();
    }
    let got = |p: &Pair| -> Vec<u8> {
        let of = |e: &Ev| match e {
            Ev::Datagram(_, data) => data.first().copied(),
            _ => None,
        };
        p.server.events.iter().filter_map(of).collect()
    };
    pair.until("the newest", |p| got(p) == [6, 7]);
    let counters = pair.client.net.counters();
    assert_eq!(counters.app_datagrams_dropped, 6);
    assert_eq!(counters.app_datagrams_expired, 2);
}

#[test]
fn more_streams_are_announced_to_whom_was_refused_one() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let mut opened = Vec::new();
    while let Some(stream) = pair.client.net.conn(client).open_stream(false) {
        opened.push(stream);
    }
    assert_eq!(opened.len(), 3);
    for stream in &opened {
        let _ = pair.client.send(client, *stream, b"x");
        pair.client.net.conn(client).finish_stream(*stream);
    }
    pair.until("credit", |p| {
        p.client.events.contains(&Ev::Available(client, false))
    });
    assert!(pair.client.net.conn(client).open_stream(false).is_some());
    pair.until("delivery", |p| {
        let delivered = |s: &StreamId| p.client.events.contains(&Ev::Delivered(client, *s));
        opened.iter().all(delivered)
    });
    assert!(
        pair.server
            .events
            .contains(&Ev::Finished(server, opened[0]))
    );
}

/// Sends a little on many streams at once, and returns the packets with
/// STREAM frames that this took, and those frames.
fn packets_for(isolate: bool, streams: usize) -> (u64, Vec<Vec<u8>>) {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let _ = pair.client.send(client, StreamId::CONTROL, b"hello");
    pair.until("hello", |p| {
        !p.server.events.is_empty() && p.server.received(StreamId::CONTROL) == b"hello"
    });
    pair.client.net.conn(client).isolate_streams(isolate);
    let opened: Vec<_> = (0..streams)
        .map(|_| pair.client.net.conn(client).open_stream(true).unwrap())
        .collect();
    let before = pair.client.net.counters().datagrams_out;
    for stream in &opened {
        let _ = pair.client.send(client, *stream, b"a message of its own");
    }
    pair.client.net.flush();
    let packets = pair.client.net.counters().datagrams_out - before;
    pair.until("messages", |p| {
        opened.iter().all(|s| p.server.received(*s).len() == 20)
    });
    pair.until("credit", |p| {
        p.client.net.conn(client).stats().unwrap().backlog_bytes == 0
    });
    let _ = server;
    (
        packets,
        opened.iter().map(|s| pair.server.received(*s)).collect(),
    )
}

#[test]
fn isolated_streams_share_no_packet() {
    let (shared, _) = packets_for(false, 5);
    let (isolated, _) = packets_for(true, 5);
    assert_eq!((shared, isolated), (1, 5));
}

#[test]
fn isolation_keeps_bytes_credit_and_order_of_bulk_on_several_streams() {
    const TOTAL: usize = 2 << 20;
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    pair.client.net.conn(client).isolate_streams(true);
    let _ = pair.client.send(client, StreamId::CONTROL, b"hello");
    let streams: Vec<_> = (0..4)
        .map(|_| pair.client.net.conn(client).open_stream(true).unwrap())
        .collect();
    let data = pattern(TOTAL);
    let mut left = 5;
    for stream in &streams {
        left += pair.client.send(client, *stream, &data);
        pair.client.net.conn(client).finish_stream(*stream);
    }
    assert_eq!(left, 5, "nothing leaves before its turn");
    // One that is given up in the middle does not hold up the others.
    let gone = streams[1];
    pair.until("a beginning", |p| !p.server.received(gone).is_empty());
    pair.client.net.conn(client).reset_stream(gone, 9);
    pair.until("all others", |p| {
        let ended = |s: &StreamId| p.server.events.contains(&Ev::Finished(server, *s));
        streams.iter().filter(|s| **s != gone).all(ended)
    });
    for stream in streams.iter().filter(|s| **s != gone) {
        assert!(pair.server.received(*stream) == data);
    }
    pair.until("credit back", |p| p.client.sent() == 5 + 4 * TOTAL);
}

#[test]
fn what_is_more_important_overtakes_what_waits() {
    for isolate in [false, true] {
        let mut pair = Pair::new();
        let (client, server) = open(&mut pair);
        let _ = pair.client.send(client, StreamId::CONTROL, b"hello");
        pair.client.net.conn(client).isolate_streams(isolate);
        let bulk = pair.client.net.conn(client).open_stream(true).unwrap();
        let alarm = pair.client.net.conn(client).open_stream(true).unwrap();
        pair.client.net.conn(client).set_stream_priority(alarm, 7);
        let _ = pair.client.send(client, bulk, &pattern(4 << 20));
        let _ = pair.client.send(client, alarm, &pattern(400 << 10));
        pair.client.net.conn(client).finish_stream(alarm);
        pair.until("the alarm", |p| {
            p.server.events.contains(&Ev::Finished(server, alarm))
        });
        // What fills the windows was ahead of it, and no more.
        let ahead = pair.server.received(bulk).len();
        assert!(ahead < 1 << 20, "{ahead} bytes, isolated: {isolate}");
    }
}
