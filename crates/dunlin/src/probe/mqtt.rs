//! What a server of MQTT can: versions, QoS, retained messages, subscriptions,
//! sessions, wills, limits.

mod features;
mod limits;
mod versions;

use std::time::Instant;

use dunlin_mqtt_codec::{
    ConnAck, Connect, ConnectProperties, Packet, PacketId, Publish, QoS, ReasonCode, Subscribe,
    SubscribeFilter, SubscribeFilters, SubscribeOptions, UserProperties, Version, Will,
};

use super::fault::Fault;
use super::wire::{Wire, plain};
use super::{Check, Needs, Probe, Verdict, check, millis};

/// Keep alive of the connections, in seconds: longer than any check.
const KEEP_ALIVE: u16 = 60;

/// How long a session may outlive its connection, in seconds, if cleaning up fails.
const SESSION_SECONDS: u32 = 60;

/// The checks, in an order in which the first say what the others may use.
pub(super) const CHECKS: &[Check] = &[
    check("mqtt5", "MQTT 5.0", Needs::Nothing, versions::v5),
    check("mqtt311", "MQTT 3.1.1", Needs::Nothing, versions::v311),
    check("mqtt31", "MQTT 3.1", Needs::Nothing, versions::v31),
    check("qos0", "QoS 0, round trip", Needs::Mqtt, |probe, until| {
        features::round_trip(probe, until, QoS::AtMostOnce)
    }),
    check("qos1", "QoS 1, round trip", Needs::Mqtt, |probe, until| {
        features::round_trip(probe, until, QoS::AtLeastOnce)
    }),
    check("qos2", "QoS 2, round trip", Needs::Mqtt, |probe, until| {
        features::round_trip(probe, until, QoS::ExactlyOnce)
    }),
    check(
        "retained",
        "retained messages",
        Needs::Mqtt,
        features::retained,
    ),
    check(
        "wildcards",
        "wildcard subscriptions",
        Needs::Mqtt,
        features::wildcards,
    ),
    check(
        "shared",
        "shared subscriptions",
        Needs::Mqtt,
        features::shared,
    ),
    check(
        "session",
        "sessions that are resumed",
        Needs::Mqtt,
        features::session,
    ),
    check("will", "will messages", Needs::Mqtt, features::will),
    check(
        "subscription-ids",
        "subscription identifiers",
        Needs::V5,
        features::identifiers,
    ),
    check("no-local", "No Local", Needs::V5, features::no_local),
    check(
        "properties",
        "properties are passed on",
        Needs::V5,
        features::properties,
    ),
    check("topic-aliases", "topic aliases", Needs::V5, features::alias),
    check(
        "enhanced-auth",
        "enhanced authentication",
        Needs::V5,
        versions::methods,
    ),
    check(
        "assigned-id",
        "assigned client identifier",
        Needs::V5,
        limits::assigned_id,
    ),
    check(
        "session-expiry",
        "longest session expiry",
        Needs::V5,
        limits::session_expiry,
    ),
    check(
        "receive-maximum",
        "Receive Maximum",
        Needs::V5,
        limits::receive_maximum,
    ),
    check(
        "packet-size",
        "Maximum Packet Size",
        Needs::V5,
        limits::packet_size,
    ),
    check("maximum-qos", "Maximum QoS", Needs::V5, limits::maximum_qos),
    check(
        "keep-alive",
        "Server Keep Alive",
        Needs::V5,
        limits::keep_alive,
    ),
];

/// What CONNACK says.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    session_present: bool,
    session_expiry: Option<u32>,
    receive_maximum: Option<u16>,
    packet_size: Option<u32>,
    topic_alias_maximum: u16,
    maximum_qos: QoS,
    keep_alive: Option<u16>,
    assigned_id: Option<String>,
    /// Names of the features that CONNACK says are not available.
    unavailable: Vec<&'static str>,
}

impl Granted {
    fn of(connack: &ConnAck<'_>) -> Self {
        let said = &connack.properties;
        let features = [
            ("retained", said.retain_available),
            ("wildcards", said.wildcard_subscription_available),
            ("shared", said.shared_subscription_available),
            ("subscription-ids", said.subscription_identifiers_available),
        ];
        let off =
            |(name, said): (&'static str, Option<bool>)| (said == Some(false)).then_some(name);
        Self {
            session_present: connack.session_present,
            session_expiry: said.session_expiry_interval,
            receive_maximum: said.receive_maximum.map(Into::into),
            packet_size: said.maximum_packet_size.map(Into::into),
            topic_alias_maximum: said.topic_alias_maximum.unwrap_or(0),
            maximum_qos: said.maximum_qos.unwrap_or(QoS::ExactlyOnce),
            keep_alive: said.server_keep_alive,
            assigned_id: said.assigned_client_identifier.map(plain),
            unavailable: features.into_iter().filter_map(off).collect(),
        }
    }
}

/// What a CONNECT of a check says.
#[derive(Default)]
pub(super) struct Login<'a> {
    pub(super) id: &'a str,
    /// Continue what is there.
    pub(super) resume: bool,
    /// Seconds that the session outlives the connection.
    pub(super) expiry: u32,
    pub(super) will: Option<&'a str>,
    pub(super) method: Option<(&'a str, &'a [u8])>,
}

impl Probe {
    /// A client in the best version that the server takes.
    pub(super) fn enter(
        &self,
        login: &Login<'_>,
        until: Instant,
    ) -> Result<(Wire, Granted), Fault> {
        self.enter_with(self.version.unwrap_or_default(), login, until)
    }

    /// A client with an identifier of its own and no session.
    pub(super) fn join(&mut self, until: Instant) -> Result<Wire, Fault> {
        let id = self.client_id();
        let login = Login {
            id: &id,
            ..Login::default()
        };
        Ok(self.enter(&login, until)?.0)
    }

    fn enter_with(
        &self,
        version: Version,
        login: &Login<'_>,
        until: Instant,
    ) -> Result<(Wire, Granted), Fault> {
        let mut wire = Wire::dial(&self.config(), version, until)?;
        self.send_connect(&mut wire, version, login)?;
        let granted = wire.wait_for(|_, packet| match packet {
            Packet::ConnAck(connack) if !connack.reason.is_error() => Some(Granted::of(connack)),
            _ => None,
        })?;
        Ok((wire, granted))
    }

    pub(super) fn send_connect(
        &self,
        wire: &mut Wire,
        version: Version,
        login: &Login<'_>,
    ) -> Result<(), Fault> {
        let is_v5 = version == Version::V5;
        let connect = Connect {
            version,
            // In 3.1.1 a clean session is one that ends with its connection.
            clean_start: !login.resume && (is_v5 || login.expiry == 0),
            keep_alive: KEEP_ALIVE,
            client_id: login.id,
            username: self.user(),
            password: self.password().map(str::as_bytes),
            will: login.will.map(|topic| Will {
                topic,
                payload: b"will",
                ..Will::default()
            }),
            properties: ConnectProperties {
                session_expiry_interval: (login.expiry > 0).then_some(login.expiry),
                authentication_method: login.method.map(|(name, _)| name),
                authentication_data: login.method.map(|(_, data)| data),
                ..ConnectProperties::default()
            },
            ..Connect::default()
        };
        wire.send(&Packet::Connect(connect))
    }

    /// What CONNACK said to the first client; nothing in 3.1.1.
    fn said(&self) -> Option<&Granted> {
        self.granted.as_ref()
    }

    /// Whether CONNACK says that the server does not have it.
    fn is_said_missing(&self, feature: &str) -> bool {
        self.said()
            .is_some_and(|said| said.unavailable.contains(&feature))
    }

    /// The highest QoS that the server takes.
    fn maximum_qos(&self) -> QoS {
        self.said()
            .map_or(QoS::ExactlyOnce, |said| said.maximum_qos)
    }

    /// QoS 1, or what there is.
    fn acknowledged(&self) -> QoS {
        self.maximum_qos().min(QoS::AtLeastOnce)
    }
}

/// Subscribes; the QoS that was granted.
pub(super) fn subscribe(
    wire: &mut Wire,
    filter: &str,
    options: SubscribeOptions,
    id: Option<core::num::NonZeroU32>,
) -> Result<QoS, Fault> {
    let filters = [SubscribeFilter { filter, options }];
    wire.send(&Packet::Subscribe(Subscribe {
        packet_id: PacketId::MIN,
        subscription_identifier: id,
        user_properties: UserProperties::default(),
        filters: SubscribeFilters::new(&filters),
    }))?;
    let reason = wire.wait_for(|_, packet| match packet {
        Packet::SubAck(suback) => Some(suback.reasons.iter().next()),
        _ => None,
    })?;
    let reason = reason.unwrap_or(ReasonCode::ProtocolError);
    QoS::from_u8(reason.to_u8()).ok_or(Fault::Refused(reason, None))
}

pub(super) const fn at(qos: QoS) -> SubscribeOptions {
    SubscribeOptions {
        qos,
        no_local: false,
        retain_as_published: false,
        retain_handling: dunlin_mqtt_codec::RetainHandling::SendAtSubscribe,
    }
}

/// Publishes with the acknowledgement of its QoS.
pub(super) fn publish(wire: &mut Wire, publish: &Publish<'_>) -> Result<(), Fault> {
    wire.send(&Packet::Publish(publish.clone()))?;
    if publish.qos == QoS::AtMostOnce {
        return Ok(());
    }
    wire.wait_for(|_, packet| is_acknowledged(packet, publish))?
}

/// Whether a packet ends the exchange of a message, and how.
pub(super) fn is_acknowledged(
    packet: &Packet<'_>,
    publish: &Publish<'_>,
) -> Option<Result<(), Fault>> {
    let ack = match packet {
        Packet::PubAck(ack) | Packet::PubComp(ack) => ack,
        Packet::PubRec(ack) if ack.reason.is_error() => ack,
        _ => return None,
    };
    let refused = || Fault::Refused(ack.reason, ack.properties.reason_string.map(plain));
    (Some(ack.packet_id) == publish.packet_id).then(|| match ack.reason.is_error() {
        true => Err(refused()),
        false => Ok(()),
    })
}

/// A message of a check.
pub(super) fn message<'a>(topic: &'a str, payload: &'a [u8], qos: QoS) -> Publish<'a> {
    Publish {
        topic,
        payload,
        qos,
        packet_id: (qos != QoS::AtMostOnce).then_some(PacketId::MAX),
        ..Publish::default()
    }
}

/// Waits for a message of a topic and gives what `look` sees in it.
pub(super) fn receive<T>(
    wire: &mut Wire,
    topic: &str,
    mut look: impl FnMut(&Publish<'_>) -> T,
) -> Result<T, Fault> {
    wire.wait_for(|_, packet| match packet {
        Packet::Publish(publish) if publish.topic == topic => Some(look(publish)),
        _ => None,
    })
}

/// A wait that ends without a message is an answer, too.
fn or_absent<T>(result: Result<T, Fault>, absent: &str) -> Result<Result<T, Verdict>, Fault> {
    match result {
        Ok(found) => Ok(Ok(found)),
        Err(Fault::Timeout) => Ok(Err(Verdict::no(absent))),
        Err(fault) => Err(fault),
    }
}
