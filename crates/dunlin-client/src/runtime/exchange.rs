//! The MQTT session of one client: its engine, and what of the application is
//! under way with the server. Knows no transport and no stream.

mod events;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::transport::Transport;
use dunlin_base::{Instant, QoS, SendBuf, StreamId, Text};
use dunlin_dial::Channel;
use dunlin_mqtt::client::{
    CommandError, Owed, PeerError, Phase, Receipt, Resume, Session, Settings,
};
use dunlin_mqtt::codec::{
    self, Disconnect, DisconnectProperties, PacketId, PublishProperties, ReasonCode, Version,
};
use dunlin_mqtt::packet_ids::Window;
use dunlin_mqtt::scram::Binding;
use tokio::sync::oneshot;

use super::requests::Requests;
use super::scram::Scram;
use crate::error::{DisconnectCause, PublishError};
use crate::message::Publish;
use crate::options::{Options, REQUESTS_MAX, whole_seconds};
use crate::shared::Shared;
use crate::work::{QueuedPublish, Request};
pub(super) use events::Received;
use events::{Events, Next};

/// The session and what waits for its answers.
pub(super) struct Exchange {
    session: Session,
    shared: Arc<Shared>,
    options: Arc<Options>,
    /// The one that the server assigned, if it did.
    client_id: Text,
    /// Answers the wait for the first connection.
    connected: Option<oneshot::Sender<Result<(), DisconnectCause>>>,
    scram: Option<Scram>,
    /// The server has refused to bind SCRAM to the channel.
    without_plus: bool,
    /// Why the connection must end, found while handling what came.
    fault: Option<DisconnectCause>,
    /// A message was acknowledged or received on this connection.
    is_useful: bool,
    in_flight: Window<PacketId, QueuedPublish>,
    requests: Requests,
    /// Room for acknowledgements on their way.
    receipts: Vec<Receipt>,
}

impl Exchange {
    pub(super) fn new(
        shared: Arc<Shared>,
        options: Arc<Options>,
        connected: oneshot::Sender<Result<(), DisconnectCause>>,
    ) -> Self {
        let of_session = &options.session;
        let mut settings = Settings::default();
        settings.connect_timeout = options.link.connect_timeout;
        settings.ping_timeout = of_session.ping_timeout;
        settings.outbound_max = of_session.max_in_flight.saturating_add(REQUESTS_MAX);
        settings.inbound_max = of_session.receive_maximum.saturating_mul(2);
        settings.aliases_in_max = of_session.topic_aliases;
        settings.aliases_out_max = of_session.topic_aliases;
        Self {
            session: Session::new(settings),
            shared,
            client_id: of_session.client_id.clone(),
            options,
            connected: Some(connected),
            scram: None,
            without_plus: false,
            fault: None,
            is_useful: false,
            in_flight: Window::default(),
            requests: Requests::default(),
            receipts: Vec::new(),
        }
    }

    /// Whether CONNACK has come.
    pub(super) fn is_connected(&self) -> bool {
        self.session.phase() == Phase::Connected
    }

    /// Whether the server keeps the session between connections.
    pub(super) fn is_kept(&self) -> bool {
        match self.session.version() {
            Version::V5 => self.session.negotiated().session_expiry_seconds > 0,
            Version::V311 => !self.options.session.clean_start,
        }
    }

    /// Ends the connection, for the first reason that is given.
    pub(super) fn fail(&mut self, cause: DisconnectCause) {
        self.fault.get_or_insert(cause);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    pub(super) fn take_fault(&mut self) -> Option<DisconnectCause> {
        self.fault.take()
    }

    /// Whether a message was acknowledged or received on the connection that
    /// ended.
    pub(super) fn take_usefulness(&mut self) -> bool {
        core::mem::take(&mut self.is_useful)
    }

    /// Whether the client authenticates by SCRAM.
    pub(super) fn wants_channel(&self) -> bool {
        self.options.session.scram.is_some()
    }

    /// The transport says what SCRAM is bound by.
    pub(super) fn bind(&mut self, data: Bytes) {
        if let Some(scram) = &mut self.scram {
            scram.bind(data);
        }
    }

    /// Whether the server has refused only to bind SCRAM to the channel: it is
    /// tried again without.
    pub(super) fn take_plus_refused(&mut self) -> bool {
        let said = self.scram.as_ref().map(Scram::binding);
        let Some(DisconnectCause::Refused { reason, .. }) = &self.fault else {
            return false;
        };
        match (said, *reason) {
            (Some(Binding::Bound(_)), ReasonCode::BadAuthenticationMethod) => {
                self.without_plus = true;
                self.fault = None;
                true
            }
            // It may offer that now.
            (Some(Binding::NotOffered), ReasonCode::NotAuthorized) => {
                self.without_plus = false;
                false
            }
            _ => false,
        }
    }

    /// A transport is open: writes CONNECT. `early`: messages of QoS 1 and 2
    /// that need not wait for CONNACK.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        channel: Channel,
        early: u16,
        is_reconnection: bool,
        out: &mut SendBuf,
    ) {
        let mut first = None;
        if let Some((user, password)) = &self.options.session.scram {
            let scram = Scram::new(channel, self.without_plus);
            match scram.first(user, password) {
                Ok(message) => first = Some((scram.method(), message)),
                Err(error) => {
                    self.fault = Some(DisconnectCause::Scram(error));
                    first = Some((scram.method(), Vec::new()));
                }
            }
            self.scram = Some(scram);
        }
        self.session.set_early_publishes(early);
        let session = &mut self.session;
        let options = &self.options;
        let sent = options.with_connect(
            &self.client_id,
            is_reconnection,
            first.as_ref().map(|(method, first)| (*method, &first[..])),
            |connect| session.connect(now, connect, out),
        );
        if let Err(error) = sent {
            self.fault = Some(DisconnectCause::Options(error));
        }
        let mut stale = Vec::new();
        while let Some(Resume::Request(id)) = self.session.poll_resume() {
            stale.push(id);
        }
        self.requests.take_back(&stale);
    }

    /// The engine's deadline, if it has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.deadline().is_some_and(|at| at <= now)
            && let Err(error) = self.session.handle_timeout(now)
        {
            self.fail(DisconnectCause::Peer(error));
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    /// The transport is not read any more, or again.
    pub(super) fn handle_read_paused(&mut self, now: Instant, paused: bool) {
        self.session.handle_read_paused(now, paused);
    }

    /// The transport is gone.
    pub(super) fn handle_closed(&mut self) {
        self.session.handle_closed();
        self.scram = None;
        self.shared.set_connection(None);
        for (_, queued) in self.in_flight.iter_mut() {
            queued.stream = None;
        }
    }

    /// The client is over.
    pub(super) fn end(&mut self, cause: &DisconnectCause) {
        self.shared.set_connection(None);
        for queued in core::mem::take(&mut self.in_flight).into_values() {
            queued.finish(Err(PublishError::Closed(cause.clone())));
        }
        self.requests.end(cause);
        if let Some(connected) = self.connected.take() {
            let _ = connected.send(Err(cause.clone()));
        }
    }

    /// Takes the first packet of `bytes`: how long it is and what it means;
    /// `None` when it is not complete, or the connection must end.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        bytes: &[u8],
        out: &mut SendBuf,
    ) -> Option<(usize, Received)> {
        let event = match self.session.handle_bytes(now, bytes) {
            Ok(Some((len, event))) => Some((len, event)),
            Ok(None) => None,
            Err(error) => {
                self.fault = Some(DisconnectCause::Peer(error));
                None
            }
        };
        let (len, event) = event?;
        let mut events = Events {
            shared: &self.shared,
            client_id: &mut self.client_id,
            scram: self.scram.as_ref(),
            fault: &mut self.fault,
            is_useful: &mut self.is_useful,
            in_flight: &mut self.in_flight,
            requests: &mut self.requests,
        };
        let received = match events.take(event) {
            Next::Done(received) => received,
            Next::Acknowledge(receipt) => {
                self.take_acknowledged();
                self.session.acknowledge(receipt, ReasonCode::Success);
                Received::Nothing
            }
            Next::Scram(server_first) => {
                self.answer_scram(now, &server_first, out);
                Received::Nothing
            }
        };
        Some((len, received))
    }

    fn answer_scram(&mut self, now: Instant, server_first: &[u8], out: &mut SendBuf) {
        let scram = self.scram.as_mut().zip(self.options.session.scram.as_ref());
        let Some((scram, (user, password))) = scram else {
            tracing::error!("the engine asks for an authentication that CONNECT did not offer");
            return;
        };
        match scram.respond(user, password, server_first) {
            Ok(answer) => {
                let method = scram.method();
                let sent = self.session.authenticate(now, method, &answer, out);
                debug_assert!(sent.is_ok(), "an exchange is under way");
            }
            Err(error) => self.fault = Some(DisconnectCause::Scram(error)),
        }
    }

    /// CONNACK has come over this transport: tells the application, and looks
    /// after the session.
    pub(super) fn connected(&self, transport: Transport) {
        let negotiated = *self.session.negotiated();
        self.shared.set_connection(Some((negotiated, transport)));
    }

    /// Makes subscriptions again that the server has lost.
    pub(super) fn restore_subscriptions(&mut self) {
        if !self.session_present() {
            self.requests.subscribe_again();
        }
    }

    pub(super) fn session_present(&self) -> bool {
        self.session.negotiated().session_present
    }

    /// Answers the wait for the first connection.
    pub(super) fn answer_connected(&mut self) {
        if let Some(connected) = self.connected.take() {
            let _ = connected.send(Ok(()));
        }
    }

    /// Hands the application's acknowledgements to the engine.
    pub(super) fn take_acknowledged(&mut self) {
        self.shared.inbox.take_acknowledged(&mut self.receipts);
        for receipt in self.receipts.drain(..) {
            // One of an earlier connection may have lapsed.
            self.session.acknowledge(receipt, ReasonCode::Success);
        }
    }

    pub(super) fn request(&mut self, request: Request) {
        self.requests.push(request);
    }

    pub(super) fn write_requests(&mut self, now: Instant, out: &mut SendBuf) {
        self.requests.write(now, &mut self.session, out);
    }

    /// Whether all requests have been written.
    pub(super) fn requests_are_written(&self) -> bool {
        self.requests.is_written()
    }

    /// What the protocol owes next, and the stream of the message that it
    /// belongs to.
    pub(super) fn owed(&self) -> Option<Option<StreamId>> {
        Some(match self.session.owed()? {
            Owed::Release(id) => self.in_flight.get(id).and_then(|queued| queued.stream),
            _ => None,
        })
    }

    /// Writes one packet that is owed, and tells whether there was one.
    pub(super) fn write_owed(&mut self, now: Instant, out: &mut SendBuf) -> bool {
        matches!(self.session.poll_output(now, out), Ok(true))
    }

    /// Writes messages of earlier connections on control. Gives the topics of
    /// those that were written.
    pub(super) fn write_again(&mut self, now: Instant, out: &mut SendBuf) -> Vec<Text> {
        let mut topics = Vec::new();
        while let Some(resume) = self.session.poll_resume() {
            match resume {
                Resume::Completed(id) => {
                    if let Some(queued) = self.in_flight.take(id) {
                        queued.finish(Ok(ReasonCode::Success));
                    }
                }
                Resume::Publish(id) => topics.extend(self.send_again(now, id, out)),
                _ => {}
            }
        }
        topics
    }

    fn send_again(&mut self, now: Instant, id: PacketId, out: &mut SendBuf) -> Option<Text> {
        let Some(queued) = self.in_flight.get_mut(id) else {
            tracing::error!("a message in flight is missing");
            self.session.abandon(id);
            return None;
        };
        let payload = &queued.publish.payload;
        let packet = encode(&queued.publish);
        let put = |out: &mut SendBuf| {
            out.put_bytes(payload);
            Ok(())
        };
        let sent = self
            .session
            .resend_with(now, id, &packet, payload.len(), out, put);
        match sent {
            Ok(()) => {
                queued.stream = Some(StreamId::CONTROL);
                Some(queued.publish.topic.clone())
            }
            Err(error) => {
                self.session.abandon(id);
                if let Some(queued) = self.in_flight.take(id) {
                    queued.finish(Err(self.unsupported(error)));
                }
                None
            }
        }
    }

    /// Why the server takes no such message.
    pub(super) fn unsupported(&self, error: CommandError) -> PublishError {
        match error {
            CommandError::PacketTooLarge => PublishError::TooLarge {
                max: self.session.negotiated().packet_bytes_max,
            },
            error => PublishError::NotSupported(error),
        }
    }

    /// Whether a message of this QoS can be written now.
    pub(super) fn can_publish(&self, qos: QoS) -> bool {
        self.session.can_publish(qos)
    }

    /// Writes a message. `in_order`: after all that were written before, so
    /// that it may have a topic alias.
    pub(super) fn publish(
        &mut self,
        now: Instant,
        queued: &QueuedPublish,
        in_order: bool,
        out: &mut SendBuf,
    ) -> Result<Option<PacketId>, CommandError> {
        let payload = &queued.publish.payload;
        let packet = encode(&queued.publish);
        let put = |out: &mut SendBuf| {
            out.put_bytes(payload);
            Ok(())
        };
        self.session.use_aliases(in_order);
        let sent = self
            .session
            .publish_with(now, &packet, payload.len(), out, put);
        self.session.use_aliases(true);
        sent
    }

    /// A message was written on a stream and waits for its acknowledgement.
    pub(super) fn keep(&mut self, id: PacketId, mut queued: QueuedPublish, stream: StreamId) {
        queued.stream = Some(stream);
        self.in_flight.insert(id, queued);
    }

    /// Writes DISCONNECT so that the server does not take a change of the
    /// connection for the client's death; the session stays.
    pub(super) fn write_leave(&mut self, now: Instant, out: &mut SendBuf) -> bool {
        let disconnect = Disconnect {
            reason: ReasonCode::NORMAL_DISCONNECTION,
            ..Disconnect::default()
        };
        self.session.disconnect(now, &disconnect, out).is_ok()
    }

    /// Writes the last DISCONNECT.
    pub(super) fn write_disconnect(
        &mut self,
        now: Instant,
        reason: ReasonCode,
        expiry: Option<Duration>,
        out: &mut SendBuf,
    ) {
        let options = &self.options;
        let is_v5 = options.session.version == Version::V5;
        // A session kept only for reconnections is of no use any more.
        let is_own = options.session.session_expiry.is_none();
        let own_expiry = (is_own && options.session_expiry_seconds() > 0).then_some(Duration::ZERO);
        let expiry = expiry.or(own_expiry).filter(|_| is_v5);
        if !is_v5 && reason == ReasonCode::DisconnectWithWill {
            // MQTT 3.1.1 publishes the will of a client that sends no
            // DISCONNECT.
            return;
        }
        let mut disconnect = Disconnect {
            reason: match is_v5 {
                true => reason,
                false => ReasonCode::NORMAL_DISCONNECTION,
            },
            properties: DisconnectProperties {
                session_expiry_interval: expiry.map(whole_seconds),
                ..DisconnectProperties::default()
            },
        };
        if self.session.disconnect(now, &disconnect, out).is_err() {
            disconnect.properties.session_expiry_interval = None;
            let _ = self.session.disconnect(now, &disconnect, out);
        }
    }

    /// A data stream carries what the server must not send before CONNACK.
    pub(super) fn fail_too_early(&mut self) {
        let error = PeerError::UnexpectedPacket("PUBLISH");
        self.fault = Some(DisconnectCause::Peer(error));
    }
}

/// The packet without its payload.
fn encode(publish: &Publish) -> codec::Publish<'_> {
    let mut packet = codec::Publish {
        qos: publish.qos,
        retain: publish.retain,
        topic: &publish.topic,
        ..codec::Publish::default()
    };
    packet.properties.message_expiry_interval = publish.expiry.map(whole_seconds);
    if let Some(from) = publish.properties.as_deref() {
        packet.properties = PublishProperties {
            payload_format_indicator: from.payload_is_utf8,
            response_topic: from.response_topic.as_deref(),
            correlation_data: from.correlation_data.as_deref(),
            content_type: from.content_type.as_deref(),
            user_properties: from.user_properties.as_slice().into(),
            ..packet.properties
        };
    }
    packet
}
