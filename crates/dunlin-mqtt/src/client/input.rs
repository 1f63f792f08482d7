//! What comes from the server and from time.

use dunlin_base::{Instant, QoS};
use dunlin_mqtt_codec::{
    Ack, Auth as AuthPacket, ConnAck, Disconnect, Packet, Publish, ReasonCode, SubAck, UnsubAck,
    Version, decode_from_server, peek,
};

use super::inbound::Arrival;
use super::outbound::OutState;
use super::{
    AliasStore, Auth, Engine, Event, Negotiated, PeerError, Phase, Ping, Storage, Stray, method_id,
};

impl<S: Storage> Engine<S> {
    /// Takes the first packet of `bytes`: how long it is and what it means;
    /// `None` when it is not complete yet. A packet larger than CONNECT allows
    /// is refused before it is complete.
    ///
    /// # Errors
    /// The server broke the protocol: the connection is over.
    pub fn handle_bytes<'e>(
        &'e mut self,
        now: Instant,
        bytes: &'e [u8],
    ) -> Result<Option<(usize, Event<'e>)>, PeerError> {
        let frame = match peek(bytes, self.packet_bytes_max) {
            Ok(frame) => frame,
            Err(error) => return Err(self.fail(error.into())),
        };
        let Some(frame) = frame else {
            return Ok(None);
        };
        let Some(packet) = bytes.get(..frame.total_len) else {
            return Ok(None);
        };
        match decode_from_server(packet, self.version) {
            Ok(packet) => Ok(Some((frame.total_len, self.handle_packet(now, packet)?))),
            Err(error) => Err(self.fail(error.into())),
        }
    }

    /// Takes a decoded packet.
    ///
    /// # Errors
    /// The server broke the protocol: the connection is over.
    pub fn handle_packet<'e>(
        &'e mut self,
        now: Instant,
        packet: Packet<'e>,
    ) -> Result<Event<'e>, PeerError> {
        self.last_received = now;
        self.ping.deadline = None;
        match (self.phase, packet) {
            (Phase::Idle | Phase::Closing, _) => Ok(Event::Nothing),
            (Phase::Connecting, Packet::ConnAck(connack)) => self.on_connack(now, connack),
            (_, Packet::Auth(auth)) => self.on_auth(auth),
            (Phase::Connected, Packet::Publish(publish)) => self.on_publish(publish),
            (Phase::Connected, Packet::PubAck(ack)) => self.on_puback(ack),
            (Phase::Connected, Packet::PubRec(ack)) => self.on_pubrec(ack),
            (Phase::Connected, Packet::PubRel(ack)) => Ok(self.on_pubrel(ack)),
            (Phase::Connected, Packet::PubComp(ack)) => self.on_pubcomp(ack),
            (Phase::Connected, Packet::SubAck(suback)) => self.on_suback(suback),
            (Phase::Connected, Packet::UnsubAck(unsuback)) => self.on_unsuback(unsuback),
            (Phase::Connected, Packet::PingResp) => Ok(Event::Nothing),
            (Phase::Connected, Packet::Disconnect(disconnect)) if self.version == Version::V5 => {
                Ok(self.on_disconnect(disconnect))
            }
            // Among them a second CONNACK [MQTT-3.2.0-2], and anything but
            // CONNACK and AUTH before the first [MQTT-3.2.0-1].
            (_, packet) => Err(self.fail(PeerError::UnexpectedPacket(name(&packet)))),
        }
    }

    /// Time has passed; see [`Engine::poll_timeout`].
    ///
    /// # Errors
    /// The server is silent: the connection is over.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), PeerError> {
        match self.phase {
            Phase::Connecting if self.connect_deadline.is_some_and(|at| at <= now) => {
                return Err(self.fail(PeerError::ConnectTimeout));
            }
            Phase::Connected => {}
            _ => return Ok(()),
        }
        if self.ping_deadline().is_some_and(|at| at <= now) {
            return Err(self.fail(PeerError::PingTimeout));
        }
        if self.ping_at().is_some_and(|at| at <= now) {
            self.ping.due = true;
        }
        Ok(())
    }

    /// The owner stops (or starts again) taking bytes from the transport, so
    /// that the answer to a ping may wait there.
    pub fn handle_read_paused(&mut self, now: Instant, paused: bool) {
        let until = now + self.ping_timeout();
        if let (true, false, Some(deadline)) = (self.read_paused, paused, &mut self.ping.deadline) {
            *deadline = until;
        }
        self.read_paused = paused;
    }

    /// The transport is gone. The session waits for the next
    /// [`Engine::connect`].
    pub fn handle_closed(&mut self) {
        self.phase = Phase::Idle;
        self.ping = Ping::default();
        (self.goodbye, self.stray) = (None, None);
        self.connect_deadline = None;
        self.read_paused = false;
        self.outbound.stop();
        self.inbound.stop();
        // [MQTT-3.3.2-7]
        self.aliases_in.clear();
        self.aliases_out.clear();
    }

    /// Ends the connection because of the server.
    pub(super) fn fail(&mut self, error: PeerError) -> PeerError {
        let says_why = self.version == Version::V5
            && !matches!(error, PeerError::ConnectTimeout | PeerError::PingTimeout);
        if self.phase != Phase::Closing {
            self.goodbye = says_why.then(|| error.reason());
        }
        self.phase = Phase::Closing;
        error
    }

    fn on_connack<'e>(
        &'e mut self,
        now: Instant,
        connack: ConnAck<'e>,
    ) -> Result<Event<'e>, PeerError> {
        self.connect_deadline = None;
        if connack.reason.is_error() {
            self.phase = Phase::Closing;
            return Ok(Event::Refused(connack));
        }
        let properties = &connack.properties;
        self.check_method(properties.authentication_method)?;
        // [MQTT-3.2.2-4]. A client that asks for a session counts as having
        // one, even if it has just started and the session holds nothing.
        if connack.session_present && self.clean_start {
            return Err(self.fail(PeerError::UnknownSession));
        }
        let fallback = Negotiated::default();
        if let Some(seconds) = properties.server_keep_alive {
            // [MQTT-3.1.2-21], [MQTT-3.2.2-21]
            self.keep_alive = core::time::Duration::from_secs(seconds.into());
        }
        self.negotiated = Negotiated {
            receive_maximum: properties
                .receive_maximum
                .map_or(fallback.receive_maximum, |max| max.get()),
            packet_bytes_max: properties
                .maximum_packet_size
                .map_or(fallback.packet_bytes_max, |max| max.get()),
            maximum_qos: properties.maximum_qos.unwrap_or(fallback.maximum_qos),
            retain_available: properties.retain_available.unwrap_or(true),
            topic_alias_maximum: properties.topic_alias_maximum.unwrap_or(0),
            wildcards_available: properties.wildcard_subscription_available.unwrap_or(true),
            subscription_ids_available: properties
                .subscription_identifiers_available
                .unwrap_or(true),
            shared_available: properties.shared_subscription_available.unwrap_or(true),
            keep_alive: self.keep_alive,
            session_expiry_seconds: properties
                .session_expiry_interval
                .unwrap_or(self.session_expiry_seconds),
            session_present: connack.session_present,
        };
        if !connack.session_present {
            // [MQTT-3.2.2-5]
            self.inbound.clear();
        }
        self.outbound
            .start(self.negotiated.receive_maximum, connack.session_present);
        if self.auth == Auth::Active {
            self.auth = Auth::Done;
        }
        self.inbound.start(self.receive_maximum);
        self.phase = Phase::Connected;
        self.last_sent = now;
        Ok(Event::Connected(connack))
    }

    fn on_auth<'e>(&'e mut self, auth: AuthPacket<'e>) -> Result<Event<'e>, PeerError> {
        if self.auth != Auth::Active {
            // [MQTT-4.12.0-6]
            return Err(self.fail(PeerError::UnexpectedPacket("AUTH")));
        }
        self.check_method(auth.properties.authentication_method)?;
        match (auth.reason, self.phase) {
            (ReasonCode::ContinueAuthentication, _) => Ok(Event::Auth(auth)),
            (ReasonCode::Success, Phase::Connected) => {
                self.auth = Auth::Done;
                Ok(Event::Authenticated(auth))
            }
            _ => Err(self.fail(PeerError::UnexpectedPacket("AUTH"))),
        }
    }

    /// [MQTT-4.12.0-5], [MQTT-4.12.0-6]
    fn check_method(&mut self, method: Option<&str>) -> Result<(), PeerError> {
        let fits = match (self.auth, method) {
            (Auth::None, None) => true,
            (Auth::None, Some(_)) | (_, None) => false,
            (_, Some(method)) => method_id(method) == self.auth_method,
        };
        if fits {
            Ok(())
        } else {
            Err(self.fail(PeerError::AuthenticationMethod))
        }
    }

    fn on_publish<'e>(&'e mut self, mut publish: Publish<'e>) -> Result<Event<'e>, PeerError> {
        let alias = publish.properties.topic_alias.take();
        if let Some(alias) = alias {
            if alias.get() > self.alias_in_max {
                return Err(self.fail(PeerError::TopicAlias));
            }
            if publish.topic.is_empty() {
                if self.aliases_in.topic(alias).is_none() {
                    return Err(self.fail(PeerError::TopicAlias));
                }
            } else if self.aliases_in.set(alias, publish.topic).is_err() {
                return Err(self.fail(PeerError::AliasMemory));
            }
        }
        let receipt = match publish.packet_id {
            None => None,
            Some(id) => {
                let exactly_once = publish.qos == QoS::ExactlyOnce;
                match self.inbound.publish(id, exactly_once, publish.dup) {
                    Arrival::New(receipt) => Some(receipt),
                    Arrival::Duplicate => return Ok(Event::Nothing),
                    Arrival::OverQuota => {
                        return Err(self.fail(PeerError::ReceiveMaximumExceeded));
                    }
                    Arrival::InUse => return Err(self.fail(PeerError::PacketIdInUse)),
                }
            }
        };
        if let (Some(alias), true) = (alias, publish.topic.is_empty()) {
            publish.topic = self.aliases_in.topic(alias).unwrap_or_default();
        }
        Ok(Event::Message(publish, receipt))
    }

    fn on_puback<'e>(&mut self, ack: Ack<'e>) -> Result<Event<'e>, PeerError> {
        let id = ack.packet_id;
        match self.outbound.state(id) {
            OutState::Publish(QoS::AtLeastOnce) => {
                self.outbound.complete(id);
                Ok(Event::Published(ack))
            }
            OutState::Free => Ok(Event::Nothing),
            _ => Err(self.fail(PeerError::WrongAcknowledgement)),
        }
    }

    fn on_pubrec<'e>(&mut self, ack: Ack<'e>) -> Result<Event<'e>, PeerError> {
        let id = ack.packet_id;
        match self.outbound.state(id) {
            // [MQTT-4.4.0-2]: refused is acknowledged.
            OutState::Publish(QoS::ExactlyOnce) if ack.reason.is_error() => {
                self.outbound.complete(id);
                Ok(Event::Published(ack))
            }
            OutState::Publish(QoS::ExactlyOnce) => {
                self.outbound.received(id);
                Ok(Event::Recorded(id))
            }
            OutState::Release => {
                self.outbound.received(id);
                Ok(Event::Nothing)
            }
            OutState::Free if ack.reason.is_error() => Ok(Event::Nothing),
            OutState::Free => {
                self.stray = Some(Stray::PubRel(id));
                Ok(Event::Nothing)
            }
            _ => Err(self.fail(PeerError::WrongAcknowledgement)),
        }
    }

    fn on_pubrel(&mut self, ack: Ack<'_>) -> Event<'static> {
        if !self.inbound.release_received(ack.packet_id) {
            self.stray = Some(Stray::PubComp(ack.packet_id));
        }
        Event::Nothing
    }

    fn on_pubcomp<'e>(&mut self, ack: Ack<'e>) -> Result<Event<'e>, PeerError> {
        let id = ack.packet_id;
        match self.outbound.state(id) {
            OutState::Release => {
                self.outbound.complete(id);
                Ok(Event::Published(ack))
            }
            OutState::Free => Ok(Event::Nothing),
            _ => Err(self.fail(PeerError::WrongAcknowledgement)),
        }
    }

    fn on_suback<'e>(&mut self, suback: SubAck<'e>) -> Result<Event<'e>, PeerError> {
        match self.outbound.state(suback.packet_id) {
            OutState::Subscribe => {
                self.outbound.release(suback.packet_id);
                Ok(Event::Subscribed(suback))
            }
            OutState::Free => Ok(Event::Nothing),
            _ => Err(self.fail(PeerError::WrongAcknowledgement)),
        }
    }

    fn on_unsuback<'e>(&mut self, unsuback: UnsubAck<'e>) -> Result<Event<'e>, PeerError> {
        match self.outbound.state(unsuback.packet_id) {
            OutState::Unsubscribe => {
                self.outbound.release(unsuback.packet_id);
                Ok(Event::Unsubscribed(unsuback))
            }
            OutState::Free => Ok(Event::Nothing),
            _ => Err(self.fail(PeerError::WrongAcknowledgement)),
        }
    }

    fn on_disconnect<'e>(&mut self, disconnect: Disconnect<'e>) -> Event<'e> {
        self.phase = Phase::Closing;
        Event::Disconnected(disconnect)
    }
}

fn name(packet: &Packet<'_>) -> &'static str {
    match packet {
        Packet::Connect(_) => "CONNECT",
        Packet::ConnAck(_) => "CONNACK",
        Packet::Publish(_) => "PUBLISH",
        Packet::PubAck(_) => "PUBACK",
        Packet::PubRec(_) => "PUBREC",
        Packet::PubRel(_) => "PUBREL",
        Packet::PubComp(_) => "PUBCOMP",
        Packet::Subscribe(_) => "SUBSCRIBE",
        Packet::SubAck(_) => "SUBACK",
        Packet::Unsubscribe(_) => "UNSUBSCRIBE",
        Packet::UnsubAck(_) => "UNSUBACK",
        Packet::PingReq => "PINGREQ",
        Packet::PingResp => "PINGRESP",
        Packet::Disconnect(_) => "DISCONNECT",
        Packet::Auth(_) => "AUTH",
    }
}
