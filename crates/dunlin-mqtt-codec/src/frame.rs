//! The fixed header (MQTT 5.0 section 2.1): what a packet is and how long,
//! before its body is buffered.

use crate::DecodeError;
use crate::reader::varint;

/// Version of the protocol; the number is the protocol level in CONNECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    /// MQTT 3.1.1.
    V311 = 4,
    /// MQTT 5.0.
    #[default]
    V5 = 5,
}

/// The fifteen packets (section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// The client opens a session.
    Connect = 1,
    /// Answer to CONNECT.
    ConnAck = 2,
    /// An application message.
    Publish = 3,
    /// Answer to a QoS 1 message.
    PubAck = 4,
    /// First answer to a QoS 2 message.
    PubRec = 5,
    /// Answer to PUBREC.
    PubRel = 6,
    /// Answer to PUBREL.
    PubComp = 7,
    /// The client subscribes.
    Subscribe = 8,
    /// Answer to SUBSCRIBE.
    SubAck = 9,
    /// The client unsubscribes.
    Unsubscribe = 10,
    /// Answer to UNSUBSCRIBE.
    UnsubAck = 11,
    /// Keep alive.
    PingReq = 12,
    /// Answer to PINGREQ.
    PingResp = 13,
    /// The end of a connection.
    Disconnect = 14,
    /// Extended authentication; 5.0 only.
    Auth = 15,
}

impl PacketType {
    /// The packet type with this number, if there is one.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Connect,
            2 => Self::ConnAck,
            3 => Self::Publish,
            4 => Self::PubAck,
            5 => Self::PubRec,
            6 => Self::PubRel,
            7 => Self::PubComp,
            8 => Self::Subscribe,
            9 => Self::SubAck,
            10 => Self::Unsubscribe,
            11 => Self::UnsubAck,
            12 => Self::PingReq,
            13 => Self::PingResp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            _ => return None,
        })
    }

    /// The first byte of such a packet, with the flags that section 2.1.3
    /// prescribes (those of PUBLISH are clear).
    pub(crate) const fn first_byte(self) -> u8 {
        let flags = match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        };
        ((self as u8) << 4) | flags
    }
}

/// A fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the packet is.
    pub packet_type: PacketType,
    /// The low four bits of the first byte.
    pub flags: u8,
    /// Bytes of the fixed header.
    pub header_len: usize,
    /// Bytes of the whole packet, fixed header included.
    pub total_len: usize,
}

/// Reads the fixed header at the start of `buf`.
///
/// `Ok(None)`: the header is not complete yet. `Ok(Some(_))` as soon as it is,
/// even if the body is not, so that a receiver knows how much to wait for and
/// refuses what is larger than `max_packet_bytes` before buffering it.
///
/// # Errors
/// Reserved packet type, wrong flags, a length that is not minimal or has more
/// than four bytes, or a packet larger than `max_packet_bytes`.
#[inline]
pub fn peek(buf: &[u8], max_packet_bytes: u32) -> Result<Option<Frame>, DecodeError> {
    let Some((&first, rest)) = buf.split_first() else {
        return Ok(None);
    };
    let packet_type = PacketType::from_u8(first >> 4).ok_or(DecodeError::ReservedPacketType)?;
    let flags = first & 0x0f;
    if packet_type == PacketType::Publish {
        // The QoS bits; the decoder of the body checks DUP with QoS 0.
        if flags & 0b0110 == 0b0110 {
            return Err(DecodeError::QosReserved);
        }
    } else if first != packet_type.first_byte() {
        return Err(DecodeError::FixedHeaderFlags);
    }
    let Some((remaining, varint_len)) = varint(rest)? else {
        return Ok(None);
    };
    let header_len = 1 + varint_len;
    let total_len = header_len + remaining as usize;
    if total_len > max_packet_bytes as usize {
        return Err(DecodeError::PacketTooLarge);
    }
    Ok(Some(Frame {
        packet_type,
        flags,
        header_len,
        total_len,
    }))
}
