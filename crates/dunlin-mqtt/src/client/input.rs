//! What comes from the server and from time.

use dunlin_base::{Instant, QoS, Text};
use dunlin_mqtt_codec::{ConnAck, Packet, Publish, Version, decode_from_server, peek};

use super::error::PeerError;
use super::event::Event;
use super::inbound::Arrival;
use super::negotiated::Negotiated;
use super::session::{Phase, Session, Stray};

impl Session {
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
        let frame = match peek(bytes, self.offer.packet_bytes_max) {
            Ok(frame) => frame,
            Err(error) => return Err(self.fail(error.into())),
        };
        let Some(frame) = frame else {
            return Ok(None);
        };
        let Some(packet) = bytes.get(..frame.total_len) else {
            return Ok(None);
        };
        match decode_from_server(packet, self.offer.version) {
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
        self.keep_alive.received(now);
        match (self.phase, packet) {
            (Phase::Idle | Phase::Closing, _) => Ok(Event::Nothing),
            (Phase::Connecting, Packet::ConnAck(connack)) => self.on_connack(now, connack),
            (phase, Packet::Auth(auth)) => {
                match self.auth.handle_auth(&auth, phase == Phase::Connected) {
                    Ok(true) => Ok(Event::Authenticated(auth)),
                    Ok(false) => Ok(Event::Auth(auth)),
                    Err(error) => Err(self.fail(error)),
                }
            }
            (Phase::Connected, Packet::Publish(publish)) => self.on_publish(publish),
            (Phase::Connected, Packet::PubAck(ack)) => {
                let event = self.outbound.handle_puback(ack);
                event.map_err(|error| self.fail(error))
            }
            (Phase::Connected, Packet::PubRec(ack)) => {
                let id = ack.packet_id;
                match self.outbound.handle_pubrec(ack) {
                    Ok(Some(event)) => Ok(event),
                    Ok(None) => {
                        let owed = self.strays.add(Stray::PubRel(id));
                        owed.map_err(|error| self.fail(error))
                    }
                    Err(error) => Err(self.fail(error)),
                }
            }
            (Phase::Connected, Packet::PubRel(ack)) => {
                if self.inbound.release_received(ack.packet_id) {
                    return Ok(Event::Nothing);
                }
                let owed = self.strays.add(Stray::PubComp(ack.packet_id));
                owed.map_err(|error| self.fail(error))
            }
            (Phase::Connected, Packet::PubComp(ack)) => {
                let event = self.outbound.handle_pubcomp(ack);
                event.map_err(|error| self.fail(error))
            }
            (Phase::Connected, Packet::SubAck(suback)) => {
                let event = self.outbound.handle_suback(suback);
                event.map_err(|error| self.fail(error))
            }
            (Phase::Connected, Packet::UnsubAck(unsuback)) => {
                let event = self.outbound.handle_unsuback(unsuback);
                event.map_err(|error| self.fail(error))
            }
            (Phase::Connected, Packet::PingResp) => Ok(Event::Nothing),
            (Phase::Connected, Packet::Disconnect(disconnect))
                if self.offer.version == Version::V5 =>
            {
                self.phase = Phase::Closing;
                Ok(Event::Disconnected(disconnect))
            }
            // Among them a second CONNACK [MQTT-3.2.0-2], and anything but
            // CONNACK and AUTH before the first [MQTT-3.2.0-1].
            (_, packet) => Err(self.fail(PeerError::UnexpectedPacket(name(&packet)))),
        }
    }

    /// Time has passed; see [`Session::poll_timeout`].
    ///
    /// # Errors
    /// The server is silent: the connection is over.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), PeerError> {
        match self.phase {
            Phase::Connecting if self.connect_deadline.is_some_and(|at| at <= now) => {
                Err(self.fail(PeerError::ConnectTimeout))
            }
            Phase::Connected if !self.keep_alive.handle_timeout(now) => {
                Err(self.fail(PeerError::PingTimeout))
            }
            _ => Ok(()),
        }
    }

    /// The owner stops (or starts again) taking bytes from the transport, so
    /// that the answer to a ping may wait there.
    pub fn handle_read_paused(&mut self, now: Instant, paused: bool) {
        self.keep_alive.set_read_paused(now, paused);
    }

    /// The transport is gone. The session waits for the next
    /// [`Session::connect`].
    pub fn handle_closed(&mut self) {
        self.phase = Phase::Idle;
        self.disconnect = None;
        self.strays.clear();
        self.connect_deadline = None;
        self.keep_alive.stop();
        self.outbound.stop();
        self.inbound.stop();
        // [MQTT-3.3.2-7]
        self.aliases_in.clear();
        self.aliases_out.clear();
    }

    /// Ends the connection because of the server.
    pub(super) fn fail(&mut self, error: PeerError) -> PeerError {
        let says_why = self.offer.version == Version::V5
            && !matches!(error, PeerError::ConnectTimeout | PeerError::PingTimeout);
        if self.phase != Phase::Closing {
            self.disconnect = says_why.then(|| error.reason());
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
        let method = connack.properties.authentication_method;
        if let Err(error) = self.auth.check_method(method) {
            return Err(self.fail(error));
        }
        // [MQTT-3.2.2-4]. A client that asks for a session counts as having
        // one, even if it has just started and the session holds nothing.
        if connack.session_present && self.offer.clean_start {
            return Err(self.fail(PeerError::UnknownSession));
        }
        let keep_alive = self.keep_alive.interval();
        let expiry = self.offer.session_expiry_seconds;
        self.negotiated = Negotiated::of(&connack, keep_alive, expiry);
        self.keep_alive.set_interval(self.negotiated.keep_alive);
        if !connack.session_present {
            // [MQTT-3.2.2-5]
            self.inbound.clear();
        }
        self.outbound
            .start(self.negotiated.receive_maximum, connack.session_present);
        self.auth.connected();
        self.inbound.start(self.offer.receive_maximum);
        self.phase = Phase::Connected;
        self.keep_alive.sent(now);
        Ok(Event::Connected(connack))
    }

    fn on_publish<'e>(&'e mut self, mut publish: Publish<'e>) -> Result<Event<'e>, PeerError> {
        let alias = publish.properties.topic_alias.take();
        if let Some(alias) = alias {
            let is_known = match publish.topic {
                "" => self.aliases_in.get(alias).is_some(),
                topic => self.aliases_in.set(alias, topic),
            };
            if alias.get() > self.offer.topic_alias_maximum || !is_known {
                return Err(self.fail(PeerError::TopicAlias));
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
            publish.topic = self.aliases_in.get(alias).map_or("", Text::as_str);
        }
        Ok(Event::Message(publish, receipt))
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
