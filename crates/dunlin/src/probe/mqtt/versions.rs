//! Versions of MQTT, and methods of enhanced authentication.

use std::time::Instant;

use dunlin_mqtt_codec::{Packet, ReasonCode, Version};

use super::{Login, millis};
use crate::probe::fault::Fault;
use crate::probe::wire::Wire;
use crate::probe::{Checked, Probe, Verdict};

/// Methods of enhanced authentication that are tried: those that a server answers
/// before it needs to know the client.
const METHODS: [&str; 3] = ["SCRAM-SHA-256", "SCRAM-SHA-1", "SCRAM-SHA-512"];

/// A first message of SCRAM (RFC 5802 section 7) of a user that there is not.
const SCRAM_FIRST: &[u8] = b"n,,n=dunlin-test,r=ZHVubGluLXRlc3Q";

pub(super) fn v5(probe: &mut Probe, until: Instant) -> Checked {
    match version(probe, until, Version::V5) {
        // A server of 3.1.1 refuses in its own version.
        Err(Fault::Malformed(_)) => Ok(Verdict::no("CONNACK is not one of MQTT 5.0")),
        checked => checked,
    }
}

pub(super) fn v311(probe: &mut Probe, until: Instant) -> Checked {
    version(probe, until, Version::V311)
}

fn version(probe: &mut Probe, until: Instant, version: Version) -> Checked {
    let id = probe.client_id();
    let login = Login {
        id: &id,
        ..Login::default()
    };
    let begun = Instant::now();
    let (wire, granted) = probe.enter_with(version, &login, until)?;
    let took = begun.elapsed();
    wire.disconnect();
    probe.version.get_or_insert(version);
    if version == Version::V5 {
        probe.granted = Some(granted);
    }
    Ok(Verdict::yes(format!("CONNACK after {}", millis(took))))
}

/// MQTT 3.1, which our codec does not speak.
pub(super) fn v31(probe: &mut Probe, until: Instant) -> Checked {
    /// Fixed header and return code.
    const CONNACK_BYTES: usize = 4;
    let id = probe.client_id();
    let mut wire = Wire::dial(&probe.config(), Version::V311, until)?;
    wire.send_bytes(&connect_31(&id, probe.user(), probe.password()));
    let mut got = Vec::new();
    while got.len() < CONNACK_BYTES {
        got.extend(wire.bytes()?);
    }
    let verdict = match got.as_slice() {
        [0x20, 2, _, 0, ..] => Verdict::yes("accepted"),
        [0x20, 2, _, code, ..] => match ReasonCode::from_connack_v3_code(*code) {
            Some(ReasonCode::UnsupportedProtocolVersion) | None => {
                Verdict::no(format!("refused with return code {code}"))
            }
            Some(reason) => return Err(Fault::Refused(reason, None)),
        },
        _ => Verdict::no("the answer is no CONNACK of MQTT 3.1"),
    };
    wire.disconnect();
    Ok(verdict)
}

/// CONNECT of MQTT 3.1, whose strings all fit a short packet or are left out.
fn connect_31(id: &str, user: Option<&str>, password: Option<&str>) -> Vec<u8> {
    let mut body = b"\0\x06MQIsdp\x03".to_vec();
    let user = user.filter(|user| user.len() < 40);
    let password = password.filter(|password| user.is_some() && password.len() < 40);
    let flags = 2 | u8::from(user.is_some()) << 7 | u8::from(password.is_some()) << 6;
    body.extend([flags, 0, 60]);
    for text in [Some(id), user, password].into_iter().flatten() {
        let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
        body.extend(len.to_be_bytes());
        body.extend(text.as_bytes());
    }
    let len = u8::try_from(body.len()).unwrap_or(u8::MAX);
    let mut packet = vec![0x10, len];
    packet.append(&mut body);
    packet
}

/// Which methods the server goes on with.
pub(super) fn methods(probe: &mut Probe, until: Instant) -> Checked {
    let mut offered = Vec::new();
    for method in METHODS {
        let id = probe.client_id();
        let login = Login {
            id: &id,
            method: Some((method, SCRAM_FIRST)),
            ..Login::default()
        };
        let mut wire = Wire::dial(&probe.config(), Version::V5, until)?;
        probe.send_connect(&mut wire, Version::V5, &login)?;
        let answer = wire.wait_for(|_, packet| match packet {
            Packet::Auth(auth) => Some(auth.reason),
            Packet::ConnAck(connack) => Some(connack.reason),
            _ => None,
        });
        wire.abandon();
        match answer {
            Ok(ReasonCode::ContinueAuthentication) => offered.push(method),
            Ok(reason) => {
                let refused = Fault::Refused(reason, None);
                if refused.is_denial() {
                    return Err(refused);
                }
            }
            Err(fault) if fault.is_answer() => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(match offered.is_empty() {
        true => Verdict::no(format!("none of {}", METHODS.join(", "))),
        false => Verdict::yes(offered.join(", ")).value(offered),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_of_mqtt_31_has_its_lengths() {
        let packet = connect_31("abc", Some("u"), Some("pw"));
        assert_eq!(usize::from(packet[1]), packet.len() - 2);
        assert_eq!(&packet[..11], b"\x10\x18\0\x06MQIsdp\x03");
        assert_eq!(packet[11], 0b1100_0010);
        assert!(packet.ends_with(b"\0\x03abc\0\x01u\0\x02pw"));
        let long = "x".repeat(60);
        let packet = connect_31("abc", Some(&long), Some("pw"));
        assert_eq!((packet[11], packet.len()), (2, 19));
    }
}
