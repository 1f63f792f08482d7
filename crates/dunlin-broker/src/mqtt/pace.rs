//! Clients that send faster than their quota: not read for a while, or disconnected.

use alloc::boxed::Box;

use dunlin_mqtt::codec::ReasonCode;

use crate::ids::{ConnIdx, SessionIdx};
use crate::messages::throttle;
use crate::mqtt::ending;
use crate::mqtt::fault::Fault;
use crate::owners::Owners;
use crate::quotas::{Pace, Verdict};

/// How fast a client may send.
pub(crate) fn of(own: &Owners, c: ConnIdx, s: SessionIdx) -> Option<Box<Pace>> {
    let (conn, session) = (own.conns.mqtt(c)?, own.sessions.mqtt(s)?);
    if own.config.bridges.is_own(&conn.peer) {
        return None;
    }
    let subject = session.subject(&own.access, Some(conn.peer.listener));
    own.config.quotas.of(&subject)?.pace()
}

/// Bytes of a connection were handled: it waits if they were too many.
pub(crate) fn check(own: &mut Owners, c: ConnIdx, bytes: usize) {
    let (reason, cause) = match throttle::pace(own, c, bytes) {
        Verdict::Go | Verdict::Wait(_) => return,
        Verdict::Messages => (
            ReasonCode::MessageRateTooHigh,
            "messages faster than its quota",
        ),
        Verdict::Bytes => (ReasonCode::QuotaExceeded, "bytes faster than its quota"),
    };
    let conn = own.conns.peek_mqtt(c);
    if conn.is_some_and(|conn| conn.session().is_some()) {
        own.stats.clients_over_quota += 1;
        ending::fail(own, c, Fault::new(reason, cause));
    }
}
