//! A client's network connection, as MQTT sees it: what both sides agreed on,
//! its streams with what goes in and out on them, what came before CONNACK,
//! and its keep alive.
//!
//! Which session it belongs to, which transport carries it and when it is
//! flushed is not known here.

use alloc::boxed::Box;
use core::num::NonZeroU16;
use core::time::Duration;

use dunlin_base::{Instant, QoS, SendBuf, StreamId, Text};
use dunlin_mqtt_codec::{
    Ack, Connect, Packet, PacketId, PacketType, Publish, ReasonCode, ReasonProperties,
    SubscriptionIdentifiers, Version, decode, peek,
};

use super::{AliasTable, Fault, Identifiers, Reauthentication};
use crate::flow::FailedFlows;

mod keep_alive;
mod lanes;
mod parked;
mod stream;
mod streams;
mod terms;

pub use keep_alive::{KeepAlive, Silence};
pub use lanes::{Action, Lanes, Opened, Place};
pub use parked::{PARKED_BYTES_MAX, Parked, ParkedBytes};
pub use stream::{LinkStream, StreamEnd};
pub use streams::{Streams, UNFINISHED_BYTES_MAX};
pub use terms::{Agreement, Offer, StreamOptions, Terms};

#[cfg(test)]
mod tests;

/// What a topic alias adds to a PUBLISH: the property, and a byte to each of
/// the two lengths before it.
const ALIAS_BYTES_MAX: usize = 5;

/// A client's connection. One without traffic owns no buffers.
#[derive(Debug)]
pub struct Link {
    /// What both sides agreed on.
    pub terms: Terms,
    /// How long the client may be silent.
    pub keep_alive: KeepAlive,
    /// The control stream and all others.
    pub streams: Streams,
    /// What came before CONNACK.
    pub parked: Parked,
    /// Streams for deliveries, if the client takes them.
    pub lanes: Option<Box<Lanes>>,
    /// SUBSCRIBEs and UNSUBSCRIBEs that wait for their answer.
    pub subscribing: u16,
    /// Authentication again, under way.
    pub reauth: Reauthentication,
    /// Flows that could not be recovered.
    pub failed_flows: FailedFlows,
    aliases_out: AliasTable,
}

impl Link {
    /// A connection on which nothing has come, and on which CONNECT has to come in
    /// time.
    #[must_use]
    pub fn new(now: Instant, connect_timeout: Duration) -> Self {
        Self {
            terms: Terms::default(),
            keep_alive: KeepAlive::new(now, connect_timeout),
            streams: Streams::default(),
            parked: Parked::default(),
            lanes: None,
            subscribing: 0,
            reauth: Reauthentication::default(),
            aliases_out: AliasTable::default(),
            failed_flows: FailedFlows::default(),
        }
    }

    /// CONNECT was accepted: both sides agree on what follows.
    pub fn handle_connect(&mut self, connect: &Connect<'_>, offer: &Offer) -> Agreement {
        let (terms, agreement) = Agreement::of(connect, offer);
        self.terms = terms;
        self.keep_alive.set_limit(agreement.silence_max);
        let aliases = connect.properties.topic_alias_maximum.unwrap_or(0);
        self.aliases_out = AliasTable::new(aliases);
        let streams = agreement.delivery_streams;
        self.lanes = (streams > 0).then(|| Box::new(Lanes::new(streams)));
        agreement
    }

    /// Whether the client takes a packet of that size.
    #[must_use]
    pub fn takes(&self, packet: &Packet<'_>) -> bool {
        let max = self.terms.packet_bytes_max as usize;
        //= mqtt5#[MQTT-3.1.2-24]
        let len = packet.encoded_len(self.terms.version);
        len.is_ok_and(|len| len <= max)
    }

    /// Whether PUBLISH on this stream may carry a topic alias. On another
    /// stream than control the alias could arrive before its topic.
    #[must_use]
    pub fn uses_aliases(&self, stream: StreamId) -> bool {
        self.lanes.is_none() && self.aliases_out.is_enabled() && stream == StreamId::CONTROL
    }

    /// Bytes on their way out: in the transport and not yet given to it.
    #[must_use]
    pub fn backlog(&self) -> usize {
        let held = self.lanes.as_ref().map_or(0, |lanes| lanes.held_bytes());
        self.streams.backlog() + held
    }

    /// Bytes of packets that have not come whole, and of those that wait for
    /// CONNACK.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.streams.held() + self.parked.bytes()
    }

    /// Whether messages of a topic would go to a stream of which the client
    /// takes nothing. `stream` is that of their subscription.
    #[must_use]
    pub fn is_blocked_for(&self, stream: StreamId, topic: &str) -> bool {
        if !self.streams.is_any_blocked() {
            return false;
        }
        let stream = match &self.lanes {
            Some(lanes) if stream == StreamId::CONTROL => lanes.stream_of(topic),
            _ => Some(stream),
        };
        stream.is_some_and(|stream| self.streams.is_blocked(stream))
    }

    /// Gives a PUBLISH its subscription identifiers and, if `may_alias`, its
    /// topic alias; `false` when the client does not take a packet of that
    /// size.
    pub fn fit<'a>(
        &mut self,
        publish: &mut Publish<'a>,
        identifiers: &'a Identifiers,
        may_alias: bool,
    ) -> bool {
        publish.properties.subscription_identifiers =
            SubscriptionIdentifiers::new(identifiers.as_slice());
        let max = self.terms.packet_bytes_max as usize;
        //= mqtt5#[MQTT-3.1.2-24]
        let len = match publish.encoded_len(self.terms.version) {
            Ok(len) if len <= max => len,
            _ => return false,
        };
        if may_alias
            && self.aliases_out.is_enabled()
            && len.saturating_add(ALIAS_BYTES_MAX) <= max
            && let Some((alias, is_new)) = self.aliases_out.alias(publish.topic)
        {
            publish.properties.topic_alias = Some(alias);
            if !is_new {
                publish.topic = "";
            }
        }
        true
    }

    /// Takes a PUBLISH: its topic, if it has an alias instead; `maximum` is the
    /// Topic Alias Maximum that the server announced. There is no order between
    /// streams, so an alias holds where it was set.
    ///
    /// # Errors
    ///
    /// The alias is over the maximum or has not been set, or there is a property
    /// that only servers send.
    pub fn handle_publish(
        &mut self,
        arrived: StreamId,
        publish: &Publish<'_>,
        maximum: u16,
    ) -> Result<Option<Text>, Fault> {
        if !publish.properties.subscription_identifiers.is_empty() {
            //= mqtt5#[MQTT-3.3.4-6]
            return Err(Fault::protocol("a client sends no subscription identifier"));
        }
        let Some(alias) = publish.properties.topic_alias else {
            return Ok(None);
        };
        let invalid = Fault::new(ReasonCode::TopicAliasInvalid, "unknown topic alias");
        let stream = self.streams.get_mut(arrived).ok_or(invalid)?;
        let aliases = stream.aliases_in(maximum);
        if publish.topic.is_empty() {
            return aliases.topic(alias).map(Some).ok_or(invalid);
        }
        //= mqtt5#[MQTT-3.3.2-9]
        match aliases.set(alias, publish.topic) {
            true => Ok(None),
            false => Err(invalid),
        }
    }

    /// The topic that an alias of the client stands for.
    pub fn topic_of(&mut self, arrived: StreamId, alias: NonZeroU16, maximum: u16) -> Option<Text> {
        let stream = self.streams.get_mut(arrived)?;
        stream.aliases_in(maximum).topic(alias)
    }

    /// The message of a datagram: one PUBLISH with QoS 0, whole.
    ///
    /// # Errors
    ///
    /// It is something else, or more.
    pub fn datagram<'a>(&self, data: &'a [u8], bytes_max: u32) -> Result<Publish<'a>, Fault> {
        let malformed = Fault::new(
            ReasonCode::MalformedPacket,
            "a datagram that is not one packet",
        );
        let frame = peek(data, bytes_max)?.ok_or(malformed)?;
        if frame.total_len != data.len() {
            return Err(malformed);
        }
        let Packet::Publish(publish) = decode(data, self.terms.version)? else {
            return Err(Fault::protocol("a datagram carries PUBLISH only"));
        };
        if publish.qos != QoS::AtMostOnce {
            return Err(Fault::protocol("a datagram carries QoS 0 only"));
        }
        // What may be lost must not say what later packets mean, and what may
        // overtake must not depend on earlier ones.
        if publish.properties.topic_alias.is_some() {
            return Err(Fault::new(
                ReasonCode::TopicAliasInvalid,
                "a topic alias in a datagram",
            ));
        }
        Ok(publish)
    }
}

/// An acknowledgement as a packet; a success needs no properties.
#[must_use]
pub fn ack_packet(kind: PacketType, packet_id: PacketId, reason: ReasonCode) -> Packet<'static> {
    let ack = Ack {
        packet_id,
        reason,
        properties: ReasonProperties::default(),
    };
    match kind {
        PacketType::PubRec => Packet::PubRec(ack),
        PacketType::PubRel => Packet::PubRel(ack),
        PacketType::PubComp => Packet::PubComp(ack),
        _ => Packet::PubAck(ack),
    }
}

/// Encodes a PUBLISH whose payload may be shared with other receivers.
pub fn put_publish(
    publish: &Publish<'_>,
    version: Version,
    shared: Option<&bytes::Bytes>,
    out: &mut SendBuf,
) {
    let len = publish.payload.len();
    if publish.encode_header(version, len, out).is_ok() {
        match shared {
            Some(payload) => out.put_bytes(payload),
            None => out.put_slice(publish.payload),
        }
    }
}
