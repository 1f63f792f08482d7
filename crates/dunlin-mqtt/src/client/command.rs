//! What the owner asks for.

use core::time::Duration;

use dunlin_base::limits::MQTT_PACKET_BYTES_MAX;
use dunlin_base::topic::{Filter, validate_name};
use dunlin_base::{ByteSink, Instant, QoS, SinkFull};
use dunlin_mqtt_codec::{
    Auth as AuthPacket, AuthProperties, Connect, Disconnect, EncodeError, Packet, PacketId,
    Publish, ReasonCode, Subscribe, Unsubscribe, Version,
};

use super::alias::place;
use super::outbound::OutState;
use super::{AliasStore, Auth, CommandError, Engine, Phase, Receipt, Storage, method_id};

/// Shortest topic that gets an alias; below it the property costs more than
/// the topic.
const ALIAS_TOPIC_BYTES_MIN: usize = 4;

impl<S: Storage> Engine<S> {
    /// Begins a connection: writes CONNECT.
    ///
    /// # Errors
    /// [`CommandError::AlreadyConnected`]; [`CommandError::Connect`] when
    /// CONNECT promises the server more than the engine has memory for;
    /// [`CommandError::SinkFull`].
    pub fn connect(
        &mut self,
        now: Instant,
        connect: &Connect<'_>,
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        if self.phase != Phase::Idle {
            return Err(CommandError::AlreadyConnected);
        }
        let is_v5 = connect.version == Version::V5;
        let properties = &connect.properties;
        let receive_maximum = properties.receive_maximum.map_or(u16::MAX, |max| max.get());
        if is_v5 && usize::from(receive_maximum) > self.inbound.capacity() {
            return Err(CommandError::Connect(
                "the receive maximum is larger than the memory for it",
            ));
        }
        let alias_in_max = properties.topic_alias_maximum.unwrap_or(0);
        if is_v5 && alias_in_max > self.aliases_in.capacity() {
            return Err(CommandError::Connect(
                "the topic alias maximum is larger than the memory for it",
            ));
        }
        put(&Packet::Connect(connect.clone()), connect.version, out)?;
        self.version = connect.version;
        self.clean_start = connect.clean_start;
        self.keep_alive = Duration::from_secs(connect.keep_alive.into());
        self.negotiated = self.negotiated.expected();
        self.alias_in_max = alias_in_max;
        self.receive_maximum = is_v5.then_some(receive_maximum);
        self.session_expiry_seconds = properties.session_expiry_interval.unwrap_or(0);
        self.packet_bytes_max = properties
            .maximum_packet_size
            .map_or(MQTT_PACKET_BYTES_MAX, |max| max.get());
        self.auth = match properties.authentication_method.filter(|_| is_v5) {
            Some(method) => {
                self.auth_method = method_id(method);
                Auth::Active
            }
            None => Auth::None,
        };
        let early = self.settings.early_publishes;
        let early = early.min(self.negotiated.receive_maximum);
        self.outbound.start_early(early);
        self.phase = Phase::Connecting;
        (self.last_sent, self.last_received) = (now, now);
        self.connect_deadline = Some(now + self.settings.connect_timeout);
        Ok(())
    }

    /// Writes a PUBLISH. For QoS 1 and 2 the engine chooses the packet
    /// identifier and returns it; the owner keeps the message under it. `dup`,
    /// `packet_id` and the topic alias of `publish` are not looked at.
    ///
    /// # Errors
    /// What the server does not take, [`CommandError::InFlightFull`],
    /// [`CommandError::NotConnected`], [`CommandError::SinkFull`].
    pub fn publish(
        &mut self,
        now: Instant,
        publish: &Publish<'_>,
        out: &mut impl ByteSink,
    ) -> Result<Option<PacketId>, CommandError> {
        let payload = publish.payload;
        self.publish_with(now, publish, payload.len(), out, |out| out.put(payload))
    }

    /// As [`Engine::publish`], but `put_payload` writes the payload, which is
    /// `payload_len` bytes: for owners that share large payloads instead of
    /// copying them. `publish.payload` is not looked at.
    ///
    /// # Errors
    /// As [`Engine::publish`].
    pub fn publish_with<O: ByteSink>(
        &mut self,
        now: Instant,
        publish: &Publish<'_>,
        payload_len: usize,
        out: &mut O,
        put_payload: impl FnOnce(&mut O) -> Result<(), SinkFull>,
    ) -> Result<Option<PacketId>, CommandError> {
        self.check_open_for_publish()?;
        self.check_publish(publish)?;
        let mut packet = publish.clone();
        packet.dup = false;
        packet.packet_id = None;
        if publish.qos != QoS::AtMostOnce {
            if !self.outbound.can_publish() {
                return Err(CommandError::InFlightFull);
            }
            packet.packet_id = self.outbound.peek_free();
        }
        self.write_publish(now, packet, payload_len, out, put_payload)?;
        if publish.qos == QoS::AtMostOnce {
            return Ok(None);
        }
        Ok(self.outbound.take(OutState::Publish(publish.qos)))
    }

    /// Whether PUBLISHes written from now on may use topic aliases (at first
    /// they may): not those that travel on a stream of their own, where the
    /// alias could arrive before the topic that it stands for.
    pub fn use_aliases(&mut self, allowed: bool) {
        self.aliases_in_order = allowed;
    }

    /// Writes a PUBLISH of an earlier connection again, as
    /// [`Resume::Publish`](super::Resume::Publish) asked.
    ///
    /// # Errors
    /// As [`Engine::publish`]; [`CommandError::UnknownPacketId`] if this is not
    /// the message to send now. After an error that will not go away,
    /// [`Engine::abandon`] it.
    pub fn resend(
        &mut self,
        now: Instant,
        id: PacketId,
        publish: &Publish<'_>,
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        let payload = publish.payload;
        self.resend_with(now, id, publish, payload.len(), out, |out| out.put(payload))
    }

    /// [`Engine::resend`] as [`Engine::publish_with`].
    ///
    /// # Errors
    /// As [`Engine::resend`].
    pub fn resend_with<O: ByteSink>(
        &mut self,
        now: Instant,
        id: PacketId,
        publish: &Publish<'_>,
        payload_len: usize,
        out: &mut O,
        put_payload: impl FnOnce(&mut O) -> Result<(), SinkFull>,
    ) -> Result<(), CommandError> {
        if self.phase != Phase::Connected {
            return Err(CommandError::NotConnected);
        }
        if self.outbound.resume_due() != Some(id)
            || self.outbound.state(id) != OutState::Publish(publish.qos)
        {
            return Err(CommandError::UnknownPacketId);
        }
        self.check_publish(publish)?;
        let mut packet = publish.clone();
        // [MQTT-3.3.1-1]; in a new session it is a new message.
        packet.dup = self.negotiated.session_present;
        packet.packet_id = Some(id);
        self.write_publish(now, packet, payload_len, out, put_payload)?;
        self.outbound.resume_sent();
        Ok(())
    }

    /// Gives up a message that [`Resume::Publish`](super::Resume::Publish)
    /// named and that this server does not take.
    pub fn abandon(&mut self, id: PacketId) {
        if self.outbound.resume_due() == Some(id) {
            self.outbound.release(id);
        }
    }

    /// Forgets what is left of earlier connections: for an owner that does not
    /// want it sent again. Only without a connection.
    ///
    /// # Errors
    /// [`CommandError::AlreadyConnected`].
    pub fn discard_session(&mut self) -> Result<(), CommandError> {
        // [MQTT-4.1.0-1]
        if self.phase != Phase::Idle {
            return Err(CommandError::AlreadyConnected);
        }
        self.outbound.clear();
        self.inbound.clear();
        Ok(())
    }

    /// Writes a SUBSCRIBE; the engine chooses its packet identifier. Before
    /// CONNACK only as [`Settings::early_publishes`](super::Settings) allows.
    ///
    /// # Errors
    /// What the server does not take, a wrong filter, or
    /// [`CommandError::InFlightFull`], [`CommandError::NotConnected`],
    /// [`CommandError::SinkFull`].
    pub fn subscribe(
        &mut self,
        now: Instant,
        subscribe: &Subscribe<'_>,
        out: &mut impl ByteSink,
    ) -> Result<PacketId, CommandError> {
        let has_id = subscribe.subscription_identifier.is_some();
        if has_id && !self.negotiated.subscription_ids_available {
            return Err(self.not_taken(CommandError::SubscriptionIdNotSupported));
        }
        let mut count = 0;
        for filter in subscribe.filters.iter() {
            let parsed = Filter::parse(filter.filter)?;
            if parsed.has_wildcard() && !self.negotiated.wildcards_available {
                return Err(self.not_taken(CommandError::WildcardNotSupported));
            }
            if parsed.share.is_some() && !self.negotiated.shared_available {
                return Err(self.not_taken(CommandError::SharedNotSupported));
            }
            count += 1;
        }
        let mut packet = subscribe.clone();
        self.request(now, count, OutState::Subscribe, out, |id| {
            packet.packet_id = id;
            Packet::Subscribe(packet)
        })
    }

    /// Writes an UNSUBSCRIBE; the engine chooses its packet identifier.
    ///
    /// # Errors
    /// As [`Engine::subscribe`].
    pub fn unsubscribe(
        &mut self,
        now: Instant,
        unsubscribe: &Unsubscribe<'_>,
        out: &mut impl ByteSink,
    ) -> Result<PacketId, CommandError> {
        let mut count = 0;
        for filter in unsubscribe.filters.iter() {
            Filter::parse(filter)?;
            count += 1;
        }
        let mut packet = unsubscribe.clone();
        self.request(now, count, OutState::Unsubscribe, out, |id| {
            packet.packet_id = id;
            Packet::Unsubscribe(packet)
        })
    }

    /// The application is done with a message of QoS 1 or 2. The
    /// acknowledgement leaves through [`Engine::poll_output`] after those of
    /// all earlier messages. Tells whether the claim still stood: the server
    /// delivers a message again whose connection broke before.
    pub fn acknowledge(&mut self, receipt: Receipt, reason: ReasonCode) -> bool {
        self.inbound.acknowledge(receipt, reason)
    }

    /// Writes the next step of the authentication that CONNECT or
    /// [`Engine::reauthenticate`] began.
    ///
    /// # Errors
    /// [`CommandError::NotAuthenticating`] if there is none under way, or the
    /// method is another [MQTT-4.12.1-1]; [`CommandError::SinkFull`].
    pub fn authenticate(
        &mut self,
        now: Instant,
        method: &str,
        data: &[u8],
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        if self.auth != Auth::Active {
            return Err(CommandError::NotAuthenticating);
        }
        self.write_auth(now, ReasonCode::ContinueAuthentication, method, data, out)
    }

    /// Starts another authentication on a standing connection.
    ///
    /// # Errors
    /// As [`Engine::authenticate`]; also if CONNECT had no method.
    pub fn reauthenticate(
        &mut self,
        now: Instant,
        method: &str,
        data: &[u8],
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        if self.auth != Auth::Done || self.phase != Phase::Connected {
            return Err(CommandError::NotAuthenticating);
        }
        self.write_auth(now, ReasonCode::ReAuthenticate, method, data, out)?;
        self.auth = Auth::Active;
        Ok(())
    }

    /// Ends the connection: writes DISCONNECT. The owner closes the transport
    /// when it has left [MQTT-3.14.4-2].
    ///
    /// # Errors
    /// [`CommandError::NotConnected`], [`CommandError::SinkFull`], and
    /// [`CommandError::Connect`] for a session expiry after CONNECT had none.
    pub fn disconnect(
        &mut self,
        now: Instant,
        disconnect: &Disconnect<'_>,
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        if !matches!(self.phase, Phase::Connecting | Phase::Connected) {
            return Err(CommandError::NotConnected);
        }
        let expiry = disconnect.properties.session_expiry_interval;
        if self.session_expiry_seconds == 0 && expiry.is_some_and(|seconds| seconds > 0) {
            return Err(CommandError::Connect(
                "a session that CONNECT did not keep cannot be kept by DISCONNECT",
            ));
        }
        put(&Packet::Disconnect(disconnect.clone()), self.version, out)?;
        self.last_sent = now;
        // [MQTT-3.14.4-1]
        self.phase = Phase::Closing;
        self.goodbye = None;
        Ok(())
    }

    fn check_open_for_publish(&self) -> Result<(), CommandError> {
        match self.phase {
            Phase::Connected => Ok(()),
            Phase::Connecting if self.can_publish_early() => Ok(()),
            Phase::Connecting | Phase::Idle | Phase::Closing => Err(CommandError::NotConnected),
        }
    }

    fn check_publish(&self, publish: &Publish<'_>) -> Result<(), CommandError> {
        validate_name(publish.topic)?;
        if publish.qos > self.negotiated.maximum_qos {
            return Err(self.not_taken(CommandError::QosNotSupported));
        }
        if publish.retain && !self.negotiated.retain_available {
            return Err(self.not_taken(CommandError::RetainNotSupported));
        }
        Ok(())
    }

    fn write_publish<O: ByteSink>(
        &mut self,
        now: Instant,
        mut packet: Publish<'_>,
        payload_len: usize,
        out: &mut O,
        put_payload: impl FnOnce(&mut O) -> Result<(), SinkFull>,
    ) -> Result<(), CommandError> {
        let topic = packet.topic;
        packet.payload = &[];
        packet.properties.topic_alias = None;
        // [MQTT-3.3.4-6]
        packet.properties.subscription_identifiers = Default::default();
        let mut set = None;
        if topic.len() >= ALIAS_TOPIC_BYTES_MIN && self.aliases_in_order {
            // [MQTT-3.2.2-17], [MQTT-3.2.2-18]
            let max = self.negotiated.topic_alias_maximum;
            let alias = place(topic, max.min(self.aliases_out.capacity()));
            if let Some(alias) = alias {
                if self.aliases_out.topic(alias) == Some(topic) {
                    packet.topic = "";
                    packet.properties.topic_alias = Some(alias);
                } else if self.aliases_out.fits(topic) {
                    packet.properties.topic_alias = Some(alias);
                    set = Some(alias);
                }
            }
        }
        if self.negotiated.packet_bytes_max < MQTT_PACKET_BYTES_MAX {
            let header = packet.encode_header(self.version, payload_len, &mut Discard);
            self.check_size(header.map(|header| header.len.saturating_add(payload_len)))?;
        }
        packet
            .encode_header(self.version, payload_len, out)
            .map_err(encode_error)?;
        put_payload(out)?;
        if let Some(alias) = set {
            let stored = self.aliases_out.set(alias, topic);
            debug_assert!(stored.is_ok(), "fits, but cannot be stored");
        }
        self.last_sent = now;
        Ok(())
    }

    fn request<'p>(
        &mut self,
        now: Instant,
        filters: usize,
        state: OutState,
        out: &mut impl ByteSink,
        packet: impl FnOnce(PacketId) -> Packet<'p>,
    ) -> Result<PacketId, CommandError> {
        if !self.can_request() {
            return Err(CommandError::NotConnected);
        }
        if filters == 0 {
            return Err(CommandError::NoFilter);
        }
        let id = self
            .outbound
            .peek_free()
            .ok_or(CommandError::InFlightFull)?;
        let packet = packet(id);
        self.check_size(packet.encoded_len(self.version))?;
        put(&packet, self.version, out)?;
        self.last_sent = now;
        self.outbound.take(state).ok_or(CommandError::InFlightFull)
    }

    fn write_auth(
        &mut self,
        now: Instant,
        reason: ReasonCode,
        method: &str,
        data: &[u8],
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        if method_id(method) != self.auth_method {
            return Err(CommandError::NotAuthenticating);
        }
        let properties = AuthProperties {
            authentication_method: Some(method),
            authentication_data: Some(data),
            ..AuthProperties::default()
        };
        let packet = Packet::Auth(AuthPacket { reason, properties });
        put(&packet, self.version, out)?;
        self.last_sent = now;
        Ok(())
    }

    /// [MQTT-3.2.2-15]
    fn check_size(&self, len: Result<usize, EncodeError>) -> Result<(), CommandError> {
        let len = len.map_err(encode_error)?;
        if len > self.negotiated.packet_bytes_max as usize {
            return Err(self.not_taken(CommandError::PacketTooLarge));
        }
        Ok(())
    }
}

fn put(packet: &Packet<'_>, version: Version, out: &mut impl ByteSink) -> Result<(), CommandError> {
    packet.encode(version, out).map_err(encode_error)
}

fn encode_error(error: EncodeError) -> CommandError {
    match error {
        EncodeError::SinkFull(_) => CommandError::SinkFull,
        EncodeError::PacketTooLarge => CommandError::PacketTooLarge,
        error => CommandError::Encode(error),
    }
}

/// Takes everything: to learn how long a packet is.
struct Discard;

impl ByteSink for Discard {
    fn put(&mut self, _: &[u8]) -> Result<(), SinkFull> {
        Ok(())
    }
}
