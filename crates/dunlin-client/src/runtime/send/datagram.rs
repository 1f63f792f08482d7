//! Messages of QoS 0 in datagrams (RFC 9221).

use bytes::{Bytes, BytesMut};
use dunlin_base::{ConnId, SendBuf};
use dunlin_dial::Context;
use dunlin_mqtt::codec::ReasonCode;

use super::super::exchange::Exchange;
use crate::shared::Shared;
use crate::streams::DATAGRAM_AGE;
use crate::work::QueuedPublish;

/// What a PUBLISH has besides topic, properties and payload, at most.
const HEADER_BYTES_MAX: usize = 16;

/// Sends a message in a datagram; gives it back if that is not possible.
pub(super) fn send(
    context: &mut Context<'_>,
    conn: ConnId,
    exchange: &mut Exchange,
    shared: &Shared,
    queued: QueuedPublish,
) -> Option<QueuedPublish> {
    let Some(max) = context.net.conn(conn).datagram_max_size() else {
        return Some(queued);
    };
    // Cheap, and right for nearly all that do not fit.
    let least = queued.publish.payload.len() + queued.publish.topic.as_bytes().len();
    let mut bytes = None;
    if least + HEADER_BYTES_MAX <= max {
        let mut out = SendBuf::new();
        // It may be lost, and with it the topic that an alias stands for.
        let in_order = false;
        let written = exchange.publish(context.now, &queued, in_order, &mut out);
        bytes = written.is_ok().then(|| joined(&out));
    }
    let expires = queued.obsolete_at.unwrap_or(context.now + DATAGRAM_AGE);
    let sent = match bytes {
        Some(bytes) => context.net.conn(conn).send_datagram(bytes, expires).is_ok(),
        None => false,
    };
    let mut status = shared.status();
    if sent {
        status.streams.datagrams_sent += 1;
        drop(status);
        queued.finish(Ok(ReasonCode::Success));
        None
    } else {
        status.streams.datagram_fallbacks += 1;
        Some(queued)
    }
}

fn joined(out: &SendBuf) -> Bytes {
    let mut bytes = BytesMut::with_capacity(out.len());
    for slice in out.slices() {
        bytes.extend_from_slice(slice);
    }
    bytes.freeze()
}
