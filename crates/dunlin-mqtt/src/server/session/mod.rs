//! A session as MQTT sees it: its two halves, its subscriptions, its flows and
//! how long it lives.
//!
//! Packets and time come in; what follows for subscriptions, streams and the
//! store comes out. Who may do what, where messages go and what is on disk is
//! not known here.

use alloc::vec::Vec;

use dunlin_base::{Instant, QoS, StreamId, Text};
use dunlin_mqtt_codec::{Ack as AckPacket, PacketType, Publish, ReasonCode, Version};

use super::inbound::{Ack, AckToken, Inbound, Receipt, Release};
use super::outbound::{Outbound, Received};
use crate::flow::Flows;
use crate::server::Fault;

mod flows;
mod lifetime;
mod shapes;
mod subscribing;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use lifetime::{Due, Lifetime, Will};
pub use subscribing::{Limits, Made, Subscribing};
pub use subscriptions::{Subscription, Subscriptions};

/// What has changed for the subscriptions of a session, for the router and the
/// store.
#[derive(Debug, Default)]
pub struct Changes {
    /// Filters of those that ended.
    pub ended: Vec<Text>,
    /// Those whose messages go to another stream.
    pub moved: Vec<(Text, Subscription)>,
}

/// What a PUBLISH is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Route it.
    New,
    /// It was routed before: its acknowledgement may be due again.
    Repeated,
    /// It is being routed: its acknowledgement will come.
    Pending,
}

/// What follows from an acknowledgement of the client.
#[derive(Debug)]
pub enum Step {
    /// The client is done with a message: there is room for the next one.
    Settled(Received),
    /// Answer with this packet.
    Answer(PacketType, ReasonCode),
    /// Store that PUBREC came, then call [`Outbound::handle_release_stored`].
    StoreRelease {
        /// The message's place in the store, no longer needed.
        seq: u64,
    },
    /// Forget the identifier of a PUBREL, in the store too, then call
    /// [`Inbound::handle_released`].
    Release,
    /// Nothing now.
    Nothing,
}

const WRONG_ACK: Fault = Fault::protocol("an acknowledgement of the wrong kind");

/// A session.
#[derive(Debug, Default)]
pub struct Session {
    /// Version of the protocol on its last connection.
    pub version: Version,
    /// Its expiry and its will.
    pub lifetime: Lifetime,
    /// Its subscriptions.
    pub subscriptions: Subscriptions,
    /// The sending half.
    pub outbound: Outbound,
    /// The receiving half.
    pub inbound: Inbound,
    flows: Flows,
}

impl Session {
    /// A session without subscriptions and messages, that ends with its
    /// connection.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            ..Self::default()
        }
    }

    /// CONNACK has left: both halves go on where they were, and all
    /// subscriptions are those of the control stream. `receive_maximum` is what
    /// CONNACK announced.
    pub fn handle_connected(&mut self, now: Instant, receive_maximum: u16) -> Changes {
        self.inbound.handle_connected(receive_maximum);
        self.outbound.handle_resumed();
        let ended = self.expire_flows(now);
        let moved = self
            .subscriptions
            .move_to(StreamId::CONTROL, |s| s.stream != StreamId::CONTROL);
        Changes { ended, moved }
    }

    /// The connection is gone, and with it all streams. Subscriptions made on
    /// data streams stay if `durable`, those of flows if they are to.
    pub fn handle_streams_lost(&mut self, durable: bool, now: Instant) -> Vec<Text> {
        let lost = self.flows.lose_all(now);
        self.subscriptions.end(|s| {
            let unnamed = s.flow == 0 && s.stream != StreamId::CONTROL;
            (unnamed && !durable) || (s.flow != 0 && lost.contains(&s.flow))
        })
    }

    /// A data stream ended, in order or not. Its subscriptions go on, on
    /// control, if the session is persistent and they outlive it; otherwise
    /// they end with it, as with EMQX.
    pub fn handle_stream_ended(
        &mut self,
        stream: StreamId,
        flow: u64,
        in_order: bool,
        durable: bool,
        now: Instant,
    ) -> Changes {
        self.inbound.adopt(stream);
        let mut ended = match self.flows.end(flow, stream, in_order, now) {
            true => self.subscriptions.end(|s| s.flow == flow),
            false => Vec::new(),
        };
        if self.lifetime.is_persistent() && self.outlives(stream, flow, durable) {
            let moved = self
                .subscriptions
                .move_to(StreamId::CONTROL, |s| s.stream == stream);
            return Changes { ended, moved };
        }
        ended.append(&mut self.subscriptions.end(|s| s.stream == stream));
        Changes {
            ended,
            moved: Vec::new(),
        }
    }

    /// Whether a subscription made on a stream outlives the connection, where
    /// those of streams without a name do if `durable`.
    #[must_use]
    pub fn outlives(&self, stream: StreamId, flow: u64, durable: bool) -> bool {
        stream == StreamId::CONTROL || self.flows.keeps_subscriptions(flow).unwrap_or(durable)
    }

    /// Takes a PUBLISH, whose acknowledgement waits for `token` and leaves on
    /// `stream`.
    ///
    /// # Errors
    ///
    /// The client overran the Receive Maximum.
    pub fn handle_publish(
        &mut self,
        publish: &Publish<'_>,
        stream: StreamId,
        token: AckToken,
    ) -> Result<Admission, Fault> {
        let Some(packet_id) = publish.packet_id else {
            return Ok(Admission::New);
        };
        let ack = Ack {
            stream,
            packet_id,
            qos: publish.qos,
            reason: ReasonCode::Success,
        };
        if publish.qos == QoS::ExactlyOnce {
            self.inbound.resume(stream, packet_id, publish.dup);
        }
        match self.inbound.handle_publish(ack, token) {
            Receipt::New => Ok(Admission::New),
            Receipt::Pending => Ok(Admission::Pending),
            Receipt::Duplicate => Ok(Admission::Repeated),
            //= mqtt5#[MQTT-3.3.4-8]
            Receipt::QuotaExceeded => Err(Fault::new(
                ReasonCode::ReceiveMaximumExceeded,
                "more messages in flight than the Receive Maximum",
            )),
        }
    }

    /// Takes a PUBACK, PUBREC, PUBREL or PUBCOMP that came on `stream`.
    ///
    /// # Errors
    ///
    /// It is not of the kind that the message under this identifier waits for.
    pub fn handle_ack(
        &mut self,
        kind: PacketType,
        stream: StreamId,
        ack: &AckPacket<'_>,
    ) -> Result<Step, Fault> {
        let id = ack.packet_id;
        if kind == PacketType::PubRec && self.outbound.qos(id) == Some(QoS::AtLeastOnce) {
            return Err(WRONG_ACK);
        }
        let step = self.step(kind, stream, ack);
        match step {
            Step::Settled(Received::Unknown) if self.outbound.qos(id).is_some() => Err(WRONG_ACK),
            step => Ok(step),
        }
    }

    fn step(&mut self, kind: PacketType, stream: StreamId, ack: &AckPacket<'_>) -> Step {
        let id = ack.packet_id;
        match kind {
            PacketType::PubAck => Step::Settled(self.outbound.handle_puback(id)),
            PacketType::PubComp => Step::Settled(self.outbound.handle_pubcomp(id)),
            //= mqtt5#[MQTT-4.3.3-4]
            PacketType::PubRec if ack.reason.is_error() => {
                Step::Settled(self.outbound.handle_refused(id))
            }
            PacketType::PubRec => match self.outbound.handle_pubrec(id) {
                Received::Release => Step::Answer(PacketType::PubRel, ReasonCode::Success),
                Received::StoreRelease { seq } => Step::StoreRelease { seq },
                Received::Unknown => {
                    let reason = ReasonCode::PacketIdentifierNotFound;
                    Step::Answer(PacketType::PubRel, reason)
                }
                Received::Pending | Received::Done { .. } => Step::Nothing,
            },
            //= mqtt5#[MQTT-4.3.3-11]
            PacketType::PubRel => match self.inbound.handle_pubrel(stream, id) {
                Release::Begin => Step::Release,
                Release::Pending => Step::Nothing,
                Release::Unknown => {
                    let reason = ReasonCode::PacketIdentifierNotFound;
                    Step::Answer(PacketType::PubComp, reason)
                }
            },
            _ => Step::Nothing,
        }
    }
}
