//! CONNECT (MQTT 5.0 section 3.1). Whether a client identifier is acceptable,
//! an empty one included, is for the session engine to say.

use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};

use dunlin_base::topic::TopicError;
use dunlin_base::{ByteSink, QoS};

use crate::property::properties;
use crate::reader::Reader;
use crate::writer::{packet_len, prefixed_len, put_header, put_prefixed, put_u16, varint_len};
use crate::{DecodeError, EncodeError, PacketType, UserProperties, Version, Will, WillProperties};

const PROTOCOL_NAME: &[u8] = b"MQTT";

/// The bit of the protocol level by which bridges make themselves known.
const BRIDGE: u8 = 0x80;

/// Bits of the Connect Flags (section 3.1.2.3).
mod flag {
    pub(super) const RESERVED: u8 = 0x01;
    pub(super) const CLEAN_START: u8 = 0x02;
    pub(super) const WILL: u8 = 0x04;
    pub(super) const WILL_QOS_SHIFT: u32 = 3;
    pub(super) const WILL_RETAIN: u8 = 0x20;
    pub(super) const PASSWORD: u8 = 0x40;
    pub(super) const USERNAME: u8 = 0x80;
}

/// The client opens a session.
///
/// Its own `version` decides how it is encoded, not the parameter.
#[derive(Clone, Default, PartialEq)]
pub struct Connect<'a> {
    /// Version of the protocol on this connection.
    pub version: Version,
    /// The client is a bridge, as mosquitto's say in 3.1.1 by the highest bit
    /// of the protocol level: what it publishes does not come back to it, and
    /// what it gets keeps its RETAIN flag.
    pub bridge: bool,
    /// Discard what is left of an earlier session; Clean Session in 3.1.1.
    pub clean_start: bool,
    /// Longest silence of the client in seconds; 0: no limit.
    pub keep_alive: u16,
    /// Client identifier; may be empty, to which the session engine has the
    /// rules [MQTT-3.1.3-6].
    pub client_id: &'a str,
    /// Will message.
    pub will: Option<Will<'a>>,
    /// User name.
    pub username: Option<&'a str>,
    /// Password; in 3.1.1 only with a user name.
    pub password: Option<&'a [u8]>,
    /// Properties; 3.1.1 has none and leaves them out.
    pub properties: ConnectProperties<'a>,
}

properties! {
    /// Properties of CONNECT (section 3.1.2.11).
    pub struct ConnectProperties<'a> {
        /// Seconds that the session outlives the connection.
        session_expiry_interval: u32 = SessionExpiryInterval,
        /// QoS 1 and 2 messages that the client takes at a time.
        receive_maximum: NonZeroU16 = ReceiveMaximum,
        /// Largest packet that the client takes.
        maximum_packet_size: NonZeroU32 = MaximumPacketSize,
        /// Highest topic alias that the client takes.
        topic_alias_maximum: u16 = TopicAliasMaximum,
        /// Ask for Response Information in the CONNACK.
        request_response_information: bool = RequestResponseInformation,
        /// `false`: reason strings and user properties only where needed.
        request_problem_information: bool = RequestProblemInformation,
        /// Method of extended authentication.
        authentication_method: &'a str = AuthenticationMethod,
        /// Data of extended authentication.
        authentication_data: &'a [u8] = AuthenticationData,
        ;
        /// Names and values of the application.
        user_properties: UserProperties<'a> = UserProperty
    }
}

impl fmt::Debug for Connect<'_> {
    /// Like the derived one, but a password stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("version", &self.version)
            .field("bridge", &self.bridge)
            .field("clean_start", &self.clean_start)
            .field("keep_alive", &self.keep_alive)
            .field("client_id", &self.client_id)
            .field("will", &self.will)
            .field("username", &self.username)
            .field("password", &self.password.map(|_| "..."))
            .field("properties", &self.properties)
            .finish()
    }
}

/// The lengths that encoding needs, each computed once.
#[derive(Clone, Copy)]
struct Lengths {
    properties: usize,
    will_properties: usize,
    remaining: usize,
}

impl<'a> Connect<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        if r.binary()? != PROTOCOL_NAME {
            return Err(DecodeError::ProtocolName);
        }
        let level = r.u8()?;
        let bridge = level == BRIDGE | Version::V311 as u8;
        let version = match level {
            4 => Version::V311,
            _ if bridge => Version::V311,
            5 => Version::V5,
            other => return Err(DecodeError::ProtocolVersion(other)),
        };
        let flags = r.u8()?;
        check_flags(flags, version)?;
        let keep_alive = r.u16()?;
        let properties = match version {
            Version::V311 => ConnectProperties::default(),
            Version::V5 => ConnectProperties::decode(&mut r)?,
        };
        if properties.authentication_data.is_some() && properties.authentication_method.is_none() {
            return Err(DecodeError::AuthenticationDataWithoutMethod);
        }
        let client_id = r.text()?;
        let will = if flags & flag::WILL == 0 {
            None
        } else {
            Some(decode_will(&mut r, flags, version)?)
        };
        let username = match flags & flag::USERNAME {
            0 => None,
            _ => Some(r.text()?),
        };
        let password = match flags & flag::PASSWORD {
            0 => None,
            _ => Some(r.binary()?),
        };
        r.finish()?;
        Ok(Self {
            version,
            bridge,
            clean_start: flags & flag::CLEAN_START != 0,
            keep_alive,
            client_id,
            will,
            username,
            password,
            properties,
        })
    }

    fn flags(&self) -> u8 {
        let bit = |set: bool, flag: u8| if set { flag } else { 0 };
        bit(self.clean_start, flag::CLEAN_START)
            | self.will.as_ref().map_or(0, |will| {
                flag::WILL
                    | ((will.qos as u8) << flag::WILL_QOS_SHIFT)
                    | bit(will.retain, flag::WILL_RETAIN)
            })
            | bit(self.password.is_some(), flag::PASSWORD)
            | bit(self.username.is_some(), flag::USERNAME)
    }

    fn lengths(&self) -> Result<Lengths, EncodeError> {
        let is_v5 = self.version == Version::V5;
        if !is_v5 && self.password.is_some() && self.username.is_none() {
            return Err(EncodeError::NotInVersion);
        }
        let mut lengths = Lengths {
            properties: 0,
            will_properties: 0,
            remaining: 2 + PROTOCOL_NAME.len() + 1 + 1 + 2,
        };
        if is_v5 {
            lengths.properties = self.properties.len()?;
            lengths.remaining += varint_len(lengths.properties) + lengths.properties;
        }
        lengths.remaining += prefixed_len(self.client_id.as_bytes())?;
        if let Some(will) = &self.will {
            if is_v5 {
                lengths.will_properties = will.properties.len()?;
                lengths.remaining += varint_len(lengths.will_properties) + lengths.will_properties;
            }
            lengths.remaining += prefixed_len(will.topic.as_bytes())?;
            lengths.remaining += prefixed_len(will.payload)?;
        }
        for field in [self.username.map(str::as_bytes), self.password] {
            lengths.remaining += field.map_or(Ok(0), prefixed_len)?;
        }
        packet_len(lengths.remaining)?;
        Ok(lengths)
    }

    /// Bytes that encoding takes.
    ///
    /// # Errors
    /// As [`crate::Packet::encoded_len`].
    pub fn encoded_len(&self) -> Result<usize, EncodeError> {
        packet_len(self.lengths()?.remaining)
    }

    /// Writes the packet; where only some packets are ever sent, less code
    /// than [`crate::Packet::encode`].
    ///
    /// # Errors
    /// As [`crate::Packet::encode`].
    pub fn encode(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        let lengths = self.lengths()?;
        put_header(out, PacketType::Connect, lengths.remaining)?;
        put_prefixed(out, PROTOCOL_NAME)?;
        let bridge = if self.bridge { BRIDGE } else { 0 };
        out.put(&[self.version as u8 | bridge, self.flags()])?;
        put_u16(out, self.keep_alive)?;
        let is_v5 = self.version == Version::V5;
        if is_v5 {
            self.properties.encode(lengths.properties, out)?;
        }
        put_prefixed(out, self.client_id.as_bytes())?;
        if let Some(will) = &self.will {
            if is_v5 {
                will.properties.encode(lengths.will_properties, out)?;
            }
            put_prefixed(out, will.topic.as_bytes())?;
            put_prefixed(out, will.payload)?;
        }
        for field in [self.username.map(str::as_bytes), self.password] {
            field.map_or(Ok(()), |field| put_prefixed(out, field))?;
        }
        Ok(())
    }
}

/// Checks the Connect Flags among themselves (section 3.1.2.3).
fn check_flags(flags: u8, version: Version) -> Result<(), DecodeError> {
    if flags & flag::RESERVED != 0 {
        return Err(DecodeError::ConnectFlags);
    }
    let will_qos = (flags >> flag::WILL_QOS_SHIFT) & 0b11;
    if flags & flag::WILL == 0 && (will_qos != 0 || flags & flag::WILL_RETAIN != 0) {
        return Err(DecodeError::WillFlags);
    }
    if will_qos == 3 {
        return Err(DecodeError::QosReserved);
    }
    // 5.0 allows a password alone; 3.1.1 does not (its [MQTT-3.1.2-22]).
    let credentials = flags & (flag::USERNAME | flag::PASSWORD);
    if version == Version::V311 && credentials == flag::PASSWORD {
        return Err(DecodeError::PasswordWithoutUsername);
    }
    Ok(())
}

fn decode_will<'a>(
    r: &mut Reader<'a>,
    flags: u8,
    version: Version,
) -> Result<Will<'a>, DecodeError> {
    let qos = (flags >> flag::WILL_QOS_SHIFT) & 0b11;
    let properties = match version {
        Version::V311 => WillProperties::default(),
        Version::V5 => WillProperties::decode(r)?,
    };
    let topic = r.topic_name(DecodeError::TopicName)?;
    if topic.is_empty() {
        return Err(DecodeError::TopicName(TopicError::Empty));
    }
    Ok(Will {
        qos: QoS::from_u8(qos).ok_or(DecodeError::QosReserved)?,
        retain: flags & flag::WILL_RETAIN != 0,
        topic,
        payload: r.binary()?,
        properties,
    })
}
