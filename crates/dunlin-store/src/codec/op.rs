//! Operations, one after the other.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, MessageExtra};

use super::message::rest_as_message;
use super::record::rest_as_record;
use super::{
    DecodeError, Reader, encode_message, encode_record, encode_target, put_blob, put_text,
    read_target,
};
use crate::limits::TARGETS_MAX;
use crate::{InflightState, Seq, SessionKey, StoreOp};

/// Version of a list of operations.
const OPS_VERSION: u8 = 1;

const PUT_SESSION: u8 = 1;
const DELETE_SESSION: u8 = 2;
const PUT_SUBSCRIPTION: u8 = 3;
const DELETE_SUBSCRIPTION: u8 = 4;
const ENQUEUE: u8 = 5;
const DEQUEUE: u8 = 6;
const PUT_INFLIGHT: u8 = 7;
const DELETE_INFLIGHT: u8 = 8;
const PUT_INBOUND: u8 = 9;
const DELETE_INBOUND: u8 = 10;
const PUT_RETAINED: u8 = 11;
const DELETE_RETAINED: u8 = 12;
const PUT_META: u8 = 13;
const DELETE_META: u8 = 14;

/// Appends operations, with their version and number.
pub fn encode_ops(ops: &[StoreOp], out: &mut Vec<u8>) {
    out.push(OPS_VERSION);
    let count = u32::try_from(ops.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for op in ops {
        encode_op(op, out);
    }
}

/// Reads what [`encode_ops`] wrote.
///
/// # Errors
/// See [`DecodeError`]; [`DecodeError::Version`] for one of a newer release.
pub fn decode_ops(r: &mut Reader<'_>) -> Result<Vec<StoreOp>, DecodeError> {
    r.version(OPS_VERSION)?;
    let count = r.u32()?;
    let mut ops = Vec::new();
    for _ in 0..count {
        ops.push(decode_op(r)?);
    }
    Ok(ops)
}

/// Appends one operation.
pub fn encode_op(op: &StoreOp, out: &mut Vec<u8>) {
    match op {
        StoreOp::PutSession { key, record } => {
            head(PUT_SESSION, *key, out);
            nested(out, |out| encode_record(record, out));
        }
        StoreOp::DeleteSession { key } => head(DELETE_SESSION, *key, out),
        StoreOp::PutSubscription {
            key,
            filter,
            options,
            identifier,
        } => {
            head(PUT_SUBSCRIPTION, *key, out);
            put_text(out, filter);
            out.extend_from_slice(&[*options, u8::from(identifier.is_some())]);
            out.extend_from_slice(&identifier.unwrap_or(0).to_le_bytes());
        }
        StoreOp::DeleteSubscription { key, filter } => {
            head(DELETE_SUBSCRIPTION, *key, out);
            put_text(out, filter);
        }
        StoreOp::Enqueue {
            seq,
            message,
            targets,
        } => {
            out.push(ENQUEUE);
            out.extend_from_slice(&seq.0.to_le_bytes());
            let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&count.to_le_bytes());
            for target in targets {
                encode_target(target, out);
            }
            put_message(message, out);
        }
        StoreOp::Dequeue { seq, session } => {
            head(DEQUEUE, *session, out);
            out.extend_from_slice(&seq.0.to_le_bytes());
        }
        StoreOp::PutRetained { message } => {
            out.push(PUT_RETAINED);
            put_message(message, out);
        }
        StoreOp::DeleteRetained { topic } => {
            out.push(DELETE_RETAINED);
            put_text(out, topic);
        }
        StoreOp::PutMeta { key, value } => {
            out.push(PUT_META);
            put_text(out, key);
            put_blob(out, value);
        }
        StoreOp::DeleteMeta { key } => {
            out.push(DELETE_META);
            put_text(out, key);
        }
        StoreOp::PutInflight { .. }
        | StoreOp::DeleteInflight { .. }
        | StoreOp::PutInbound { .. }
        | StoreOp::DeleteInbound { .. } => encode_packet(op, out),
    }
}

/// Appends an operation on a packet identifier.
fn encode_packet(op: &StoreOp, out: &mut Vec<u8>) {
    match op {
        StoreOp::PutInflight {
            session,
            packet_id,
            seq,
            state,
        } => {
            packet(PUT_INFLIGHT, *session, *packet_id, out);
            out.extend_from_slice(&seq.0.to_le_bytes());
            out.push(match state {
                InflightState::Published => 0,
                InflightState::Released => 1,
            });
        }
        StoreOp::DeleteInflight { session, packet_id } => {
            packet(DELETE_INFLIGHT, *session, *packet_id, out);
        }
        StoreOp::PutInbound { session, packet_id } => {
            packet(PUT_INBOUND, *session, *packet_id, out);
        }
        StoreOp::DeleteInbound { session, packet_id } => {
            packet(DELETE_INBOUND, *session, *packet_id, out);
        }
        _ => {}
    }
}

fn packet(tag: u8, session: SessionKey, packet_id: u16, out: &mut Vec<u8>) {
    head(tag, session, out);
    out.extend_from_slice(&packet_id.to_le_bytes());
}

fn head(tag: u8, session: SessionKey, out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&session.0.to_le_bytes());
}

/// Appends what `write` appends, with its length before it.
fn nested(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let place = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let len = out.len().saturating_sub(place).saturating_sub(4);
    let len = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    if let Some(field) = out.get_mut(place..place.saturating_add(4)) {
        field.copy_from_slice(&len);
    }
}

/// Appends all of a message: with its length, after the time until which it is kept
/// back.
pub fn put_message(message: &Message, out: &mut Vec<u8>) {
    let kept_back = message.extra.as_ref().and_then(|extra| extra.deliver_at);
    out.push(u8::from(kept_back.is_some()));
    if let Some(at) = kept_back {
        out.extend_from_slice(&at.as_micros().to_le_bytes());
    }
    nested(out, |out| encode_message(message, out));
}

/// Reads what [`put_message`] wrote.
///
/// # Errors
/// See [`DecodeError`].
pub fn read_message(r: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let kept_back = match r.u8()? {
        0 => None,
        1 => Some(r.instant()?),
        _ => return Err(DecodeError::BadNumber),
    };
    let mut message = rest_as_message(r.nested()?)?;
    if kept_back.is_some() {
        let extra = message
            .extra
            .get_or_insert_with(|| Box::new(MessageExtra::default()));
        extra.deliver_at = kept_back;
    }
    Ok(message)
}

/// Reads one operation.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode_op(r: &mut Reader<'_>) -> Result<StoreOp, DecodeError> {
    let tag = r.u8()?;
    Ok(match tag {
        ENQUEUE => {
            let seq = Seq(r.u64()?);
            let count = r.u32()? as usize;
            if count > TARGETS_MAX {
                return Err(DecodeError::BadNumber);
            }
            let mut targets = Vec::new();
            for _ in 0..count {
                targets.push(read_target(r)?);
            }
            StoreOp::Enqueue {
                seq,
                targets,
                message: Arc::new(read_message(r)?),
            }
        }
        PUT_RETAINED => StoreOp::PutRetained {
            message: Arc::new(read_message(r)?),
        },
        DELETE_RETAINED => StoreOp::DeleteRetained { topic: r.text()? },
        PUT_META => StoreOp::PutMeta {
            key: r.text()?,
            value: r.bytes()?,
        },
        DELETE_META => StoreOp::DeleteMeta { key: r.text()? },
        PUT_SESSION..=PUT_INBOUND | DELETE_INBOUND => {
            let session = SessionKey(r.u64()?);
            return decode_of_session(tag, session, r);
        }
        _ => return Err(DecodeError::Version),
    })
}

/// Reads an operation on one session.
fn decode_of_session(
    tag: u8,
    session: SessionKey,
    r: &mut Reader<'_>,
) -> Result<StoreOp, DecodeError> {
    let key = session;
    Ok(match tag {
        PUT_SESSION => StoreOp::PutSession {
            key,
            record: rest_as_record(r.nested()?)?,
        },
        DELETE_SESSION => StoreOp::DeleteSession { key },
        PUT_SUBSCRIPTION => {
            let filter = r.text()?;
            let (options, some, identifier) = (r.u8()?, r.u8()?, r.u32()?);
            StoreOp::PutSubscription {
                key,
                filter,
                options,
                identifier: match some {
                    0 => None,
                    1 => Some(identifier),
                    _ => return Err(DecodeError::BadNumber),
                },
            }
        }
        DELETE_SUBSCRIPTION => StoreOp::DeleteSubscription {
            key,
            filter: r.text()?,
        },
        DEQUEUE => StoreOp::Dequeue {
            seq: Seq(r.u64()?),
            session,
        },
        PUT_INFLIGHT => StoreOp::PutInflight {
            session,
            packet_id: r.u16()?,
            seq: Seq(r.u64()?),
            state: match r.u8()? {
                0 => InflightState::Published,
                1 => InflightState::Released,
                _ => return Err(DecodeError::BadNumber),
            },
        },
        DELETE_INFLIGHT => StoreOp::DeleteInflight {
            session,
            packet_id: r.u16()?,
        },
        PUT_INBOUND => StoreOp::PutInbound {
            session,
            packet_id: r.u16()?,
        },
        DELETE_INBOUND => StoreOp::DeleteInbound {
            session,
            packet_id: r.u16()?,
        },
        _ => return Err(DecodeError::Version),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Histories;

    /// Operations of many histories come back as they were.
    #[test]
    fn operations_come_back() {
        for seed in 0..50 {
            let mut history = Histories::new(seed);
            for _ in 0..30 {
                let ops = history.batch();
                let mut bytes = Vec::new();
                encode_ops(&ops, &mut bytes);
                let mut r = Reader::new(&bytes);
                assert_eq!(decode_ops(&mut r), Ok(ops));
                assert_eq!(r.rest(), &[]);
            }
        }
    }

    /// Every beginning of a list is refused, and none panics; nor does a changed byte.
    #[test]
    fn what_is_cut_off_or_altered_is_no_panic() {
        let mut history = Histories::new(7);
        let mut ops = Vec::new();
        while ops.len() < 40 {
            ops.extend(history.batch());
        }
        let mut bytes = Vec::new();
        encode_ops(&ops, &mut bytes);
        for len in 0..bytes.len() {
            let cut = bytes.get(..len).unwrap_or_default();
            assert!(decode_ops(&mut Reader::new(cut)).is_err(), "{len}");
        }
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 0xff;
            // It may still be a list; it is no panic.
            let _ = decode_ops(&mut Reader::new(&altered));
        }
    }

    /// A list of a newer release is refused by its version, and so is an operation
    /// that this one does not know.
    #[test]
    fn newer_versions_are_refused() {
        let newer = [OPS_VERSION + 1, 0, 0, 0, 0];
        assert_eq!(
            decode_ops(&mut Reader::new(&newer)),
            Err(DecodeError::Version)
        );
        let unknown = [OPS_VERSION, 1, 0, 0, 0, DELETE_META + 1];
        assert_eq!(
            decode_ops(&mut Reader::new(&unknown)),
            Err(DecodeError::Version)
        );
    }
}
