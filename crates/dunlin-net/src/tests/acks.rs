//! How soon a peer is asked to acknowledge (draft-ietf-quic-ack-frequency), and
//! that a peer which does not know how to be asked is not.

use core::net::IpAddr;
use core::time::Duration;

use dunlin_base::StreamId;
use dunlin_base::transport::{CloseCause, Transport};

use super::certs::{dial_to, listen_on};
use super::raw::Raw;
use super::{Ev, Pair, Side};
use crate::NetLimits;

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
    let delay = Some(Duration::from_millis(5));
    assert_eq!(asked(delay, None), 1);
    assert_eq!(asked(None, None), 0, "switched off");
    assert_eq!(asked(delay, Some(MIN_ACK_DELAY)), 0, "does not know how");
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
        pair.until("end", |p| {
            p.client.closed().is_some() && p.server.closed().is_some()
        });
        assert_eq!(pair.server.received(StreamId::CONTROL), b"goodbye");
        let peer = CloseCause::Peer { code: 7 };
        let (server, _) = pair.server.opened().unwrap();
        assert!(pair.server.events.contains(&Ev::Closed(server, peer)));
    }
}
