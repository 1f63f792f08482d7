//! What the engine owes the server, and when.

use dunlin_base::{ByteSink, Instant, SinkFull};
use dunlin_mqtt_codec::{Ack, Disconnect, EncodeError, Packet, ReasonCode, Version};

use super::error::earlier;
use super::inbound::Due;
use super::{Engine, Owed, Phase, Resume, Storage, Stray};

impl<S: Storage> Engine<S> {
    /// What [`Engine::poll_output`] writes next: for owners with several
    /// streams to one server, who choose the stream by it.
    #[must_use]
    pub fn owed(&self) -> Option<Owed> {
        if self.goodbye.is_some() {
            return Some(Owed::Other);
        }
        if self.phase != Phase::Connected {
            return None;
        }
        if self.stray.is_some() || self.inbound.due().is_some() {
            return Some(Owed::Other);
        }
        if let Some(id) = self.outbound.release_due() {
            return Some(Owed::Release(id));
        }
        self.ping.due.then_some(Owed::Other)
    }

    /// Writes one packet that is due, and tells whether there was one: call it
    /// until there is none.
    ///
    /// # Errors
    /// [`SinkFull`]: throw away what was written and call again with room.
    pub fn poll_output(&mut self, now: Instant, out: &mut impl ByteSink) -> Result<bool, SinkFull> {
        if let Some(reason) = self.goodbye {
            let disconnect = Disconnect {
                reason,
                properties: Default::default(),
            };
            self.emit(now, &Packet::Disconnect(disconnect), out)?;
            self.goodbye = None;
            return Ok(true);
        }
        if self.phase != Phase::Connected {
            return Ok(false);
        }
        if let Some(stray) = self.stray {
            let packet = match stray {
                Stray::PubRel(id) => Packet::PubRel(ack(id, self.not_found())),
                Stray::PubComp(id) => Packet::PubComp(ack(id, self.not_found())),
            };
            self.emit(now, &packet, out)?;
            self.stray = None;
            return Ok(true);
        }
        // [MQTT-3.3.4-8]: none of these waits for the Receive Maximum.
        if let Some(due) = self.inbound.due() {
            let packet = match due {
                Due::Ack(id, reason) => Packet::PubAck(ack(id, reason)),
                Due::Rec(id, reason) => Packet::PubRec(ack(id, reason)),
                Due::Comp(id) => Packet::PubComp(ack(id, ReasonCode::Success)),
            };
            self.emit(now, &packet, out)?;
            self.inbound.written(due);
            return Ok(true);
        }
        if let Some(id) = self.outbound.release_due() {
            self.emit(now, &Packet::PubRel(ack(id, ReasonCode::Success)), out)?;
            self.outbound.release_sent();
            return Ok(true);
        }
        if self.ping.due {
            self.emit(now, &Packet::PingReq, out)?;
            self.ping.due = false;
            let deadline = now + self.ping_timeout();
            self.ping.deadline.get_or_insert(deadline);
            return Ok(true);
        }
        Ok(false)
    }

    /// What must be sent again, or given up, now that a connection stands:
    /// call it after [`Event::Connected`](super::Event::Connected) until it
    /// returns `None`, and again after every [`Event`](super::Event) while
    /// [`Engine::is_resuming`]. After [`Engine::connect`] it already names
    /// requests, oldest first; while it could name some, others wait.
    pub fn poll_resume(&mut self) -> Option<Resume> {
        if matches!(self.phase, Phase::Connecting | Phase::Connected)
            && let Some(id) = self.outbound.pop_stale_request()
        {
            return Some(Resume::Request(id));
        }
        if self.phase != Phase::Connected {
            return None;
        }
        if let Some(id) = self.outbound.pop_lost_release() {
            return Some(Resume::Completed(id));
        }
        self.outbound.resume_due().map(Resume::Publish)
    }

    /// Whether messages of earlier connections wait to be sent again.
    #[must_use]
    pub fn is_resuming(&self) -> bool {
        self.outbound.is_resuming()
    }

    /// When [`Engine::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connecting => self.connect_deadline,
            Phase::Connected => earlier(self.ping_deadline(), self.ping_at()),
            Phase::Idle | Phase::Closing => None,
        }
    }

    /// Until when the server must show a sign of life.
    pub(super) fn ping_deadline(&self) -> Option<Instant> {
        self.ping.deadline.filter(|_| !self.read_paused)
    }

    /// When a PINGREQ is due.
    pub(super) fn ping_at(&self) -> Option<Instant> {
        if self.keep_alive.is_zero() || self.ping.due {
            return None;
        }
        // A part earlier than promised, because timers are late and packets
        // take their time. Silence of the server asks for a ping as well:
        // sending alone does not show that it still hears.
        let interval = self.keep_alive - self.keep_alive / 8;
        let since = match self.ping.deadline {
            Some(_) => self.last_sent,
            None => self.last_sent.min(self.last_received),
        };
        Some(since + interval)
    }

    /// Writes a packet that always fits the format.
    fn emit(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        out: &mut impl ByteSink,
    ) -> Result<(), SinkFull> {
        match packet.encode(self.version, out) {
            Ok(()) => {
                self.last_sent = now;
                Ok(())
            }
            Err(EncodeError::SinkFull(full)) => Err(full),
            Err(error) => {
                debug_assert!(false, "cannot encode {packet:?}: {error}");
                Ok(())
            }
        }
    }

    fn not_found(&self) -> ReasonCode {
        match self.version {
            Version::V5 => ReasonCode::PacketIdentifierNotFound,
            Version::V311 => ReasonCode::Success,
        }
    }
}

fn ack(id: dunlin_mqtt_codec::PacketId, reason: ReasonCode) -> Ack<'static> {
    Ack {
        packet_id: id,
        reason,
        properties: Default::default(),
    }
}
