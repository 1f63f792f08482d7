//! New rules about users and topics, for what was there before them: who is
//! disconnected, what subscriptions still get, whose client identifier it is.

use alloc::vec::Vec;

use dunlin_amqp::codec::condition;
use dunlin_base::Text;
use dunlin_mqtt::codec::ReasonCode;

use crate::access::Access;
use crate::amqp::{carried, events, nodes};
use crate::config::OtherUser;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{AccessKind, InterestChange};
use crate::mqtt::ending;
use crate::owners::Owners;
use crate::owners::conn::{Conn, Phase};
use crate::owners::session::Standing;
use crate::reports::audit;
use crate::sessions::{lifecycle, subscriptions};

/// Brings rules into force. Users that the password file has no longer, or
/// with another password, are disconnected; subscriptions are compared with
/// the access list again.
pub(crate) fn set_access(own: &mut Owners, access: Access) {
    let before = core::mem::replace(&mut own.access, access);
    let sessions: Vec<SessionIdx> = own.sessions.iter().map(|(s, _)| s).collect();
    let lists = before.acl.is_some() || own.access.acl.is_some();
    let mut affected = Vec::new();
    for s in sessions {
        if update_standing(own, s) || lists {
            affected.push(s);
        }
    }
    let conns = own.conns.iter();
    let ended = conns.filter(|(_, conn)| is_revoked(own, &before, conn));
    let ended: Vec<ConnIdx> = ended.map(|(c, _)| c).collect();
    for c in ended {
        let cause = "the user is gone or has another password";
        audit::note(own, c, AccessKind::Revoked, cause);
        match own.conns.get(c) {
            Some(Conn::Amqp(_)) => events::close(own, c, condition::UNAUTHORIZED_ACCESS, cause),
            Some(Conn::Carrier(_)) => carried::forget_proved(own, c),
            _ => ending::disconnect(own, c, ReasonCode::NotAuthorized),
        }
    }
    let mut changes = Vec::new();
    // The disconnection may have ended the session.
    affected.retain(|s| own.sessions.peek(*s).is_some());
    for s in &affected {
        recheck(own, *s, &mut changes);
    }
    subscriptions::announce(own, 0, &changes);
    // Messages of groups that it left, when all have left that have to.
    for s in affected {
        let session = own.sessions.peek(s);
        if session.is_some_and(|session| session.standing == Standing::Gone) {
            lifecycle::release_shared(own, s, true);
        }
    }
}

/// Compares a session with the password file; whether that changes what it
/// may do.
fn update_standing(own: &mut Owners, s: SessionIdx) -> bool {
    let Some(session) = own.sessions.get_mut(s) else {
        return false;
    };
    let (Some(user), Some(users)) = (&session.user, &own.access.users) else {
        return false;
    };
    let standing = match (session.standing, users.contains_key(user.as_bytes())) {
        (standing @ (Standing::Open | Standing::Server), _) => standing,
        (_, true) => Standing::Listed,
        (_, false) => Standing::Gone,
    };
    core::mem::replace(&mut session.standing, standing) != standing
}

/// Whether the password that a connection was, or is about to be, let in with
/// is good no longer.
fn is_revoked(own: &Owners, before: &Access, conn: &Conn) -> bool {
    let conn = match conn {
        Conn::Mqtt(conn) => conn,
        Conn::Amqp(conn) => {
            let listed = conn.identity.standing == Standing::Listed;
            let user = conn.identity.user.as_ref().filter(|_| listed);
            // An exchange that has begun is of a user that it claims to be.
            let claimed = conn.sasl.as_ref().and(conn.who.as_ref());
            let claimed = claimed.and_then(|who| who.user.as_ref());
            return user
                .or(claimed)
                .is_some_and(|user| has_new_password(own, before, user));
        }
        Conn::Carrier(carrier) => {
            let proved = carrier.proved.as_ref();
            let listed = proved.filter(|it| it.standing == Standing::Listed);
            let user = listed.and_then(|it| it.user.as_ref());
            return user.is_some_and(|user| has_new_password(own, before, user));
        }
    };
    let user = match &conn.phase {
        Phase::Exchanging(_, exchange) => Some(exchange.user()),
        Phase::Claiming(claiming) if claiming.identity.standing == Standing::Listed => {
            claiming.identity.user.as_ref()
        }
        Phase::Connected(s) | Phase::Storing(s, _) => {
            let session = own.sessions.get(*s);
            let session = session.filter(|session| session.standing != Standing::Open);
            session.and_then(|session| session.user.as_ref())
        }
        _ => None,
    };
    user.is_some_and(|user| has_new_password(own, before, user))
}

/// Whether the password of a user is another one now, or the user is gone.
fn has_new_password(own: &Owners, before: &Access, user: &Text) -> bool {
    before.users.is_some() && before.password_of(user) != own.access.password_of(user)
}

/// Compares the subscriptions of a session with the rules.
fn recheck(own: &mut Owners, s: SessionIdx, changes: &mut Vec<InterestChange>) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    session.allowed = None;
    session.recheck = true;
    let is_link = session.amqp_mut().is_some();
    for (filter, value) in session.subscriptions() {
        changes.extend(subscriptions::place(own, s, &filter, value));
    }
    if is_link {
        nodes::recheck(own, s);
    }
}

/// A session has another user than before.
pub(crate) fn handle_new_user(own: &mut Owners, s: SessionIdx) {
    let mut changes = Vec::new();
    recheck(own, s, &mut changes);
    subscriptions::announce(own, 0, &changes);
}

/// Whether a client of this user may have a client identifier, and the session
/// with it: who resumes a session of no user first owns it, and one of a user
/// belongs to that user.
pub(crate) fn may_have(own: &Owners, client_id: &str, user: Option<&Text>) -> bool {
    if own.config.other_user == OtherUser::StartClean {
        return true;
    }
    let session = own.sessions.find(client_id);
    let owner = match session.and_then(|s| own.sessions.get(s)) {
        Some(session) => session.user.as_ref(),
        None => own
            .sessions
            .elsewhere(client_id)
            .and_then(|entry| entry.user.as_ref()),
    };
    owner.is_none() || owner == user
}
