//! Packets into send buffers, and send buffers to their transport.

use dunlin_base::StreamId;
use dunlin_base::transport::NetCommandKind;
use dunlin_mqtt::codec::{Packet, PacketType, ReasonCode};
use dunlin_mqtt::server::link::ack_packet;

use crate::ids::ConnIdx;
use crate::owners::Owners;

/// Encodes a packet onto a stream, unless the client does not take one of
/// that size: `false`.
pub(crate) fn send(own: &mut Owners, c: ConnIdx, stream: StreamId, packet: &Packet<'_>) -> bool {
    let Some(conn) = own.conns.mqtt(c) else {
        return false;
    };
    let version = conn.link.terms.version;
    if !conn.link.takes(packet) {
        return false;
    }
    let out = own.conns.out(c, stream);
    out.is_some_and(|out| packet.encode(version, out).is_ok())
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
    send(own, c, stream, &ack_packet(kind, packet_id, reason));
}

/// Hands a connection's bytes to its transport.
pub(crate) fn flush(own: &mut Owners, c: ConnIdx) {
    // It may have gone since it was marked.
    let Some(conn) = own.conns.peek_mqtt_mut(c) else {
        return;
    };
    conn.dirty = false;
    let id = conn.id;
    let sends = conn.link.streams.take_output();
    // The answer to what came with CONNECT may share CONNACK's datagram.
    let more = conn.peer.early_data && conn.link.subscribing > 0 && !sends.is_empty();
    if more {
        own.outbox.command(id, NetCommandKind::ExpectMore);
    }
    for (stream, data) in sends {
        own.stats.bytes_sent += data.len() as u64;
        own.outbox
            .command(id, NetCommandKind::Send { stream, data });
    }
    own.weigh_conn(c);
}
