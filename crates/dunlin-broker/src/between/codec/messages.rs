//! Messages on their way, what is to be stored for them, and who wants them.

use alloc::vec::Vec;

use dunlin_base::Message;
use dunlin_queue::{Content, Delivery, Identifiers};
use dunlin_store::StoreOp;
use dunlin_store::codec::{Reader, decode_ops, encode_ops, put_message, read_message};
use dunlin_store::limits::BATCH_OPS_MAX;

use super::DecodeError;
use super::wire::{Wire, Writer, growing, variants};
use crate::io::{Forward, InterestChange, Manner, Missed, NotTaken, PassedOn, Preparation};
use crate::owners::pending::Passed;
use crate::owners::posts::{Post, Purpose};

/// As the store has it.
impl Wire for Message {
    fn put(&self, w: &mut Writer<'_>) {
        put_message(self, w.out);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(read_message(r)?)
    }
}

/// As the store has them.
fn put_ops(ops: &[StoreOp], w: &mut Writer<'_>) {
    w.too_large |= ops.len() > BATCH_OPS_MAX;
    encode_ops(ops, w.out);
}

fn take_ops(r: &mut Reader<'_>) -> Result<Vec<StoreOp>, DecodeError> {
    let mut ahead = r.clone();
    let (_version, count) = (ahead.u8()?, ahead.u32()?);
    match count as usize > BATCH_OPS_MAX {
        true => Err(DecodeError::TooLarge),
        false => Ok(decode_ops(r)?),
    }
}

impl Wire for Preparation {
    fn put(&self, w: &mut Writer<'_>) {
        let Self {
            ops,
            waits,
            refused,
            missed,
            dead,
        } = self;
        w.nested(|w| {
            put_ops(ops, w);
            waits.put(w);
            refused.put(w);
            missed.put(w);
            dead.put(w);
        });
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let r = &mut r.nested()?;
        Ok(Self {
            ops: take_ops(r)?,
            waits: Wire::take(r)?,
            refused: Wire::take(r)?,
            missed: Wire::take(r)?,
            dead: Wire::take(r)?,
        })
    }
}

impl Wire for Identifiers {
    fn put(&self, w: &mut Writer<'_>) {
        u32::put_all(self, w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        u32::take_all(r).map(Self::from_vec)
    }
}

impl Wire for PassedOn {
    fn put(&self, w: &mut Writer<'_>) {
        let Self(passed) = self;
        passed.put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Wire::take(r).map(Self)
    }
}

growing! {
    Forward {
        message,
        plain,
        shares,
        retain,
        queue,
        manner,
    }
    Missed { message, shares }
    Post { number, message, purpose }
    Purpose { plain, shares, retain }
    Passed {
        delivery,
        queue,
        old,
        ends,
        returned,
    }
    Delivery {
        content,
        seq,
        qos,
        retain,
        identifiers,
        share,
        stream,
        level,
        maybe_sent,
        failed,
        added,
    }
}

variants! {
    InterestChange {
        1 = Add(filter),
        2 = Remove(filter),
        3 = Share(share, members),
        4 = Queue(share, queue),
    }
    Manner {
        1 = Usual,
        2 = Lossy,
        3 = Transacted,
        4 = Dead,
    }
    NotTaken {
        1 = NotFound,
        2 = NoRoom,
        3 = NotStored,
        4 = Away,
    }
    Content {
        1 = Held(message),
        2 = Stored { cost, expires },
    }
}
