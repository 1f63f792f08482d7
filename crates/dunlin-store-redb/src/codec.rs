//! Bytes of keys and values, as drawn in the crate's documentation. Knows
//! nothing of tables and transactions.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::{Encoded, Form, Instant, Message, MessageExtra, MessageProperties, QoS, Text};
use dunlin_store::{InflightState, Seq, SessionKey, SessionRecord, StoredWill, Target};

/// 2 has what other protocols know of it; a message without that is written as
/// version 1.
const MESSAGE_VERSION: u8 = 2;
const MESSAGE_VERSION_PLAIN: u8 = 1;
/// 2 has, for its targets, attempts that failed and priorities; without them,
/// `log` and `marks` are written as version 1.
const TARGETS_VERSION: u8 = 3;
const TARGETS_VERSION_2: u8 = 2;
const TARGETS_VERSION_PLAIN: u8 = 1;
const SUBSCRIPTION_VERSION: u8 = 1;
const INFLIGHT_VERSION: u8 = 1;
const INBOUND_VERSION: u8 = 1;
const META_VERSION: u8 = 1;
/// 1 had no owner. 3 has options; a record without them is written as version 2.
const SESSION_VERSION: u8 = 3;
const SESSION_VERSION_PLAIN: u8 = 2;

const QOS_BITS: u8 = 3;
const RETAIN: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 3;
const PROPERTIES: u8 = 1 << 4;

const PRIORITY: u8 = 1 << 0;
const CREATED: u8 = 1 << 1;
const ENCODED: u8 = 1 << 2;
/// The payload is a slice of the encoded message.
const WITHIN: u8 = 1 << 3;

const IDENTIFIERS: u8 = 1 << 3;
const SHARED: u8 = 1 << 4;
const FAILED: u8 = 1 << 5;
const LEVEL: u8 = 1 << 6;
/// Further flags of a target follow.
const MORE: u8 = 1 << 7;

const NOT_BEFORE: u8 = 1 << 0;
const ADDED: u8 = 1 << 1;

const CONTENT_TYPE: u8 = 1 << 2;
const RESPONSE_TOPIC: u8 = 1 << 3;
const CORRELATION: u8 = 1 << 4;

const DISCONNECTED: u8 = 1 << 0;
const WILL: u8 = 1 << 1;
const USER_NAME: u8 = 1 << 2;
const WILL_EXPIRY: u8 = 1 << 3;
const OWNER: u8 = 1 << 4;
const OPTIONS: u8 = 1 << 5;

/// Why stored bytes are not what this crate writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("a value ends early")]
    Truncated,
    #[error("a text is not UTF-8")]
    NotUtf8,
    #[error("a number stands for nothing")]
    BadNumber,
    #[error("a value has a version that this release does not know")]
    Version,
    #[error("the checksum is wrong")]
    Checksum,
}

/// Takes values off the front of shared bytes.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .rest
            .split_at_checked(len)
            .ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self
            .rest
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    fn version(&mut self, known: u8) -> Result<(), DecodeError> {
        if self.u8()? == known {
            Ok(())
        } else {
            Err(DecodeError::Version)
        }
    }

    fn blob(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn text(&mut self) -> Result<Text, DecodeError> {
        decode_text(self.blob()?)
    }
}

fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, text: &Text) {
    put_blob(out, text.as_bytes());
}

fn decode_qos(flags: u8) -> Result<QoS, DecodeError> {
    QoS::from_u8(flags & QOS_BITS).ok_or(DecodeError::BadNumber)
}

/// Bytes that must be text, copied.
pub(crate) fn decode_text(bytes: &[u8]) -> Result<Text, DecodeError> {
    let text = core::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)?;
    Ok(Text::from(text))
}

/// Appends a message.
pub(crate) fn encode_message(message: &Message, out: &mut Vec<u8>) {
    let mut flags = message.qos as u8;
    if message.retain {
        flags |= RETAIN;
    }
    if message.expires.is_some() {
        flags |= EXPIRES;
    }
    if message.properties.is_some() {
        flags |= PROPERTIES;
    }
    let version = match message.extra {
        Some(_) => MESSAGE_VERSION,
        None => MESSAGE_VERSION_PLAIN,
    };
    out.extend_from_slice(&[version, flags]);
    let expires = message.expires.map_or(0, Instant::as_micros);
    out.extend_from_slice(&expires.to_le_bytes());
    put_text(out, &message.topic);
    if let Some(properties) = &message.properties {
        encode_properties(properties, out);
    }
    if let Some(extra) = &message.extra
        && encode_extra(extra, &message.payload, out)
    {
        return;
    }
    out.extend_from_slice(&message.payload);
}

/// Whether the payload is within what was appended.
fn encode_extra(extra: &MessageExtra, payload: &Bytes, out: &mut Vec<u8>) -> bool {
    let encoded = extra.encoded.as_ref();
    let place = encoded.and_then(|encoded| encoded.offset_of(payload));
    let mut flags = 0;
    for (flag, set) in [
        (PRIORITY, extra.priority.is_some()),
        (CREATED, extra.created_ms.is_some()),
        (ENCODED, encoded.is_some()),
        (WITHIN, place.is_some()),
    ] {
        flags |= if set { flag } else { 0 };
    }
    out.push(flags);
    out.extend(extra.priority);
    if let Some(created) = extra.created_ms {
        out.extend_from_slice(&created.to_le_bytes());
    }
    if let Some(encoded) = encoded {
        out.push(encoded.form as u8);
        put_blob(out, &encoded.bytes);
    }
    if let Some(place) = place {
        for number in [place, payload.len()] {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    place.is_some()
}

fn encode_properties(properties: &MessageProperties, out: &mut Vec<u8>) {
    let mut flags = match properties.payload_is_utf8 {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    };
    let parts = [
        (
            CONTENT_TYPE,
            properties.content_type.as_ref().map(Text::bytes),
        ),
        (
            RESPONSE_TOPIC,
            properties.response_topic.as_ref().map(Text::bytes),
        ),
        (CORRELATION, properties.correlation_data.as_ref()),
    ];
    for (flag, part) in &parts {
        if part.is_some() {
            flags |= flag;
        }
    }
    out.push(flags);
    for part in parts.iter().filter_map(|(_, part)| *part) {
        put_blob(out, part);
    }
    let count = u32::try_from(properties.user_properties.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for (name, value) in &properties.user_properties {
        put_text(out, name);
        put_text(out, value);
    }
}

/// Reads a message that takes all of `bytes`.
pub(crate) fn decode_message(bytes: &[u8]) -> Result<Message, DecodeError> {
    let mut r = Reader { rest: bytes };
    let (version, flags, expires) = message_head(&mut r)?;
    let topic = r.text()?;
    let properties = if flags & PROPERTIES != 0 {
        Some(Box::new(decode_properties(&mut r)?))
    } else {
        None
    };
    let (extra, within) = match version {
        MESSAGE_VERSION => decode_extra(&mut r)?,
        _ => (None, None),
    };
    Ok(Message {
        topic,
        payload: within.unwrap_or_else(|| Bytes::copy_from_slice(r.rest)),
        qos: decode_qos(flags)?,
        retain: flags & RETAIN != 0,
        expires,
        properties,
        extra,
    })
}

/// Version, flags and expiry.
fn message_head(r: &mut Reader<'_>) -> Result<(u8, u8, Option<Instant>), DecodeError> {
    let version = r.u8()?;
    if !(MESSAGE_VERSION_PLAIN..=MESSAGE_VERSION).contains(&version) {
        return Err(DecodeError::Version);
    }
    let flags = r.u8()?;
    let expires = Instant::from_micros(r.u64()?);
    Ok((version, flags, (flags & EXPIRES != 0).then_some(expires)))
}

type Extra = (Option<Box<MessageExtra>>, Option<Bytes>);

/// What other protocols know of a message, and its payload if that is a slice of
/// its encoded form.
fn decode_extra(r: &mut Reader<'_>) -> Result<Extra, DecodeError> {
    let flags = r.u8()?;
    let mut extra = MessageExtra::default();
    if flags & PRIORITY != 0 {
        extra.priority = Some(r.u8()?);
    }
    if flags & CREATED != 0 {
        extra.created_ms = Some(r.array().map(i64::from_le_bytes)?);
    }
    let mut within = None;
    if flags & ENCODED != 0 {
        let form = Form::from_u8(r.u8()?).ok_or(DecodeError::BadNumber)?;
        let bytes = Bytes::copy_from_slice(r.blob()?);
        if flags & WITHIN != 0 {
            let (place, len) = (r.u32()? as usize, r.u32()? as usize);
            let end = place.checked_add(len).filter(|end| *end <= bytes.len());
            let end = end.ok_or(DecodeError::Truncated)?;
            within = Some(bytes.slice(place..end));
        }
        extra.encoded = Some(Encoded { form, bytes });
    }
    Ok((Some(Box::new(extra)), within))
}

fn decode_properties(r: &mut Reader<'_>) -> Result<MessageProperties, DecodeError> {
    let flags = r.u8()?;
    let mut properties = MessageProperties {
        payload_is_utf8: match flags & 3 {
            0 => None,
            1 => Some(false),
            2 => Some(true),
            _ => return Err(DecodeError::BadNumber),
        },
        ..MessageProperties::default()
    };
    if flags & CONTENT_TYPE != 0 {
        properties.content_type = Some(r.text()?);
    }
    if flags & RESPONSE_TOPIC != 0 {
        properties.response_topic = Some(r.text()?);
    }
    if flags & CORRELATION != 0 {
        properties.correlation_data = Some(Bytes::copy_from_slice(r.blob()?));
    }
    for _ in 0..r.u32()? {
        properties.user_properties.push((r.text()?, r.text()?));
    }
    Ok(properties)
}

/// Appends one target.
fn encode_target(target: &Target, out: &mut Vec<u8>) {
    let mut flags = target.qos as u8;
    if target.retain {
        flags |= RETAIN;
    }
    if !target.identifiers.is_empty() {
        flags |= IDENTIFIERS;
    }
    if target.shared.is_some() {
        flags |= SHARED;
    }
    if target.failed > 0 {
        flags |= FAILED;
    }
    if target.priority.is_some() {
        flags |= LEVEL;
    }
    let more = more_of(target);
    if more != 0 {
        flags |= MORE;
    }
    out.extend_from_slice(&target.session.0.to_le_bytes());
    out.push(flags);
    if !target.identifiers.is_empty() {
        let count = u32::try_from(target.identifiers.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        for identifier in &target.identifiers {
            out.extend_from_slice(&identifier.to_le_bytes());
        }
    }
    if let Some(shared) = &target.shared {
        put_text(out, shared);
    }
    if target.failed > 0 {
        out.extend_from_slice(&target.failed.to_le_bytes());
    }
    out.extend(target.priority);
    if more != 0 {
        out.push(more);
    }
    if let Some(at) = target.not_before {
        out.extend_from_slice(&at.as_micros().to_le_bytes());
    }
    if let Some(added) = &target.added {
        put_blob(out, added);
    }
}

/// The further flags of a target.
fn more_of(target: &Target) -> u8 {
    let not_before = target.not_before.map_or(0, |_| NOT_BEFORE);
    not_before | target.added.as_ref().map_or(0, |_| ADDED)
}

/// The version in which these targets are written.
fn targets_version<'a>(targets: impl Iterator<Item = &'a Target>) -> u8 {
    let versions = targets.map(|target| match more_of(target) {
        0 if target.failed == 0 && target.priority.is_none() => TARGETS_VERSION_PLAIN,
        0 => TARGETS_VERSION_2,
        _ => TARGETS_VERSION,
    });
    versions.max().unwrap_or(TARGETS_VERSION_PLAIN)
}

/// Reads the version of a value of `log` or `marks`. A target of an earlier version
/// has none of the flags of a later one.
fn read_targets_version(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    match r.u8()? {
        TARGETS_VERSION_PLAIN..=TARGETS_VERSION => Ok(()),
        _ => Err(DecodeError::Version),
    }
}

/// Appends a value of `marks`: acknowledged, or one target more.
pub(crate) fn encode_mark(target: Option<&Target>, out: &mut Vec<u8>) {
    out.push(targets_version(target.into_iter()));
    if let Some(target) = target {
        encode_target(target, out);
    }
}

/// Reads a value of `marks`.
pub(crate) fn decode_mark(bytes: &[u8]) -> Result<Option<Target>, DecodeError> {
    let mut r = Reader { rest: bytes };
    read_targets_version(&mut r)?;
    match r.rest {
        [] => Ok(None),
        _ => read_target(&mut r).map(Some),
    }
}

fn read_target(r: &mut Reader<'_>) -> Result<Target, DecodeError> {
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
        target.not_before = Some(Instant::from_micros(r.u64()?));
    }
    if more & ADDED != 0 {
        target.added = Some(r.blob()?.into());
    }
    Ok(target)
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
    let mut r = Reader { rest: bytes };
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
    let mut r = Reader { rest: bytes };
    read_targets_version(&mut r)?;
    r.u32()?;
    for _ in 0..r.u32()? {
        read_target(&mut r)?;
    }
    decode_message(r.rest).map(Arc::new)
}

/// Appends a session record.
pub(crate) fn encode_record(record: &SessionRecord, out: &mut Vec<u8>) {
    let mut flags = 0;
    if record.disconnected_at.is_some() {
        flags |= DISCONNECTED;
    }
    if record.user_name.is_some() {
        flags |= USER_NAME;
    }
    if !record.owner.is_empty() {
        flags |= OWNER;
    }
    let version = match record.options.is_empty() {
        true => SESSION_VERSION_PLAIN,
        false => SESSION_VERSION,
    };
    if !record.options.is_empty() {
        flags |= OPTIONS;
    }
    if let Some(will) = &record.will {
        flags |= WILL;
        if will.message_expiry_secs.is_some() {
            flags |= WILL_EXPIRY;
        }
    }
    out.extend_from_slice(&[version, record.version, flags]);
    out.extend_from_slice(&record.expiry_interval_secs.to_le_bytes());
    let at = record.disconnected_at.map_or(0, Instant::as_micros);
    out.extend_from_slice(&at.to_le_bytes());
    put_text(out, &record.client_id);
    if let Some(name) = &record.user_name {
        put_text(out, name);
    }
    if !record.owner.is_empty() {
        put_text(out, &record.owner);
    }
    if !record.options.is_empty() {
        put_blob(out, &record.options);
    }
    if let Some(will) = &record.will {
        out.extend_from_slice(&will.delay_secs.to_le_bytes());
        let expiry = will.message_expiry_secs.unwrap_or(0);
        out.extend_from_slice(&expiry.to_le_bytes());
        encode_message(&will.message, out);
    }
}

/// Reads a session record.
pub(crate) fn decode_record(bytes: &[u8]) -> Result<SessionRecord, DecodeError> {
    let mut r = Reader { rest: bytes };
    if !(1..=SESSION_VERSION).contains(&r.u8()?) {
        return Err(DecodeError::Version);
    }
    let version = r.u8()?;
    let flags = r.u8()?;
    let expiry_interval_secs = r.u32()?;
    let at = Instant::from_micros(r.u64()?);
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
            message: decode_message(r.rest)?,
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

/// Appends a value of `subscriptions`.
pub(crate) fn encode_subscription(options: u8, identifier: Option<u32>, out: &mut Vec<u8>) {
    let some = u8::from(identifier.is_some());
    out.extend_from_slice(&[SUBSCRIPTION_VERSION, options, some]);
    out.extend_from_slice(&identifier.unwrap_or(0).to_le_bytes());
}

/// Reads a value of `subscriptions`.
pub(crate) fn decode_subscription(bytes: &[u8]) -> Result<(u8, Option<u32>), DecodeError> {
    let mut r = Reader { rest: bytes };
    r.version(SUBSCRIPTION_VERSION)?;
    let (options, some, identifier) = (r.u8()?, r.u8()?, r.u32()?);
    Ok((options, (some != 0).then_some(identifier)))
}

/// Appends a value of `inflight`.
pub(crate) fn encode_inflight(seq: Seq, state: InflightState, out: &mut Vec<u8>) {
    out.push(INFLIGHT_VERSION);
    out.extend_from_slice(&seq.0.to_le_bytes());
    out.push(match state {
        InflightState::Published => 0,
        InflightState::Released => 1,
    });
}

/// Reads a value of `inflight`.
pub(crate) fn decode_inflight(bytes: &[u8]) -> Result<(Seq, InflightState), DecodeError> {
    let mut r = Reader { rest: bytes };
    r.version(INFLIGHT_VERSION)?;
    let seq = Seq(r.u64()?);
    let state = match r.u8()? {
        0 => InflightState::Published,
        1 => InflightState::Released,
        _ => return Err(DecodeError::BadNumber),
    };
    Ok((seq, state))
}

/// Appends a value of `inbound`.
pub(crate) fn encode_inbound(out: &mut Vec<u8>) {
    out.push(INBOUND_VERSION);
}

/// Reads a value of `inbound`.
pub(crate) fn decode_inbound(bytes: &[u8]) -> Result<(), DecodeError> {
    Reader { rest: bytes }.version(INBOUND_VERSION)
}

/// Appends a value of `meta`.
pub(crate) fn encode_meta(value: &[u8], out: &mut Vec<u8>) {
    out.push(META_VERSION);
    out.extend_from_slice(value);
}

/// Reads a value of `meta`.
pub(crate) fn decode_meta(bytes: &[u8]) -> Result<Bytes, DecodeError> {
    let mut r = Reader { rest: bytes };
    r.version(META_VERSION)?;
    Ok(Bytes::copy_from_slice(r.rest))
}

/// Key of `inflight` and `inbound`.
pub(crate) fn packet_key(session: u64, packet_id: u16) -> [u8; 10] {
    let [a, b, c, d, e, f, g, h] = session.to_be_bytes();
    let [i, j] = packet_id.to_be_bytes();
    [a, b, c, d, e, f, g, h, i, j]
}

/// Reads the bytes of a key of `inflight` and `inbound`.
pub(crate) fn decode_packet_key(key: &[u8]) -> Result<(u64, u16), DecodeError> {
    let key = key.try_into().map_err(|_| DecodeError::Truncated)?;
    Ok(split_packet_key(key))
}

/// Reads the bytes of a key of `sessions`.
pub(crate) fn decode_session_key(key: &[u8]) -> Result<SessionKey, DecodeError> {
    Reader { rest: key }.u64().map(SessionKey)
}

/// Splits a key of `inflight` and `inbound`.
pub(crate) fn split_packet_key(key: [u8; 10]) -> (u64, u16) {
    let [a, b, c, d, e, f, g, h, i, j] = key;
    (
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u16::from_be_bytes([i, j]),
    )
}

/// Key of `marks`.
pub(crate) fn mark_key(seq: u64, session: u64) -> [u8; 16] {
    ((u128::from(seq) << 64) | u128::from(session)).to_be_bytes()
}

/// Reads a key of `marks`.
pub(crate) fn split_mark_key(key: [u8; 16]) -> (u64, u64) {
    let both = u128::from_be_bytes(key);
    ((both >> 64) as u64, both as u64)
}

/// Key of `subscriptions`.
pub(crate) fn subscription_key(session: u64, filter: &Text) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + filter.as_bytes().len());
    key.extend_from_slice(&session.to_be_bytes());
    key.extend_from_slice(filter.as_bytes());
    key
}

/// Reads a key of `subscriptions`.
pub(crate) fn split_subscription_key(key: &[u8]) -> Result<(u64, Text), DecodeError> {
    let mut r = Reader { rest: key };
    let session = r.array().map(u64::from_be_bytes)?;
    Ok((session, decode_text(r.rest)?))
}

#[cfg(test)]
mod tests;
