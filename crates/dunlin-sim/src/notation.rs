//! Packets as short lines, both ways: `PUBLISH a/b hello q1 #7 retain` is what
//! a script writes and reads. An empty topic, payload or client identifier is
//! `-`.

use core::fmt::Write as _;
use core::num::{NonZeroU16, NonZeroU32};

use dunlin_base::QoS;
use dunlin_base::limits::{PACKET_BYTES_DEFAULT, RECEIVE_MAXIMUM_DEFAULT};
use dunlin_mqtt_codec::{
    Ack, Auth, AuthProperties, ConnAck, Connect, Disconnect, Packet, PacketId, Publish, ReasonCode,
    ReasonProperties, RetainHandling, Subscribe, SubscribeFilter, SubscribeFilters,
    SubscribeOptions, SubscriptionIdentifiers, Unsubscribe, UnsubscribeFilters, UserProperties,
    Version, Will,
};

/// Payloads longer than this are shown by their length.
const SHOWN_BYTES_MAX: usize = 40;

/// The bytes of a client's packet.
///
/// # Panics
/// The line is not understood: a mistake in the script.
#[must_use]
pub fn encode(line: &str, version: Version) -> Vec<u8> {
    // Not `split_whitespace`, which looks at each character of a long payload.
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let (&kind, words) = words.split_first().expect("a packet");
    if kind == "hex" {
        let digits: String = words.concat();
        return unhex(&digits);
    }
    let pairs: Vec<(&str, &str)> = words
        .iter()
        .filter_map(|word| word.strip_prefix("u=")?.split_once(':'))
        .collect();
    let user_properties = UserProperties::new(&pairs);
    let id = words
        .first()
        .and_then(|word| word.parse::<PacketId>().ok())
        .unwrap_or(PacketId::MIN);
    let reason = words
        .iter()
        .find_map(|word| word.strip_prefix("0x"))
        .map_or(ReasonCode::Success, |hex| {
            let byte = u8::from_str_radix(hex, 16).expect("hexadecimal");
            ReasonCode::from_u8(byte).expect("a reason code")
        });
    let ack = Ack {
        packet_id: id,
        reason,
        properties: ReasonProperties {
            user_properties,
            ..ReasonProperties::default()
        },
    };
    let packet = match kind {
        "CONNECT" => Packet::Connect(connect(words, &user_properties)),
        "PUBLISH" => return encode_publish(words, &user_properties, version),
        "SUBSCRIBE" => return encode_subscribe(words, id, user_properties, version),
        "UNSUBSCRIBE" => return encode_unsubscribe(words, id, user_properties, version),
        "PUBACK" => Packet::PubAck(ack),
        "PUBREC" => Packet::PubRec(ack),
        "PUBREL" => Packet::PubRel(ack),
        "PUBCOMP" => Packet::PubComp(ack),
        "PINGREQ" => Packet::PingReq,
        "PINGRESP" => Packet::PingResp,
        "DISCONNECT" => {
            let mut disconnect = Disconnect {
                reason,
                ..Disconnect::default()
            };
            disconnect.properties.session_expiry_interval = value(words, "expiry=");
            Packet::Disconnect(disconnect)
        }
        "AUTH" => Packet::Auth(Auth {
            reason,
            properties: AuthProperties {
                authentication_method: text(words, "auth="),
                authentication_data: text(words, "data=").map(str::as_bytes),
                ..AuthProperties::default()
            },
        }),
        "CONNACK" => Packet::ConnAck(ConnAck {
            reason,
            ..ConnAck::default()
        }),
        other => unreachable!("no such packet: {other}"),
    };
    bytes(&packet, version)
}

fn encode_publish(words: &[&str], user: &UserProperties<'_>, version: Version) -> Vec<u8> {
    let identifiers: Vec<u32> = words
        .iter()
        .filter_map(|word| word.strip_prefix("sub=")?.parse().ok())
        .collect();
    let mut publish = publish(words, user);
    publish.properties.subscription_identifiers = SubscriptionIdentifiers::new(&identifiers);
    bytes(&Packet::Publish(publish), version)
}

fn encode_subscribe(
    words: &[&str],
    packet_id: PacketId,
    user_properties: UserProperties<'_>,
    version: Version,
) -> Vec<u8> {
    let identifier = words.iter().find_map(|word| word.strip_prefix("sub="));
    let filters: Vec<_> = words
        .iter()
        .skip(1)
        .filter(|word| !word.starts_with("sub=") && !word.starts_with("u="))
        .map(|word| filter(word))
        .collect();
    let packet = Packet::Subscribe(Subscribe {
        packet_id,
        subscription_identifier: identifier.map(|n| n.parse().expect("identifier")),
        user_properties,
        filters: SubscribeFilters::new(&filters),
    });
    bytes(&packet, version)
}

fn encode_unsubscribe(
    words: &[&str],
    packet_id: PacketId,
    user_properties: UserProperties<'_>,
    version: Version,
) -> Vec<u8> {
    let names: Vec<_> = words
        .iter()
        .skip(1)
        .filter(|word| !word.starts_with("u="))
        .copied()
        .collect();
    let packet = Packet::Unsubscribe(Unsubscribe {
        packet_id,
        user_properties,
        filters: UnsubscribeFilters::new(&names),
    });
    bytes(&packet, version)
}

/// In 5.0 what 3.1.1 cannot express: what a client that confuses them sends.
fn bytes(packet: &Packet<'_>, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    if packet.encode(version, &mut out).is_err() {
        out.clear();
        packet.encode(Version::V5, &mut out).expect("encodes");
    }
    out
}

/// A server's packet as a line. Limits of CONNACK that are the defaults are
/// left out, and so is an assigned identifier's value.
#[must_use]
pub fn show(packet: &Packet<'_>, version: Version) -> String {
    let mut line = String::new();
    let _ = match packet {
        Packet::ConnAck(connack) => return show_connack(connack),
        Packet::Publish(publish) => return show_publish(publish),
        Packet::PubAck(ack) => write!(line, "PUBACK {}{}", ack.packet_id, show_ack(ack)),
        Packet::PubRec(ack) => write!(line, "PUBREC {}{}", ack.packet_id, show_ack(ack)),
        Packet::PubRel(ack) => write!(line, "PUBREL {}{}", ack.packet_id, show_ack(ack)),
        Packet::PubComp(ack) => write!(line, "PUBCOMP {}{}", ack.packet_id, show_ack(ack)),
        Packet::SubAck(ack) => {
            let codes: String = ack
                .reasons
                .iter()
                .map(|code| match (version, code.is_error()) {
                    (Version::V311, true) => " 80".to_owned(),
                    _ => format!(" {:02x}", code.to_u8()),
                })
                .collect();
            let words = show_words(&ack.properties);
            write!(line, "SUBACK {}{codes}{words}", ack.packet_id)
        }
        Packet::UnsubAck(ack) => {
            let codes: String = ack
                .reasons
                .iter()
                .map(|code| format!(" {:02x}", code.to_u8()))
                .collect();
            let words = show_words(&ack.properties);
            write!(line, "UNSUBACK {}{codes}{words}", ack.packet_id)
        }
        Packet::PingResp => write!(line, "PINGRESP"),
        Packet::Disconnect(disconnect) => {
            let properties = &disconnect.properties;
            let mut words = String::new();
            if properties.session_expiry_interval.is_some() {
                words += " with expiry";
            }
            if properties.reason_string.is_some() || !properties.user_properties.is_empty() {
                words += " with words";
            }
            if let Some(server) = properties.server_reference {
                words += " server=";
                words += server;
            }
            write!(line, "DISCONNECT{}{words}", show_reason(disconnect.reason))
        }
        Packet::Auth(auth) => {
            let properties = &auth.properties;
            let method = properties.authentication_method.unwrap_or("-");
            let mut words = "";
            if properties.reason_string.is_some() || !properties.user_properties.is_empty() {
                words = " with words";
            }
            write!(line, "AUTH{} {method}{words}", show_reason(auth.reason))
        }
        other => write!(line, "{other:?}"),
    };
    line
}

fn show_reason(reason: ReasonCode) -> String {
    match reason {
        ReasonCode::Success => String::new(),
        reason => format!(" {:#04x}", reason.to_u8()),
    }
}

fn show_ack(ack: &Ack<'_>) -> String {
    show_reason(ack.reason) + show_words(&ack.properties)
}

fn show_words(properties: &ReasonProperties<'_>) -> &'static str {
    match properties.reason_string.is_some() || !properties.user_properties.is_empty() {
        true => " with words",
        false => "",
    }
}

fn show_connack(connack: &ConnAck<'_>) -> String {
    let properties = &connack.properties;
    let mut line = String::from("CONNACK");
    line += &show_reason(connack.reason);
    if connack.session_present {
        line += " present";
    }
    if properties.assigned_client_identifier.is_some() {
        line += " assigned";
    }
    if let Some(expiry) = properties.session_expiry_interval {
        let _ = write!(line, " expiry={expiry}");
    }
    if let Some(keep) = properties.server_keep_alive {
        let _ = write!(line, " keep={keep}");
    }
    if let Some(max) = properties.receive_maximum
        && max.get() != RECEIVE_MAXIMUM_DEFAULT
    {
        let _ = write!(line, " rm={max}");
    }
    if let Some(max) = properties.maximum_packet_size
        && max.get() != PACKET_BYTES_DEFAULT
    {
        let _ = write!(line, " max={max}");
    }
    if let Some(max) = properties.topic_alias_maximum
        && max != 16
    {
        let _ = write!(line, " aliases={max}");
    }
    if properties.reason_string.is_some() || !properties.user_properties.is_empty() {
        line += " with words";
    }
    if properties.response_information.is_some() {
        line += " response-information";
    }
    if let Some(method) = properties.authentication_method {
        let _ = write!(line, " auth={method}");
    }
    line
}

fn show_publish(publish: &Publish<'_>) -> String {
    let dash = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
    let payload = match core::str::from_utf8(publish.payload) {
        Ok(text) if text.len() <= SHOWN_BYTES_MAX => dash(text),
        _ => format!("<{}>", publish.payload.len()),
    };
    let topic = match publish.topic.len() {
        0..=SHOWN_BYTES_MAX => dash(publish.topic),
        len => format!("<{len}>"),
    };
    let mut line = format!("PUBLISH {topic} {payload}");
    if publish.qos != QoS::AtMostOnce {
        let _ = write!(line, " q{}", publish.qos as u8);
    }
    if let Some(id) = publish.packet_id {
        let _ = write!(line, " #{id}");
    }
    for (set, word) in [(publish.dup, " dup"), (publish.retain, " retain")] {
        line += if set { word } else { "" };
    }
    let properties = &publish.properties;
    if let Some(alias) = properties.topic_alias {
        let _ = write!(line, " alias={alias}");
    }
    if let Some(expiry) = properties.message_expiry_interval {
        let _ = write!(line, " expiry={expiry}");
    }
    match properties.payload_format_indicator {
        Some(true) => line += " utf8",
        Some(false) => line += " bytes",
        None => {}
    }
    for (name, value) in [
        ("ct", properties.content_type),
        ("resp", properties.response_topic),
        (
            "corr",
            properties
                .correlation_data
                .and_then(|d| core::str::from_utf8(d).ok()),
        ),
    ] {
        if let Some(value) = value {
            let _ = write!(line, " {name}={value}");
        }
    }
    for id in properties.subscription_identifiers.iter() {
        let _ = write!(line, " sub={id}");
    }
    for (name, value) in properties.user_properties.iter() {
        let _ = write!(line, " u={name}:{value}");
    }
    line
}

fn connect<'a>(words: &[&'a str], user_properties: &UserProperties<'a>) -> Connect<'a> {
    let (&id, words) = words.split_first().expect("a client identifier");
    let mut connect = Connect {
        client_id: undash(id),
        clean_start: words.contains(&"clean"),
        keep_alive: value(words, "keep=").unwrap_or(0),
        username: text(words, "user="),
        password: text(words, "pass=").map(str::as_bytes),
        ..Connect::default()
    };
    if words.contains(&"v4") {
        connect.version = Version::V311;
    }
    connect.bridge = words.contains(&"bridge");
    let properties = &mut connect.properties;
    properties.session_expiry_interval = value(words, "expiry=");
    properties.receive_maximum = value::<NonZeroU16>(words, "rm=");
    properties.maximum_packet_size = value::<NonZeroU32>(words, "max=");
    properties.topic_alias_maximum = value(words, "aliases=");
    properties.authentication_method = text(words, "auth=");
    properties.authentication_data = text(words, "data=").map(str::as_bytes);
    if words.contains(&"noproblem") {
        properties.request_problem_information = Some(false);
    }
    properties.request_response_information = value::<u8>(words, "ri=").map(|n| n == 1);
    let Some((topic, payload)) = text(words, "will=").and_then(|will| will.split_once(':')) else {
        properties.user_properties = *user_properties;
        return connect;
    };
    let mut will = Will {
        topic,
        payload: undash(payload).as_bytes(),
        qos: value::<u8>(words, "wq=")
            .and_then(QoS::from_u8)
            .unwrap_or_default(),
        retain: words.contains(&"wretain"),
        ..Will::default()
    };
    will.properties.delay_interval = value(words, "wdelay=");
    will.properties.message_expiry_interval = value(words, "wexpiry=");
    will.properties.content_type = text(words, "wct=");
    will.properties.user_properties = *user_properties;
    connect.will = Some(will);
    connect
}

fn publish<'a>(words: &[&'a str], user_properties: &UserProperties<'a>) -> Publish<'a> {
    let [topic, payload, words @ ..] = words else {
        unreachable!("a topic and a payload");
    };
    let mut publish = Publish {
        topic: undash(topic),
        payload: undash(payload).as_bytes(),
        dup: words.contains(&"dup"),
        retain: words.contains(&"retain"),
        packet_id: value(words, "#"),
        qos: value::<u8>(words, "q")
            .and_then(QoS::from_u8)
            .unwrap_or_default(),
        ..Publish::default()
    };
    let properties = &mut publish.properties;
    properties.topic_alias = value(words, "alias=");
    properties.message_expiry_interval = value(words, "expiry=");
    properties.content_type = text(words, "ct=");
    properties.response_topic = text(words, "resp=");
    properties.correlation_data = text(words, "corr=").map(str::as_bytes);
    if words.contains(&"utf8") {
        properties.payload_format_indicator = Some(true);
    }
    properties.user_properties = *user_properties;
    publish
}

/// `a/+|q1|nl|rap|rh2`.
fn filter(word: &str) -> SubscribeFilter<'_> {
    let mut parts = word.split('|');
    let filter = undash(parts.next().unwrap_or_default());
    let mut options = SubscribeOptions::default();
    for part in parts {
        match part {
            "q0" => options.qos = QoS::AtMostOnce,
            "q1" => options.qos = QoS::AtLeastOnce,
            "q2" => options.qos = QoS::ExactlyOnce,
            "nl" => options.no_local = true,
            "rap" => options.retain_as_published = true,
            "rh1" => options.retain_handling = RetainHandling::SendIfNew,
            "rh2" => options.retain_handling = RetainHandling::DoNotSend,
            other => unreachable!("no such option: {other}"),
        }
    }
    SubscribeFilter { filter, options }
}

fn undash(word: &str) -> &str {
    if word == "-" { "" } else { word }
}

fn text<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name))
}

fn value<T: core::str::FromStr>(words: &[&str], name: &str) -> Option<T> {
    words
        .iter()
        .find_map(|word| word.strip_prefix(name)?.parse().ok())
}

fn unhex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .chars()
        .map(|c| c.to_digit(16).expect("hexadecimal") as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
