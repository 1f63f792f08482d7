//! New rules about users and topics, for what was there before them: who is
//! disconnected, what subscriptions still get.

use alloc::vec::Vec;

use dunlin_base::Text;

use crate::access::Access;
use crate::front;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::AccessKind;
use crate::owners::Owners;
use crate::owners::common::Standing;
use crate::owners::conn::Conn;
use crate::owners::kind::Proof;
use crate::reports::audit;
use crate::sessions::{lifecycle, rights, subscriptions};

/// Brings rules into force. Users that the password file has no longer, or
/// with another password, are disconnected; subscriptions are compared with
/// the access list again, unless it is the same one: then answers of a server stay, too.
pub(crate) fn set_access(own: &mut Owners, access: Access) {
    let before = core::mem::replace(&mut own.access, access);
    let sessions: Vec<SessionIdx> = own.sessions.iter().map(|(s, _)| s).collect();
    let same = before.has_rules_of(&own.access);
    let lists = before.acl.is_some() || own.access.acl.is_some();
    let mut affected = Vec::new();
    for s in sessions {
        let session = own.sessions.peek(s);
        let has_rules = session.is_some_and(|session| session.rules.is_some());
        if update_standing(own, s) || !same && (lists || has_rules) {
            affected.push(s);
        }
    }
    let conns = own.conns.iter();
    let ended = conns.filter(|(_, conn)| is_revoked(own, &before, conn));
    let ended: Vec<ConnIdx> = ended.map(|(c, _)| c).collect();
    for c in ended {
        let cause = "the user is gone or has another password";
        audit::note(own, c, AccessKind::Revoked, cause);
        front::revoke(own, c, cause);
    }
    let mut changes = Vec::new();
    // The disconnection may have ended the session.
    affected.retain(|s| own.sessions.peek(*s).is_some());
    for s in &affected {
        rights::recheck(own, *s, &mut changes);
        front::recheck(own, *s);
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
        (standing @ (Standing::Open | Standing::Server | Standing::Unproved), _) => standing,
        (_, true) => Standing::Listed,
        (_, false) => Standing::Gone,
    };
    core::mem::replace(&mut session.standing, standing) != standing
}

/// Whether the password that a connection was, or is about to be, let in with
/// is good no longer.
fn is_revoked(own: &Owners, before: &Access, conn: &Conn) -> bool {
    let user = match conn.proof() {
        Proof::Password(user) => Some(user),
        Proof::Session(s) => {
            let session = own.sessions.get(s);
            let session = session.filter(|session| session.standing != Standing::Open);
            session.and_then(|session| session.user.as_ref())
        }
        Proof::Other => None,
    };
    user.is_some_and(|user| has_new_password(own, before, user))
}

/// Whether the password of a user is another one now, or the user is gone.
fn has_new_password(own: &Owners, before: &Access, user: &Text) -> bool {
    before.users.is_some() && before.password_of(user) != own.access.password_of(user)
}
