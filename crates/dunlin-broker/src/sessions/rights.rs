//! What the rules let a session have: its subscriptions, its client identifier.

use alloc::vec::Vec;

use dunlin_base::Text;

use crate::config::OtherUser;
use crate::ids::SessionIdx;
use crate::io::InterestChange;
use crate::owners::Owners;
use crate::sessions::subscriptions;

/// Compares the subscriptions of a session with the rules.
pub(crate) fn recheck(own: &mut Owners, s: SessionIdx, changes: &mut Vec<InterestChange>) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    session.allowed = None;
    session.decided = None;
    session.recheck = true;
    for (filter, value) in session.subscriptions() {
        changes.extend(subscriptions::place(own, s, &filter, value));
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
    if own.config.sessions.other_user == OtherUser::StartClean {
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
