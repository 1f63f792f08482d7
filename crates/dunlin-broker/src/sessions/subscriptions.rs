//! Changes of a session's subscriptions, on their way to the tree, the other
//! shards and the store.

use alloc::vec::Vec;

use dunlin_base::{ShardId, Text};
use dunlin_store::{SessionKey, StoreOp};
use smallvec::SmallVec;

use crate::ids::SessionIdx;
use crate::io::{BusMessage, InterestChange};
use crate::memory::Part;
use crate::messages::shared;
use crate::owners::Owners;
use crate::owners::routing::Subscribed;
use crate::owners::session::Session;
use crate::sessions::groups;

/// What the filter of a shared subscription begins with.
const SHARED: &str = "$share/";

/// Subscriptions of a session that are looked at at once for shared ones.
const SHARED_PAGE: usize = 64;

/// Puts a subscription where messages find it, as far as the rules allow;
/// says what that changes for other shards. A plain one that is not allowed
/// as a whole has each message checked; a shared one leaves its group, so that
/// the others get its messages.
pub(crate) fn place(
    own: &mut Owners,
    s: SessionIdx,
    filter: &str,
    value: Subscribed,
) -> Vec<InterestChange> {
    let restricted = !own.may_keep(s, filter);
    if restricted && filter.starts_with("$share/") {
        return leave(own, s, filter).collect();
    }
    let value = Subscribed {
        restricted,
        ..value
    };
    let change = own.routing.insert(s, filter, value);
    let queue = groups::update(own, s, filter, true);
    change.into_iter().chain(queue).collect()
}

/// Why there is no room for a subscription of so many bytes that has a session of
/// its own, if there is not.
pub(crate) fn check_room(own: &mut Owners, bytes: usize) -> Result<(), &'static str> {
    own.budget.look();
    if bytes <= own.budget.subscription_bytes_max(0) {
        return Ok(());
    }
    own.note_refused(Part::Subscriptions, 1);
    Err("no memory for another subscription")
}

/// Takes a subscription out of the tree; says what that changes for other
/// shards.
pub(crate) fn leave(
    own: &mut Owners,
    s: SessionIdx,
    filter: &str,
) -> impl Iterator<Item = InterestChange> + use<> {
    let change = own.routing.remove(s, filter);
    let queue = groups::update(own, s, filter, false);
    groups::forget_empty(own, filter);
    change.into_iter().chain(queue)
}

/// As [`leave`], of a session that has ended, whose place and key these were.
pub(crate) fn leave_ended(
    own: &mut Owners,
    (s, key): (SessionIdx, SessionKey),
    filter: &str,
) -> impl Iterator<Item = InterestChange> + use<> {
    let change = own.routing.remove(s, filter);
    let queue = groups::update_ended(own, (s, key), filter);
    groups::forget_empty(own, filter);
    change.into_iter().chain(queue)
}

/// Subscriptions have ended.
pub(crate) fn end(own: &mut Owners, s: SessionIdx, filters: Vec<Text>) {
    let changes = remove(own, s, filters);
    announce(own, 0, &changes);
}

/// Takes subscriptions that have ended out of the tree and the store; what
/// changes for other shards comes out.
pub(crate) fn remove(own: &mut Owners, s: SessionIdx, filters: Vec<Text>) -> Vec<InterestChange> {
    let mut changes = Vec::new();
    for filter in filters {
        shared::settle_in_session(own, s, &filter);
        changes.extend(leave(own, s, &filter));
        let Some(session) = own.sessions.get_mut(s) else {
            break;
        };
        session.walks.end(&filter);
        if session.is_persistent() {
            let key = session.key;
            own.commits
                .write(StoreOp::DeleteSubscription { key, filter });
        }
    }
    own.weigh(s);
    changes
}

/// The state of a session outlives its connection from now on, or not.
pub(crate) fn lifetime_changed(own: &mut Owners, s: SessionIdx) {
    let Some(session) = own.sessions.get(s) else {
        return;
    };
    let shared = shared_filters(session);
    let changes: Vec<_> = shared
        .iter()
        .filter_map(|filter| {
            // The rules may have taken it out of the group.
            let member = own.routing.members(filter).any(|member| member == s);
            groups::update(own, s, filter, member)
        })
        .collect();
    announce(own, 0, &changes);
}

/// Filters of a session's shared subscriptions.
fn shared_filters(session: &Session) -> Vec<Text> {
    let mut shared: Vec<Text> = Vec::new();
    loop {
        let after = shared.last().map_or(SHARED, Text::as_str);
        let page = session.subscriptions_after(after, SHARED_PAGE);
        let filters = page.into_iter().map(|(filter, _)| filter);
        let before = shared.len();
        shared.extend(filters.take_while(|filter| filter.starts_with(SHARED)));
        if shared.len() - before < SHARED_PAGE {
            return shared;
        }
    }
}

/// Sends interest to every other shard.
pub(crate) fn announce(own: &mut Owners, token: u64, changes: &[InterestChange]) {
    if changes.is_empty() && token == 0 {
        return;
    }
    let others: SmallVec<[ShardId; 16]> = own.members.others().collect();
    for to in others {
        let message = BusMessage::Interest {
            token,
            changes: changes.to_vec(),
        };
        own.outbox.bus(to, message);
        if token != 0 {
            own.members.expect(to, token);
        }
    }
}
