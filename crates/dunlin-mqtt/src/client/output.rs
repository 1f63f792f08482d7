//! What the engine owes the server, and when.

use dunlin_base::{ByteSink, Instant, SinkFull};
use dunlin_mqtt_codec::{Ack, Disconnect, EncodeError, Packet, PacketId, ReasonCode, Version};

use super::event::{Owed, Resume};
use super::inbound::Due as DueAck;
use super::session::{Phase, Session, Stray};

/// A packet to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Disconnect(ReasonCode),
    Stray(Stray),
    Ack(DueAck),
    Release(PacketId),
    Ping,
}

impl Due {
    fn packet(self, version: Version) -> Packet<'static> {
        let not_found = match version {
            Version::V5 => ReasonCode::PacketIdentifierNotFound,
            Version::V311 => ReasonCode::Success,
        };
        match self {
            Self::Disconnect(reason) => Packet::Disconnect(Disconnect {
                reason,
                properties: Default::default(),
            }),
            Self::Stray(Stray::PubRel(id)) => Packet::PubRel(Ack::new(id, not_found)),
            Self::Stray(Stray::PubComp(id)) => Packet::PubComp(Ack::new(id, not_found)),
            Self::Ack(DueAck::Ack(id, reason)) => Packet::PubAck(Ack::new(id, reason)),
            Self::Ack(DueAck::Rec(id, reason)) => Packet::PubRec(Ack::new(id, reason)),
            Self::Ack(DueAck::Comp(id)) => Packet::PubComp(Ack::new(id, ReasonCode::Success)),
            Self::Release(id) => Packet::PubRel(Ack::new(id, ReasonCode::Success)),
            Self::Ping => Packet::PingReq,
        }
    }
}

impl Session {
    /// What [`Session::poll_output`] writes next: for owners with several
    /// streams to one server, who choose the stream by it.
    #[must_use]
    pub fn owed(&self) -> Option<Owed> {
        self.due().map(|due| match due {
            Due::Release(id) => Owed::Release(id),
            _ => Owed::Other,
        })
    }

    fn due(&self) -> Option<Due> {
        if let Some(reason) = self.disconnect {
            return Some(Due::Disconnect(reason));
        }
        if self.phase != Phase::Connected {
            return None;
        }
        // [MQTT-3.3.4-8]: none of these waits for the Receive Maximum.
        let stray = self.strays.first().map(Due::Stray);
        let due = stray.or_else(|| self.inbound.due().map(Due::Ack));
        let due = due.or_else(|| self.outbound.release_due().map(Due::Release));
        due.or_else(|| self.keep_alive.ping_is_due().then_some(Due::Ping))
    }

    /// Writes one packet that is due, and tells whether there was one: call it
    /// until there is none.
    ///
    /// # Errors
    /// [`SinkFull`]: throw away what was written and call again with room.
    pub fn poll_output(&mut self, now: Instant, out: &mut impl ByteSink) -> Result<bool, SinkFull> {
        let Some(due) = self.due() else {
            return Ok(false);
        };
        let packet = due.packet(self.offer.version);
        match packet.encode(self.offer.version, out) {
            Ok(()) => self.keep_alive.sent(now),
            Err(EncodeError::SinkFull(full)) => return Err(full),
            Err(error) => debug_assert!(false, "cannot encode {packet:?}: {error}"),
        }
        match due {
            Due::Disconnect(_) => self.disconnect = None,
            Due::Stray(_) => self.strays.written(),
            Due::Ack(due) => self.inbound.written(due),
            Due::Release(_) => self.outbound.release_sent(),
            Due::Ping => self.keep_alive.pinged(now),
        }
        Ok(true)
    }

    /// What must be sent again, or given up, now that a connection stands:
    /// call it after [`Event::Connected`](super::Event::Connected) until it
    /// returns `None`, and again after every [`Event`](super::Event) while
    /// [`Session::is_resuming`]. After [`Session::connect`] it already names
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
        self.phase == Phase::Connected && self.outbound.is_resuming()
    }

    /// When [`Session::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connecting => self.connect_deadline,
            Phase::Connected => self.keep_alive.deadline(),
            Phase::Idle | Phase::Closing => None,
        }
    }
}
