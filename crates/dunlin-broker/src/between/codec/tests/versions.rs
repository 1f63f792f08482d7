//! Batches of a later version, written by hand: what this one reads of them.

use alloc::format;
use alloc::vec::Vec;

use super::{SENT, read};
use crate::between::codec::{DecodeError, LEAST, MAY_SKIP, OLDEST, VERSION};
use crate::io::BusMessage;

/// A batch of version 2 whose readers must have version `least`.
fn later(least: u8, messages: &[&[u8]]) -> Vec<u8> {
    let mut out = alloc::vec![2, least];
    out.extend_from_slice(&SENT.as_micros().to_le_bytes());
    for message in messages {
        out.extend_from_slice(&(message.len() as u32 + 4).to_le_bytes());
        out.extend_from_slice(&[1, 0, 2, 0]);
        out.extend_from_slice(message);
    }
    out
}

/// Of kind 15, with token 7 and `true`: `Settled`.
const SETTLED: &[u8] = &[15, 7, 0, 0, 0, 0, 0, 0, 0, 1];

fn is_settled(message: &BusMessage) -> bool {
    matches!(
        message,
        BusMessage::Settled {
            token: 7,
            committed: true
        }
    )
}

#[test]
fn fields_at_the_end_of_a_message_are_passed_over() {
    let longer = [SETTLED, b"of version 2"].concat();
    let read = read(&later(1, &[&longer, SETTLED])).expect("readable");
    assert_eq!(read.len(), 2);
    for one in read {
        assert!(is_settled(&one.expect("known").message));
    }
}

#[test]
fn fields_at_the_end_of_a_part_are_passed_over() {
    // A change of interest is a part of a list: its length, `Add`, a filter, and more.
    let interest = [
        &[9, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0][..],
        &[9, 0, 0, 0, 1, 1, 0, 0, 0, b'a', 1, 2, 3],
        &[6, 0, 0, 0, 2, 1, 0, 0, 0, b'b'],
    ]
    .concat();
    // `Holders`: the address 10.0.0.1, and what it has with a field of 4 bytes more.
    let holders = [
        &[19, 1, 0, 0, 0, 2, 4, 10, 0, 0, 1, 20, 0, 0, 0][..],
        &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9],
    ]
    .concat();
    let read = read(&later(1, &[&interest, &holders])).expect("readable");
    let texts: Vec<_> = read
        .into_iter()
        .map(|one| format!("{:?}", one.expect("known").message))
        .collect();
    assert_eq!(
        texts,
        [
            r#"Interest { token: 7, changes: [Add("a"), Remove("b")] }"#,
            "Holders([(Address(10.0.0.1), Holding { sessions: 1, bytes: 2 })])",
        ]
    );
}

/// A kind that may be skipped is, another is an error; what comes after it is read.
#[test]
fn kinds_of_a_later_version() {
    let batch = later(1, &[&[MAY_SKIP | 5, 1, 2], &[99, 1, 2], SETTLED]);
    let read = read(&batch).expect("readable");
    let [unknown, settled] = &read[..] else {
        panic!("{read:?}");
    };
    assert_eq!(unknown.as_ref().err(), Some(&DecodeError::Kind(99)));
    assert!(is_settled(&settled.as_ref().expect("known").message));
}

#[test]
fn variants_of_a_later_version_are_errors_of_their_message() {
    // A call of queues, an event of a connection, why one was closed, a change of interest.
    let call: &[u8] = &[17, 200, 1, 2];
    let event: &[u8] = &[2, 0, 0, 0, 0, 0, 0, 0, 0, 200];
    let closed = [&[2, 0, 0, 0, 0, 0, 0, 0, 0, 16, 200], &[0; 12][..]].concat();
    let change: &[u8] = &[9, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 200];
    let batch = later(1, &[call, event, &closed, change, SETTLED]);
    let read = read(&batch).expect("readable");
    assert_eq!(read.len(), 5);
    for unknown in &read[..4] {
        assert_eq!(unknown.as_ref().err(), Some(&DecodeError::Unknown));
    }
    assert!(read[4].is_ok());
}

#[test]
fn a_batch_that_asks_for_a_later_reader_is_refused() {
    assert_eq!((OLDEST, LEAST, VERSION), (1, 1, 1));
    let error = read(&later(2, &[SETTLED])).err();
    assert_eq!(error, Some(DecodeError::Version(2)));
    let mut old = later(0, &[SETTLED]);
    old[0] = 0;
    assert_eq!(read(&old).err(), Some(DecodeError::Version(0)));
}
