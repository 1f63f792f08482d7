//! Messages that say what another one of the same batch says, to another shard.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use dunlin_base::ShardId;
use dunlin_store::codec::DecodeError as ValueError;
use dunlin_store::codec::Reader;

use super::limits::{AGAIN_BYTES_MAX, AGAIN_FACTOR_MAX, RECENT_MAX};
use super::wire::Wire;
use super::{AGAIN, Batch, DecodeError, EncodeError, HEAD_BYTES, encode};
use crate::io::BusMessage;

/// Length, sender and receiver: what a message and one that refers to it do not share.
const OWN_BYTES: usize = 8;

/// Of what a message says, which a reference brings back: the shards are before it.
const ENDS_BYTES: usize = 4;

/// Whether a batch of so many bytes may refer to messages of `again` bytes in all.
const fn may_refer(again: usize, batch: usize) -> bool {
    again <= AGAIN_BYTES_MAX && again <= batch.saturating_mul(AGAIN_FACTOR_MAX)
}

/// Of one that refers to another.
const REFERENCE_BYTES: usize = OWN_BYTES + 5;

/// How a message was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// With all that it says.
    Whole,
    /// As a reference.
    Reference,
}

/// Where the messages are that were added to a batch last.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// Where the batch begins in its buffer.
    begin: usize,
    /// What messages say, from their kinds on; the newest at the end.
    places: VecDeque<Range<usize>>,
    /// Bytes of messages that others refer to, as the reader counts them.
    again: usize,
}

impl Recent {
    /// For a batch that begins there in its buffer.
    #[must_use]
    pub const fn new(begin: usize) -> Self {
        Self {
            begin,
            places: VecDeque::new(),
            again: 0,
        }
    }

    /// As [`encode`]; where it says what one of the last messages says, it refers to that.
    ///
    /// # Errors
    /// [`EncodeError`]; nothing is added then.
    pub fn encode(
        &mut self,
        from: ShardId,
        to: ShardId,
        message: &BusMessage,
        out: &mut Vec<u8>,
    ) -> Result<Added, EncodeError> {
        let before = out.len();
        encode(from, to, message, out)?;
        let says = before + OWN_BYTES..out.len();
        if says.len() <= REFERENCE_BYTES {
            return Ok(Added::Whole);
        }
        let is_same = |place: &&Range<usize>| {
            place.len() == says.len() && out.get((*place).clone()) == out.get(says.clone())
        };
        let found = self.places.iter().rev().find(is_same);
        let at = found.map(|place| place.start.saturating_sub(OWN_BYTES + self.begin));
        let again = self.again.saturating_add(says.len() + ENDS_BYTES);
        let at = at.filter(|_| may_refer(again, before.saturating_sub(self.begin)));
        if let Some(at) = at.and_then(|at| u32::try_from(at).ok()) {
            self.again = again;
            out.truncate(before);
            let len = (REFERENCE_BYTES - 4) as u32;
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&from.0.to_le_bytes());
            out.extend_from_slice(&to.0.to_le_bytes());
            out.push(AGAIN);
            out.extend_from_slice(&at.to_le_bytes());
            return Ok(Added::Reference);
        }
        if self.places.len() >= RECENT_MAX {
            self.places.pop_front();
        }
        self.places.push_back(says);
        Ok(Added::Whole)
    }
}

/// What a message at `begin` says that refers to the one at `at`.
pub(super) fn read(batch: &mut Batch, begin: usize, at: usize) -> Result<BusMessage, DecodeError> {
    // Only what came before: nothing refers to itself.
    if !(HEAD_BYTES..begin).contains(&at) {
        return Err(ValueError::BadNumber.into());
    }
    let mut r = Reader::shared(&batch.bytes, batch.times);
    r.take(at)?;
    let mut message = r.nested()?;
    let r = &mut message;
    batch.again = batch.again.saturating_add(r.rest().len());
    if !may_refer(batch.again, batch.bytes.len()) {
        return Err(DecodeError::TooLarge);
    }
    // Not those of the one that refers to it.
    ShardId::take(r)?;
    ShardId::take(r)?;
    let kind = r.rest().first().copied().ok_or(ValueError::Truncated)?;
    match BusMessage::NUMBERS.contains(&kind) {
        true => BusMessage::take(r),
        false => Err(DecodeError::Kind(kind)),
    }
}
