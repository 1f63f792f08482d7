//! Changes of a session's subscriptions, on their way to the tree, the other
//! shards and the store.

use alloc::vec::Vec;

use dunlin_base::{ShardId, Text};
use dunlin_store::{RecoveredSession, StoreOp};

use crate::access::Action;
use crate::ids::SessionIdx;
use crate::io::{BusMessage, InterestChange};
use crate::owners::Owners;
use crate::owners::routing::Subscribed;

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
    let restricted = !own.may(s, Action::Subscribe, filter);
    if restricted && filter.starts_with("$share/") {
        return leave(own, s, filter).collect();
    }
    let value = Subscribed {
        restricted,
        ..value
    };
    let change = own.routing.insert(s, filter, value);
    let keeper = keeper(own, s, filter, true);
    change.into_iter().chain(keeper).collect()
}

/// Takes a subscription out of the tree; says what that changes for other
/// shards.
pub(crate) fn leave(
    own: &mut Owners,
    s: SessionIdx,
    filter: &str,
) -> impl Iterator<Item = InterestChange> + use<> {
    let change = own.routing.remove(s, filter);
    let keeper = keeper(own, s, filter, false);
    change.into_iter().chain(keeper)
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

/// A session has joined or left a group, or its state outlives its connection
/// from now on, or not: what that changes about the session which keeps the
/// messages of the group.
fn keeper(own: &mut Owners, s: SessionIdx, filter: &str, member: bool) -> Option<InterestChange> {
    if !filter.starts_with("$share/") || !own.commits.is_durable() {
        return None;
    }
    let session = own.sessions.get(s)?;
    let (key, here) = (session.key, own.config.shard);
    let durable = member && session.is_persistent();
    let now = match own.routing.keepers.of(filter, here) {
        Some(other) if other != key => return None,
        Some(_) if durable => return None,
        None if !durable => return None,
        None => Some(key),
        Some(_) => {
            let others = own.routing.members(filter).filter(|other| *other != s);
            let mut others = others.filter_map(|other| own.sessions.peek(other));
            let next = others.find(|other| other.is_persistent());
            next.map(|other| other.key)
        }
    };
    let filter = Text::from(filter);
    own.routing.keepers.set(&filter, here, now);
    Some(InterestChange::Keeper(filter, now))
}

/// The state of a session outlives its connection from now on, or not.
pub(crate) fn lifetime_changed(own: &mut Owners, s: SessionIdx) {
    let Some(session) = own.sessions.get(s) else {
        return;
    };
    let filters = session.subscriptions().into_iter();
    let filters = filters.map(|(filter, _)| filter);
    let shared: Vec<Text> = filters.filter(|f| f.starts_with("$share/")).collect();
    let changes: Vec<_> = shared
        .iter()
        .filter_map(|filter| {
            // The rules may have taken it out of the group.
            let member = own.routing.members(filter).any(|member| member == s);
            keeper(own, s, filter, member)
        })
        .collect();
    announce(own, 0, &changes);
}

/// Sends interest to every other shard.
pub(crate) fn announce(own: &mut Owners, token: u64, changes: &[InterestChange]) {
    if changes.is_empty() && token == 0 {
        return;
    }
    for shard in 0..own.config.shards {
        let to = ShardId(shard);
        if to != own.config.shard {
            let message = BusMessage::Interest {
                token,
                changes: changes.to_vec(),
            };
            own.outbox.bus(to, message);
        }
    }
}

/// The first durable member of a group on each shard keeps its messages: all
/// shards find the same one.
pub(crate) fn note_keeper(
    own: &mut Owners,
    shard: ShardId,
    share: &Text,
    session: &RecoveredSession,
) {
    let durable = session.record.expiry_interval_secs > 0;
    let keepers = &mut own.routing.keepers;
    if durable && keepers.of(share, shard).is_none() {
        keepers.set(share, shard, Some(session.key));
    }
}
