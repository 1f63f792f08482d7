//! Any packet, and the way to and from bytes.

use dunlin_base::ByteSink;
use dunlin_base::limits::MQTT_PACKET_BYTES_MAX;

use crate::reader::Reader;
use crate::reason::allowed;
use crate::writer::{packet_len, put_header};
use crate::{
    Ack, Auth, ConnAck, Connect, DecodeError, Disconnect, EncodeError, Frame, PacketType, Publish,
    SubAck, Subscribe, UnsubAck, Unsubscribe, Version, peek,
};

/// A packet of MQTT 3.1.1 or 5.0.
#[derive(Clone, Debug, PartialEq)]
pub enum Packet<'a> {
    /// The client opens a session.
    Connect(Connect<'a>),
    /// Answer to CONNECT.
    ConnAck(ConnAck<'a>),
    /// An application message.
    Publish(Publish<'a>),
    /// Answer to a QoS 1 message.
    PubAck(Ack<'a>),
    /// First answer to a QoS 2 message.
    PubRec(Ack<'a>),
    /// Answer to PUBREC.
    PubRel(Ack<'a>),
    /// Answer to PUBREL.
    PubComp(Ack<'a>),
    /// The client subscribes.
    Subscribe(Subscribe<'a>),
    /// Answer to SUBSCRIBE.
    SubAck(SubAck<'a>),
    /// The client unsubscribes.
    Unsubscribe(Unsubscribe<'a>),
    /// Answer to UNSUBSCRIBE.
    UnsubAck(UnsubAck<'a>),
    /// Keep alive.
    PingReq,
    /// Answer to PINGREQ.
    PingResp,
    /// The end of a connection.
    Disconnect(Disconnect<'a>),
    /// Extended authentication; 5.0 only.
    Auth(Auth<'a>),
}

/// Decodes `packet`, which is exactly one packet, fixed header included.
///
/// CONNECT brings its own version and ignores `version`. Lists and strings
/// borrow from `packet` and are checked here, once.
///
/// # Errors
/// The first rule that the packet breaks.
pub fn decode(packet: &[u8], version: Version) -> Result<Packet<'_>, DecodeError> {
    decode_for::<true, true>(packet, version)
}

/// [`decode`] for a server: refuses what only a server sends.
///
/// # Errors
/// As [`decode`], and [`DecodeError::UnexpectedPacket`].
pub fn decode_from_client(packet: &[u8], version: Version) -> Result<Packet<'_>, DecodeError> {
    decode_for::<true, false>(packet, version)
}

/// [`decode`] for a client: refuses what only a client sends, and has none of
/// the code for it.
///
/// # Errors
/// As [`decode`], and [`DecodeError::UnexpectedPacket`].
pub fn decode_from_server(packet: &[u8], version: Version) -> Result<Packet<'_>, DecodeError> {
    decode_for::<false, true>(packet, version)
}

/// [`decode`] for PUBLISH, which is most of what comes, without the size of any
/// other packet; `None` if it is another one.
pub fn decode_publish(packet: &[u8], version: Version) -> Option<Result<Publish<'_>, DecodeError>> {
    if PacketType::from_u8(packet.first()? >> 4) != Some(PacketType::Publish) {
        return None;
    }
    Some(split(packet).and_then(|(frame, body)| Publish::decode(frame.flags, body, version)))
}

/// The fixed header of exactly one packet, and the rest.
#[inline]
fn split(packet: &[u8]) -> Result<(Frame, &[u8]), DecodeError> {
    let frame = peek(packet, MQTT_PACKET_BYTES_MAX)?.ok_or(DecodeError::Truncated)?;
    let mut r = Reader::new(packet);
    r.take(frame.header_len)?;
    let body = r.take(frame.total_len - frame.header_len)?;
    r.finish()?;
    Ok((frame, body))
}

#[inline]
fn decode_for<const CLIENT: bool, const SERVER: bool>(
    packet: &[u8],
    version: Version,
) -> Result<Packet<'_>, DecodeError> {
    let (frame, body) = split(packet)?;
    // `map` instead of `?` lets the compiler build the packet in place.
    match frame.packet_type {
        PacketType::Publish => Publish::decode(frame.flags, body, version).map(Packet::Publish),
        PacketType::PubAck => Ack::decode(body, version, allowed::puback).map(Packet::PubAck),
        PacketType::PubRec => Ack::decode(body, version, allowed::puback).map(Packet::PubRec),
        PacketType::PubRel => Ack::decode(body, version, allowed::pubrel).map(Packet::PubRel),
        PacketType::PubComp => Ack::decode(body, version, allowed::pubrel).map(Packet::PubComp),
        PacketType::Connect if CLIENT => Connect::decode(body).map(Packet::Connect),
        PacketType::ConnAck if SERVER => ConnAck::decode(body, version).map(Packet::ConnAck),
        PacketType::Subscribe if CLIENT => Subscribe::decode(body, version).map(Packet::Subscribe),
        PacketType::SubAck if SERVER => SubAck::decode(body, version).map(Packet::SubAck),
        PacketType::Unsubscribe if CLIENT => {
            Unsubscribe::decode(body, version).map(Packet::Unsubscribe)
        }
        PacketType::UnsubAck if SERVER => UnsubAck::decode(body, version).map(Packet::UnsubAck),
        PacketType::PingReq if CLIENT => decode_empty(body, Packet::PingReq),
        PacketType::PingResp if SERVER => decode_empty(body, Packet::PingResp),
        PacketType::Disconnect => Disconnect::decode(body, version).map(Packet::Disconnect),
        PacketType::Auth if version == Version::V311 => Err(DecodeError::ReservedPacketType),
        PacketType::Auth => Auth::decode(body).map(Packet::Auth),
        _ => Err(DecodeError::UnexpectedPacket),
    }
}

const fn decode_empty<'a>(body: &[u8], packet: Packet<'a>) -> Result<Packet<'a>, DecodeError> {
    if body.is_empty() {
        Ok(packet)
    } else {
        Err(DecodeError::TrailingBytes)
    }
}

impl Packet<'_> {
    /// What packet it is.
    #[must_use]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::ConnAck(_) => PacketType::ConnAck,
            Self::Publish(_) => PacketType::Publish,
            Self::PubAck(_) => PacketType::PubAck,
            Self::PubRec(_) => PacketType::PubRec,
            Self::PubRel(_) => PacketType::PubRel,
            Self::PubComp(_) => PacketType::PubComp,
            Self::Subscribe(_) => PacketType::Subscribe,
            Self::SubAck(_) => PacketType::SubAck,
            Self::Unsubscribe(_) => PacketType::Unsubscribe,
            Self::UnsubAck(_) => PacketType::UnsubAck,
            Self::PingReq => PacketType::PingReq,
            Self::PingResp => PacketType::PingResp,
            Self::Disconnect(_) => PacketType::Disconnect,
            Self::Auth(_) => PacketType::Auth,
        }
    }

    /// Bytes that [`Packet::encode`] writes.
    ///
    /// # Errors
    /// What [`Packet::encode`] would fail with for lack of anything but room.
    pub fn encoded_len(&self, version: Version) -> Result<usize, EncodeError> {
        match self {
            Self::Connect(packet) => packet.encoded_len(),
            Self::ConnAck(packet) => packet.encoded_len(version),
            Self::Publish(packet) => packet.encoded_len(version),
            Self::PubAck(packet)
            | Self::PubRec(packet)
            | Self::PubRel(packet)
            | Self::PubComp(packet) => packet.encoded_len(version),
            Self::Subscribe(packet) => packet.encoded_len(version),
            Self::SubAck(packet) => packet.encoded_len(version),
            Self::Unsubscribe(packet) => packet.encoded_len(version),
            Self::UnsubAck(packet) => packet.encoded_len(version),
            Self::PingReq | Self::PingResp => packet_len(0),
            Self::Disconnect(packet) => packet.encoded_len(version),
            Self::Auth(packet) => packet.encoded_len(version),
        }
    }

    /// Writes the packet. What the version does not have is left out where
    /// that loses nothing but detail (properties, reason codes of
    /// acknowledgements), and refused where the packet would mean something
    /// else. Topics, filters and forbidden characters are the caller's to check.
    ///
    /// # Errors
    /// A field or the packet is too long, something is not expressible, or the
    /// sink is full, which leaves a part of the packet in it; every other
    /// error is found before the first byte is written.
    pub fn encode(
        &self,
        version: Version,
        out: &mut (impl ByteSink + ?Sized),
    ) -> Result<(), EncodeError> {
        match self {
            Self::Connect(packet) => packet.encode(out),
            Self::ConnAck(packet) => packet.encode(version, out),
            Self::Publish(packet) => packet.encode(version, out),
            Self::PubAck(packet)
            | Self::PubRec(packet)
            | Self::PubRel(packet)
            | Self::PubComp(packet) => packet.encode(self.packet_type(), version, out),
            Self::Subscribe(packet) => packet.encode(version, out),
            Self::SubAck(packet) => packet.encode(version, out),
            Self::Unsubscribe(packet) => packet.encode(version, out),
            Self::UnsubAck(packet) => packet.encode(version, out),
            Self::PingReq | Self::PingResp => put_header(out, self.packet_type(), 0),
            Self::Disconnect(packet) => packet.encode(version, out),
            Self::Auth(packet) => packet.encode(version, out),
        }
    }
}
