//! PUBACK, PUBREC, PUBREL and PUBCOMP, both ways.

use core::num::NonZeroU16;

use dunlin_base::{QoS, StreamId};
use dunlin_mqtt::codec::{Ack, PacketType, ReasonCode, Version};
use dunlin_mqtt::server::AckToken;
use dunlin_mqtt::server::session::Step;
use dunlin_store::{InflightState, Seq, StoreOp};

use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::io::NotTaken;
use crate::messages::throttle;
use crate::mqtt::conn::Phase;
use crate::mqtt::fault::Fault;
use crate::mqtt::waiting::MqttPending;
use crate::mqtt::{pump, send};
use crate::owners::commits::Commits;
use crate::owners::pending::{Pending, Verdict};
use crate::owners::{Later, Owners};

/// What became of a publish is known: its acknowledgement leaves.
pub(crate) fn answer_publish(own: &mut Owners, origin: SessionRef, token: u64, verdict: Verdict) {
    let Some(session) = own.sessions.resolve_mqtt(origin) else {
        return;
    };
    let (key, is_persistent) = (session.key, session.is_persistent());
    let (inbound, token) = (&mut session.mqtt.inbound, AckToken(token));
    if let Verdict::Refused(NotTaken::NotStored) = verdict
        && is_persistent
        && let Some(packet_id) = inbound.open_id(token)
    {
        // The store may have it all the same: after a restart, what is sent again with it
        // would be taken for a repetition and lost.
        own.commits.write(StoreOp::DeleteInbound {
            session: key,
            packet_id: packet_id.get(),
        });
    }
    let reason = match verdict {
        Verdict::Accepted => ReasonCode::Success,
        Verdict::Unmatched => ReasonCode::NoMatchingSubscribers,
        Verdict::Refused(_) if session.mqtt.version == Version::V311 => {
            // It has no way to refuse: the client is cut off and sends it again.
            inbound.abandon(token);
            let conn = session.conn;
            own.later.extend(conn.map(Later::Unkept));
            return;
        }
        Verdict::Refused(_) => ReasonCode::QuotaExceeded,
    };
    inbound.complete(token, reason);
    send_acks(own, origin.at);
}

/// Sends the acknowledgements that may leave.
pub(crate) fn send_acks(own: &mut Owners, s: SessionIdx) {
    loop {
        let Some(session) = own.sessions.mqtt_mut(s) else {
            return;
        };
        let Some(c) = session.conn else {
            return;
        };
        if !matches!(
            own.conns.mqtt(c).map(|conn| &conn.phase),
            Some(Phase::Connected(_))
        ) {
            return;
        }
        let Some(ack) = session.mqtt.inbound.poll_ack() else {
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

/// A PUBACK, PUBREC, PUBREL or PUBCOMP.
pub(crate) fn handle_ack(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    kind: PacketType,
    stream: StreamId,
    ack: &Ack<'_>,
) -> Result<(), Fault> {
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return Ok(());
    };
    let (session_ref, packet_id) = (session.reference(s), ack.packet_id);
    let stored = session.is_persistent() && own.commits.is_durable();
    match session.mqtt.handle_ack(kind, stream, ack)? {
        Step::Settled(received) => {
            pump::forget(own, session_ref.key, packet_id, &received);
            pump::pump(own, s);
            throttle::release_publishers(own, c);
        }
        Step::Answer(kind, reason) => {
            send::send_ack(own, c, stream, kind, packet_id, reason);
            own.weigh_queue(s);
        }
        Step::StoreRelease { seq } => {
            store_release(own, session_ref, packet_id, Seq(seq));
            own.weigh_queue(s);
        }
        Step::Release if stored => store_complete(own, session_ref, stream, packet_id),
        Step::Release => send_pubcomp(own, session_ref, stream, packet_id),
        Step::Nothing => {}
    }
    Ok(())
}

/// Has the store know that PUBREC arrived; PUBREL leaves then.
pub(crate) fn store_release(
    own: &mut Owners,
    session: SessionRef,
    packet_id: NonZeroU16,
    seq: Seq,
) {
    let key = session.key;
    if own.members.is_edge() {
        own.routing.loans.give_back(&mut own.outbox, seq.0, true);
    }
    own.commits.write(StoreOp::PutInflight {
        session: key,
        packet_id: packet_id.get(),
        seq,
        state: InflightState::Released,
    });
    own.commits
        .write_together(StoreOp::Dequeue { seq, session: key });
    let pending = MqttPending::Release {
        session,
        packet_id,
        seq,
    };
    go_on(own, pending, Commits::when_stored);
}

/// Goes on once the store has what was written last.
fn go_on(own: &mut Owners, pending: MqttPending, when: fn(&mut Commits, u64, Pending)) {
    let token = own.commits.token();
    when(&mut own.commits, token, pending.into());
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
    let pending = MqttPending::Complete {
        session,
        stream,
        packet_id,
    };
    go_on(own, pending, Commits::when_removed);
}

/// The identifier of a QoS 2 message is free: PUBCOMP, if the client is
/// there and has asked.
pub(crate) fn send_pubcomp(
    own: &mut Owners,
    session: SessionRef,
    stream: StreamId,
    packet_id: NonZeroU16,
) {
    let Some(session) = own.sessions.resolve_mqtt(session) else {
        return;
    };
    let asked = session.mqtt.inbound.handle_released(stream, packet_id);
    if let (Some(c), Some(stream)) = (session.conn, asked)
        && let Some(Phase::Connected(_)) = own.conns.mqtt(c).map(|conn| &conn.phase)
    {
        let reason = ReasonCode::Success;
        send::send_ack(own, c, stream, PacketType::PubComp, packet_id, reason);
    }
}
