//! Messages that refer to others of their batch.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use dunlin_base::{Message, ShardId, Text};
use dunlin_store::codec::DecodeError as ValueError;

use super::{SENT, read};
use crate::between::codec::{AGAIN, Added, DecodeError, Recent, begin};
use crate::io::{BusMessage, Forward, Manner};

const PAYLOAD_BYTES: usize = 10_000;

fn forward() -> BusMessage {
    let message = Message {
        topic: Text::from("a/b"),
        payload: vec![7; PAYLOAD_BYTES].into(),
        ..Message::default()
    };
    let forward = Forward {
        message: Arc::new(message),
        plain: true,
        shares: Vec::new(),
        retain: false,
        queue: false,
        manner: Manner::Usual,
    };
    BusMessage::Forward {
        forward,
        token: Some(9),
    }
}

/// A batch behind so many other bytes, and how its messages were added.
fn batch(before: usize, messages: &[(u16, BusMessage)]) -> (Vec<u8>, Vec<Added>) {
    let mut out = vec![0; before];
    let mut recent = Recent::new(before);
    begin(SENT, &mut out);
    let mut added = Vec::new();
    for (to, message) in messages {
        let how = recent.encode(ShardId(1), ShardId(*to), message, &mut out);
        added.push(how.expect("within limits"));
    }
    (out.split_off(before), added)
}

#[test]
fn what_several_shards_are_to_have_is_there_once() {
    let one = batch(9, &[(64, forward())]).0.len();
    assert!(one > PAYLOAD_BYTES);
    let to_each = (64..68).map(|to| (to, forward()));
    let (bytes, _) = batch(9, &to_each.collect::<Vec<_>>());
    assert_eq!(bytes.len(), one + 3 * 13, "of {} before", 4 * one);
    let read = read(&bytes).expect("a batch");
    let texts: Vec<_> = read
        .iter()
        .map(|one| format!("{:?}", one.as_ref().expect("readable").message))
        .collect();
    assert_eq!(texts, vec![format!("{:?}", forward()); 4]);
    let to = read.iter().map(|one| one.as_ref().expect("readable").to.0);
    assert!(to.eq(64..68));
}

/// As a shard has it that gathers small messages for each of the others.
#[test]
fn others_may_be_in_between() {
    let small = |byte| BusMessage::Messages(vec![byte; 50]);
    let messages = [
        (64, small(1)),
        (64, forward()),
        (65, small(2)),
        (65, forward()),
        (66, small(1)),
        (66, forward()),
    ];
    let (bytes, added) = batch(0, &messages);
    use Added::{Reference, Whole};
    assert_eq!(
        added,
        [Whole, Whole, Whole, Reference, Reference, Reference]
    );
    let read = read(&bytes).expect("a batch");
    for (one, (to, message)) in read.iter().zip(&messages) {
        let one = one.as_ref().expect("readable");
        assert_eq!(one.to, ShardId(*to));
        assert_eq!(format!("{:?}", one.message), format!("{message:?}"));
    }
    // What is no longer than a reference is there again.
    let settled = |_| BusMessage::InterestNoted { token: 7 };
    let short: Vec<_> = [64, 65].map(|to| (to, settled(to))).into();
    assert_eq!(batch(0, &short).1, [Whole, Whole]);
}

#[test]
fn references_that_are_none_are_errors() {
    let reference = |at: u32| {
        let (mut bytes, _) = batch(0, &[(64, BusMessage::InterestNoted { token: 7 })]);
        let begin = bytes.len() as u32;
        bytes.extend_from_slice(&[9, 0, 0, 0, 1, 0, 65, 0, AGAIN]);
        bytes.extend_from_slice(&at.to_le_bytes());
        let mut read = read(&bytes).expect("a batch");
        assert_eq!(read.len(), 2, "{at}");
        (begin, read.pop().expect("the last").map(|it| it.to))
    };
    assert_eq!(reference(10).1.ok(), Some(ShardId(65)));
    let (begin, _) = reference(0);
    let bad = Some(DecodeError::Value(ValueError::BadNumber));
    for at in [0, 9, begin, begin + 1, u32::MAX] {
        assert_eq!(reference(at).1.err(), bad, "{at}");
    }
    // In the middle of another one.
    for at in 11..begin {
        assert!(reference(at).1.is_err(), "{at}");
    }
}

/// As a client has it that publishes the same again and again in one turn.
#[test]
fn what_one_shard_is_to_have_often_can_be_read() {
    let messages: Vec<_> = (0..500).map(|_| (64, forward())).collect();
    let (bytes, added) = batch(9, &messages);
    let whole = added.iter().filter(|how| **how == Added::Whole).count();
    assert!((2..20).contains(&whole), "{whole}");
    let read = read(&bytes).expect("a batch");
    assert_eq!(read.len(), messages.len());
    assert!(read.iter().all(Result::is_ok));
}

/// One that refers to a reference, and more references than a process has shards.
#[test]
fn references_have_bounds() {
    let (mut bytes, _) = batch(0, &[(64, forward()), (65, forward())]);
    let last = bytes.len() - 13;
    let whole = bytes[last..].to_vec();
    let mut other = bytes.clone();
    other.extend_from_slice(&whole[..9]);
    other.extend_from_slice(&(last as u32).to_le_bytes());
    let found = read(&other).expect("a batch").pop().expect("the last");
    assert_eq!(found.err(), Some(DecodeError::Kind(AGAIN)));
    for _ in 0..200 {
        bytes.extend_from_slice(&whole);
    }
    let found = read(&bytes).expect("a batch");
    let errors = found.iter().filter(|one| one.is_err()).count();
    assert!((100..200).contains(&errors), "{errors}");
    let last = found.last().expect("some").as_ref().err();
    assert_eq!(last, Some(&DecodeError::TooLarge));
}
