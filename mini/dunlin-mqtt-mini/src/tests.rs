//! A session against a stream of two buffers, and the broker's codec on the
//! other end.

use std::format;
use std::string::String;
use std::vec::Vec;

use dunlin_mqtt_codec as codec;
use dunlin_quic_mini::{self as quic, StreamId};

use crate::{Error, Event, Malformed, Message, Options, Qos, Session, Streams, Will, decode};

/// One stream without a network.
pub(crate) struct Pipe {
    /// Written by the session.
    pub(crate) out: Vec<u8>,
    /// To be read by it.
    pub(crate) input: Vec<u8>,
    pub(crate) end: bool,
    pub(crate) size: usize,
}

impl Pipe {
    pub(crate) const fn new(size: usize) -> Self {
        Self {
            out: Vec::new(),
            input: Vec::new(),
            end: false,
            size,
        }
    }
}

impl Streams for Pipe {
    fn open(&mut self) -> Result<StreamId, quic::Error> {
        Ok(StreamId::nth(0))
    }
    fn room(&mut self, _: StreamId) -> Result<(usize, usize), quic::Error> {
        Ok((self.size - self.out.len(), self.size))
    }
    fn write(&mut self, _: StreamId, data: &[u8]) -> Result<(), quic::Error> {
        self.out.extend_from_slice(data);
        assert!(self.out.len() <= self.size, "there was no room");
        Ok(())
    }
    fn received(&mut self, _: StreamId) -> Result<(&[u8], bool), quic::Error> {
        Ok((&self.input, self.end))
    }
    fn consume(&mut self, _: StreamId, n: usize) {
        self.input.drain(..n);
    }
    fn finish(&mut self, _: StreamId) {}
    fn window(&mut self) -> usize {
        self.size
    }
}

const CONNACK: [u8; 5] = [0x20, 3, 0, 0, 0];

/// A session that the broker has accepted, and its stream, empty.
fn up() -> (Session, Pipe) {
    let mut session = Session::new();
    let mut pipe = Pipe::new(600);
    session.begin(&mut pipe, &Options::NEW).unwrap();
    pipe.out.clear();
    pipe.input.extend_from_slice(&CONNACK);
    let event = session.poll(&mut pipe).unwrap();
    assert_eq!(event, Some(Event::Connected { session: false }));
    assert_eq!(session.poll(&mut pipe), Ok(None));
    assert!(session.is_up());
    (session, pipe)
}

const READING: Message<'_> = Message {
    topic: b"a/b",
    payload: &[7; 200],
    qos: Qos::AtLeastOnce,
    retain: false,
};

/// What the codec of the broker makes of what the session wrote.
fn read(pipe: &mut Pipe) -> String {
    let out = core::mem::take(&mut pipe.out);
    let packet = codec::decode_from_client(&out, codec::Version::V5).unwrap();
    format!("{packet:?}")
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn the_broker_understands() {
    let mut session = Session::new();
    let mut pipe = Pipe::new(600);
    let options = Options {
        client_id: b"meter",
        keep_alive: 60,
        expiry: 3600,
        user: b"someone",
        password: b"secret",
        will: Some(Will {
            message: Message {
                topic: b"meter/gone",
                payload: b"",
                qos: Qos::AtLeastOnce,
                retain: true,
            },
            delay: 77,
        }),
    };
    session.begin(&mut pipe, &options).unwrap();
    let connect = read(&mut pipe);
    has(&connect, &["\"meter\"", "3600", "someone", "600"]);
    has(&connect, &["meter/gone", "77", "retain: true"]);
    assert_eq!(session.publish(&mut pipe, &READING), Ok(1));
    has(&read(&mut pipe), &["a/b", "dup: false"]);
    session.publish_again(&mut pipe, 1, &READING).unwrap();
    has(&read(&mut pipe), &["a/b", "dup: true"]);
    let message = Message {
        qos: Qos::AtMostOnce,
        retain: true,
        ..READING
    };
    assert_eq!(session.publish(&mut pipe, &message), Ok(0));
    has(&read(&mut pipe), &["retain: true"]);
    assert_eq!(
        session.subscribe(&mut pipe, Qos::AtLeastOnce, b"a/+"),
        Ok(2)
    );
    has(&read(&mut pipe), &["a/+"]);
    assert_eq!(session.unsubscribe(&mut pipe, b"a/#"), Ok(3));
    has(&read(&mut pipe), &["Unsubscribe", "a/#"]);
    session.ping(&mut pipe).unwrap();
    has(&read(&mut pipe), &["Ping"]);
    session.disconnect(&mut pipe).unwrap();
    has(&read(&mut pipe), &["Disconnect"]);
    assert_eq!(session.ping(&mut pipe), Err(Error::State));
}

#[test]
fn what_was_shown_is_acknowledged_before_the_end_and_nothing_else() {
    let (mut session, mut pipe) = up();
    for id in [5, 6] {
        pipe.input
            .extend_from_slice(&[0x32, 7, 0, 1, b'a', 0, id, 0, b'!']);
    }
    let shown = session.poll(&mut pipe).unwrap();
    assert!(matches!(shown, Some(Event::Message(_))));
    session.disconnect(&mut pipe).unwrap();
    assert_eq!(pipe.out, [0x40, 2, 0, 5, 0xe0, 0]);
}

#[test]
fn identifiers_from_before_a_reset_are_not_given_again() {
    // Repeated ones, and the identifier of the next new message.
    let cases: [(&[u16], u16); 5] = [
        (&[], 1),
        (&[1], 2),
        (&[7, 3], 8),
        (&[0x7fff], 0x8000),
        // So far behind that it is from the round before.
        (&[5, 0xfff0], 6),
    ];
    for (repeated, next) in cases {
        let (mut session, mut pipe) = up();
        for id in repeated {
            session.publish_again(&mut pipe, *id, &READING).unwrap();
            pipe.out.clear();
        }
        assert_eq!(session.publish(&mut pipe, &READING), Ok(next));
    }
}

#[test]
fn what_the_broker_sends() {
    let (mut session, mut pipe) = up();
    session.publish(&mut pipe, &READING).unwrap();
    session
        .subscribe(&mut pipe, Qos::AtLeastOnce, b"a")
        .unwrap();
    session.unsubscribe(&mut pipe, b"b").unwrap();
    pipe.out.clear();
    assert_eq!(session.in_flight(), 1);
    let packets: [(&[u8], Option<Event<'_>>); 6] = [
        (
            &[0x40, 2, 0, 1],
            Some(Event::Published { id: 1, reason: 0 }),
        ),
        (
            &[0x90, 4, 0, 2, 0, 1],
            Some(Event::Subscribed { id: 2, reason: 1 }),
        ),
        (
            &[0xb0, 4, 0, 3, 0, 17],
            Some(Event::Unsubscribed { id: 3, reason: 17 }),
        ),
        (&[0xd0, 0], None),
        (
            &[0x33, 10, 0, 1, b'a', 0, 4, 2, 1, 0, b'o', b'n'],
            Some(Event::Message(Message {
                topic: b"a",
                payload: b"on",
                qos: Qos::AtLeastOnce,
                retain: true,
            })),
        ),
        (
            &[0x30, 4, 0, 1, b'a', 0],
            Some(Event::Message(Message {
                topic: b"a",
                payload: b"",
                qos: Qos::AtMostOnce,
                retain: false,
            })),
        ),
    ];
    for (bytes, event) in packets {
        for &byte in bytes {
            assert_eq!(session.poll(&mut pipe), Ok(None));
            pipe.input.push(byte);
        }
        assert_eq!(session.poll(&mut pipe), Ok(event));
    }
    assert_eq!(session.poll(&mut pipe), Ok(None));
    assert_eq!(pipe.out, [0x40, 2, 0, 4], "the one with QoS 1 is answered");
    assert_eq!(session.in_flight(), 0);
}

#[test]
fn limits_of_the_broker() {
    let mut session = Session::new();
    let mut pipe = Pipe::new(600);
    session.begin(&mut pipe, &Options::NEW).unwrap();
    pipe.out.clear();
    // Receive Maximum 1, Maximum QoS 1, Maximum Packet Size 300, Server Keep
    // Alive 9, Assigned Client Identifier, User Property.
    let connack = [
        0x20, 29, 1, 0, 26, 0x21, 0, 1, 0x24, 1, 0x27, 0, 0, 1, 44, 0x13, 0, 9, 0x12, 0, 2, b'm',
        b'e', 0x26, 0, 1, b'k', 0, 1, b'v', 0x2a,
    ];
    pipe.input.extend_from_slice(&connack);
    pipe.input.push(1);
    // The length has to count the last property.
    pipe.input[1] += 1;
    pipe.input[4] += 1;
    let event = session.poll(&mut pipe);
    assert_eq!(event, Ok(Some(Event::Connected { session: true })));
    assert_eq!(session.keep_alive(), 9);
    assert_eq!(session.publish(&mut pipe, &READING), Ok(1));
    assert_eq!(session.publish(&mut pipe, &READING), Err(Error::Quota));
    let long = Message {
        payload: &[0; 300],
        qos: Qos::AtMostOnce,
        ..READING
    };
    assert_eq!(session.publish(&mut pipe, &long), Err(Error::TooLarge));
}

#[test]
fn aliases_name_topics() {
    let mut session = Session::new();
    let mut pipe = Pipe::new(600);
    for _ in 0..2 {
        session.begin(&mut pipe, &Options::NEW).unwrap();
        pipe.out.clear();
        // Before the broker has said how many it takes, the topic is sent.
        for (alias, parts) in [
            (1, ["a/b", "topic_alias: None"]),
            (2, ["a/b", "topic_alias: None"]),
        ] {
            session.publish_as(&mut pipe, alias, &READING).unwrap();
            has(&read(&mut pipe), &parts);
        }
        // Topic Alias Maximum 2.
        pipe.input
            .extend_from_slice(&[0x20, 6, 0, 0, 3, 0x22, 0, 2]);
        assert!(session.poll(&mut pipe).unwrap().is_some());
        assert_eq!(session.poll(&mut pipe), Ok(None));
        for (alias, parts) in [
            (2, ["topic: \"a/b\"", "topic_alias: Some(2)"]),
            (2, ["topic: \"\"", "topic_alias: Some(2)"]),
            (1, ["topic: \"a/b\"", "topic_alias: Some(1)"]),
            (3, ["topic: \"a/b\"", "topic_alias: None"]),
            (255, ["topic: \"a/b\"", "topic_alias: None"]),
            (0, ["topic: \"a/b\"", "topic_alias: None"]),
        ] {
            session.publish_as(&mut pipe, alias, &READING).unwrap();
            has(&read(&mut pipe), &parts);
        }
        // A number for another topic is that one's from then on.
        let other = Message {
            topic: b"a/c",
            ..READING
        };
        for (message, topic) in [
            (&other, "topic: \"a/c\""),
            (&other, "topic: \"\""),
            (&READING, "topic: \"a/b\""),
            (&READING, "topic: \"\""),
        ] {
            session.publish_as(&mut pipe, 2, message).unwrap();
            has(&read(&mut pipe), &[topic, "topic_alias: Some(2)"]);
        }
        // One that was not written is not known.
        pipe.out.resize(500, 0);
        assert_eq!(session.publish_as(&mut pipe, 2, &READING), Err(Error::Full));
        pipe.out.clear();
    }
}

#[test]
fn a_full_buffer_changes_nothing() {
    let (mut session, mut pipe) = up();
    assert_eq!(session.publish(&mut pipe, &READING), Ok(1));
    assert_eq!(session.publish(&mut pipe, &READING), Ok(2));
    let before = pipe.out.clone();
    assert_eq!(session.publish(&mut pipe, &READING), Err(Error::Full));
    assert!(Error::Full.is_refusal());
    assert_eq!(pipe.out, before);
    assert_eq!(session.in_flight(), 2);
    // An answer that does not fit comes later, and nothing before it.
    pipe.out.resize(598, 0);
    let message = [0x32, 6, 0, 1, b'a', 0, 4, 0];
    pipe.input.extend_from_slice(&message);
    pipe.input.extend_from_slice(&message);
    assert!(matches!(
        session.poll(&mut pipe),
        Ok(Some(Event::Message(_)))
    ));
    assert_eq!(session.poll(&mut pipe), Err(Error::Full));
    assert_eq!(session.poll(&mut pipe), Err(Error::Full));
    pipe.out.clear();
    assert!(matches!(
        session.poll(&mut pipe),
        Ok(Some(Event::Message(_)))
    ));
    assert_eq!(session.poll(&mut pipe), Ok(None));
    assert_eq!(pipe.out, [0x40, 2, 0, 4, 0x40, 2, 0, 4]);
    let topic = [b'x'; 70_000];
    let huge = Message {
        topic: &topic,
        ..READING
    };
    assert_eq!(session.publish(&mut pipe, &huge), Err(Error::TooLarge));
}

#[test]
fn bad_packets() {
    let cases: [&[u8]; 14] = [
        &[0x20, 0xff, 0xff, 0xff, 0xff, 1],
        &[0x20, 1, 0],
        // A second CONNACK, and one with a flag too many.
        &CONNACK,
        &[0x20, 3, 2, 0, 0],
        // QoS 3, an empty topic, the identifier zero, a cut topic.
        &[0x36, 6, 0, 1, b'a', 0, 1, 0],
        &[0x30, 3, 0, 0, 0],
        &[0x32, 6, 0, 1, b'a', 0, 0, 0],
        &[0x32, 3, 0, 9, 1],
        // Two reasons for one filter, bytes behind an acknowledgement.
        &[0x90, 5, 0, 3, 0, 1, 1],
        &[0x40, 5, 0, 1, 0, 0, 9],
        // Packets that only clients send, and a reserved one.
        &[0x82, 2, 0, 1],
        &[0xc0, 0],
        &[0x00, 0],
        // A property that CONNACK does not have.
        &[0x20, 5, 0, 0, 2, 0x01, 1],
    ];
    for bytes in cases {
        let (mut session, mut pipe) = up();
        pipe.input.extend_from_slice(bytes);
        assert_eq!(session.poll(&mut pipe), Err(Error::Malformed), "{bytes:?}");
        assert_eq!(session.poll(&mut pipe), Ok(None), "it is over");
        // The memory serves another connection.
        let mut pipe = Pipe::new(600);
        assert_eq!(session.begin(&mut pipe, &Options::NEW), Ok(()));
    }
    assert_eq!(decode(&[0x00, 0]), Err(Malformed));
}

#[test]
fn a_refused_message_is_not_published() {
    let (mut session, mut pipe) = up();
    assert_eq!(session.publish(&mut pipe, &READING), Ok(1));
    pipe.out.clear();
    pipe.input.extend_from_slice(&[0x40, 3, 0, 1, 0x97]);
    let refused = Event::Rejected {
        id: 1,
        reason: 0x97,
    };
    assert_eq!(session.poll(&mut pipe), Ok(Some(refused)));
    assert_eq!((session.in_flight(), session.reason()), (0, 0x97));
    // The session goes on.
    assert_eq!(session.publish(&mut pipe, &READING), Ok(2));
}

#[test]
fn acknowledgements_are_for_what_was_sent() {
    // With a message 1, a subscription 2 and the end of one, 3, under way.
    let cases: [&[u8]; 8] = [
        &[0x40, 2, 0, 2],
        &[0x40, 2, 0, 9],
        &[0x40, 2, 0, 1, 0x40, 2, 0, 1],
        &[0x50, 2, 0, 1],
        &[0x70, 2, 0, 1],
        &[0x90, 4, 0, 1, 0, 1],
        &[0x90, 4, 0, 3, 0, 1],
        &[0xb0, 4, 0, 2, 0, 0],
    ];
    for bytes in cases {
        let (mut session, mut pipe) = up();
        session.publish(&mut pipe, &READING).unwrap();
        session
            .subscribe(&mut pipe, Qos::AtLeastOnce, b"a")
            .unwrap();
        session.unsubscribe(&mut pipe, b"b").unwrap();
        pipe.input.extend_from_slice(bytes);
        let mut last = session.poll(&mut pipe);
        if bytes.len() == 8 {
            assert!(last.is_ok(), "the first one is right");
            last = session.poll(&mut pipe);
        }
        assert_eq!(last, Err(Error::Malformed), "{bytes:?}");
    }
}

#[test]
fn what_waits_for_answers_has_a_limit() {
    let mut session = Session::new();
    let mut pipe = Pipe::new(6000);
    session.begin(&mut pipe, &Options::NEW).unwrap();
    for id in 1..=16 {
        assert_eq!(session.publish(&mut pipe, &READING), Ok(id));
    }
    let before = pipe.out.len();
    assert_eq!(session.publish(&mut pipe, &READING), Err(Error::Quota));
    let subscribed = session.subscribe(&mut pipe, Qos::AtLeastOnce, b"a");
    assert_eq!(subscribed, Err(Error::Quota));
    assert_eq!(pipe.out.len(), before);
    pipe.input.extend_from_slice(&CONNACK);
    pipe.input.extend_from_slice(&[0x40, 2, 0, 7]);
    assert!(session.poll(&mut pipe).unwrap().is_some());
    assert!(session.poll(&mut pipe).unwrap().is_some());
    assert_eq!(session.publish(&mut pipe, &READING), Ok(17));
}

#[test]
fn ends_that_the_broker_makes() {
    let (mut session, mut pipe) = up();
    pipe.input.extend_from_slice(&[0xe0, 1, 0x8b]);
    assert_eq!(session.poll(&mut pipe), Err(Error::Disconnected));
    assert_eq!(session.reason(), 0x8b);
    let (mut session, mut pipe) = up();
    pipe.end = true;
    assert_eq!(session.poll(&mut pipe), Err(Error::Ended));
    let (mut session, mut pipe) = up();
    pipe.input.extend_from_slice(&[0x30, 0xd8, 4]);
    assert_eq!(session.poll(&mut pipe), Err(Error::TooLong));
    let mut session = Session::new();
    let mut pipe = Pipe::new(600);
    session.begin(&mut pipe, &Options::NEW).unwrap();
    pipe.input.extend_from_slice(&[0x20, 3, 0, 0x87, 0]);
    assert_eq!(session.poll(&mut pipe), Err(Error::Refused));
    assert_eq!(session.reason(), 0x87);
    let mut small = Pipe::new(20);
    let begun = Session::new().begin(&mut small, &Options::NEW);
    assert_eq!(begun, Err(Error::TooLarge));
}

#[test]
#[cfg(not(feature = "qos2"))]
fn exactly_once_was_not_granted() {
    let (mut session, mut pipe) = up();
    pipe.input
        .extend_from_slice(&[0x34, 6, 0, 1, b'a', 0, 9, 0]);
    assert_eq!(session.poll(&mut pipe), Err(Error::Malformed));
}

#[test]
#[cfg(feature = "qos2")]
fn exactly_once() {
    let (mut session, mut pipe) = up();
    let message = Message {
        qos: Qos::ExactlyOnce,
        ..READING
    };
    assert_eq!(session.publish(&mut pipe, &message), Ok(1));
    pipe.out.clear();
    pipe.input.extend_from_slice(&[0x50, 2, 0, 1]);
    assert_eq!(session.poll(&mut pipe), Ok(None));
    assert_eq!(pipe.out, [0x62, 2, 0, 1]);
    // The connection ends here; on the next one the end of it is made up.
    pipe.out.clear();
    session.begin(&mut pipe, &Options::NEW).unwrap();
    pipe.out.clear();
    pipe.input.extend_from_slice(&[0x20, 3, 1, 0, 0]);
    assert!(session.poll(&mut pipe).unwrap().is_some());
    session.publish_again(&mut pipe, 1, &message).unwrap();
    assert_eq!(pipe.out, [0x62, 2, 0, 1]);
    pipe.input.extend_from_slice(&[0x70, 2, 0, 1]);
    let done = Event::Published { id: 1, reason: 0 };
    assert_eq!(session.poll(&mut pipe), Ok(Some(done)));

    // A message of the broker that comes twice is shown once.
    pipe.out.clear();
    let copy = [0x34, 6, 0, 1, b'a', 0, 9, 0];
    pipe.input.extend_from_slice(&copy);
    pipe.input.extend_from_slice(&copy);
    pipe.input.extend_from_slice(&[0x62, 2, 0, 9]);
    assert!(matches!(
        session.poll(&mut pipe),
        Ok(Some(Event::Message(_)))
    ));
    assert_eq!(session.poll(&mut pipe), Ok(None));
    assert_eq!(pipe.out, [0x50, 2, 0, 9, 0x50, 2, 0, 9, 0x70, 2, 0, 9]);
    // The slots for them are few, which the broker knows.
    for id in 1..=5 {
        pipe.input
            .extend_from_slice(&[0x34, 6, 0, 1, b'a', 0, id, 0]);
        let got = session.poll(&mut pipe).map(|event| event.is_some());
        let want = if id < 5 { Ok(true) } else { Err(Error::Quota) };
        assert_eq!(got, want);
    }
}

#[test]
fn a_reset_resumes_only_what_it_keeps() {
    let options = Options {
        expiry: 60,
        ..Options::NEW
    };
    // Whether a session of the broker may be resumed.
    let begin = |session: &mut Session| {
        let mut pipe = Pipe::new(600);
        session.begin(&mut pipe, &options).unwrap();
        let clean = pipe.out[9] & 2 != 0;
        (!clean, pipe)
    };
    let kept = cfg!(not(feature = "qos2"));
    let mut session = Session::new();
    // The first CONNECT may not have arrived, or was refused.
    assert_eq!(begin(&mut session).0, kept);
    let (resumes, mut pipe) = begin(&mut session);
    assert_eq!(resumes, kept);
    pipe.input.extend_from_slice(&[0x20, 3, 0, 0x87, 0]);
    assert_eq!(session.poll(&mut pipe), Err(Error::Refused));
    let (resumes, mut pipe) = begin(&mut session);
    assert_eq!(resumes, kept);
    pipe.input.extend_from_slice(&[0x20, 3, 0, 0, 0]);
    assert!(session.poll(&mut pipe).unwrap().is_some());
    assert!(begin(&mut session).0);
}
