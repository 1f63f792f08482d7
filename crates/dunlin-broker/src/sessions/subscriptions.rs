//! Changes of a session's subscriptions, on their way to the tree, the other
//! shards and the store.

use alloc::vec::Vec;

use dunlin_base::{ShardId, Text};
use dunlin_mqtt::server::session::{Changes, Subscription};
use dunlin_store::StoreOp;

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
    subscription: &Subscription,
) -> Option<InterestChange> {
    let restricted = !own.may(s, Action::Subscribe, filter);
    if restricted && filter.starts_with("$share/") {
        return own.routing.remove(s, filter);
    }
    let value = Subscribed {
        restricted,
        ..Subscribed::of(subscription)
    };
    own.routing.insert(s, filter, value)
}

/// What has changed as streams and flows came and went.
pub(crate) fn apply(own: &mut Owners, s: SessionIdx, changes: Changes) {
    end(own, s, changes.ended);
    for (filter, subscription) in changes.moved {
        let change = place(own, s, &filter, &subscription);
        announce(own, 0, change.as_slice());
    }
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
        changes.extend(own.routing.remove(s, &filter));
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
    changes
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
