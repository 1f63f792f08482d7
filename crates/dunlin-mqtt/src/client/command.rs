//! What the owner asks for.

use core::time::Duration;

use dunlin_base::limits::MQTT_PACKET_BYTES_MAX;
use dunlin_base::topic::Filter;
use dunlin_base::{ByteSink, Instant, QoS, SinkFull};
use dunlin_mqtt_codec::{
    Connect, Disconnect, Packet, PacketId, Publish, ReasonCode, Subscribe, Unsubscribe, Version,
};

use super::error::CommandError;
use super::inbound::Receipt;
use super::negotiated::Offer;
use super::outbound::Use;
use super::session::{Phase, Session};

/// Shortest topic that gets an alias; below it the property costs more than
/// the topic.
const ALIAS_TOPIC_BYTES_MIN: usize = 4;

impl Session {
    /// Begins a connection: writes CONNECT.
    ///
    /// # Errors
    /// [`CommandError::AlreadyConnected`]; [`CommandError::Connect`] when
    /// CONNECT promises the server more than [`Settings`](super::Settings) allow;
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
        let method = connect.properties.authentication_method;
        let method = method.filter(|_| connect.version == Version::V5);
        let early = self.settings.early_publishes;
        let offer = Offer::of(connect, early > 0 && method.is_none());
        if offer
            .receive_maximum
            .is_some_and(|max| max > self.inbound.max())
        {
            return Err(CommandError::Connect(
                "the receive maximum is larger than the engine's limit",
            ));
        }
        let is_v5 = connect.version == Version::V5;
        if is_v5 && offer.topic_alias_maximum > self.settings.aliases_in_max {
            return Err(CommandError::Connect(
                "the topic alias maximum is larger than the engine's limit",
            ));
        }
        Packet::Connect(connect.clone()).encode(connect.version, out)?;
        self.offer = offer;
        self.negotiated = self.negotiated.expected();
        self.auth.start(method);
        let early = early.min(self.negotiated.receive_maximum);
        self.outbound.start_early(early);
        self.phase = Phase::Connecting;
        let keep_alive = Duration::from_secs(connect.keep_alive.into());
        self.keep_alive.start(now, keep_alive);
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

    /// As [`Session::publish`], but `put_payload` writes the payload, which is
    /// `payload_len` bytes: for owners that share large payloads instead of
    /// copying them. `publish.payload` is not looked at.
    ///
    /// # Errors
    /// As [`Session::publish`].
    pub fn publish_with<O: ByteSink>(
        &mut self,
        now: Instant,
        publish: &Publish<'_>,
        payload_len: usize,
        out: &mut O,
        put_payload: impl FnOnce(&mut O) -> Result<(), SinkFull>,
    ) -> Result<Option<PacketId>, CommandError> {
        if !self.is_open_for_publish() {
            return Err(CommandError::NotConnected);
        }
        let mut packet = publish.clone();
        packet.dup = false;
        packet.packet_id = None;
        if publish.qos != QoS::AtMostOnce {
            if !self.outbound.can_publish() {
                return Err(CommandError::InFlightFull);
            }
            packet.packet_id = self.outbound.next_free();
        }
        let packet_id = packet.packet_id;
        self.write_publish(now, packet, payload_len, out, put_payload)?;
        if let Some(id) = packet_id {
            self.outbound.sent(id, Use::Publish(publish.qos));
        }
        Ok(packet_id)
    }

    /// Whether PUBLISHes written from now on may use topic aliases (at first
    /// they may): not those that travel on a stream of their own, where the
    /// alias could arrive before the topic that it stands for.
    pub fn use_aliases(&mut self, allowed: bool) {
        self.aliases_allowed = allowed;
    }

    /// Writes a PUBLISH of an earlier connection again, as
    /// [`Resume::Publish`](super::Resume::Publish) asked.
    ///
    /// # Errors
    /// As [`Session::publish`]; [`CommandError::UnknownPacketId`] if this is not
    /// the message to send now. After an error that will not go away,
    /// [`Session::abandon`] it.
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

    /// [`Session::resend`] as [`Session::publish_with`].
    ///
    /// # Errors
    /// As [`Session::resend`].
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
            || self.outbound.used_for(id) != Some(Use::Publish(publish.qos))
        {
            return Err(CommandError::UnknownPacketId);
        }
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
        let allowed = self.negotiated.check_subscribe(subscribe);
        allowed.map_err(|error| explained(self.phase, error))?;
        let count = subscribe.filters.iter().count();
        let mut packet = subscribe.clone();
        self.request(now, count, Use::Subscribe, out, |id| {
            packet.packet_id = id;
            Packet::Subscribe(packet)
        })
    }

    /// Writes an UNSUBSCRIBE; the engine chooses its packet identifier.
    ///
    /// # Errors
    /// As [`Session::subscribe`].
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
        self.request(now, count, Use::Unsubscribe, out, |id| {
            packet.packet_id = id;
            Packet::Unsubscribe(packet)
        })
    }

    /// The application is done with a message of QoS 1 or 2. The
    /// acknowledgement leaves through [`Session::poll_output`] after those of
    /// all earlier messages. Tells whether the claim still stood: the server
    /// delivers a message again whose connection broke before.
    pub fn acknowledge(&mut self, receipt: Receipt, reason: ReasonCode) -> bool {
        self.inbound.acknowledge(receipt, reason)
    }

    /// Writes the next step of the authentication that CONNECT or
    /// [`Session::reauthenticate`] began.
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
        let version = self.offer.version;
        self.auth.write_step(method, data, version, out)?;
        self.keep_alive.sent(now);
        Ok(())
    }

    /// Starts another authentication on a standing connection.
    ///
    /// # Errors
    /// As [`Session::authenticate`]; also if CONNECT had no method.
    pub fn reauthenticate(
        &mut self,
        now: Instant,
        method: &str,
        data: &[u8],
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        if self.phase != Phase::Connected {
            return Err(CommandError::NotAuthenticating);
        }
        let version = self.offer.version;
        self.auth.write_again(method, data, version, out)?;
        self.keep_alive.sent(now);
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
        if self.offer.session_expiry_seconds == 0 && expiry.is_some_and(|seconds| seconds > 0) {
            return Err(CommandError::Connect(
                "a session that CONNECT did not keep cannot be kept by DISCONNECT",
            ));
        }
        Packet::Disconnect(disconnect.clone()).encode(self.offer.version, out)?;
        self.keep_alive.sent(now);
        // [MQTT-3.14.4-1]
        self.phase = Phase::Closing;
        self.disconnect = None;
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
        let allowed = self.negotiated.check_publish(&packet);
        allowed.map_err(|error| explained(self.phase, error))?;
        let topic = packet.topic;
        packet.payload = &[];
        packet.properties.topic_alias = None;
        // [MQTT-3.3.4-6]
        packet.properties.subscription_identifiers = Default::default();
        let mut set = None;
        if topic.len() >= ALIAS_TOPIC_BYTES_MIN && self.aliases_allowed {
            // [MQTT-3.2.2-17], [MQTT-3.2.2-18]
            let maximum = self.negotiated.topic_alias_maximum;
            if let Some((alias, is_new)) = self.aliases_out.alias(topic, maximum) {
                packet.properties.topic_alias = Some(alias);
                match is_new {
                    true => set = Some(alias),
                    false => packet.topic = "",
                }
            }
        }
        let version = self.offer.version;
        if self.negotiated.packet_bytes_max < MQTT_PACKET_BYTES_MAX {
            let len = packet.encoded_len_with(version, payload_len)?;
            let fits = self.negotiated.check_size(len);
            fits.map_err(|error| explained(self.phase, error))?;
        }
        packet.encode_header(version, payload_len, out)?;
        put_payload(out)?;
        if let Some(alias) = set {
            self.aliases_out.set(alias, topic);
        }
        self.keep_alive.sent(now);
        Ok(())
    }

    fn request<'p>(
        &mut self,
        now: Instant,
        filters: usize,
        used_for: Use,
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
            .next_free()
            .ok_or(CommandError::InFlightFull)?;
        let packet = packet(id);
        let version = self.offer.version;
        let fits = self.negotiated.check_size(packet.encoded_len(version)?);
        fits.map_err(|error| explained(self.phase, error))?;
        packet.encode(version, out)?;
        self.keep_alive.sent(now);
        self.outbound.sent(id, used_for);
        Ok(id)
    }
}

/// What the server does not take. Before CONNACK only that of the last
/// connection is known, and this one may take it.
fn explained(phase: Phase, error: CommandError) -> CommandError {
    match phase {
        Phase::Connecting if error.is_by_server() => CommandError::NotConnected,
        _ => error,
    }
}
