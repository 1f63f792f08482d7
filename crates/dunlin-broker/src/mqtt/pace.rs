//! Clients that send faster than their quota: not read for a while, or disconnected.

use dunlin_mqtt::codec::ReasonCode;

use crate::ids::ConnIdx;
use crate::mqtt::ending;
use crate::mqtt::fault::Fault;
use crate::owners::Owners;
use crate::owners::timers::Timer;
use crate::quotas::Verdict;

/// Bytes of a connection were handled: it waits if they were too many.
pub(crate) fn check(own: &mut Owners, c: ConnIdx, bytes: usize) {
    let now = own.now;
    let Some(conn) = own.conns.peek_mut(c) else {
        return;
    };
    let Some(pace) = &mut conn.pace else {
        return;
    };
    let (reason, cause) = match pace.note_bytes(bytes, now) {
        Verdict::Go => return,
        Verdict::Wait(time) => {
            if !core::mem::replace(&mut pace.held, true) {
                let id = conn.id;
                own.stats.clients_paced += 1;
                own.timers.set(now + time, Timer::Pace(id));
                own.pause(c, true);
            }
            return;
        }
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
