//! Packets and events as short lines: `PUBLISH 7 q1 dup a/b`, `PUBACK 7 0x87`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use dunlin_base::QoS;
use dunlin_mqtt_codec::{
    Ack, Auth, AuthProperties, Disconnect, Packet, PacketId, Publish, ReasonCode, ReasonCodes,
    SubAck, UnsubAck,
};

use super::Event;

pub(super) fn show(packet: &Packet<'_>) -> String {
    match packet {
        Packet::Connect(connect) => format!("CONNECT {}", connect.client_id),
        Packet::Publish(publish) => {
            let mut line = String::from("PUBLISH");
            if let Some(id) = publish.packet_id {
                line += &format!(" {id} q{}", publish.qos as u8);
            }
            if publish.dup {
                line += " dup";
            }
            if let Some(alias) = publish.properties.topic_alias {
                line += &format!(" alias={alias}");
            }
            if !publish.topic.is_empty() {
                line += &format!(" {}", publish.topic);
            }
            line
        }
        Packet::PubAck(ack) => self::ack("PUBACK", ack),
        Packet::PubRec(ack) => self::ack("PUBREC", ack),
        Packet::PubRel(ack) => self::ack("PUBREL", ack),
        Packet::PubComp(ack) => self::ack("PUBCOMP", ack),
        Packet::Subscribe(subscribe) => format!("SUBSCRIBE {}", subscribe.packet_id),
        Packet::Unsubscribe(unsubscribe) => format!("UNSUBSCRIBE {}", unsubscribe.packet_id),
        Packet::PingReq => "PINGREQ".into(),
        Packet::Disconnect(disconnect) => with_reason("DISCONNECT".into(), disconnect.reason),
        Packet::Auth(auth) => with_reason("AUTH".into(), auth.reason),
        packet => format!("{packet:?}"),
    }
}

pub(super) fn event(event: &Event<'_>) -> String {
    match event {
        Event::Nothing => "Nothing".into(),
        Event::Connected(connack) if connack.session_present => "Connected present".into(),
        Event::Connected(_) => "Connected".into(),
        Event::Refused(connack) => with_reason("Refused".into(), connack.reason),
        Event::Auth(_) => "Auth".into(),
        Event::Authenticated(_) => "Authenticated".into(),
        Event::Message(publish, _) => format!("Message q{} {}", publish.qos as u8, publish.topic),
        Event::Recorded(id) => format!("Recorded {id}"),
        Event::Published(ack) => self::ack("Published", ack),
        Event::Subscribed(suback) => format!("Subscribed {}", suback.packet_id),
        Event::Unsubscribed(unsuback) => format!("Unsubscribed {}", unsuback.packet_id),
        Event::Disconnected(disconnect) => with_reason("Disconnected".into(), disconnect.reason),
    }
}

fn ack(name: &str, ack: &Ack<'_>) -> String {
    with_reason(format!("{name} {}", ack.packet_id), ack.reason)
}

fn with_reason(line: String, reason: ReasonCode) -> String {
    match reason {
        ReasonCode::Success => line,
        reason => format!("{line} {:#04x}", reason.to_u8()),
    }
}

/// A packet that a server sends.
pub(super) fn parse(line: &str) -> Packet<'_> {
    let words: Vec<&str> = line.split(' ').collect();
    let id = words.get(1).and_then(|word| word.parse::<PacketId>().ok());
    let reason = words
        .iter()
        .find_map(|word| word.strip_prefix("0x"))
        .map_or(ReasonCode::Success, |hex| {
            let byte = u8::from_str_radix(hex, 16).expect("hexadecimal");
            ReasonCode::from_u8(byte).expect("a reason code")
        });
    let ack = || Ack::new(id.expect("a packet identifier"), reason);
    const GRANTED: &[ReasonCode] = &[ReasonCode::Success];
    match words[0] {
        "PUBLISH" => Packet::Publish(publish(&words)),
        "PUBACK" => Packet::PubAck(ack()),
        "PUBREC" => Packet::PubRec(ack()),
        "PUBREL" => Packet::PubRel(ack()),
        "PUBCOMP" => Packet::PubComp(ack()),
        "SUBACK" => Packet::SubAck(SubAck {
            packet_id: id.expect("a packet identifier"),
            properties: Default::default(),
            reasons: ReasonCodes::new(GRANTED),
        }),
        "UNSUBACK" => Packet::UnsubAck(UnsubAck {
            packet_id: id.expect("a packet identifier"),
            properties: Default::default(),
            reasons: ReasonCodes::new(GRANTED),
        }),
        "PINGREQ" => Packet::PingReq,
        "PINGRESP" => Packet::PingResp,
        "DISCONNECT" => Packet::Disconnect(Disconnect {
            reason,
            properties: Default::default(),
        }),
        "AUTH" => Packet::Auth(Auth {
            reason,
            properties: AuthProperties {
                authentication_method: words.iter().skip(1).find(|w| !w.starts_with("0x")).copied(),
                ..AuthProperties::default()
            },
        }),
        other => unreachable!("no such packet: {}", other.to_string()),
    }
}

fn publish<'a>(words: &[&'a str]) -> Publish<'a> {
    let mut publish = Publish {
        payload: b"x",
        ..Publish::default()
    };
    for word in words.iter().skip(1) {
        if let Ok(id) = word.parse() {
            publish.packet_id = Some(id);
        } else if let Some(alias) = word.strip_prefix("alias=") {
            publish.properties.topic_alias = Some(alias.parse().expect("an alias"));
        } else {
            match *word {
                "q1" => publish.qos = QoS::AtLeastOnce,
                "q2" => publish.qos = QoS::ExactlyOnce,
                "dup" => publish.dup = true,
                topic => publish.topic = topic,
            }
        }
    }
    publish
}
