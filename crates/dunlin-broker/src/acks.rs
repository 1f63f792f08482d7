//! PUBACK, PUBREC, PUBREL and PUBCOMP, both ways.

use crate::conn::Phase;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::owners::{Later, Owners};
use crate::pending::Pending;
use crate::{pump, send, throttle};
use core::num::NonZeroU16;
use dunlin_base::{QoS, StreamId};
use dunlin_mqtt::codec::{Ack, PacketId, PacketType, ReasonCode};
use dunlin_mqtt::server::{Received, Release};
use dunlin_store::{InflightState, Seq, StoreOp};

/// Sends the acknowledgements that may leave.
pub(crate) fn send_acks(own: &mut Owners, s: SessionIdx) {
    loop {
        let Some(session) = own.sessions.get_mut(s) else {
            return;
        };
        let Some(c) = session.conn else {
            return;
        };
        if !matches!(
            own.conns.get(c).map(|conn| &conn.phase),
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
        send::send_ack(own, c, ack.stream, kind, ack.packet_id, ack.reason);
        if ack.stream != StreamId::CONTROL {
            // Perhaps it was the last that the stream's end waited for.
            own.later.push_back(Later::EndStream(c, ack.stream));
        }
    }
}

pub(crate) fn handle_puback(own: &mut Owners, c: ConnIdx, s: SessionIdx, ack: &Ack<'_>) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let received = session.outbound.handle_puback(ack.packet_id);
    answered(own, c, s, ack.packet_id, &received);
}

pub(crate) fn handle_pubrec(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    stream: StreamId,
    ack: &Ack<'_>,
) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let (session_ref, packet_id) = (session.reference(s), ack.packet_id);
    if ack.reason.is_error() {
        //= mqtt5#[MQTT-4.3.3-4]
        let received = session.outbound.handle_refused(packet_id);
        return answered(own, c, s, packet_id, &received);
    }
    match session.outbound.handle_pubrec(packet_id) {
        Received::Release => {
            send::send_ack(
                own,
                c,
                stream,
                PacketType::PubRel,
                packet_id,
                ReasonCode::Success,
            );
        }
        Received::StoreRelease { seq } => {
            store_release(own, session_ref, packet_id, Seq(seq));
        }
        Received::Unknown => {
            let reason = ReasonCode::PacketIdentifierNotFound;
            send::send_ack(own, c, stream, PacketType::PubRel, packet_id, reason);
        }
        Received::Pending | Received::Done { .. } => {}
    }
}

pub(crate) fn handle_pubcomp(own: &mut Owners, c: ConnIdx, s: SessionIdx, ack: &Ack<'_>) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let received = session.outbound.handle_pubcomp(ack.packet_id);
    answered(own, c, s, ack.packet_id, &received);
}

/// The receiver is done with a message: there is room for the next one.
fn answered(own: &mut Owners, c: ConnIdx, s: SessionIdx, packet_id: PacketId, received: &Received) {
    let Some(session) = own.sessions.get(s) else {
        return;
    };
    pump::forget(own, session.key, packet_id, received);
    pump::pump(own, s);
    throttle::release_publishers(own, c);
}

pub(crate) fn handle_pubrel(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    stream: StreamId,
    ack: &Ack<'_>,
) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let (session_ref, packet_id) = (session.reference(s), ack.packet_id);
    match session.inbound.handle_pubrel(stream, packet_id) {
        //= mqtt5#[MQTT-4.3.3-11]
        Release::Begin if session.is_persistent() && own.commits.is_durable() => {
            store_complete(own, session_ref, stream, packet_id);
        }
        Release::Begin => send_pubcomp(own, session_ref, stream, packet_id),
        Release::Pending => {}
        Release::Unknown => {
            let reason = ReasonCode::PacketIdentifierNotFound;
            send::send_ack(own, c, stream, PacketType::PubComp, packet_id, reason);
        }
    }
}

/// Has the store know that PUBREC arrived; PUBREL leaves then.
pub(crate) fn store_release(
    own: &mut Owners,
    session: SessionRef,
    packet_id: NonZeroU16,
    seq: Seq,
) {
    let key = session.key;
    own.commits.write(StoreOp::PutInflight {
        session: key,
        packet_id: packet_id.get(),
        seq,
        state: InflightState::Released,
    });
    own.commits
        .write_together(StoreOp::Dequeue { seq, session: key });
    let token = own.commits.token();
    let pending = Pending::Release {
        session,
        packet_id,
        seq,
    };
    own.commits.when_stored(token, pending);
}

/// Has the store forget an inbound identifier; PUBCOMP leaves then. A
/// crash must not leave the identifier behind: the next message that uses
/// it would be taken for a repetition and lost.
pub(crate) fn store_complete(
    own: &mut Owners,
    session: SessionRef,
    stream: StreamId,
    packet_id: NonZeroU16,
) {
    own.commits.write(StoreOp::DeleteInbound {
        session: session.key,
        packet_id: packet_id.get(),
    });
    let token = own.commits.token();
    let pending = Pending::Complete {
        session,
        stream,
        packet_id,
    };
    own.commits.when_removed(token, pending);
}

/// The identifier of a QoS 2 message is free: PUBCOMP, if the client is
/// there and has asked.
pub(crate) fn send_pubcomp(
    own: &mut Owners,
    session: SessionRef,
    stream: StreamId,
    packet_id: NonZeroU16,
) {
    let Some(session) = own.sessions.resolve_mut(session) else {
        return;
    };
    let asked = session.inbound.handle_released(stream, packet_id);
    if let (Some(c), Some(stream)) = (session.conn, asked)
        && let Some(Phase::Connected(_)) = own.conns.get(c).map(|conn| &conn.phase)
    {
        let reason = ReasonCode::Success;
        send::send_ack(own, c, stream, PacketType::PubComp, packet_id, reason);
    }
}
