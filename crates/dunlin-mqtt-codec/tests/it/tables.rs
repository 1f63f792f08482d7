//! Every property in every packet, and every reason code in every packet,
//! against the tables of the specification.

use core::fmt::Write as _;

use dunlin_mqtt_codec::{DecodeError, Packet, PropertyId, ReasonCode, Version, decode};
use serde_json::Value;

use crate::notation;

fn table(text: &str, list: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(text).expect("JSON");
    json[list].as_array().expect("an array").clone()
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field].as_str().expect("a string")
}

fn contains(entry: &Value, field: &str, name: &str) -> bool {
    let list = entry.get(field).and_then(Value::as_array);
    list.is_some_and(|list| list.iter().any(|other| other == name))
}

/// A short packet: `first`, its length, `body`.
fn packet(first: &str, body: &str) -> Vec<u8> {
    let body = notation::bytes(body);
    assert!(body.len() < 128, "one byte of length");
    let mut packet = notation::bytes(first);
    packet.push(body.len() as u8);
    packet.extend(body);
    packet
}

/// `place` with these properties in its gap.
fn with_properties(place: &Value, properties: &str) -> Vec<u8> {
    let len = notation::bytes(properties).len();
    let (before, after) = (text(place, "before"), text(place, "after"));
    let body = format!("{before} {len:02x} {properties} {after}");
    packet(text(place, "first"), &body)
}

const PROPERTIES: &str = include_str!("../data/tables/properties.json");

/// What else the packet needs for `property` to be the only question.
fn companion(place: &str, property: &str) -> &'static str {
    match (place, property) {
        ("CONNECT", "AuthenticationData") => "15 0001 'm'",
        ("AUTH", "AuthenticationMethod") => "",
        ("AUTH", _) => "15 0001 'm'",
        _ => "",
    }
}

#[test]
fn property_table_is_complete() {
    let table = table(PROPERTIES, "properties");
    let names: Vec<_> = table.iter().map(|p| text(p, "name").to_owned()).collect();
    let all: Vec<_> = PropertyId::ALL.iter().map(|p| format!("{p:?}")).collect();
    assert_eq!(names, all);
    for (entry, property) in table.iter().zip(PropertyId::ALL) {
        let id = notation::bytes(text(entry, "id"))[0];
        assert_eq!(PropertyId::from_u8(id), Some(*property));
    }
}

#[test]
fn properties_belong_to_their_packets() {
    for place in table(PROPERTIES, "places") {
        for property in table(PROPERTIES, "properties") {
            let (place_name, name) = (text(&place, "name"), text(&property, "name"));
            let id = PropertyId::from_u8(notation::bytes(text(&property, "id"))[0]).unwrap();
            let one = format!("{} {}", text(&property, "id"), text(&property, "value"));
            let companion = companion(place_name, name);
            let once = with_properties(&place, &format!("{companion} {one}"));
            let twice = with_properties(&place, &format!("{companion} {one} {one}"));
            let [once, twice] = [&once, &twice].map(|bytes| decode(bytes, Version::V5));
            let context = format!("{name} in {place_name}");
            if !contains(&property, "places", place_name) {
                assert_eq!(once, Err(DecodeError::PropertyNotAllowed(id)), "{context}");
                continue;
            }
            check_round_trip(&once.expect(&context), &context);
            if contains(&property, "repeats", place_name) {
                check_round_trip(&twice.expect(&context), &context);
            } else {
                let want = DecodeError::PropertyDuplicate(id);
                assert_eq!(twice, Err(want), "{context} twice");
            }
        }
    }
}

/// A property that the model dropped would be missing from its bytes.
fn check_round_trip(packet: &Packet<'_>, context: &str) {
    let mut bytes = Vec::new();
    packet.encode(Version::V5, &mut bytes).expect(context);
    assert_eq!(
        decode(&bytes, Version::V5).as_ref(),
        Ok(packet),
        "{context}"
    );
}

#[test]
fn unknown_properties_are_refused_everywhere() {
    for place in table(PROPERTIES, "places") {
        for id in (0..=u8::MAX).filter(|id| PropertyId::from_u8(*id).is_none()) {
            let bytes = with_properties(&place, &format!("{id:02x}"));
            let want = DecodeError::PropertyUnknown(id);
            assert_eq!(decode(&bytes, Version::V5), Err(want), "{place}");
        }
    }
}

#[test]
fn reason_codes_belong_to_their_packets() {
    for place in table(include_str!("../data/tables/reasons.json"), "places") {
        let allowed = notation::bytes(text(&place, "codes"));
        for code in 0..=u8::MAX {
            let mut body = text(&place, "before").to_owned();
            write!(body, " {code:02x} {}", text(&place, "after")).unwrap();
            let bytes = packet(text(&place, "first"), &body);
            let decoded = decode(&bytes, Version::V5);
            if allowed.contains(&code) {
                let packet = decoded.unwrap_or_else(|e| panic!("{code:#x} {place}: {e}"));
                assert_eq!(reason(&packet).map(ReasonCode::to_u8), Some(code));
            } else {
                assert_eq!(decoded, Err(DecodeError::ReasonCode(code)), "{place}");
            }
        }
    }
}

fn reason(packet: &Packet<'_>) -> Option<ReasonCode> {
    match packet {
        Packet::ConnAck(packet) => Some(packet.reason),
        Packet::PubAck(ack) | Packet::PubRec(ack) => Some(ack.reason),
        Packet::PubRel(ack) | Packet::PubComp(ack) => Some(ack.reason),
        Packet::SubAck(ack) => ack.reasons.iter().next(),
        Packet::UnsubAck(ack) => ack.reasons.iter().next(),
        Packet::Disconnect(packet) => Some(packet.reason),
        Packet::Auth(packet) => Some(packet.reason),
        _ => None,
    }
}

#[test]
fn reason_codes_of_3_1_1() {
    for code in 0..=5 {
        let reason = ReasonCode::from_connack_v3_code(code).unwrap();
        assert_eq!(reason.connack_v3_code(), code);
    }
    assert_eq!(ReasonCode::from_connack_v3_code(6), None);
    for reason in ReasonCode::ALL {
        assert_eq!(ReasonCode::from_u8(reason.to_u8()), Some(*reason));
        assert_eq!(reason.connack_v3_code() != 0, reason.is_error());
        assert!(reason.connack_v3_code() <= 5);
    }
}
