//! Bytes that are no messages: an error, or another value, and never a panic; no memory
//! for what is not there.

use alloc::vec;
use alloc::vec::Vec;

use dunlin_base::{Random, ShardId, Text};
use dunlin_store::StoreOp;
use dunlin_store::codec::DecodeError as ValueError;
use dunlin_store::limits::BATCH_OPS_MAX;

use super::any::Gen;
use super::{SENT, batch, read};
use crate::between::codec::limits::{LIST_MAX, TEXT_BYTES_MAX};
use crate::between::codec::{DecodeError, EncodeError, HEAD_BYTES, begin, encode};
use crate::io::{BusMessage, Preparation};

/// Reads a batch; what can be read can be written.
fn try_read(bytes: &[u8]) {
    for addressed in read(bytes).into_iter().flatten().flatten() {
        let mut out = Vec::new();
        encode(addressed.from, addressed.to, &addressed.message, &mut out)
            .expect("what was read can be written");
    }
}

#[test]
#[cfg_attr(not(feature = "amqp"), ignore = "filters of links are read by AMQP")]
fn what_is_cut_off_is_an_error() {
    for seed in 0..300 {
        let message: BusMessage = Gen::small(seed, &[]).any();
        let bytes = batch(&message);
        for len in 0..bytes.len() {
            let whole = match read(&bytes[..len]) {
                Ok(read) => {
                    read.len() == usize::from(len > HEAD_BYTES) && read.iter().all(Result::is_err)
                }
                Err(error) => error == ValueError::Truncated.into() && len < HEAD_BYTES,
            };
            assert!(whole, "seed {seed}, {len} bytes");
        }
        // Cut off within its length, too.
        let end = bytes.len() - HEAD_BYTES - 4;
        for len in 0..end {
            let mut cut = bytes[..HEAD_BYTES].to_vec();
            cut.extend_from_slice(&(len as u32).to_le_bytes());
            cut.extend_from_slice(&bytes[HEAD_BYTES + 4..][..len]);
            let read = read(&cut).expect("a batch");
            assert!(matches!(&read[..], [Err(_)]), "seed {seed}, {len} of {end}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "amqp"), ignore = "filters of links are read by AMQP")]
fn altered_bytes_are_no_panic() {
    let mut random = Random::new(7);
    for seed in 0..300 {
        let message: BusMessage = Gen::small(seed, &[]).any();
        let bytes = batch(&message);
        for bit in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            try_read(&altered);
        }
        for _ in 0..50 {
            let mut altered = bytes.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(altered.len() as u64) as usize;
                altered[at] = random.next() as u8;
            }
            try_read(&altered);
        }
    }
}

/// A batch with this after the addresses of its only message.
fn raw(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    begin(SENT, &mut out);
    out.extend_from_slice(&(message.len() as u32 + 4).to_le_bytes());
    out.extend_from_slice(&[1, 0, 2, 0]);
    out.extend_from_slice(message);
    out
}

fn error_of(message: &[u8]) -> DecodeError {
    let mut read = read(&raw(message)).expect("a batch");
    let only = read.pop().expect("a message");
    only.expect_err("no message")
}

#[test]
fn numbers_bring_no_memory_that_their_bytes_do_not() {
    const INTEREST: u8 = 9;
    const MESSAGES: u8 = 12;
    const RECEIVED: u8 = 13;
    const PREPARED: u8 = 14;
    let with = |kind: u8, token: bool, count: u32, rest: usize| {
        let mut message = vec![kind];
        message.extend_from_slice(&[0; 8][..if token { 8 } else { 0 }]);
        message.extend_from_slice(&count.to_le_bytes());
        message.resize(message.len() + rest, 0);
        error_of(&message)
    };
    let truncated = ValueError::Truncated.into();
    // More elements than fit into the bytes are not begun with.
    assert_eq!(with(INTEREST, true, 100_000, 20), DecodeError::TooLarge);
    assert_eq!(with(RECEIVED, false, 100_000, 20), DecodeError::TooLarge);
    assert_eq!(with(RECEIVED, false, 40, 20), truncated);
    assert_eq!(with(MESSAGES, false, u32::MAX, 20), truncated);
    let over = LIST_MAX as u32 + 1;
    assert_eq!(with(RECEIVED, false, over, 9 << 20), DecodeError::TooLarge);
    let mut ops = vec![PREPARED, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1];
    ops.extend_from_slice(&(BATCH_OPS_MAX as u32 + 1).to_le_bytes());
    assert_eq!(error_of(&ops), DecodeError::TooLarge);
    // An operation takes more memory than its bytes; there are at most so many.
    assert!(size_of::<StoreOp>() * BATCH_OPS_MAX <= 32 << 20);
}

#[test]
fn values_that_stand_for_nothing_are_errors() {
    let bad = ValueError::BadNumber.into();
    const SETTLED: u8 = 15;
    assert_eq!(error_of(&[SETTLED, 0, 0, 0, 0, 0, 0, 0, 0, 2]), bad);
    // A text that is none.
    let denied = [6, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0xff];
    assert_eq!(error_of(&denied), ValueError::NotUtf8.into());
    assert_eq!(error_of(&[]), ValueError::Truncated.into());
    // A text in it is longer than all of it.
    let long = [6, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(error_of(&long), ValueError::Truncated.into());
}

/// Who writes has the limits of who reads.
#[test]
fn what_is_over_a_limit_is_not_written() {
    let text =
        Text::from(alloc::string::String::from_utf8(vec![b'x'; TEXT_BYTES_MAX + 1]).unwrap());
    let op = StoreOp::DeleteMeta { key: Text::new() };
    for message in [
        BusMessage::Granted {
            token: 1,
            client_id: text,
        },
        BusMessage::Received(vec![0; LIST_MAX + 1]),
        BusMessage::Prepared {
            token: 1,
            answer: Preparation {
                ops: vec![op; BATCH_OPS_MAX + 1],
                ..Preparation::default()
            },
        },
    ] {
        let mut out = Vec::new();
        begin(SENT, &mut out);
        let before = out.clone();
        let encoded = encode(ShardId(0), ShardId(1), &message, &mut out);
        assert_eq!(encoded, Err(EncodeError::TooLarge));
        assert_eq!(out, before, "nothing of it is left");
    }
}

/// A buffer of gathered messages is read where it is used: what is none ends it, and is
/// counted.
#[cfg(feature = "mqtt")]
#[test]
fn gathered_messages_that_are_none_are_counted() {
    let config = crate::Config {
        shards: 2,
        ..crate::Config::default()
    };
    let mut shard = crate::Shard::new(config, SENT);
    for (bytes, errors) in [
        (&[][..], 0),
        (&[1; 40], 1),
        (&[0, 0, 0, 0, 0, 0, 0, 0, 9], 2),
    ] {
        let message = BusMessage::Messages(bytes.to_vec());
        let from = ShardId(1);
        shard.handle(SENT, crate::Input::Bus { from, message });
        assert_eq!(shard.stats().internal_errors, errors, "{bytes:?}");
    }
}
