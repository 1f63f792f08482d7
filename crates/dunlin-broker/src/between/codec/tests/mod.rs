//! Batches that come back, batches of the format's first day, of later versions, and
//! bytes that are none.

mod again;
pub(super) mod any;
mod bad;
mod roundtrip;
mod vectors;
mod versions;

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Instant, ShardId};

use super::{Addressed, Batch, DecodeError, begin, encode};
use crate::io::BusMessage;

const SENT: Instant = Instant::from_micros(1_764_000_000_000_000);

/// A batch with one message.
fn batch(message: &BusMessage) -> Vec<u8> {
    let mut out = Vec::new();
    begin(SENT, &mut out);
    encode(ShardId(1), ShardId(513), message, &mut out).expect("within limits");
    out
}

/// The messages of a batch, by the sender's clock.
fn read(bytes: &[u8]) -> Result<Vec<Result<Addressed, DecodeError>>, DecodeError> {
    let batch = Batch::open(Bytes::copy_from_slice(bytes), SENT)?;
    Ok(batch.collect())
}

/// The only message of a batch.
fn one(bytes: &[u8]) -> BusMessage {
    let mut all = read(bytes).expect("a batch");
    let only = all.pop().expect("a message").expect("readable");
    assert!(all.is_empty());
    assert_eq!((only.from, only.to), (ShardId(1), ShardId(513)));
    only.message
}
