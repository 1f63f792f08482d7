//! What shards say to each other as bytes, for shards of different processes. Within a
//! process nothing is encoded.
//!
//! ```text
//! batch   = version (1), least (1), sent (8), message*
//! message = length of what follows (4), from (2), to (2), kind (1), fields
//!         | length (4), from (2), to (2), again (1), where in the batch (4)
//! ```
//!
//! The second form says what a message before it in the batch says, to another shard: what
//! several shards of one process are to have is there once.
//!
//! Numbers are little endian. [`begin`] and [`encode`] write, [`Recent::encode`] refers to
//! what is there, [`Batch`] reads. What store
//! operations, messages and session records are as bytes, `dunlin-store` says: here and in
//! its logs they are the same. Every table of the files beside this one is the format and
//! both directions of it; a field or a variant that is not in its table does not compile.
//!
//! # Versions
//! `version` is that of the writer, `least` the lowest whose readers can make sense of the
//! batch. A release reads versions from [`OLDEST`] on, and later ones whose `least` is not
//! above [`VERSION`]. What a later version may add, with `least` as it was:
//!
//! - fields at the end of a message, of a struct in a table of `growing!`, or of a variant
//!   that is in a list: they have a length, and a reader passes over what it does not know;
//! - kinds with the bit [`MAY_SKIP`], for what a shard may do without: a reader that does
//!   not know one passes over it.
//!
//! Any other kind or variant that the reader does not know is an error of its message, as
//! the sender counts on an answer or an effect: the others of the batch can still be read.
//! A writer of a new version does not send them while a node of the old one is there, or
//! raises `least`. A reader of version N reads N - 1: where a message ends before a field
//! of N begins, the field has the value that it has in `dunlin-broker` when nothing is said.
//! No number is used twice, and what is there is neither moved nor given another meaning.
//!
//! # Times
//! A time is that of the sender's clock; `sent` is what that says as the batch begins. The
//! reader says what its own clock says to that moment, and every time of the batch is read
//! as one of its own clock, as far from that moment as it was: it makes no difference by
//! how much two clocks differ. Where it takes the time at which the batch arrived, times
//! are later by as long as it was under way; it may subtract an estimate of that. Messages
//! that are gathered as PUBLISH packets have what is left of their time.
//!
//! # Bad input
//! Nothing is allocated from a number before its bytes are there: a list takes at most
//! [`limits::LIST_MEMORY_FACTOR_MAX`] times its bytes, and operations of the store are at
//! most as many as one batch of the store may have. Nothing recurses. A payload is a
//! slice of the received buffer where that is at most eight times as large, so that a
//! message which is kept does not keep much else.

mod again;
mod bus;
pub mod limits;
mod messages;
mod orders;
mod queues;
#[cfg(test)]
mod tests;
mod transport;
mod wire;

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Instant, ShardId};
use dunlin_store::codec::DecodeError as ValueError;
use dunlin_store::codec::{Reader, Times};

use crate::io::BusMessage;
pub use again::{Added, Recent};
use limits::MESSAGE_BYTES_MAX;
use wire::{Wire, Writer};

/// The version that is written.
pub const VERSION: u8 = 1;

/// The oldest version that is read.
pub const OLDEST: u8 = 1;

/// The lowest version whose readers can make sense of what is written.
pub const LEAST: u8 = 1;

/// Set in kinds that a reader passes over if it does not know them.
pub const MAY_SKIP: u8 = 0x80;

/// Of a message that says what one before it says.
const AGAIN: u8 = 0x7f;

/// Bytes before the first message.
const HEAD_BYTES: usize = 10;

/// Why a message has no form as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// It, or a part of it, is over one of [`limits`].
    #[error("a bus message is over a limit")]
    TooLarge,
}

/// Why bytes are no messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A value is none.
    #[error("a bus message is damaged: {0}")]
    Value(#[from] ValueError),
    /// A release wrote the batch whose batches this one does not read.
    #[error("a batch of bus messages has version {0}, which this release does not read")]
    Version(u8),
    /// A newer release sent a kind of message that this one does not know.
    #[error("a bus message has kind {0}, which this release does not know")]
    Kind(u8),
    /// A newer release sent a variant that this one does not know.
    #[error("a bus message says something that this release does not know")]
    Unknown,
    /// Over one of [`limits`].
    #[error("a bus message is over a limit")]
    TooLarge,
    /// Rules of a client that are none.
    #[error("a bus message has rules that are none")]
    Rules,
    /// A filter of a link that is none.
    #[error("a bus message has a filter that is none")]
    Filter,
}

/// A number stands for no value.
const NO_VALUE: DecodeError = DecodeError::Value(ValueError::BadNumber);

/// A message, from whom and for whom.
#[derive(Debug)]
pub struct Addressed {
    /// The shard that says it.
    pub from: ShardId,
    /// The shard that is meant.
    pub to: ShardId,
    /// What it says.
    pub message: BusMessage,
}

/// Begins a batch; `sent` is what the clock says.
pub fn begin(sent: Instant, out: &mut Vec<u8>) {
    out.extend_from_slice(&[VERSION, LEAST]);
    out.extend_from_slice(&sent.as_micros().to_le_bytes());
}

/// Adds a message to a batch.
///
/// # Errors
/// [`EncodeError`]; nothing is added then.
pub fn encode(
    from: ShardId,
    to: ShardId,
    message: &BusMessage,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let before = out.len();
    let mut w = Writer {
        out,
        too_large: false,
    };
    w.nested(|w| {
        from.put(w);
        to.put(w);
        message.put(w);
    });
    let too_large = w.too_large || out.len().saturating_sub(before) > MESSAGE_BYTES_MAX;
    if too_large {
        out.truncate(before);
        return Err(EncodeError::TooLarge);
    }
    Ok(())
}

/// The messages of a batch, in their order. After an error in one message come the
/// others; after one in what separates them comes nothing more.
#[derive(Debug)]
pub struct Batch {
    bytes: Bytes,
    /// Where the next message begins.
    at: usize,
    times: Times,
    sent: Instant,
    /// Bytes of messages that others referred to.
    again: usize,
}

impl Batch {
    /// Reads the beginning of a batch. `now` is what the own clock says to the moment at
    /// which the batch was sent.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn open(bytes: Bytes, now: Instant) -> Result<Self, DecodeError> {
        let mut r = Reader::new(&bytes);
        let (version, least) = (r.u8()?, r.u8()?);
        if version < OLDEST || least > VERSION {
            return Err(DecodeError::Version(version));
        }
        let sent = Instant::from_micros(r.u64()?);
        Ok(Self {
            bytes,
            at: HEAD_BYTES,
            times: Times::new(sent, now),
            sent,
            again: 0,
        })
    }

    /// What the sender's clock said as the batch began.
    #[must_use]
    pub const fn sent(&self) -> Instant {
        self.sent
    }

    /// The next message; `None`: it is passed over.
    fn read(&mut self) -> Result<Option<Addressed>, DecodeError> {
        let begin = self.at;
        let mut r = Reader::shared(&self.bytes, self.times);
        r.take(begin)?;
        // What separates messages is read first: without it there is no next one.
        self.at = self.bytes.len();
        let mut message = r.nested()?;
        if message.rest().len() > MESSAGE_BYTES_MAX {
            return Err(DecodeError::TooLarge);
        }
        self.at = self.bytes.len().saturating_sub(r.rest().len());
        let r = &mut message;
        let (from, to) = (ShardId::take(r)?, ShardId::take(r)?);
        let kind = r.rest().first().copied().ok_or(ValueError::Truncated)?;
        if kind == AGAIN {
            r.u8()?;
            let at = r.u32()?;
            let message = again::read(self, begin, at as usize)?;
            return Ok(Some(Addressed { from, to, message }));
        }
        if !BusMessage::NUMBERS.contains(&kind) {
            return match kind & MAY_SKIP {
                0 => Err(DecodeError::Kind(kind)),
                _ => Ok(None),
            };
        }
        let message = BusMessage::take(r)?;
        Ok(Some(Addressed { from, to, message }))
    }
}

impl Iterator for Batch {
    type Item = Result<Addressed, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.bytes.len() {
            if let Some(read) = self.read().transpose() {
                return Some(read);
            }
        }
        None
    }
}
