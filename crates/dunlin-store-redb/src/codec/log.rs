//! Who gets a message: values of `log` and `marks`.

use std::sync::Arc;

use dunlin_base::{Instant, Message};
use dunlin_store::Target;
use dunlin_store::codec::{
    DecodeError, Reader, decode_message, encode_message, encode_target, message_head, read_target,
    read_targets_version, targets_version,
};

/// Appends a value of `marks`: acknowledged, or one target more.
pub(crate) fn encode_mark(target: Option<&Target>, out: &mut Vec<u8>) {
    out.push(targets_version(target.into_iter()));
    if let Some(target) = target {
        encode_target(target, out);
    }
}

/// Reads a value of `marks`.
pub(crate) fn decode_mark(bytes: &[u8]) -> Result<Option<Target>, DecodeError> {
    let mut r = Reader::new(bytes);
    read_targets_version(&mut r)?;
    match r.rest() {
        [] => Ok(None),
        _ => read_target(&mut r).map(Some),
    }
}

/// Appends a value of `log`.
pub(crate) fn encode_log(message: &Message, targets: &[&Target], out: &mut Vec<u8>) {
    out.push(targets_version(targets.iter().copied()));
    let cost = u32::try_from(message.cost()).unwrap_or(u32::MAX);
    out.extend_from_slice(&cost.to_le_bytes());
    let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for target in targets {
        encode_target(target, out);
    }
    encode_message(message, out);
}

/// What recovery needs of a value of `log`.
pub(crate) struct LogHead {
    pub(crate) cost: usize,
    pub(crate) expires: Option<Instant>,
    pub(crate) targets: Vec<Target>,
}

/// Reads all but the message itself.
pub(crate) fn decode_log_head(bytes: &[u8]) -> Result<LogHead, DecodeError> {
    let mut r = Reader::new(bytes);
    read_targets_version(&mut r)?;
    let cost = r.u32()? as usize;
    let mut targets = Vec::new();
    for _ in 0..r.u32()? {
        targets.push(read_target(&mut r)?);
    }
    let (_, _, expires) = message_head(&mut r)?;
    Ok(LogHead {
        cost,
        expires,
        targets,
    })
}

/// Reads the message of a value of `log`.
pub(crate) fn decode_log_message(bytes: &[u8]) -> Result<Arc<Message>, DecodeError> {
    let mut r = Reader::new(bytes);
    read_targets_version(&mut r)?;
    r.u32()?;
    for _ in 0..r.u32()? {
        read_target(&mut r)?;
    }
    decode_message(r.rest()).map(Arc::new)
}
