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
    net.send_datagram(client, Bytes::from_static(b"up"), expires)
        .unwrap();
    net.send_datagram(client, Bytes::new(), expires).unwrap();
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
        .send_datagram(server, answer, expires)
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
    let sent = pair.client.net.send_datagram(client, data.clone(), expires);
    assert_eq!(sent, Err(DatagramError::Unsupported));
    assert_eq!(pair.client.net.datagram_max_size(client), None);

    let mut pair = Pair::new();
    let (client, _) = open(&mut pair);
    let max = pair.client.net.datagram_max_size(client).unwrap();
    assert!((1000..1500).contains(&max), "{max}");
    let large = Bytes::from(vec![0; max + 1]);
    let sent = pair.client.net.send_datagram(client, large, expires);
    assert_eq!(sent, Err(DatagramError::TooLarge { max }));
    let gone = ConnId::new(ShardId(0), 77);
    let sent = pair.client.net.send_datagram(gone, data, expires);
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
        net.send_datagram(client, data, expires).unwrap();
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
    while let Some(stream) = pair.client.net.open_stream(client, false) {
        opened.push(stream);
    }
    assert_eq!(opened.len(), 3);
    for stream in &opened {
        let _ = pair.client.send(client, *stream, b"x");
        pair.client.net.finish_stream(client, *stream);
    }
    pair.until("credit", |p| {
        p.client.events.contains(&Ev::Available(client, false))
    });
    assert!(pair.client.net.open_stream(client, false).is_some());
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
