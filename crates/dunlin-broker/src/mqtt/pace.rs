//! Clients that send faster than their quota: not read for a while, or disconnected.

use alloc::boxed::Box;

use dunlin_base::Text;
use dunlin_mqtt::codec::ReasonCode;

use crate::ids::{ConnIdx, SessionIdx};
use crate::messages::throttle;
use crate::mqtt::ending;
use crate::mqtt::fault::Fault;
use crate::owners::Owners;
use crate::owners::common::Identity;
use crate::owners::debts::Debtor;
use crate::quotas::{Pace, Subject, Verdict};

/// How fast a client may send, with what it has to pay for.
pub(crate) fn of(own: &Owners, c: ConnIdx, s: SessionIdx) -> Option<Box<Pace>> {
    let (conn, session) = (own.conns.mqtt(c)?, own.sessions.mqtt(s)?);
    if own.config.bridges.is_own(&conn.peer) {
        return None;
    }
    let subject = session.subject(&own.access, Some(conn.peer.listener));
    let mut pace = own.config.quotas.of(&subject)?.pace()?;
    if let Some(debt) = own.conns.debts.get(&session.debtor(), own.now) {
        pace.owe(debt);
    }
    Some(pace)
}

/// Why a client is not let in that has sent far too much over an earlier connection: it
/// would be disconnected at once.
pub(crate) fn refusal(
    own: &mut Owners,
    c: ConnIdx,
    client_id: &Text,
    identity: &Identity,
) -> Option<Fault> {
    let debtor = Debtor {
        user: identity.user.clone(),
        client_id: client_id.clone(),
    };
    let debt = own.conns.debts.get(&debtor, own.now)?;
    let quota = own.config.quotas.of(&Subject {
        client_id,
        user: debtor.user.as_deref(),
        listener: own.conns.peek(c).map(|conn| conn.peer.listener),
        rules: identity.rules.as_deref(),
        acl: own.access.acl.as_deref(),
    })?;
    let mut pace = quota.pace()?;
    pace.owe(debt);
    let is_over = pace.ahead(own.now) > quota.debt;
    own.stats.clients_over_quota += u64::from(is_over);
    let cause = "far too much was sent over an earlier connection";
    is_over.then(|| Fault::new(ReasonCode::QuotaExceeded, cause))
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
