//! The subscriptions of a session that has ended leave the tree, the groups and what other
//! shards know: so many in one call of the shard, and the rest in later ones. Meanwhile
//! none of them gets a message, and a session that the client begins has another place.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_base::Text;
use dunlin_store::SessionKey;

use crate::ids::SessionIdx;
use crate::memory::Part;
use crate::owners::Owners;
use crate::owners::leaving::{LEAVE_PAUSE, LeavingFilters, Rest};
use crate::owners::session::Session;
use crate::owners::timers::Timer;
use crate::sessions::subscriptions;

/// Takes a session out of its table, and of its subscriptions from the tree what this call
/// has time for.
pub(crate) fn remove(
    own: &mut Owners,
    s: SessionIdx,
    mut filters: Box<dyn LeavingFilters>,
) -> Option<Session> {
    let session = own.sessions.get(s)?;
    let (key, bytes) = (session.key, session.weight.subscriptions);
    let room = own.sessions.places.room();
    let first = filters.take(room);
    take_out(own, (s, key), &first);
    if filters.is_empty() {
        return own.sessions.remove(s, None);
    }
    if !own.sessions.places.are_leaving() {
        own.timers.set(own.now + LEAVE_PAUSE, Timer::Leaving);
    }
    own.routing.begin_leaving(s);
    own.budget.change(Part::Subscriptions, 0, bytes);
    let rest = Rest {
        key,
        filters,
        bytes,
    };
    own.sessions.remove(s, Some(rest))
}

/// The next subscriptions of sessions that have ended.
pub(crate) fn go_on(own: &mut Owners) {
    loop {
        let room = own.sessions.places.room();
        let Some((s, rest)) = own.sessions.places.next_leaving() else {
            return;
        };
        if room == 0 {
            return own.timers.set(own.now + LEAVE_PAUSE, Timer::Leaving);
        }
        let (key, filters) = (rest.key, rest.filters.take(room));
        let is_all = rest.filters.is_empty();
        take_out(own, (s, key), &filters);
        if is_all && let Some(rest) = own.sessions.places.free(s) {
            own.routing.end_leaving(s);
            own.budget.change(Part::Subscriptions, rest.bytes, 0);
        }
    }
}

/// Another shard looks for a member of a group here: sessions that have ended are none,
/// and it hears so before it is answered.
pub(crate) fn leave_group(own: &mut Owners, share: &str) {
    for s in own.routing.leaving_members(share) {
        let rest = own.sessions.places.rest(s);
        if let Some(key) = own.outbox.checked(rest.map(|rest| rest.key)) {
            take_out(own, (s, key), &[Text::from(share)]);
        }
    }
}

fn take_out(own: &mut Owners, ended: (SessionIdx, SessionKey), filters: &[Text]) {
    own.sessions.places.note_taken(filters.len());
    let mut changes = Vec::new();
    for filter in filters {
        changes.extend(subscriptions::leave_ended(own, ended, filter));
    }
    subscriptions::announce(own, 0, &changes);
}
