//! What is written comes back.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::{Instant, Message, ShardId, Text};

use super::any::Gen;
use super::{SENT, batch, one, read};
use crate::between::codec::{Addressed, Batch, begin, encode};
use crate::io::{BusMessage, Forward, InterestChange, Manner, Preparation};

/// Random messages of a test run.
const SEEDS: u64 = 3000;

/// What is read says the same and is written as the same bytes.
#[test]
#[cfg_attr(not(feature = "amqp"), ignore = "filters of links are read by AMQP")]
fn messages_come_back() {
    for seed in 0..SEEDS {
        let message: BusMessage = Gen::new(seed).any();
        let bytes = batch(&message);
        let back = one(&bytes);
        assert_eq!(format!("{back:?}"), format!("{message:?}"), "seed {seed}");
        assert_eq!(batch(&back), bytes, "seed {seed}");
    }
}

#[test]
fn a_batch_keeps_the_order_of_its_messages() {
    let mut out = Vec::new();
    begin(SENT, &mut out);
    for seed in 0..50 {
        let message: BusMessage = Gen::new(seed).any();
        let (from, to) = (ShardId(seed as u16), ShardId(u16::MAX));
        encode(from, to, &message, &mut out).expect("within limits");
    }
    let read = read(&out).expect("a batch");
    assert_eq!(read.len(), 50);
    for (seed, one) in (0..).zip(read) {
        let Addressed { from, to, message } = one.expect("readable");
        assert_eq!((from, to), (ShardId(seed as u16), ShardId(u16::MAX)));
        let wanted: BusMessage = Gen::new(seed).any();
        assert_eq!(format!("{message:?}"), format!("{wanted:?}"));
    }
}

/// Every time in a text of values, later by `by`, but for "never".
fn moved(text: &str, by: Duration) -> String {
    const BEGIN: &str = "Instant(";
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (number, after) = after.split_once(')').expect("its end");
        let at = Instant::from_micros(number.parse().expect("a number"));
        let at = match at == Instant::FAR_FUTURE {
            true => at,
            false => at + by,
        };
        out = format!("{out}{before}{BEGIN}{})", at.as_micros());
        rest = after;
    }
    out + rest
}

/// A reader whose clock goes ahead reads every time as one of its own clock, wherever it
/// is in a message; and what it sends back is as it was.
#[test]
#[cfg_attr(not(feature = "amqp"), ignore = "filters of links are read by AMQP")]
fn times_are_those_of_the_readers_clock() {
    let ahead = Duration::from_secs(77);
    let mut times = 0;
    for seed in 0..SEEDS {
        let message: BusMessage = Gen::new(seed).any();
        let bytes = batch(&message);
        let text = format!("{message:?}");
        times += text.matches("Instant(").count();
        let mut there = Batch::open(bytes.clone().into(), SENT + ahead).expect("a batch");
        assert_eq!(there.sent(), SENT);
        let there = there.next().expect("a message").expect("readable").message;
        assert_eq!(format!("{there:?}"), moved(&text, ahead), "seed {seed}");
        let mut back = Vec::new();
        begin(SENT + ahead, &mut back);
        encode(ShardId(1), ShardId(513), &there, &mut back).expect("within limits");
        assert_eq!(format!("{:?}", one(&back)), text, "seed {seed}");
    }
    assert!(times > 500, "{times}");
}

#[test]
fn large_payloads_are_slices_of_the_batch() {
    let payload = Bytes::from(vec![7; 100_000]);
    let message = BusMessage::Forward {
        forward: Forward {
            message: Message {
                topic: Text::from_static("t"),
                payload: payload.clone(),
                ..Message::default()
            }
            .into(),
            plain: true,
            shares: Vec::new(),
            retain: false,
            queue: false,
            manner: Manner::Usual,
        },
        token: None,
    };
    let bytes = Bytes::from(batch(&message));
    let mut read = Batch::open(bytes.clone(), SENT).expect("a batch");
    let read = read.next().expect("a message").expect("readable").message;
    let BusMessage::Forward { forward, .. } = read else {
        panic!("another message: {read:?}");
    };
    assert_eq!(forward.message.payload, payload);
    let place = forward.message.payload.as_ptr();
    assert!(bytes.as_ptr_range().contains(&place), "a copy");
    // The topic is one: it would keep the payload.
    let place = forward.message.topic.as_bytes().as_ptr();
    assert!(!bytes.as_ptr_range().contains(&place), "a slice");
}

/// Lists of the shortest elements that there are: they take the most memory for a byte.
#[test]
fn long_lists_of_short_elements_come_back() {
    let text = Text::new;
    let many = 5000;
    for message in [
        BusMessage::Interest {
            token: 1,
            changes: vec![InterestChange::Add(text()); many],
        },
        BusMessage::Received(vec![0; many]),
        BusMessage::Holders(vec![
            (
                crate::owners::holders::Holder::User(text()),
                crate::owners::holders::Holding::default()
            );
            many
        ]),
        BusMessage::Prepared {
            token: 1,
            answer: Preparation {
                missed: Some(crate::io::Missed {
                    message: Message::default().into(),
                    shares: vec![text(); many],
                }),
                dead: vec![Message::default().into(); many],
                ..Preparation::default()
            },
        },
        queue(crate::queues::calls::Call::Granted {
            link: Gen::new(1).any(),
            serial: 0,
            outcomes: vec![(Bytes::new(), false); many],
        }),
        queue(crate::queues::calls::Call::Retire {
            place: Gen::new(1).any(),
            token: 1,
            outcomes: vec![(0, dunlin_queue::Outcome::Accepted, None); many],
        }),
        queue(crate::queues::calls::Call::Again {
            place: Gen::new(1).any(),
            keys: vec![0; many],
        }),
    ] {
        let bytes = batch(&message);
        assert_eq!(format!("{:?}", one(&bytes)), format!("{message:?}"));
    }
}

fn queue(call: crate::queues::calls::Call) -> BusMessage {
    BusMessage::Queue(crate::io::QueueCall(call))
}
