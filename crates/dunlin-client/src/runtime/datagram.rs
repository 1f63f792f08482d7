//! Messages of QoS 0 in datagrams (RFC 9221).

use bytes::{Bytes, BytesMut};
use dunlin_base::{ConnId, SendBuf};
use dunlin_mqtt::codec::ReasonCode;

use super::QueuedPublish;
use super::io::Context;
use super::outgoing::encode;
use super::session::Session;
use crate::streams::DATAGRAM_AGE;

/// What a PUBLISH has besides topic, properties and payload, at most.
const HEADER_BYTES_MAX: usize = 16;

impl Session {
    /// Sends a message in a datagram; gives it back if that is not possible.
    pub(super) fn write_datagram(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        queued: QueuedPublish,
    ) -> Option<QueuedPublish> {
        let Some(max) = context.net.datagram_max_size(conn) else {
            return Some(queued);
        };
        let payload = &queued.publish.payload;
        // Cheap, and right for nearly all that do not fit.
        let least = payload.len() + queued.publish.topic.as_bytes().len();
        let mut bytes = None;
        if least + HEADER_BYTES_MAX <= max {
            let mut out = SendBuf::new();
            let put = |out: &mut SendBuf| {
                out.put_bytes(payload);
                Ok(())
            };
            let packet = encode(&queued.publish);
            // It may be lost, and with it the topic that an alias stands for.
            self.engine.use_aliases(false);
            let written =
                self.engine
                    .publish_with(context.now, &packet, payload.len(), &mut out, put);
            self.engine.use_aliases(true);
            bytes = written.is_ok().then(|| joined(&out));
        }
        let expires = queued.obsolete_at.unwrap_or(context.now + DATAGRAM_AGE);
        let sent = match bytes {
            Some(bytes) => context.net.send_datagram(conn, bytes, expires).is_ok(),
            None => false,
        };
        let mut status = self.core.shared.status();
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
}

fn joined(out: &SendBuf) -> Bytes {
    let mut bytes = BytesMut::with_capacity(out.len());
    for slice in out.slices() {
        bytes.extend_from_slice(slice);
    }
    bytes.freeze()
}
