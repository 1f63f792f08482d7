//! Events of access, for the log: who was let in or refused, and why.

use alloc::boxed::Box;

use dunlin_base::Text;

use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{AccessEvent, AccessKind, Event};
use crate::owners::Owners;

/// Something happened on a connection, before or after it has its session.
pub(crate) fn note(own: &mut Owners, c: ConnIdx, kind: AccessKind, cause: &'static str) {
    let session = own.conns.peek(c).and_then(|conn| conn.session());
    write(own, c, session, kind, cause, None);
}

/// The access list refused a session a topic.
pub(crate) fn note_denied(own: &mut Owners, s: SessionIdx, cause: &'static str, topic: &str) {
    let conn = own.sessions.get(s).and_then(|session| session.conn);
    if let Some(c) = conn {
        write(own, c, Some(s), AccessKind::Denied, cause, Some(topic));
    }
}

fn write(
    own: &mut Owners,
    c: ConnIdx,
    session: Option<SessionIdx>,
    kind: AccessKind,
    cause: &'static str,
    topic: Option<&str>,
) {
    turn(own);
    let Some(conn) = own.conns.peek(c).filter(|_| own.audit.admit(kind)) else {
        return;
    };
    let session = session.and_then(|s| own.sessions.peek(s));
    let (client_id, user) = match (session, conn.who()) {
        (Some(session), _) => (session.client_id.clone(), session.user.clone()),
        (None, Some(who)) => (who.client_id.clone(), who.user.clone()),
        (None, None) => (Text::new(), None),
    };
    let event = AccessEvent {
        kind,
        conn: conn.id,
        peer: conn.peer.clone(),
        client_id,
        user,
        topic: topic.map(Text::from),
        cause,
    };
    own.outbox.event(Event::Access(Box::new(event)));
}

/// Says what was left out, when it is time.
pub(crate) fn turn(own: &mut Owners) {
    for (kind, lines) in own.audit.turn(own.now) {
        own.stats.log_lines_left_out += lines;
        own.outbox.event(Event::LeftOut { kind, lines });
    }
}
