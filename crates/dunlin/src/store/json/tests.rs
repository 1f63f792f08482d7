//! Lines are written and read again, whole and cut off.

use core::num::NonZeroU64;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::{Encoded, Form, Instant, Message, MessageExtra, MessageProperties, QoS, Text};
use dunlin_store::{InflightState, Seq, SessionKey, SessionRecord, StoreOp, StoredWill, Target};

use super::{Writer, read};

fn ops() -> Vec<StoreOp> {
    let message = Message {
        topic: Text::from("a/\u{e9}"),
        payload: Bytes::from_static(b"\xff\0"),
        qos: QoS::ExactlyOnce,
        retain: true,
        expires: Some(Instant::from_micros(u64::MAX)),
        properties: Some(Box::new(MessageProperties {
            payload_is_utf8: Some(false),
            content_type: Some(Text::from("t")),
            response_topic: Some(Text::from("r")),
            correlation_data: Some(Bytes::from_static(b"\xfe")),
            user_properties: vec![(Text::from("k"), Text::from("\n\"\u{2028}"))],
        })),
        extra: Some(Box::new(MessageExtra {
            priority: Some(9),
            created_ms: Some(-1),
            deliver_at: None,
            sender: NonZeroU64::new(u64::MAX),
            encoded: Some(Encoded {
                form: Form::Amqp,
                bytes: Bytes::from_static(b"\x00Su\xa0\x02\xff\0"),
            }),
        })),
    };
    let key = SessionKey(u64::MAX);
    vec![
        StoreOp::PutSession {
            key,
            record: SessionRecord {
                client_id: Text::from("c"),
                version: 5,
                expiry_interval_secs: u32::MAX,
                disconnected_at: Some(Instant::from_micros(9)),
                will: Some(StoredWill {
                    message: message.clone(),
                    delay_secs: 2,
                    message_expiry_secs: Some(3),
                }),
                user_name: Some(Text::new()),
                owner: Text::from("o"),
                options: b"\x01\xff"[..].into(),
            },
        },
        StoreOp::PutSession {
            key: SessionKey(0),
            record: SessionRecord::default(),
        },
        StoreOp::PutSubscription {
            key,
            filter: Text::from("$share/g/#"),
            options: 255,
            identifier: Some(1),
        },
        StoreOp::PutInflight {
            session: key,
            packet_id: u16::MAX,
            seq: Seq(u64::MAX),
            state: InflightState::Released,
        },
        StoreOp::PutInbound {
            session: key,
            packet_id: 1,
        },
        StoreOp::Enqueue {
            seq: Seq(1),
            message: Arc::new(Message::default()),
            targets: vec![Target {
                session: key,
                qos: QoS::AtLeastOnce,
                retain: true,
                identifiers: vec![1, 2],
                shared: Some(Text::from("$share/g/#")),
                failed: 2,
                priority: Some(9),
                not_before: Some(Instant::from_micros(5)),
                added: Some(Arc::from(&b"\xff"[..])),
            }],
        },
        StoreOp::PutRetained {
            message: Arc::new(message),
        },
        StoreOp::PutMeta {
            key: Text::from("tickets"),
            value: Bytes::from_static(b"\0\xff"),
        },
    ]
}

fn written() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out).expect("written");
    for op in ops() {
        writer.write(&op).expect("written");
    }
    writer.end(3).expect("written");
    out
}

fn read_all(mut bytes: &[u8]) -> io::Result<(Vec<StoreOp>, u64)> {
    let mut found = Vec::new();
    let lost = read(&mut bytes, &mut |op| {
        found.push(op);
        Ok(())
    })?;
    Ok((found, lost))
}

#[test]
fn everything_comes_back() {
    assert_eq!(read_all(&written()).expect("read"), (ops(), 3));
}

#[test]
fn what_is_cut_off_or_changed_is_refused() {
    let all = written();
    for len in 0..all.len() - 1 {
        read_all(&all[..len]).expect_err("cut off");
    }
    let text = String::from_utf8(all).expect("JSON");
    let without = |n: usize| -> String {
        let lines = text.lines().enumerate();
        let others = lines.filter(|(at, _)| *at != n);
        others.map(|(_, line)| format!("{line}\n")).collect()
    };
    for line in 0..text.lines().count() {
        read_all(without(line).as_bytes()).expect_err("a line less");
    }
    let error = read_all(b"{\"kind\":\"dunlin_store\",\"version\":9}\n");
    let error = error.expect_err("newer").to_string();
    assert_eq!(error, "line 1: version 9 of the lines is not known");
    let failed =
        b"{\"kind\":\"dunlin_store\",\"version\":1}\n{\"kind\":\"failed\",\"error\":\"x\"}\n";
    let error = read_all(failed).expect_err("failed").to_string();
    assert_eq!(error, "line 2: the copy was not finished: x");
}

#[test]
fn what_follows_the_end_is_refused() {
    let twice = [written(), written()].concat();
    for all in [twice, [written(), b"\n".to_vec()].concat()] {
        let error = read_all(&all).expect_err("more than one copy").to_string();
        let line = ops().len() + 3;
        let expected =
            format!("line {line}: something follows the end of the copy: give one copy only");
        assert_eq!(error, expected);
    }
}
