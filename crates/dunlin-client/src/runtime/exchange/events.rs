//! What the server's packets mean for what is under way.

use core::time::Duration;
use std::sync::Arc;

use dunlin_base::{MessageProperties, StreamId, Text};
use dunlin_mqtt::client::{Event, Receipt};
use dunlin_mqtt::codec::{Ack, ConnAck, PacketId, Publish, ReasonCode};
use dunlin_mqtt::packet_ids::Window;
use dunlin_mqtt::streams::option;

use super::super::requests::Requests;
use super::super::scram::Scram;
use crate::arguments::Payload;
use crate::error::{DisconnectCause, PublishError};
use crate::inbox::Pushed;
use crate::message::{Claim, Message};
use crate::shared::Shared;
use crate::work::QueuedPublish;

/// What a packet from the server means outside of the session.
#[derive(Debug)]
pub(in super::super) enum Received {
    /// Nothing.
    Nothing,
    /// The connection stands; data streams that the server announced.
    Connected(Option<usize>),
    /// The inbox is full.
    Full,
    /// The server has the message that went on this stream.
    Arrived(StreamId),
    /// The exchange of a message that went on this stream is over.
    Acknowledged(Text, StreamId),
}

/// What is left to do for an event when it does not borrow from the engine any
/// more.
pub(super) enum Next {
    Done(Received),
    /// The application takes no messages.
    Acknowledge(Receipt),
    /// The server's first SCRAM message.
    Scram(Vec<u8>),
}

/// What an event may change, apart from the engine that it borrows from.
pub(super) struct Events<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) client_id: &'a mut Text,
    pub(super) scram: Option<&'a Scram>,
    pub(super) fault: &'a mut Option<DisconnectCause>,
    pub(super) is_useful: &'a mut bool,
    pub(super) in_flight: &'a mut Window<PacketId, QueuedPublish>,
    pub(super) requests: &'a mut Requests,
}

impl Events<'_> {
    pub(super) fn take(&mut self, event: Event<'_>) -> Next {
        let received = match event {
            Event::Connected(connack) => self.on_connack(&connack),
            Event::Refused(connack) => {
                *self.fault = Some(DisconnectCause::Refused {
                    reason: connack.reason,
                    text: connack.properties.reason_string.map(Into::into),
                });
                Received::Nothing
            }
            Event::Auth(auth) => {
                let data = auth.properties.authentication_data.unwrap_or_default();
                return Next::Scram(data.to_vec());
            }
            Event::Message(publish, receipt) => return self.on_message(&publish, receipt),
            Event::Recorded(id) => self.on_recorded(id),
            Event::Published(ack) => self.on_published(&ack),
            Event::Subscribed(suback) => {
                self.requests
                    .answered(suback.packet_id, suback.reasons.iter().collect());
                Received::Nothing
            }
            Event::Unsubscribed(unsuback) => {
                self.requests
                    .answered(unsuback.packet_id, unsuback.reasons.iter().collect());
                Received::Nothing
            }
            Event::Disconnected(disconnect) => {
                *self.fault = Some(DisconnectCause::Server {
                    reason: disconnect.reason,
                    text: disconnect.properties.reason_string.map(Into::into),
                });
                Received::Nothing
            }
            _ => Received::Nothing,
        };
        Next::Done(received)
    }

    fn on_connack(&mut self, connack: &ConnAck<'_>) -> Received {
        if let Some(scram) = self.scram {
            let data = connack.properties.authentication_data.unwrap_or_default();
            if let Err(error) = scram.verify(data) {
                *self.fault = Some(DisconnectCause::Scram(error));
                return Received::Nothing;
            }
        }
        if let Some(id) = connack.properties.assigned_client_identifier {
            *self.client_id = Text::from(id);
            self.shared.status().client_id = Text::from(id);
        }
        let properties = connack.properties.user_properties.iter();
        let announced = properties
            .filter(|(name, _)| *name == option::DATA_STREAMS)
            .find_map(|(_, value)| value.parse().ok());
        Received::Connected(announced)
    }

    fn on_message(&mut self, publish: &Publish<'_>, receipt: Option<Receipt>) -> Next {
        *self.is_useful = true;
        let message = Message {
            topic: Text::from(publish.topic),
            payload: Payload::from(publish.payload).0,
            qos: publish.qos,
            retain: publish.retain,
            dup: publish.dup,
            packet_id: publish.packet_id,
            expires_in: publish
                .properties
                .message_expiry_interval
                .map(|seconds| Duration::from_secs(seconds.into())),
            subscription_ids: publish.properties.subscription_identifiers.iter().collect(),
            properties: properties(publish),
            claim: receipt.map(|receipt| Claim {
                client: Arc::clone(self.shared) as _,
                receipt,
            }),
        };
        match (self.shared.inbox.push(message), receipt) {
            (Pushed::Unwanted, Some(receipt)) => Next::Acknowledge(receipt),
            (Pushed::Full, _) => Next::Done(Received::Full),
            (Pushed::Room | Pushed::Unwanted, _) => Next::Done(Received::Nothing),
        }
    }

    fn on_recorded(&mut self, id: PacketId) -> Received {
        let Some(queued) = self.in_flight.get_mut(id) else {
            tracing::error!("a message in flight is missing");
            return Received::Nothing;
        };
        queued.publish.payload.clear();
        queued.stream.map_or(Received::Nothing, Received::Arrived)
    }

    fn on_published(&mut self, ack: &Ack<'_>) -> Received {
        let Some(queued) = self.in_flight.take(ack.packet_id) else {
            tracing::error!("a message in flight is missing");
            return Received::Nothing;
        };
        *self.is_useful = true;
        let topic = queued.publish.topic.clone();
        let stream = queued.stream;
        let reason = ack.reason;
        // PUBCOMP with "not found": the exchange is over all the same.
        let failed = reason.is_error() && reason != ReasonCode::PacketIdentifierNotFound;
        queued.finish(match failed {
            true => Err(PublishError::Refused { reason }),
            false if reason.is_error() => Ok(ReasonCode::Success),
            false => Ok(reason),
        });
        stream.map_or(Received::Nothing, |stream| {
            Received::Acknowledged(topic, stream)
        })
    }
}

fn properties(publish: &Publish<'_>) -> Option<Box<MessageProperties>> {
    let from = &publish.properties;
    let properties = MessageProperties {
        payload_is_utf8: from.payload_format_indicator,
        content_type: from.content_type.map(Text::from),
        response_topic: from.response_topic.map(Text::from),
        correlation_data: from.correlation_data.map(|data| Payload::from(data).0),
        user_properties: from
            .user_properties
            .iter()
            .map(|(name, value)| (Text::from(name), Text::from(value)))
            .collect(),
    };
    (!properties.is_empty()).then(|| Box::new(properties))
}
