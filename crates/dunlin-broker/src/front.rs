//! Where what happens to a connection enters the front of its protocol. Shard
//! and bus call these functions and know no protocol.

use dunlin_base::transport::{NetEventKind, Peer};
use dunlin_base::{ConnId, StreamId};
use dunlin_mqtt::codec::ReasonCode;

use crate::auth::AuthAnswer;
use crate::fault::Fault;
use crate::ids::ConnIdx;
use crate::mqtt::{authenticate, data_streams, ending, packets, send};
use crate::owners::conn::Conn;
use crate::owners::{Breach, Owners};

/// A connection was opened.
pub(crate) fn handle_opened(own: &mut Owners, conn: ConnId, peer: Peer) {
    packets::handle_opened(own, conn, peer);
}

/// Something happened on a connection whose session is here.
pub(crate) fn handle_event<B: AsRef<[u8]>>(own: &mut Owners, c: ConnIdx, event: NetEventKind<B>) {
    match own.conns.get(c) {
        Some(Conn::Mqtt(_)) => packets::handle_event(own, c, event),
        None => {}
    }
}

/// The authenticator answered.
pub(crate) fn handle_auth_answer(own: &mut Owners, c: ConnIdx, answer: AuthAnswer) {
    match own.conns.get(c) {
        Some(Conn::Mqtt(_)) => authenticate::handle_auth_answer(own, c, answer),
        None => {}
    }
}

/// A deadline of the connection may have passed.
pub(crate) fn check_silence(own: &mut Owners, c: ConnIdx) {
    match own.conns.get(c) {
        Some(Conn::Mqtt(_)) => ending::check_silence(own, c),
        None => {}
    }
}

/// Ends a connection, unless it has ended meanwhile.
pub(crate) fn fail(own: &mut Owners, c: ConnIdx, breach: Breach) {
    match own.conns.peek(c) {
        Some(Conn::Mqtt(conn)) if conn.session().is_some() => {
            let text = match breach {
                Breach::Behind => "the client does not keep up",
                Breach::Unkept => "the publish cannot be kept",
            };
            ending::fail(own, c, Fault::new(ReasonCode::QuotaExceeded, text));
        }
        Some(Conn::Mqtt(_)) | None => {}
    }
}

/// Handles what came before the client was accepted.
pub(crate) fn unpark(own: &mut Owners, c: ConnIdx) {
    packets::unpark(own, c);
}

/// Ends a data stream if nothing is due on it any more.
pub(crate) fn end_stream(own: &mut Owners, c: ConnIdx, stream: StreamId) {
    data_streams::end_if_answered(own, c, stream);
}

/// Hands the bytes of a connection to its transport.
pub(crate) fn flush(own: &mut Owners, c: ConnIdx) {
    // It may have gone since it was marked.
    match own.conns.peek(c) {
        Some(Conn::Mqtt(_)) => send::flush(own, c),
        None => {}
    }
}

/// The server stops.
pub(crate) fn shut_down(own: &mut Owners, c: ConnIdx) {
    match own.conns.get(c) {
        Some(Conn::Mqtt(_)) => ending::disconnect(own, c, ReasonCode::ServerShuttingDown),
        None => {}
    }
}
