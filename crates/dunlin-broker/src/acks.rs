//! PUBACK, PUBREC, PUBREL and PUBCOMP, both ways.

use core::num::NonZeroU16;

use dunlin_base::{QoS, StreamId};
use dunlin_mqtt::codec::{Ack, PacketId, PacketType, ReasonCode};
use dunlin_mqtt::server::{Received, Release};
use dunlin_store::{InflightState, Seq, SessionKey, StoreOp};

use crate::conn::{ConnIdx, Phase};
use crate::pending::Pending;
use crate::session::SessionIdx;
use crate::shard::Shard;

impl Shard {
    /// Sends the acknowledgements that may leave.
    pub(crate) fn send_acks(&mut self, s: SessionIdx) {
        loop {
            let Some(session) = self.sessions.get_mut(s) else {
                return;
            };
            let Some(c) = session.conn else {
                return;
            };
            if !matches!(
                self.conns.get(c).map(|conn| &conn.phase),
                Some(Phase::Connected(_))
            ) {
                return;
            }
            let Some(ack) = session.inbound.poll_ack() else {
                return;
            };
            let kind = match ack.qos {
                QoS::ExactlyOnce => PacketType::PubRec,
                _ => PacketType::PubAck,
            };
            self.send_ack(c, ack.stream, kind, ack.packet_id, ack.reason);
            if ack.stream != StreamId::CONTROL {
                self.end_if_answered(c, s, ack.stream);
            }
        }
    }

    pub(crate) fn handle_puback(&mut self, c: ConnIdx, s: SessionIdx, ack: &Ack<'_>) {
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let received = session.outbound.handle_puback(ack.packet_id);
        self.answered(c, s, ack.packet_id, &received);
    }

    pub(crate) fn handle_pubrec(
        &mut self,
        c: ConnIdx,
        s: SessionIdx,
        stream: StreamId,
        ack: &Ack<'_>,
    ) {
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let (key, packet_id) = (session.key, ack.packet_id);
        if ack.reason.is_error() {
            //= mqtt5#[MQTT-4.3.3-4]
            let received = session.outbound.handle_refused(packet_id);
            return self.answered(c, s, packet_id, &received);
        }
        match session.outbound.handle_pubrec(packet_id) {
            Received::Release => {
                self.send_ack(
                    c,
                    stream,
                    PacketType::PubRel,
                    packet_id,
                    ReasonCode::Success,
                );
            }
            Received::StoreRelease { seq } => {
                self.store_release(key, packet_id, Seq(seq));
            }
            Received::Unknown => {
                let reason = ReasonCode::PacketIdentifierNotFound;
                self.send_ack(c, stream, PacketType::PubRel, packet_id, reason);
            }
            Received::Pending | Received::Done { .. } => {}
        }
    }

    pub(crate) fn handle_pubcomp(&mut self, c: ConnIdx, s: SessionIdx, ack: &Ack<'_>) {
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let received = session.outbound.handle_pubcomp(ack.packet_id);
        self.answered(c, s, ack.packet_id, &received);
    }

    /// The receiver is done with a message: there is room for the next one.
    fn answered(&mut self, c: ConnIdx, s: SessionIdx, packet_id: PacketId, received: &Received) {
        let Some(session) = self.sessions.get(s) else {
            return;
        };
        self.forget(session.key, packet_id, received);
        self.pump(s);
        self.release_publishers(c);
    }

    pub(crate) fn handle_pubrel(
        &mut self,
        c: ConnIdx,
        s: SessionIdx,
        stream: StreamId,
        ack: &Ack<'_>,
    ) {
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let (key, packet_id) = (session.key, ack.packet_id);
        match session.inbound.handle_pubrel(stream, packet_id) {
            //= mqtt5#[MQTT-4.3.3-11]
            Release::Begin if session.is_persistent() && self.config.durable => {
                self.store_complete(key, stream, packet_id);
            }
            Release::Begin => self.send_pubcomp(key, stream, packet_id),
            Release::Pending => {}
            Release::Unknown => {
                let reason = ReasonCode::PacketIdentifierNotFound;
                self.send_ack(c, stream, PacketType::PubComp, packet_id, reason);
            }
        }
    }

    /// Has the store know that PUBREC arrived; PUBREL leaves then.
    pub(crate) fn store_release(&mut self, session: SessionKey, packet_id: NonZeroU16, seq: Seq) {
        self.write(StoreOp::PutInflight {
            session,
            packet_id: packet_id.get(),
            seq,
            state: InflightState::Released,
        });
        self.write_together(StoreOp::Dequeue { seq, session });
        let token = self.token();
        let pending = Pending::Release {
            session,
            packet_id,
            seq,
        };
        self.await_writes(token, pending);
    }

    /// Has the store forget an inbound identifier; PUBCOMP leaves then. A
    /// crash must not leave the identifier behind: the next message that uses
    /// it would be taken for a repetition and lost.
    pub(crate) fn store_complete(
        &mut self,
        session: SessionKey,
        stream: StreamId,
        packet_id: NonZeroU16,
    ) {
        self.write(StoreOp::DeleteInbound {
            session,
            packet_id: packet_id.get(),
        });
        let token = self.token();
        let pending = Pending::Complete {
            session,
            stream,
            packet_id,
        };
        self.await_removal(token, pending);
    }

    /// The identifier of a QoS 2 message is free: PUBCOMP, if the client is
    /// there and has asked.
    pub(crate) fn send_pubcomp(
        &mut self,
        key: SessionKey,
        stream: StreamId,
        packet_id: NonZeroU16,
    ) {
        let Some(s) = self.session_of(key) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let asked = session.inbound.handle_released(stream, packet_id);
        if let (Some(c), Some(stream)) = (session.conn, asked)
            && let Some(Phase::Connected(_)) = self.conns.get(c).map(|conn| &conn.phase)
        {
            let reason = ReasonCode::Success;
            self.send_ack(c, stream, PacketType::PubComp, packet_id, reason);
        }
    }
}
