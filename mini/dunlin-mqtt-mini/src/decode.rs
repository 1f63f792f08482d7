//! Reads the packets of a broker. Steps over all properties but the limits of
//! CONNACK. Knows no stream.

use crate::error::Malformed;

/// What the broker allows, from its CONNACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages that may wait for an acknowledgement.
    pub quota: u16,
    /// Bytes that a packet may have.
    pub packet: u32,
    /// The highest quality of service.
    pub qos: u8,
    /// Seconds, if the broker sets them instead of the client.
    pub keep_alive: Option<u16>,
    /// The highest topic alias.
    pub aliases: u16,
}

impl Limits {
    /// Those of a broker that says nothing.
    pub const NONE: Self = Self {
        quota: u16::MAX,
        packet: u32::MAX,
        qos: 2,
        keep_alive: None,
        aliases: 0,
    };
}

/// A packet of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incoming<'a> {
    /// The broker accepts with a reason below 128.
    ConnAck {
        /// Whether it has kept the session.
        session: bool,
        /// Reason code.
        reason: u8,
        /// What it allows.
        limits: Limits,
    },
    /// A message.
    Publish {
        /// Where it was published.
        topic: &'a [u8],
        /// What was published.
        payload: &'a [u8],
        /// Quality of service, 0 to 2.
        qos: u8,
        /// Packet identifier, zero with QoS 0.
        id: u16,
        /// Whether the broker had kept it.
        retain: bool,
    },
    /// PUBACK, PUBREC, PUBREL or PUBCOMP.
    Answer {
        /// The packet type: 4 to 7.
        kind: u8,
        /// Packet identifier of the message.
        id: u16,
        /// Reason code; from 128 on the broker refuses it.
        reason: u8,
    },
    /// A subscription was made, or not.
    SubAck {
        /// The packet identifier of the request.
        id: u16,
        /// Reason code of the first filter.
        reason: u8,
    },
    /// A subscription has ended, or not.
    UnsubAck {
        /// The packet identifier of the request.
        id: u16,
        /// Reason code of the first filter.
        reason: u8,
    },
    /// The answer to a ping.
    Pong,
    /// The broker ends the connection.
    Disconnect {
        /// Reason code.
        reason: u8,
    },
}

/// The first packet of `bytes` with its length, or what is known of a length
/// while it is not complete. A packet of more than `most` bytes is not waited
/// for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// More bytes are needed.
    Partly,
    /// The packet can never be complete.
    TooLong,
    /// All of it.
    Packet(Incoming<'a>, usize),
}

/// The first packet of `bytes` and its length; nothing if it is not complete.
///
/// # Errors
///
/// [`Malformed`], after which the connection is of no use.
pub fn decode(bytes: &[u8]) -> Result<Option<(Incoming<'_>, usize)>, Malformed> {
    match find(bytes, usize::MAX)? {
        Found::Packet(packet, len) => Ok(Some((packet, len))),
        Found::Partly | Found::TooLong => Ok(None),
    }
}

/// See [`Found`].
#[inline(never)]
pub(crate) fn find(bytes: &[u8], most: usize) -> Result<Found<'_>, Malformed> {
    let mut rest = bytes;
    let Some(first) = byte(&mut rest) else {
        return Ok(Found::Partly);
    };
    let Some(len) = varint(&mut rest)? else {
        return Ok(Found::Partly);
    };
    let all = bytes.len() - rest.len() + len;
    if all > most {
        return Ok(Found::TooLong);
    }
    let Some(body) = rest.get(..len) else {
        return Ok(Found::Partly);
    };
    let packet = packet(first, body).ok_or(Malformed)?;
    Ok(Found::Packet(packet, all))
}

fn packet(first: u8, mut body: &[u8]) -> Option<Incoming<'_>> {
    let body = &mut body;
    let packet = match first {
        0x20 => {
            let session = byte(body)?;
            let reason = byte(body)?;
            Incoming::ConnAck {
                session: session == 1,
                reason,
                limits: limits(body).filter(|_| session < 2)?,
            }
        }
        0x30..=0x3f => {
            let qos = first >> 1 & 3;
            let len = word(body)?;
            let topic = take(body, usize::from(len))?;
            let id = if qos == 0 { 0 } else { word(body)? };
            properties(body)?;
            // No alias was allowed for an empty topic, there is no QoS 3, and
            // no message with the identifier zero.
            if topic.is_empty() || qos == 3 || (qos > 0) == (id == 0) {
                return None;
            }
            Incoming::Publish {
                topic,
                payload: core::mem::take(body),
                qos,
                id,
                retain: first & 1 != 0,
            }
        }
        0x40 | 0x50 | 0x62 | 0x70 => {
            let id = word(body)?;
            let reason = last(body)?;
            Incoming::Answer {
                kind: first >> 4,
                id,
                reason,
            }
        }
        0x90 | 0xb0 => {
            let id = word(body)?;
            properties(body)?;
            let reason = byte(body)?;
            if first == 0x90 {
                Incoming::SubAck { id, reason }
            } else {
                Incoming::UnsubAck { id, reason }
            }
        }
        0xd0 => Incoming::Pong,
        0xe0 => Incoming::Disconnect {
            reason: last(body)?,
        },
        _ => return None,
    };
    body.is_empty().then_some(packet)
}

/// A reason with properties, both of which may be left out.
fn last(body: &mut &[u8]) -> Option<u8> {
    if body.is_empty() {
        return Some(0);
    }
    let reason = byte(body)?;
    if !body.is_empty() {
        properties(body)?;
    }
    Some(reason)
}

/// The properties of CONNACK (section 3.2.2.3).
fn limits(body: &mut &[u8]) -> Option<Limits> {
    let mut properties = properties(body)?;
    let from = &mut properties;
    let mut limits = Limits::NONE;
    while !from.is_empty() {
        match byte(from)? {
            0x13 => limits.keep_alive = Some(word(from)?),
            0x21 => limits.quota = Some(word(from)?).filter(|&quota| quota > 0)?,
            0x24 => limits.qos = Some(byte(from)?).filter(|&qos| qos < 2)?,
            0x27 => {
                let packet = u32::from_be_bytes(*take(from, 4)?.first_chunk()?);
                limits.packet = Some(packet).filter(|&packet| packet > 0)?;
            }
            0x25 | 0x28..=0x2a => {
                byte(from)?;
            }
            0x22 => limits.aliases = word(from)?,
            0x11 => {
                take(from, 4)?;
            }
            id @ (0x12 | 0x15 | 0x16 | 0x1a | 0x1c | 0x1f | 0x26) => {
                // A user property is a pair.
                for _ in 0..=u8::from(id == 0x26) {
                    let len = word(from)?;
                    take(from, usize::from(len))?;
                }
            }
            _ => return None,
        }
    }
    Some(limits)
}

#[inline(never)]
fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(n)?;
    *bytes = tail;
    Some(head)
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    take(bytes, 1)?.first().copied()
}

fn word(bytes: &mut &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*take(bytes, 2)?.first_chunk()?))
}

/// A Variable Byte Integer; nothing if it is cut off.
fn varint(bytes: &mut &[u8]) -> Result<Option<usize>, Malformed> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let Some(next) = byte(bytes) else {
            return Ok(None);
        };
        value |= usize::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(Some(value));
        }
    }
    Err(Malformed)
}

/// The properties of a packet.
fn properties<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = varint(bytes).ok()??;
    take(bytes, len)
}
