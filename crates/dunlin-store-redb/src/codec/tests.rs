//! The bytes themselves: a change here is a change of the format.

use core::num::NonZeroU64;

use bytes::Bytes;
use dunlin_base::{Encoded, Form, Instant, Message, MessageExtra, MessageProperties, QoS, Text};
use dunlin_store::{InflightState, Seq, SessionKey, SessionRecord, StoredWill, Target};

use super::*;
use dunlin_store::codec::encode_target;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn message() -> Message {
    Message {
        topic: Text::from("a/é"),
        payload: Bytes::from_static(b"on"),
        qos: QoS::ExactlyOnce,
        retain: true,
        expires: Some(Instant::from_micros(0x0102)),
        properties: Some(Box::new(MessageProperties {
            payload_is_utf8: Some(true),
            content_type: Some(Text::from("t")),
            response_topic: Some(Text::from("r")),
            correlation_data: Some(Bytes::from_static(b"\xff")),
            user_properties: vec![(Text::from("k"), Text::from(""))],
        })),
        extra: None,
    }
}

fn target() -> Target {
    Target {
        retain: true,
        identifiers: vec![7],
        shared: Some(Text::from("$share/g/#")),
        ..Target::new(SessionKey(0x0a0b), QoS::AtLeastOnce)
    }
}

fn record() -> SessionRecord {
    SessionRecord {
        client_id: Text::from("c"),
        version: 5,
        expiry_interval_secs: 60,
        disconnected_at: Some(Instant::from_micros(9)),
        will: Some(StoredWill {
            message: Message::default(),
            delay_secs: 2,
            message_expiry_secs: Some(3),
        }),
        user_name: Some(Text::from("u")),
        owner: Text::from("o"),
        options: Box::default(),
    }
}

const MESSAGE: &str = concat!(
    "01",               // version
    "1e",               // QoS 2, RETAIN, expires, properties
    "0201000000000000", // expiry
    "04000000612fc3a9", // topic
    "1e",               // UTF-8, content type, response topic, correlation
    "0100000074",
    "0100000072",
    "01000000ff",
    "01000000", // one user property
    "010000006b",
    "00000000",
    "6f6e", // payload
);

/// A message of AMQP: its payload is a slice of its form there.
fn foreign() -> Message {
    let bytes = Bytes::from_static(b"\x00Su\xa0\x02on");
    Message {
        payload: bytes.slice(5..),
        properties: None,
        extra: Some(Box::new(MessageExtra {
            priority: Some(4),
            created_ms: Some(-2),
            deliver_at: None,
            sender: None,
            encoded: Some(Encoded {
                form: Form::Amqp,
                bytes,
            }),
        })),
        ..message()
    }
}

const FOREIGN: &str = concat!(
    "02",               // version
    "0e",               // QoS 2, RETAIN, expires
    "0201000000000000", // expiry
    "04000000612fc3a9", // topic
    "0f",               // priority, creation, form, payload within it
    "04",
    "feffffffffffffff",
    "01",
    "07000000005375a0026f6e",
    "0500000002000000", // the payload's place
);

#[test]
fn what_other_protocols_know_of_a_message_is_kept() {
    let mut out = Vec::new();
    encode_message(&foreign(), &mut out);
    assert_eq!(hex(&out), FOREIGN);
    let back = decode_message(&out).expect("a message");
    assert_eq!((&back, back.cost()), (&foreign(), foreign().cost()));
    for len in 0..out.len() {
        decode_message(&out[..len]).expect_err("cut off");
    }
    let apart = Message {
        payload: Bytes::from_static(b"\"on\""),
        ..foreign()
    };
    out.clear();
    encode_message(&apart, &mut out);
    assert_eq!(decode_message(&out).expect("a message"), apart);
}

#[test]
fn who_sent_a_message_is_kept() {
    let mut sent = foreign();
    sent.extra.as_mut().expect("some").sender = NonZeroU64::new(258);
    let mut out = Vec::new();
    encode_message(&sent, &mut out);
    // The sender follows the time of creation.
    let (head, rest) = FOREIGN.split_at(FOREIGN.find("01070000").expect("the form"));
    let head = head.replacen("02", "03", 1).replacen("0f04", "1f04", 1);
    assert_eq!(hex(&out), format!("{head}0201000000000000{rest}"));
    assert_eq!(decode_message(&out), Ok(sent));
    for len in 0..out.len() {
        decode_message(&out[..len]).expect_err("cut off");
    }
    out[0] = 4;
    decode_message(&out).expect_err("of a later release");
}

const TARGET: &str = concat!(
    "0b0a000000000000", // session
    "1d",               // QoS 1, RETAIN, identifiers, shared
    "0100000007000000",
    "0a0000002473686172652f672f23",
);

#[test]
fn bytes_are_as_drawn() {
    let mut out = Vec::new();
    encode_message(&message(), &mut out);
    assert_eq!(hex(&out), MESSAGE);
    assert_eq!(decode_message(&out), Ok(message()));

    out.clear();
    encode_target(&target(), &mut out);
    assert_eq!(hex(&out), TARGET);
    out.clear();
    encode_mark(Some(&target()), &mut out);
    assert_eq!(hex(&out), format!("01{TARGET}"));
    assert_eq!(decode_mark(&out), Ok(Some(target())));
    let failed = Target {
        failed: 258,
        priority: Some(9),
        ..Target::new(SessionKey(1), QoS::AtLeastOnce)
    };
    out.clear();
    encode_mark(Some(&failed), &mut out);
    assert_eq!(hex(&out), "02010000000000000061020109");
    assert_eq!(decode_mark(&out), Ok(Some(failed.clone())));
    let delayed = Target {
        priority: Some(9),
        not_before: Some(Instant::from_micros(258)),
        added: Some(b"ab"[..].into()),
        ..Target::new(SessionKey(1), QoS::AtLeastOnce)
    };
    out.clear();
    encode_mark(Some(&delayed), &mut out);
    assert_eq!(
        hex(&out),
        "030100000000000000c109030201000000000000020000006162"
    );
    assert_eq!(decode_mark(&out), Ok(Some(delayed.clone())));
    out.clear();
    encode_log(&message(), &[&delayed, &failed], &mut out);
    assert_eq!(out.first(), Some(&3));
    let head = decode_log_head(&out).expect("just written");
    assert_eq!(head.targets, [delayed, failed.clone()]);
    out.clear();
    encode_log(&message(), &[&target(), &failed], &mut out);
    assert_eq!(out.first(), Some(&2));
    let head = decode_log_head(&out).expect("just written");
    assert_eq!(head.targets, [target(), failed]);
    assert_eq!(decode_log_message(&out).as_deref(), Ok(&message()));
    out.clear();
    encode_mark(None, &mut out);
    assert_eq!((hex(&out).as_str(), decode_mark(&out)), ("01", Ok(None)));

    out.clear();
    encode_log(&message(), &[&target()], &mut out);
    let cost = hex(&(message().cost() as u32).to_le_bytes());
    assert_eq!(hex(&out), format!("01{cost}01000000{TARGET}{MESSAGE}"));
    assert_eq!(decode_log_message(&out).as_deref(), Ok(&message()));
    let head = decode_log_head(&out).expect("just written");
    assert_eq!(head.targets, [target()]);
    assert_eq!(
        (head.cost, head.expires),
        (message().cost(), message().expires)
    );

    out.clear();
    encode_record(&record(), &mut out);
    let want = concat!(
        "02051f",           // version, protocol, everything is there
        "3c000000",         // session expiry
        "0900000000000000", // disconnected at
        "0100000063",       // client identifier
        "0100000075",       // user name
        "010000006f",       // owner
        "0200000003000000", // will delay, message expiry
        "0100000000000000000000000000",
    );
    assert_eq!(hex(&out), want);
    assert_eq!(decode_record(&out), Ok(record()));

    let options = SessionRecord {
        options: b"\x07"[..].into(),
        ..record()
    };
    out.clear();
    encode_record(&options, &mut out);
    let want = want.replacen("02051f", "03053f", 1);
    let want = want.replacen("010000006f", "010000006f0100000007", 1);
    assert_eq!(hex(&out), want);
    assert_eq!(decode_record(&out), Ok(options));

    assert_eq!(hex(&packet_key(1, 2)), "00000000000000010002");
    assert_eq!(split_packet_key(packet_key(1, 2)), (1, 2));
    let key = mark_key(1, 2);
    assert_eq!(hex(&key), "00000000000000010000000000000002");
    assert_eq!(split_mark_key(key), (1, 2));
    let key = subscription_key(1, &Text::from("a"));
    assert_eq!(hex(&key), "000000000000000161");
    assert_eq!(split_subscription_key(&key), Ok((1, Text::from("a"))));
    out.clear();
    encode_inflight(Seq(5), InflightState::Released, &mut out);
    assert_eq!(hex(&out), "01050000000000000001");
    let released = (Seq(5), InflightState::Released);
    assert_eq!(decode_inflight(&out), Ok(released));
    out.clear();
    encode_subscription(0x2c, Some(6), &mut out);
    assert_eq!(hex(&out), "012c0106000000");
    assert_eq!(decode_subscription(&out), Ok((0x2c, Some(6))));
    out.clear();
    encode_inbound(&mut out);
    assert_eq!((hex(&out).as_str(), decode_inbound(&out)), ("01", Ok(())));
    out.clear();
    encode_meta(b"m", &mut out);
    assert_eq!(hex(&out), "016d");
    assert_eq!(decode_meta(&out), Ok(Bytes::from_static(b"m")));
}

/// All contents of a file are read or refused.
#[test]
fn damaged_bytes_are_refused_or_read() {
    let mut log = Vec::new();
    encode_log(&message(), &[&target()], &mut log);
    let mut session = Vec::new();
    encode_record(&record(), &mut session);
    for whole in [&log, &session] {
        for len in 0..whole.len() {
            let _ = decode_log_head(&whole[..len]);
            let _ = decode_log_message(&whole[..len]);
            let _ = decode_record(&whole[..len]);
            for flip in [1, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[len] ^= flip;
                let _ = decode_log_head(&damaged);
                let _ = decode_log_message(&damaged);
                let _ = decode_record(&damaged);
            }
        }
    }
    assert_eq!(decode_message(&[4]), Err(DecodeError::Version));
    assert_eq!(decode_message(&[]), Err(DecodeError::Truncated));
}
