//! What is kept of a session besides what it has.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_base::{Instant, Text};

use super::message::{encode_message, rest_as_message};
use super::{DecodeError, Reader, put_blob, put_text};
use crate::{SessionRecord, StoredWill};

/// 1 had no owner. 3 has options; a record without them is written as version 2.
const SESSION_VERSION: u8 = 3;
const SESSION_VERSION_PLAIN: u8 = 2;

const DISCONNECTED: u8 = 1 << 0;
const WILL: u8 = 1 << 1;
const USER_NAME: u8 = 1 << 2;
const WILL_EXPIRY: u8 = 1 << 3;
const OWNER: u8 = 1 << 4;
const OPTIONS: u8 = 1 << 5;

/// Appends a session record.
pub fn encode_record(record: &SessionRecord, out: &mut Vec<u8>) {
    let SessionRecord {
        client_id,
        version: protocol_level,
        expiry_interval_secs,
        disconnected_at,
        will,
        user_name,
        owner,
        options,
    } = record;
    let mut flags = 0;
    if disconnected_at.is_some() {
        flags |= DISCONNECTED;
    }
    if user_name.is_some() {
        flags |= USER_NAME;
    }
    if !owner.is_empty() {
        flags |= OWNER;
    }
    let version = match options.is_empty() {
        true => SESSION_VERSION_PLAIN,
        false => SESSION_VERSION,
    };
    if !options.is_empty() {
        flags |= OPTIONS;
    }
    if let Some(will) = will {
        flags |= WILL;
        if will.message_expiry_secs.is_some() {
            flags |= WILL_EXPIRY;
        }
    }
    out.extend_from_slice(&[version, *protocol_level, flags]);
    out.extend_from_slice(&expiry_interval_secs.to_le_bytes());
    let at = disconnected_at.map_or(0, Instant::as_micros);
    out.extend_from_slice(&at.to_le_bytes());
    put_text(out, client_id);
    if let Some(name) = user_name {
        put_text(out, name);
    }
    if !owner.is_empty() {
        put_text(out, owner);
    }
    if !options.is_empty() {
        put_blob(out, options);
    }
    if let Some(will) = will {
        encode_will(will, out);
    }
}

fn encode_will(will: &StoredWill, out: &mut Vec<u8>) {
    let StoredWill {
        message,
        delay_secs,
        message_expiry_secs,
    } = will;
    out.extend_from_slice(&delay_secs.to_le_bytes());
    let expiry = message_expiry_secs.unwrap_or(0);
    out.extend_from_slice(&expiry.to_le_bytes());
    encode_message(message, out);
}

/// Reads a session record that takes all of `bytes`.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode_record(bytes: &[u8]) -> Result<SessionRecord, DecodeError> {
    rest_as_record(Reader::new(bytes))
}

/// Reads a session record that takes all that is left.
pub(super) fn rest_as_record(mut r: Reader<'_>) -> Result<SessionRecord, DecodeError> {
    if !(1..=SESSION_VERSION).contains(&r.u8()?) {
        return Err(DecodeError::Version);
    }
    let version = r.u8()?;
    let flags = r.u8()?;
    let expiry_interval_secs = r.u32()?;
    let at = r.instant()?;
    let client_id = r.text()?;
    let user_name = if flags & USER_NAME != 0 {
        Some(r.text()?)
    } else {
        None
    };
    let owner = if flags & OWNER != 0 {
        r.text()?
    } else {
        Text::new()
    };
    let options = match flags & OPTIONS {
        0 => Box::default(),
        _ => r.blob()?.into(),
    };
    let will = if flags & WILL != 0 {
        let delay_secs = r.u32()?;
        let expiry = r.u32()?;
        Some(StoredWill {
            message: rest_as_message(r)?,
            delay_secs,
            message_expiry_secs: (flags & WILL_EXPIRY != 0).then_some(expiry),
        })
    } else {
        None
    };
    Ok(SessionRecord {
        client_id,
        version,
        expiry_interval_secs,
        disconnected_at: (flags & DISCONNECTED != 0).then_some(at),
        will,
        user_name,
        owner,
        options,
    })
}
