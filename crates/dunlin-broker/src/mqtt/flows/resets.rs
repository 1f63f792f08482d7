//! What the draft says besides flow headers: whether they are used, and the codes by
//! which the broker resets streams.

use dunlin_base::transport::NetCommandKind;
use dunlin_base::{ConnId, StreamId};
use dunlin_mqtt::flow::{ALPN, stream_code};

use crate::mqtt::conn::MqttConn;
use crate::owners::outbox::Outbox;

/// The client sent what it may not send on a stream of the server (draft, section 9.19).
pub(crate) const MISPLACED: u64 = stream_code::STREAM_TYPE;

/// Whether both sides agreed on flow headers (ALPN).
pub(crate) fn are_agreed(conn: &MqttConn) -> bool {
    *conn.peer.protocol == *ALPN
}

/// A stream is not needed, or another one replaces it.
pub(crate) fn cancel(outbox: &mut Outbox, conn: ConnId, stream: StreamId) {
    let code = stream_code::FLOW_CANCELLED;
    outbox.command(conn, NetCommandKind::ResetStream { stream, code });
}

/// The client has not ended a stream of the server for too long.
pub(crate) fn give_up(outbox: &mut Outbox, conn: ConnId, stream: StreamId) {
    let code = stream_code::FLOW_OPEN_IDLE;
    outbox.command(conn, NetCommandKind::ResetStream { stream, code });
}
