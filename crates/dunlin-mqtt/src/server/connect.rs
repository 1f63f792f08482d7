//! CONNECT and CONNACK: what a client is refused for before anything is asked,
//! and what it is answered.

use alloc::format;
use alloc::string::String;
use core::num::{NonZeroU16, NonZeroU32};

use bytes::Bytes;
use dunlin_base::Text;
use dunlin_base::limits::MQTT_PACKET_BYTES_MAX;
use dunlin_mqtt_codec::{
    ConnAck, ConnAckProperties, Connect, DecodeError, Packet, PacketType, ReasonCode, Version, peek,
};

use super::link::Terms;
use super::session::Lifetime;
use crate::streams::option;

/// A first packet that cannot be decoded: the version and the reason of the
/// CONNACK that it gets; `None`: the connection closes without one. A client
/// that speaks MQTT 5.0, or a version that is not known here, gets the reason.
#[must_use]
pub fn refusal(packet: &[u8], error: &DecodeError) -> Option<(Version, ReasonCode)> {
    /// Protocol name and its length, before the protocol level.
    const LEVEL_AT: usize = 6;
    let body = match peek(packet, u32::MAX) {
        Ok(Some(frame)) if frame.packet_type == PacketType::Connect => {
            packet.get(frame.header_len..).unwrap_or_default()
        }
        _ => &[],
    };
    let version = match (error, body.get(LEVEL_AT)) {
        (DecodeError::ProtocolName, _) | (_, None) => return None,
        //= mqtt5#[MQTT-3.1.2-2]
        (DecodeError::ProtocolVersion(..=4 | 0x80..=0x84), _) => Version::V311,
        (DecodeError::ProtocolVersion(_), _) => Version::V5,
        // 3.1.1 closes without a word [MQTT-3.1.4-1 there].
        (_, Some(4)) => return None,
        _ => Version::V5,
    };
    Some((version, error.reason()))
}

/// Whether the server has to choose the client identifier.
///
/// # Errors
///
/// The client may not leave it to the server.
pub const fn lacks_client_id(connect: &Connect<'_>) -> Result<bool, ReasonCode> {
    //= mqtt5#[MQTT-3.1.3-6]
    match (connect.client_id.is_empty(), connect.version) {
        (true, Version::V311) if !connect.clean_start => Err(ReasonCode::ClientIdentifierNotValid),
        (lacks, _) => Ok(lacks),
    }
}

/// Whether the session begins empty and ends with its connection. CONNECT
/// decides: an expiry of zero cannot be made longer later (MQTT 5.0, section
/// 3.14.2.2.2).
#[must_use]
pub fn ends_with_connection(connect: &Connect<'_>, session_expiry_secs_max: u32) -> bool {
    connect.clean_start && Lifetime::asked(connect, session_expiry_secs_max) == 0
}

/// What the server says of itself in each CONNACK.
#[derive(Clone, Copy, Debug)]
pub struct Announced {
    /// Receive Maximum.
    pub receive_maximum: u16,
    /// Maximum Packet Size.
    pub packet_bytes_max: u32,
    /// Topic Alias Maximum.
    pub topic_alias_maximum: u16,
    /// Data streams that a client may have, for those that ask.
    pub data_streams_max: usize,
}

/// A CONNECT that was accepted, as far as its CONNACK needs it.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// Session Present.
    pub session_present: bool,
    /// Assigned Client Identifier.
    pub assigned: Option<Text>,
    /// Server Keep Alive.
    pub server_keep_alive: Option<u16>,
    /// Session Expiry Interval, if it differs.
    pub session_expiry: Option<u32>,
    /// Authentication Method.
    pub auth_method: Option<Text>,
    /// Authentication Data.
    pub auth_data: Option<Bytes>,
}

impl Accepted {
    /// What follows from a CONNECT, with the expiry that its session gets.
    #[must_use]
    pub fn of(connect: &Connect<'_>, expiry_secs: u32) -> Self {
        let asked = connect.properties.session_expiry_interval.unwrap_or(0);
        let differs = connect.version == Version::V5 && asked != expiry_secs;
        Self {
            session_expiry: differs.then_some(expiry_secs),
            auth_method: connect.properties.authentication_method.map(Text::from),
            ..Self::default()
        }
    }

    /// Gives CONNACK to `send`.
    pub fn connack<R>(
        &self,
        terms: &Terms,
        announced: &Announced,
        send: impl FnOnce(&Packet<'_>) -> R,
    ) -> R {
        let streams = match terms.asked_for_streams {
            true => format!("{}", announced.data_streams_max),
            false => String::new(),
        };
        let answer = [(option::DATA_STREAMS, streams.as_str())];
        let answers = usize::from(terms.asked_for_streams);
        // The largest that there is needs no word.
        let limited = announced.packet_bytes_max < MQTT_PACKET_BYTES_MAX;
        let aliases = announced.topic_alias_maximum;
        let properties = ConnAckProperties {
            user_properties: answer.get(..answers).unwrap_or_default().into(),
            session_expiry_interval: self.session_expiry,
            receive_maximum: NonZeroU16::new(announced.receive_maximum),
            maximum_packet_size: NonZeroU32::new(announced.packet_bytes_max).filter(|_| limited),
            assigned_client_identifier: self.assigned.as_deref(),
            topic_alias_maximum: (aliases > 0).then_some(aliases),
            server_keep_alive: self.server_keep_alive,
            authentication_method: self.auth_method.as_deref(),
            authentication_data: self.auth_data.as_deref(),
            ..ConnAckProperties::default()
        };
        send(&Packet::ConnAck(ConnAck {
            session_present: self.session_present,
            reason: ReasonCode::Success,
            properties,
        }))
    }
}

/// CONNACK with an error.
#[must_use]
pub fn refused(reason: ReasonCode) -> Packet<'static> {
    Packet::ConnAck(ConnAck {
        reason,
        ..ConnAck::default()
    })
}

/// CONNACK that names the server to use instead, in 5.0.
#[must_use]
pub fn redirected(server_reference: &str) -> Packet<'_> {
    Packet::ConnAck(ConnAck {
        reason: ReasonCode::UseAnotherServer,
        properties: ConnAckProperties {
            server_reference: Some(server_reference),
            ..ConnAckProperties::default()
        },
        ..ConnAck::default()
    })
}

/// The reason for a CONNACK that is closest to one for a DISCONNECT.
#[must_use]
pub const fn connack_reason(reason: ReasonCode) -> ReasonCode {
    match reason {
        ReasonCode::ServerShuttingDown => ReasonCode::ServerUnavailable,
        ReasonCode::AdministrativeAction => ReasonCode::NotAuthorized,
        // The authenticator or the store took too long.
        ReasonCode::KeepAliveTimeout => ReasonCode::ServerBusy,
        ReasonCode::SessionTakenOver | ReasonCode::ReceiveMaximumExceeded => {
            ReasonCode::UnspecifiedError
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use dunlin_mqtt_codec::decode;

    /// CONNECT with a protocol level and a byte of connect flags.
    fn packet(name: &[u8; 4], level: u8, flags: u8) -> Vec<u8> {
        let mut packet = alloc::vec![0x10, 12, 0, 4];
        packet.extend_from_slice(name);
        packet.extend_from_slice(&[level, flags, 0, 0, 0, 0]);
        packet
    }

    #[test]
    fn who_speaks_mqtt_5_or_an_unknown_version_gets_the_reason() {
        //= mqtt5#[MQTT-3.1.2-2] type=test
        let version = ReasonCode::UnsupportedProtocolVersion;
        let malformed = ReasonCode::MalformedPacket;
        for (name, level, flags, want) in [
            (b"MQTT", 3, 0, Some((Version::V311, version))),
            (b"MQTT", 6, 0, Some((Version::V5, version))),
            (b"MQTT", 5, 1, Some((Version::V5, malformed))),
            (b"MQTT", 4, 1, None),
            (b"AMQP", 5, 0, None),
        ] {
            let packet = packet(name, level, flags);
            let error = decode(&packet, Version::V5).expect_err("cannot be decoded");
            assert_eq!(refusal(&packet, &error), want, "level {level} {error:?}");
        }
    }

    #[test]
    fn only_a_clean_session_of_3_1_1_may_lack_its_identifier() {
        //= mqtt5#[MQTT-3.1.3-6] type=test
        let lacks = |version, clean_start, client_id| {
            lacks_client_id(&Connect {
                version,
                clean_start,
                client_id,
                ..Connect::default()
            })
        };
        let invalid = Err(ReasonCode::ClientIdentifierNotValid);
        assert_eq!(lacks(Version::V311, false, ""), invalid);
        assert_eq!(lacks(Version::V311, true, ""), Ok(true));
        assert_eq!(lacks(Version::V5, false, ""), Ok(true));
        assert_eq!(lacks(Version::V5, false, "a"), Ok(false));
    }

    #[test]
    fn connack_says_what_differs_from_what_was_asked() {
        let connect = Connect::default();
        let mut accepted = Accepted::of(&connect, 0);
        accepted.server_keep_alive = Some(60);
        let announced = Announced {
            receive_maximum: 20,
            packet_bytes_max: 1000,
            topic_alias_maximum: 0,
            data_streams_max: 7,
        };
        let mut terms = Terms::default();
        let said = |accepted: &Accepted, terms: &Terms| {
            accepted.connack(terms, &announced, |packet| {
                let Packet::ConnAck(ack) = packet else {
                    panic!("CONNACK");
                };
                let streams = ack.properties.user_properties.iter().next();
                (
                    ack.properties.session_expiry_interval,
                    ack.properties.maximum_packet_size.map(NonZeroU32::get),
                    streams.map(|(_, value)| String::from(value)),
                )
            })
        };
        assert_eq!(said(&accepted, &terms), (None, Some(1000), None));
        terms.asked_for_streams = true;
        accepted = Accepted::of(&connect, 9);
        let streams = Some(String::from("7"));
        assert_eq!(said(&accepted, &terms), (Some(9), Some(1000), streams));
    }

    #[test]
    fn reasons_of_disconnect_become_reasons_of_connack() {
        for (reason, want) in [
            (
                ReasonCode::ServerShuttingDown,
                ReasonCode::ServerUnavailable,
            ),
            (ReasonCode::KeepAliveTimeout, ReasonCode::ServerBusy),
            (ReasonCode::SessionTakenOver, ReasonCode::UnspecifiedError),
            (ReasonCode::NotAuthorized, ReasonCode::NotAuthorized),
        ] {
            assert_eq!(connack_reason(reason), want);
        }
    }
}
