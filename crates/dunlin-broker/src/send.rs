//! Packets into send buffers, and send buffers to their transport.

use crate::ids::ConnIdx;
use crate::owners::Owners;
use alloc::vec::Vec;
use dunlin_base::transport::NetCommandKind;
use dunlin_base::{SendBuf, StreamId};
use dunlin_mqtt::codec::{Ack, Packet, PacketType, ReasonCode, ReasonProperties};

/// Encodes a packet onto a stream, unless the client does not take one of
/// that size.
pub(crate) fn send(own: &mut Owners, c: ConnIdx, stream: StreamId, packet: &Packet<'_>) {
    let Some(conn) = own.conns.get(c) else {
        return;
    };
    let (version, max) = (conn.version, conn.packet_bytes_max as usize);
    //= mqtt5#[MQTT-3.1.2-24]
    if packet.encoded_len(version).is_ok_and(|len| len <= max)
        && let Some(out) = own.conns.out(c, stream)
    {
        let _ = packet.encode(version, out);
    }
}

/// Sends an acknowledgement; a success needs no properties.
pub(crate) fn send_ack(
    own: &mut Owners,
    c: ConnIdx,
    stream: StreamId,
    kind: PacketType,
    packet_id: core::num::NonZeroU16,
    reason: ReasonCode,
) {
    let ack = Ack {
        packet_id,
        reason,
        properties: ReasonProperties::default(),
    };
    let packet = match kind {
        PacketType::PubRec => Packet::PubRec(ack),
        PacketType::PubRel => Packet::PubRel(ack),
        PacketType::PubComp => Packet::PubComp(ack),
        _ => Packet::PubAck(ack),
    };
    send(own, c, stream, &packet);
}

pub(crate) fn pause(own: &mut Owners, c: ConnIdx, paused: bool) {
    if let Some(conn) = own.conns.get_mut(c)
        && conn.paused != paused
    {
        conn.paused = paused;
        let conn = conn.id;
        own.outbox
            .command(conn, NetCommandKind::PauseReading { paused });
    }
}

/// Hands a connection's bytes to its transport.
pub(crate) fn flush(own: &mut Owners, c: ConnIdx) {
    // It may have gone since it was marked.
    let Some(conn) = own.conns.peek_mut(c) else {
        return;
    };
    conn.dirty = false;
    let id = conn.id;
    let mut sends: Vec<(StreamId, SendBuf)> = Vec::new();
    if !conn.out.is_empty() {
        sends.push((StreamId::CONTROL, core::mem::take(&mut conn.out)));
    }
    for (stream, data) in &mut conn.streams {
        if !data.out.is_empty() {
            sends.push((*stream, core::mem::take(&mut data.out)));
        }
    }
    // The answer to what came with CONNECT may share CONNACK's datagram.
    let more = conn.peer.early_data && conn.subscribing > 0 && !sends.is_empty();
    conn.unsent += sends.iter().map(|(_, data)| data.len()).sum::<usize>() as i64;
    if more {
        own.outbox.command(id, NetCommandKind::ExpectMore);
    }
    for (stream, data) in sends {
        own.stats.bytes_sent += data.len() as u64;
        own.outbox
            .command(id, NetCommandKind::Send { stream, data });
    }
}
