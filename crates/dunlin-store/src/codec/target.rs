//! A session that gets a message, and how.

use alloc::vec::Vec;

use super::{DecodeError, RETAIN, Reader, decode_qos, put_blob, put_text};
use crate::{SessionKey, Target};

/// 2 has, for its targets, attempts that failed and priorities; without them,
/// `log` and `marks` are written as version 1.
const TARGETS_VERSION: u8 = 3;
const TARGETS_VERSION_2: u8 = 2;
const TARGETS_VERSION_PLAIN: u8 = 1;

const IDENTIFIERS: u8 = 1 << 3;
const SHARED: u8 = 1 << 4;
const FAILED: u8 = 1 << 5;
const LEVEL: u8 = 1 << 6;
/// Further flags of a target follow.
const MORE: u8 = 1 << 7;

const NOT_BEFORE: u8 = 1 << 0;
const ADDED: u8 = 1 << 1;

/// Appends one target.
pub fn encode_target(target: &Target, out: &mut Vec<u8>) {
    let Target {
        session,
        qos,
        retain,
        identifiers,
        shared,
        failed,
        priority,
        not_before,
        added,
    } = target;
    let more = more_of(target);
    let mut flags = *qos as u8;
    for (flag, set) in [
        (RETAIN, *retain),
        (IDENTIFIERS, !identifiers.is_empty()),
        (SHARED, shared.is_some()),
        (FAILED, *failed > 0),
        (LEVEL, priority.is_some()),
        (MORE, more != 0),
    ] {
        flags |= if set { flag } else { 0 };
    }
    out.extend_from_slice(&session.0.to_le_bytes());
    out.push(flags);
    if !identifiers.is_empty() {
        let count = u32::try_from(identifiers.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        for identifier in identifiers {
            out.extend_from_slice(&identifier.to_le_bytes());
        }
    }
    if let Some(shared) = shared {
        put_text(out, shared);
    }
    if *failed > 0 {
        out.extend_from_slice(&failed.to_le_bytes());
    }
    out.extend(*priority);
    if more != 0 {
        out.push(more);
    }
    if let Some(at) = not_before {
        out.extend_from_slice(&at.as_micros().to_le_bytes());
    }
    if let Some(added) = added {
        put_blob(out, added);
    }
}

/// The further flags of a target.
fn more_of(target: &Target) -> u8 {
    let not_before = target.not_before.map_or(0, |_| NOT_BEFORE);
    not_before | target.added.as_ref().map_or(0, |_| ADDED)
}

/// The version in which these targets are written.
#[must_use]
pub fn targets_version<'a>(targets: impl Iterator<Item = &'a Target>) -> u8 {
    let versions = targets.map(|target| match more_of(target) {
        0 if target.failed == 0 && target.priority.is_none() => TARGETS_VERSION_PLAIN,
        0 => TARGETS_VERSION_2,
        _ => TARGETS_VERSION,
    });
    versions.max().unwrap_or(TARGETS_VERSION_PLAIN)
}

/// Reads the version of a value of `log` or `marks`. A target of an earlier version
/// has none of the flags of a later one.
///
/// # Errors
/// See [`DecodeError`].
pub fn read_targets_version(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    match r.u8()? {
        TARGETS_VERSION_PLAIN..=TARGETS_VERSION => Ok(()),
        _ => Err(DecodeError::Version),
    }
}

/// Reads one target.
///
/// # Errors
/// See [`DecodeError`].
pub fn read_target(r: &mut Reader<'_>) -> Result<Target, DecodeError> {
    let session = SessionKey(r.u64()?);
    let flags = r.u8()?;
    let mut target = Target {
        retain: flags & RETAIN != 0,
        ..Target::new(session, decode_qos(flags)?)
    };
    if flags & IDENTIFIERS != 0 {
        for _ in 0..r.u32()? {
            target.identifiers.push(r.u32()?);
        }
    }
    if flags & SHARED != 0 {
        target.shared = Some(r.text()?);
    }
    if flags & FAILED != 0 {
        target.failed = r.array().map(u16::from_le_bytes)?;
    }
    if flags & LEVEL != 0 {
        target.priority = Some(r.u8()?);
    }
    let more = if flags & MORE != 0 { r.u8()? } else { 0 };
    if more & NOT_BEFORE != 0 {
        target.not_before = Some(r.instant()?);
    }
    if more & ADDED != 0 {
        target.added = Some(r.blob()?.into());
    }
    Ok(target)
}
