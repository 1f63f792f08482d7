//! Where what happens to a connection enters the front of its protocol. Shard
//! and bus call these functions and know no protocol.

use dunlin_base::transport::{NetEventKind, Peer};
use dunlin_base::{ConnId, StreamId};
use dunlin_mqtt::codec::ReasonCode;

use crate::auth::AuthAnswer;
use crate::fault::Fault;
use crate::ids::ConnIdx;
use crate::mqtt::{authenticate, data_streams, ending, packets, throttle};
use crate::owners::Owners;
use crate::owners::conn::Front;

/// A connection was opened.
pub(crate) fn handle_opened(own: &mut Owners, conn: ConnId, peer: Peer) {
    packets::handle_opened(own, conn, peer);
}

/// Something happened on a connection whose session is here. Its first bytes
/// decide what it speaks.
pub(crate) fn handle_event<B: AsRef<[u8]>>(own: &mut Owners, c: ConnIdx, event: NetEventKind<B>) {
    let Some(conn) = own.conns.get_mut(c) else {
        return;
    };
    if conn.front == Front::Unknown && matches!(event, NetEventKind::Bytes { .. }) {
        conn.front = Front::Mqtt;
    }
    match conn.front {
        Front::Unknown | Front::Mqtt => packets::handle_event(own, c, event),
    }
}

/// The authenticator answered.
pub(crate) fn handle_auth_answer(own: &mut Owners, c: ConnIdx, answer: AuthAnswer) {
    match own.conns.get(c).map(|conn| conn.front) {
        Some(Front::Mqtt) => authenticate::handle_auth_answer(own, c, answer),
        Some(Front::Unknown) | None => {}
    }
}

/// A deadline of the connection may have passed.
pub(crate) fn check_silence(own: &mut Owners, c: ConnIdx) {
    match own.conns.get(c).map(|conn| conn.front) {
        Some(Front::Unknown | Front::Mqtt) => ending::check_silence(own, c),
        None => {}
    }
}

/// A publisher may go on that was held up.
pub(crate) fn release(own: &mut Owners, c: ConnIdx) {
    throttle::release(own, c);
}

/// Ends a connection for a broken rule, unless it has ended meanwhile.
pub(crate) fn fail(own: &mut Owners, c: ConnIdx, fault: Fault) {
    let conn = own.conns.peek(c);
    if conn.is_some_and(|conn| conn.session().is_some()) {
        ending::fail(own, c, fault);
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

/// The server stops.
pub(crate) fn shut_down(own: &mut Owners, c: ConnIdx) {
    match own.conns.get(c).map(|conn| conn.front) {
        Some(Front::Unknown | Front::Mqtt) => {
            ending::disconnect(own, c, ReasonCode::ServerShuttingDown);
        }
        None => {}
    }
}
