//! A connection: what is agreed on, streams, parking, aliases, sizes.

use alloc::vec;
use alloc::vec::Vec;
use core::num::{NonZeroU16, NonZeroU32};
use core::time::Duration;

use dunlin_base::{QoS, Repeat};
use dunlin_mqtt_codec::{ConnectProperties, PublishProperties};

use super::*;
use crate::streams::option;

const DATA: StreamId = StreamId(4);
const ONE_WAY: StreamId = StreamId(2);
const OF_SERVER: StreamId = StreamId(1);

fn link() -> Link {
    Link::new(Instant::ZERO, Duration::from_secs(10))
}

fn agree(properties: ConnectProperties<'_>, keep_alive: u16, offer: &Offer) -> (Link, Agreement) {
    let mut link = link();
    let connect = Connect {
        keep_alive,
        properties,
        ..Connect::default()
    };
    let agreement = link.handle_connect(&connect, offer);
    (link, agreement)
}

#[test]
fn keep_alive_is_limited_and_lasts_half_as_long_again() {
    //= mqtt5#[MQTT-3.1.2-22] type=test
    let offer = Offer {
        keep_alive_secs_max: 60,
        ..Offer::default()
    };
    for (asked, said, secs) in [(10, None, 15), (0, Some(60), 90), (100, Some(60), 90)] {
        let (link, agreement) = agree(ConnectProperties::default(), asked, &offer);
        assert_eq!(agreement.server_keep_alive, said);
        assert_eq!(link.keep_alive.limit(), Duration::from_secs(secs));
    }
    let mut link = link();
    let connect = Connect {
        version: Version::V311,
        keep_alive: 100,
        ..Connect::default()
    };
    assert_eq!(
        link.handle_connect(&connect, &offer).server_keep_alive,
        None
    );
    assert_eq!(link.keep_alive.limit(), Duration::from_secs(150));
    let later = Instant::ZERO + Duration::from_secs(7);
    link.keep_alive.heard(later);
    let due = [10, 150].map(|secs| later + Duration::from_secs(secs));
    let deadlines = [false, true].map(|connected| link.keep_alive.deadline(connected));
    assert_eq!(deadlines, due.map(Some));
    let before = Silence::Until(Some(due[1]));
    assert_eq!(link.keep_alive.handle_deadline(due[0], true), before);
    for (at, connected) in [(due[0], false), (due[1], true)] {
        let late = link.keep_alive.handle_deadline(at, connected);
        let reason = ReasonCode::KeepAliveTimeout;
        assert!(matches!(late, Silence::TooLong(fault) if fault.reason == reason));
    }
    link.keep_alive.set_limit(Duration::ZERO);
    assert_eq!(
        link.keep_alive.handle_deadline(due[1], true),
        Silence::Until(None)
    );
}

#[test]
fn options_of_streams_are_for_quic_and_within_what_is_offered() {
    let pairs = [
        (option::STREAMS, "9"),
        (option::DATAGRAMS, "100000"),
        (option::ISOLATE, "1"),
        (option::REPEAT, "2"),
        (option::DURABLE_STREAMS, "0"),
        (option::DATA_STREAMS, "?"),
    ];
    let properties = || ConnectProperties {
        user_properties: pairs.as_slice().into(),
        ..ConnectProperties::default()
    };
    let offer = Offer {
        quic: true,
        datagrams: true,
        delivery_streams_max: 4,
        ..Offer::default()
    };
    let (link, agreement) = agree(properties(), 0, &offer);
    assert_eq!(agreement.delivery_streams, 4);
    assert!(agreement.isolate && agreement.repeat == Some(Repeat::OnLoss));
    assert_eq!(link.terms.datagram_age, Duration::from_secs(60));
    assert!(!link.terms.durable_streams && link.terms.asked_for_streams);
    let (link, agreement) = agree(properties(), 0, &Offer::default());
    assert_eq!(agreement.delivery_streams, 0);
    assert!(link.terms.durable_streams && !link.terms.asked_for_streams);
    assert!(link.terms.datagram_age.is_zero());
    let offer = Offer {
        implies_streams: true,
        ..offer
    };
    let (_, agreement) = agree(ConnectProperties::default(), 0, &offer);
    assert_eq!(agreement.delivery_streams, 4, "as many as there are");
}

#[test]
fn a_packet_over_the_clients_maximum_is_not_sent() {
    //= mqtt5#[MQTT-3.1.2-24] type=test
    let properties = ConnectProperties {
        maximum_packet_size: NonZeroU32::new(8),
        ..ConnectProperties::default()
    };
    let (mut link, _) = agree(properties, 0, &Offer::default());
    assert!(link.takes(&Packet::PingResp));
    let mut publish = Publish {
        topic: "topic",
        ..Publish::default()
    };
    let identifiers = Identifiers::new();
    assert!(!link.fit(&mut publish, &identifiers, true));
    let packet = Packet::Publish(publish.clone());
    assert!(!link.takes(&packet));
    publish.topic = "t";
    assert!(link.fit(&mut publish, &identifiers, true));
}

#[test]
fn an_alias_of_the_server_replaces_its_topic_from_the_second_time() {
    let properties = ConnectProperties {
        topic_alias_maximum: Some(1),
        ..ConnectProperties::default()
    };
    let (mut link, _) = agree(properties, 0, &Offer::default());
    assert!(link.uses_aliases(StreamId::CONTROL) && !link.uses_aliases(DATA));
    let mut sent = |topic, may_alias| {
        let mut publish = Publish {
            topic,
            ..Publish::default()
        };
        let identifiers = Identifiers::new();
        assert!(link.fit(&mut publish, &identifiers, may_alias));
        (
            publish.topic.len(),
            publish.properties.topic_alias.is_some(),
        )
    };
    assert_eq!(sent("topic", true), (5, true));
    assert_eq!(sent("topic", true), (0, true));
    assert_eq!(sent("topic", false), (5, false));
    assert_eq!(sent("other", true), (5, false));
}

#[test]
fn an_alias_of_the_client_holds_on_the_stream_where_it_was_set() {
    //= mqtt5#[MQTT-3.3.2-9] type=test
    let mut link = link();
    assert!(link.streams.enter(DATA, 1));
    let publish = |topic: &'static str, alias| Publish {
        topic,
        qos: QoS::AtMostOnce,
        properties: PublishProperties {
            topic_alias: NonZeroU16::new(alias),
            ..PublishProperties::default()
        },
        ..Publish::default()
    };
    let resolve = |link: &mut Link, stream, topic, alias| {
        let resolved = link.handle_publish(stream, &publish(topic, alias), 2);
        resolved.map(|topic| topic.map(|topic| topic.as_str().len()))
    };
    assert_eq!(resolve(&mut link, DATA, "t", 0), Ok(None));
    assert_eq!(resolve(&mut link, DATA, "t", 1), Ok(None));
    assert_eq!(resolve(&mut link, DATA, "", 1), Ok(Some(1)));
    for (stream, topic, alias) in [
        (StreamId::CONTROL, "", 1),
        (DATA, "", 2),
        (DATA, "t", 3),
        (ONE_WAY, "t", 1),
    ] {
        let refused = resolve(&mut link, stream, topic, alias);
        let reason = refused.expect_err("refused").reason;
        assert_eq!(reason, ReasonCode::TopicAliasInvalid);
    }
}

#[test]
fn a_client_opens_so_many_streams_and_none_of_the_servers() {
    let mut streams = Streams::default();
    assert!(streams.enter(StreamId::CONTROL, 0));
    assert!(!streams.enter(DATA, 0) && !streams.enter(OF_SERVER, 9));
    assert!(streams.enter(DATA, 1) && streams.enter(DATA, 1));
    assert!(!streams.enter(ONE_WAY, 1));
    streams.open(OF_SERVER, LinkStream::opened(1));
    assert!(streams.enter(OF_SERVER, 1) && !streams.enter(ONE_WAY, 1));
    assert_eq!(streams.superfluous(0, |_| true), None);
    assert_eq!(streams.superfluous(1, |_| false), None);
    assert_eq!(streams.superfluous(0, |_| false), Some(OF_SERVER));
    streams.abandon(DATA);
    assert!(streams.is_abandoned(DATA) && streams.enter(ONE_WAY, 1));
}

#[test]
fn what_waits_apart_does_not_count_and_comes_back() {
    let mut streams = Streams::default();
    assert!(streams.enter(DATA, 1));
    streams.out(DATA).put_slice(b"12345");
    streams.out(StreamId::CONTROL).put_slice(b"12");
    assert_eq!(streams.backlog(), 7);
    let output = streams.take_output();
    let sizes: Vec<_> = output.iter().map(|(id, data)| (*id, data.len())).collect();
    assert_eq!(sizes, [(StreamId::CONTROL, 2), (DATA, 5)]);
    assert_eq!(streams.backlog(), 7);
    streams.handle_blocked(DATA, 5, 100);
    streams.recheck_blocked();
    assert!(streams.is_any_blocked() && streams.is_blocked(DATA));
    assert_eq!(streams.backlog(), 2);
    streams.handle_sent(2);
    // More than may wait apart counts like all others.
    streams.handle_blocked(DATA, 5, 4);
    assert_eq!(streams.backlog(), 5);
    streams.handle_blocked(DATA, 0, 100);
    streams.recheck_blocked();
    assert!(!streams.is_any_blocked());
    streams.handle_blocked(DATA, 3, 100);
    streams.forget(DATA);
    assert_eq!(streams.backlog(), 5);
}

#[test]
fn control_stands_in_for_streams_that_cannot_be_sent_on() {
    let mut streams = Streams::default();
    assert!(streams.enter(DATA, 2) && streams.enter(ONE_WAY, 2));
    streams.open(OF_SERVER, LinkStream::opened(1));
    for stream in [DATA, OF_SERVER, ONE_WAY, StreamId(8)] {
        streams.out(stream).put_slice(b"x");
    }
    let data = streams.data_mut(OF_SERVER).expect("open");
    data.end = StreamEnd::ByServer;
    streams.out(OF_SERVER).put_slice(b"x");
    let output = streams.take_output().into_iter();
    let sizes: Vec<_> = output.map(|(id, data)| (id, data.len())).collect();
    // Four bytes are the header of the server's.
    assert_eq!(sizes, [(StreamId::CONTROL, 3), (DATA, 1), (OF_SERVER, 5)]);
}

#[test]
fn what_comes_before_connack_waits_in_order_and_within_limits() {
    let mut parked = Parked::default();
    assert!(!parked.end(DATA, None) && !parked.has_bytes());
    assert!(parked.push(DATA, b"a", 2) && parked.push(StreamId::CONTROL, b"b", 2));
    assert!(parked.push(DATA, b"c", 2) && parked.has_bytes());
    assert!(parked.end(DATA, None) && parked.end(DATA, Some(3)));
    assert!(!parked.push(DATA, &[0; PARKED_BYTES_MAX], 2));
    assert!(parked.push(StreamId(8), b"d", 2));
    assert!(!parked.push(StreamId(12), b"e", 2));
    for number in 0..17 {
        assert_eq!(parked.push_datagram(&[number]), number < 16);
    }
    let all = parked.take();
    let streams: Vec<_> = all
        .streams
        .iter()
        .map(|(id, data)| (id.0, data.len()))
        .collect();
    assert_eq!(streams, [(4, 2), (0, 1), (8, 1)]);
    assert_eq!(all.ends, [(DATA, Some(3))]);
    assert_eq!(all.datagrams.len(), 16);
    assert_eq!(all.datagrams.first().map(|data| data[0]), Some(1));
    assert!(parked.take().streams.is_empty());
}

#[test]
fn a_datagram_is_one_publish_of_qos_0() {
    let link = link();
    let cases: [(&[u8], Option<ReasonCode>); 6] = [
        (b"\x30\x04\x00\x01t\x00", None),
        (
            b"\x30\x04\x00\x01t\x00\xc0",
            Some(ReasonCode::MalformedPacket),
        ),
        (b"\x30\x04\x00\x01t", Some(ReasonCode::MalformedPacket)),
        (b"\xc0\x00", Some(ReasonCode::ProtocolError)),
        (
            b"\x32\x06\x00\x01t\x00\x01\x00",
            Some(ReasonCode::ProtocolError),
        ),
        (
            b"\x30\x07\x00\x01t\x03\x23\x00\x01",
            Some(ReasonCode::TopicAliasInvalid),
        ),
    ];
    for (bytes, refused) in cases {
        let outcome = link.datagram(bytes, 100);
        assert_eq!(
            outcome.err().map(|fault| fault.reason),
            refused,
            "{bytes:?}"
        );
    }
}

/// Sixteen packets of 0.95 MB begin at once: one at a time is read to its end.
#[test]
fn unfinished_packets_take_turns() {
    const PACKET: usize = 950_000;
    let mut packet = vec![0x30];
    packet.extend([
        0x80 | (PACKET % 128) as u8,
        0x80 | (PACKET / 128 % 128) as u8,
    ]);
    packet.push((PACKET / 128 / 128) as u8);
    packet.resize(packet.len() + PACKET, 0);
    let (mut link, mut turn) = (link(), None);
    let streams: Vec<_> = (1..=16).map(|n| StreamId(4 * n)).collect();
    let mut sent = vec![0; streams.len()];
    let (mut whole, mut most) = (0, 0);
    while whole < streams.len() {
        let before = (sent.clone(), whole);
        for (stream, sent) in streams.iter().zip(&mut sent) {
            let end = packet.len().min(*sent + 10_000);
            if *sent == end || turn.is_some_and(|only| only != *stream) {
                continue;
            }
            assert!(link.streams.enter(*stream, 16));
            let framer = &mut link.streams.get_mut(*stream).unwrap().framer;
            let mut data = &packet[*sent..end];
            while framer.next(&mut data, 1 << 20).unwrap().is_some() {
                whole += 1;
            }
            *sent = end;
            if let Some(next) = link.streams.next_turn() {
                turn = next;
            }
            most = most.max(link.streams.unfinished());
        }
        assert_ne!(before, (sent.clone(), whole), "no stream gets on");
    }
    assert!(most <= UNFINISHED_BYTES_MAX + packet.len(), "{most} bytes");
    assert_eq!((turn, link.streams.unfinished()), (None, 0));
    // A stream that ends within its packet gives the turn to another.
    let long = |link: &mut Link, stream| {
        let framer = &mut link.streams.get_mut(stream).unwrap().framer;
        let mut data = &packet[..UNFINISHED_BYTES_MAX];
        assert_eq!(framer.next(&mut data, 1 << 20), Ok(None));
        link.streams.next_turn()
    };
    let [first, second, third, ..] = streams[..] else {
        panic!("16 streams");
    };
    assert_eq!(long(&mut link, first), None);
    assert_eq!(long(&mut link, second), Some(Some(second)));
    assert_eq!(long(&mut link, third), None);
    link.streams.abandon(second);
    assert_eq!(link.streams.next_turn(), Some(Some(third)));
    link.streams.forget(third);
    assert_eq!(link.streams.next_turn(), Some(None));
}
