//! What comes from the server: bytes to packets to the application.

use dunlin_base::{Instant, MessageProperties, QoS, StreamId, Text};
use dunlin_mqtt::client::{Event, PeerError, Phase, Receipt};
use dunlin_mqtt::codec::{
    Ack, ConnAck, Packet, PacketId, Publish, ReasonCode, ReasonCodes, decode_from_server,
};
use dunlin_mqtt::{flow, scram};

use super::RequestKind;
use super::data::flow_header;
use super::session::{Core, Session};
use crate::error::{DisconnectCause, PublishError};
use crate::events::ConnectionEvent;
use crate::inbox::{Claim, Pushed};
use crate::message::{Message, Payload};

/// Bytes that wait on data streams for CONNACK: more than a server that knows
/// the client sends ahead of it.
const AHEAD_BYTES_MAX: usize = 256 * 1024;

/// What an event asks of the engine, once it does not borrow from it any more.
enum Next {
    Nothing,
    /// Nobody wants the message.
    Acknowledge(Receipt),
    /// Answer the server's first SCRAM message.
    Scram(Vec<u8>),
    /// The connection stands.
    Connected,
}

impl Session {
    /// Bytes arrived.
    pub(super) fn receive(&mut self, now: Instant, data: &[u8]) {
        let was_connected = self.engine.phase() == Phase::Connected;
        if self.core.input.is_empty() {
            let taken = self.parse(now, data);
            self.core
                .input
                .extend_from_slice(data.get(taken..).unwrap_or_default());
        } else {
            self.core.input.extend_from_slice(data);
            if !self.core.inbox_full {
                self.parse_input(now);
            }
        }
        if !was_connected && self.engine.phase() == Phase::Connected {
            self.parse_streams(now);
        }
    }

    /// There may be room in the inbox for what waits.
    pub(super) fn receive_rest(&mut self, now: Instant) {
        let core = &mut self.core;
        if core.shared.inbox.has_room(core.options.receive_queue) {
            core.inbox_full = false;
            self.parse_input(now);
            self.parse_streams(now);
        }
    }

    /// Bytes arrived on a stream besides control.
    pub(super) fn receive_on(&mut self, now: Instant, stream: StreamId, data: &[u8]) {
        let input = self.core.data.inputs.entry(stream).or_default();
        input.bytes.extend_from_slice(data);
        if self.engine.phase() != Phase::Connected {
            // Streams overtake each other: this one waits for CONNACK.
            if self.core.data.waiting_bytes() > AHEAD_BYTES_MAX {
                let error = PeerError::UnexpectedPacket("PUBLISH");
                self.core.fault = Some(DisconnectCause::Peer(error));
            }
        } else if !self.core.inbox_full {
            self.parse_stream(now, stream);
        }
    }

    fn parse_streams(&mut self, now: Instant) {
        let streams: Vec<StreamId> = self.core.data.inputs.keys().copied().collect();
        for stream in streams {
            if self.core.inbox_full {
                return;
            }
            self.parse_stream(now, stream);
        }
    }

    fn parse_stream(&mut self, now: Instant, stream: StreamId) {
        let Some(input) = self.core.data.inputs.get_mut(&stream) else {
            return;
        };
        if !input.begun {
            let header = match stream.is_server_initiated() {
                true => flow_header(&input.bytes),
                false => Ok(Some(0)),
            };
            match header {
                Ok(Some(len)) => {
                    input.begun = true;
                    input.bytes.drain(..len);
                }
                Ok(None) => return,
                Err(()) => return self.core.data.refuse(stream),
            }
        }
        let bytes = core::mem::take(&mut input.bytes);
        let taken = self.parse(now, &bytes);
        let ended = match self.core.data.inputs.get_mut(&stream) {
            Some(input) => {
                let rest = bytes.get(taken..).unwrap_or_default();
                input.bytes = rest.to_vec();
                input.ended && rest.is_empty()
            }
            None => false,
        };
        if ended {
            self.core.data.inputs.remove(&stream);
        }
    }

    /// A datagram arrived: one PUBLISH of QoS 0, or nothing that counts.
    pub(super) fn receive_datagram(&mut self, now: Instant, data: &[u8]) {
        let wanted = match decode_from_server(data, self.core.options.version) {
            Ok(Packet::Publish(publish)) if !self.core.inbox_full => {
                let has_alias = publish.properties.topic_alias.is_some();
                publish.qos == QoS::AtMostOnce && !has_alias
            }
            _ => false,
        };
        let connected = self.engine.phase() == Phase::Connected;
        let taken = wanted && connected && self.parse(now, data) == data.len();
        let mut status = self.core.shared.status();
        match taken {
            true => status.streams.datagrams_received += 1,
            false => status.streams.datagrams_ignored += 1,
        }
    }

    fn parse_input(&mut self, now: Instant) {
        let mut input = core::mem::take(&mut self.core.input);
        let taken = self.parse(now, &input);
        if taken >= input.len() {
            // An idle client keeps no buffer.
            input = Vec::new();
        } else {
            input.drain(..taken);
        }
        self.core.input = input;
    }

    /// Takes whole packets; tells how many bytes they were.
    fn parse(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let mut at = 0;
        while !self.core.inbox_full && self.core.fault.is_none() {
            let rest = bytes.get(at..).unwrap_or_default();
            let next = match self.engine.handle_bytes(now, rest) {
                Ok(None) => break,
                Ok(Some((len, event))) => {
                    at += len;
                    self.core.on_event(event)
                }
                Err(error) => {
                    self.core.fault = Some(DisconnectCause::Peer(error));
                    break;
                }
            };
            match next {
                Next::Nothing => {}
                Next::Acknowledge(receipt) => {
                    self.take_acknowledged();
                    self.engine.acknowledge(receipt, ReasonCode::Success);
                }
                Next::Scram(server_first) => self.answer_scram(now, &server_first),
                Next::Connected => self.connected(),
            }
            // The engine holds at most one answer of some kinds.
            self.write_owed(now);
        }
        at
    }

    fn answer_scram(&mut self, now: Instant, server_first: &[u8]) {
        let core = &mut self.core;
        let (Some((user, password)), Some(exchange)) = (&core.options.scram, &mut core.scram)
        else {
            return;
        };
        let client = scram::Client {
            user,
            password,
            nonce: &exchange.nonce,
        };
        let mut answer = Vec::new();
        match client.respond(server_first, &mut answer) {
            Ok(expect) => {
                exchange.expect = Some(expect);
                let sent = self
                    .engine
                    .authenticate(now, scram::METHOD, &answer, &mut core.out);
                debug_assert!(sent.is_ok(), "an exchange is under way");
            }
            Err(error) => core.fault = Some(DisconnectCause::Scram(error)),
        }
    }

    /// CONNACK has come: tells those who wait, and looks after the session.
    fn connected(&mut self) {
        let negotiated = *self.engine.negotiated();
        let core = &mut self.core;
        core.failures = 0;
        core.early.connected();
        {
            let mut status = core.shared.status();
            status.negotiated = Some(negotiated);
            status.transport = Some(core.transport);
        }
        core.start_streams();
        if core.was_connected && !negotiated.session_present {
            core.subscribe_again();
        }
        core.was_connected = true;
        core.shared.emit(ConnectionEvent::Connected {
            session_present: negotiated.session_present,
            transport: core.transport,
        });
        if let Some(connected) = core.connected.take() {
            let _ = connected.send(Ok(()));
        }
    }

    /// Hands the application's acknowledgements to the engine.
    pub(super) fn take_acknowledged(&mut self) {
        let core = &mut self.core;
        core.shared.inbox.take_acknowledged(&mut core.receipts);
        for receipt in core.receipts.drain(..) {
            // One of an earlier connection may have lapsed.
            self.engine.acknowledge(receipt, ReasonCode::Success);
        }
    }
}

impl Core {
    fn on_event(&mut self, event: Event<'_>) -> Next {
        match event {
            Event::Connected(connack) => return self.on_connack(&connack),
            Event::Refused(connack) => {
                self.fault = Some(DisconnectCause::Refused {
                    reason: connack.reason,
                    text: connack.properties.reason_string.map(Into::into),
                });
            }
            Event::Auth(auth) => {
                let data = auth.properties.authentication_data.unwrap_or_default();
                return Next::Scram(data.to_vec());
            }
            Event::Message(publish, receipt) => return self.on_message(&publish, receipt),
            Event::Recorded(id) => {
                if let Some(queued) = self.in_flight.get_mut(&id) {
                    if let Some(stream) = queued.stream {
                        self.data.routes.arrived(stream);
                    }
                    queued.publish.payload.clear();
                }
            }
            Event::Published(ack) => self.on_published(&ack),
            Event::Subscribed(suback) => self.on_answer(suback.packet_id, suback.reasons),
            Event::Unsubscribed(unsuback) => self.on_answer(unsuback.packet_id, unsuback.reasons),
            Event::Disconnected(disconnect) => {
                self.fault = Some(DisconnectCause::Server {
                    reason: disconnect.reason,
                    text: disconnect.properties.reason_string.map(Into::into),
                });
            }
            _ => {}
        }
        Next::Nothing
    }

    fn on_connack(&mut self, connack: &ConnAck<'_>) -> Next {
        if let Some(scram) = &self.scram {
            let data = connack.properties.authentication_data.unwrap_or_default();
            let verified = match &scram.expect {
                Some(expect) => expect.verify(data),
                // The server skipped the exchange and so proved nothing.
                None => Err(scram::ScramError::Proof),
            };
            if let Err(error) = verified {
                self.fault = Some(DisconnectCause::Scram(error));
                return Next::Nothing;
            }
        }
        let user = connack.properties.user_properties.iter();
        self.data.announced = user
            .filter(|(name, _)| *name == flow::option::DATA_STREAMS)
            .find_map(|(_, value)| value.parse().ok());
        if let Some(id) = connack.properties.assigned_client_identifier {
            self.options.client_id = Text::from(id);
            self.shared.status().client_id = Text::from(id);
        }
        Next::Connected
    }

    fn on_message(&mut self, publish: &Publish<'_>, receipt: Option<Receipt>) -> Next {
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
                .map(|seconds| core::time::Duration::from_secs(seconds.into())),
            subscription_ids: publish.properties.subscription_identifiers.iter().collect(),
            properties: properties(publish),
            claim: receipt.map(|receipt| Claim {
                shared: self.shared.clone(),
                receipt,
            }),
        };
        match self.shared.inbox.push(message, self.options.receive_queue) {
            Pushed::Room => Next::Nothing,
            Pushed::Full => {
                self.inbox_full = true;
                Next::Nothing
            }
            Pushed::Unwanted => receipt.map_or(Next::Nothing, Next::Acknowledge),
        }
    }

    fn on_published(&mut self, ack: &Ack<'_>) {
        let Some(queued) = self.in_flight.remove(&ack.packet_id) else {
            return;
        };
        if let Some(stream) = queued.stream {
            let topic = &queued.publish.topic;
            self.data.routes.acknowledged(topic, stream);
        }
        let reason = ack.reason;
        // PUBCOMP with "not found": the exchange is over all the same.
        let failed = reason.is_error() && reason != ReasonCode::PacketIdentifierNotFound;
        queued.finish(match failed {
            true => Err(PublishError::Refused { reason }),
            false if reason.is_error() => Ok(ReasonCode::Success),
            false => Ok(reason),
        });
    }

    fn on_answer(&mut self, id: PacketId, reasons: ReasonCodes<'_>) {
        let Some(request) = self.requested.remove(&id) else {
            return;
        };
        match &request.kind {
            RequestKind::Subscribe { filters, id } => {
                for ((filter, options), reason) in filters.iter().zip(reasons.iter()) {
                    if !reason.is_error() {
                        self.subscriptions.insert(filter.clone(), (*options, *id));
                    }
                }
            }
            RequestKind::Unsubscribe { filters } => {
                for filter in filters {
                    self.subscriptions.remove(filter.as_bytes());
                }
            }
        }
        request.finish(Ok(reasons.iter().collect()));
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
