//! From JSON to packets. An object has the fields of the struct; what it
//! leaves out has its default, and a field that the struct does not have is an
//! error.

use core::cell::RefCell;
use core::num::{NonZeroU16, NonZeroU32};

use dunlin_mqtt_codec::*;
use serde_json::{Map, Value};

use crate::notation;

/// The packet that `{"type": {fields}}` describes.
pub(crate) fn packet(json: &Value) -> Packet<'_> {
    let (name, value) = json
        .as_object()
        .and_then(|object| object.iter().next())
        .expect("a packet is an object with one entry");
    match name.as_str() {
        "connect" => Packet::Connect(FromJson::from_json(value)),
        "connack" => Packet::ConnAck(FromJson::from_json(value)),
        "publish" => Packet::Publish(FromJson::from_json(value)),
        "puback" => Packet::PubAck(FromJson::from_json(value)),
        "pubrec" => Packet::PubRec(FromJson::from_json(value)),
        "pubrel" => Packet::PubRel(FromJson::from_json(value)),
        "pubcomp" => Packet::PubComp(FromJson::from_json(value)),
        "subscribe" => Packet::Subscribe(FromJson::from_json(value)),
        "suback" => Packet::SubAck(FromJson::from_json(value)),
        "unsubscribe" => Packet::Unsubscribe(FromJson::from_json(value)),
        "unsuback" => Packet::UnsubAck(FromJson::from_json(value)),
        "pingreq" => Packet::PingReq,
        "pingresp" => Packet::PingResp,
        "disconnect" => Packet::Disconnect(FromJson::from_json(value)),
        "auth" => Packet::Auth(FromJson::from_json(value)),
        other => panic!("no packet is called {other:?}"),
    }
}

/// An object whose fields must all be used.
struct Fields<'a> {
    object: &'a Map<String, Value>,
    used: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    fn new(json: &'a Value) -> Self {
        Self {
            object: json.as_object().expect("an object"),
            used: RefCell::default(),
        }
    }

    fn option<T: FromJson<'a>>(&self, name: &'static str) -> Option<T> {
        self.used.borrow_mut().push(name);
        self.object.get(name).map(T::from_json)
    }

    fn or_default<T: FromJson<'a> + Default>(&self, name: &'static str) -> T {
        self.option(name).unwrap_or_default()
    }

    fn required<T: FromJson<'a>>(&self, name: &'static str) -> T {
        self.option(name)
            .unwrap_or_else(|| panic!("{name} is missing"))
    }

    fn finish(self) {
        let used = self.used.into_inner();
        for name in self.object.keys() {
            assert!(used.contains(&name.as_str()), "unknown field {name:?}");
        }
    }
}

trait FromJson<'a>: Sized {
    fn from_json(json: &'a Value) -> Self;
}

macro_rules! from_json {
    ($($Type:ty: |$json:ident| $value:expr;)*) => {
        $(impl<'a> FromJson<'a> for $Type {
            fn from_json($json: &'a Value) -> Self {
                $value
            }
        })*
    };
}

from_json! {
    bool: |json| json.as_bool().expect("a boolean");
    u32: |json| json.as_u64().and_then(|n| n.try_into().ok()).expect("a number");
    u16: |json| u32::from_json(json).try_into().expect("a small number");
    NonZeroU16: |json| Self::new(u16::from_json(json)).expect("not 0");
    NonZeroU32: |json| Self::new(u32::from_json(json)).expect("not 0");
    QoS: |json| u8::try_from(u16::from_json(json)).ok().and_then(Self::from_u8).expect("a QoS");
    &'a str: |json| json.as_str().expect("a string");
    &'a [u8]: |json| octets(<&str>::from_json(json));
    ReasonCode: |json| reason(<&str>::from_json(json));
    Version: |json| if u16::from_json(json) == 4 { Self::V311 } else { Self::V5 };
    UserProperties<'a>: |json| leak(elements(json, |pair| {
        (<&str>::from_json(&pair[0]), <&str>::from_json(&pair[1]))
    })).into();
    SubscriptionIdentifiers<'a>: |json| leak(elements(json, u32::from_json)).into();
    ReasonCodes<'a>: |json| leak(elements(json, ReasonCode::from_json)).into();
    SubscribeFilters<'a>: |json| leak(elements(json, SubscribeFilter::from_json)).into();
    UnsubscribeFilters<'a>: |json| leak(elements(json, <&str>::from_json)).into();
    RetainHandling: |json| match u16::from_json(json) {
        0 => Self::SendAtSubscribe,
        1 => Self::SendIfNew,
        2 => Self::DoNotSend,
        other => panic!("retain handling {other}"),
    };
}

/// Lists borrow slices; a test may keep them for ever.
fn leak<'a, T>(elements: Vec<T>) -> &'a [T] {
    Vec::leak(elements)
}

fn elements<'a, T>(json: &'a Value, element: impl Fn(&'a Value) -> T) -> Vec<T> {
    let array = json.as_array().expect("an array");
    array.iter().map(element).collect()
}

/// Binary data: its text, or `hex:` and the notation of [`notation`].
fn octets(text: &str) -> &[u8] {
    match text.strip_prefix("hex:") {
        Some(hex) => leak(notation::bytes(hex)),
        None => text.as_bytes(),
    }
}

/// The reason code called `name`.
pub(crate) fn reason(name: &str) -> ReasonCode {
    let mut all = ReasonCode::ALL.iter();
    *all.find(|code| format!("{code:?}") == name)
        .unwrap_or_else(|| panic!("no reason code is called {name:?}"))
}

macro_rules! structs {
    ($($Type:ident { $($field:ident: $how:ident,)* })*) => {
        $(impl<'a> FromJson<'a> for $Type<'a> {
            fn from_json(json: &'a Value) -> Self {
                let fields = Fields::new(json);
                let value = Self { $($field: fields.$how(stringify!($field)),)* };
                fields.finish();
                value
            }
        })*
    };
}

impl FromJson<'_> for SubscribeOptions {
    fn from_json(json: &Value) -> Self {
        let fields = Fields::new(json);
        let options = Self {
            qos: fields.or_default("qos"),
            no_local: fields.or_default("no_local"),
            retain_as_published: fields.or_default("retain_as_published"),
            retain_handling: fields.or_default("retain_handling"),
        };
        fields.finish();
        options
    }
}

structs! {
    Connect {
        version: required, bridge: or_default, clean_start: or_default, keep_alive: or_default,
        client_id: or_default, will: option, username: option, password: option,
        properties: or_default,
    }
    ConnectProperties {
        session_expiry_interval: option, receive_maximum: option, maximum_packet_size: option,
        topic_alias_maximum: option, request_response_information: option,
        request_problem_information: option, authentication_method: option,
        authentication_data: option, user_properties: or_default,
    }
    Will {
        qos: or_default, retain: or_default, topic: or_default, payload: or_default,
        properties: or_default,
    }
    WillProperties {
        delay_interval: option, payload_format_indicator: option,
        message_expiry_interval: option, content_type: option, response_topic: option,
        correlation_data: option, user_properties: or_default,
    }
    ConnAck { session_present: or_default, reason: or_default, properties: or_default, }
    ConnAckProperties {
        session_expiry_interval: option, receive_maximum: option, maximum_qos: option,
        retain_available: option, maximum_packet_size: option,
        assigned_client_identifier: option, topic_alias_maximum: option, reason_string: option,
        wildcard_subscription_available: option, subscription_identifiers_available: option,
        shared_subscription_available: option, server_keep_alive: option,
        response_information: option, server_reference: option, authentication_method: option,
        authentication_data: option, user_properties: or_default,
    }
    Publish {
        dup: or_default, qos: or_default, retain: or_default, topic: or_default,
        packet_id: option, payload: or_default, properties: or_default,
    }
    PublishProperties {
        payload_format_indicator: option, message_expiry_interval: option, topic_alias: option,
        response_topic: option, correlation_data: option, content_type: option,
        subscription_identifiers: or_default, user_properties: or_default,
    }
    Ack { packet_id: required, reason: or_default, properties: or_default, }
    ReasonProperties { reason_string: option, user_properties: or_default, }
    Subscribe {
        packet_id: required, subscription_identifier: option, user_properties: or_default,
        filters: required,
    }
    SubscribeFilter { filter: required, options: or_default, }
    SubAck { packet_id: required, properties: or_default, reasons: or_default, }
    Unsubscribe { packet_id: required, user_properties: or_default, filters: required, }
    UnsubAck { packet_id: required, properties: or_default, reasons: or_default, }
    Disconnect { reason: or_default, properties: or_default, }
    DisconnectProperties {
        session_expiry_interval: option, reason_string: option, server_reference: option,
        user_properties: or_default,
    }
    Auth { reason: or_default, properties: or_default, }
    AuthProperties {
        authentication_method: option, authentication_data: option, reason_string: option,
        user_properties: or_default,
    }
}
