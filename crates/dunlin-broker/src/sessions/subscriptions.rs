//! Changes of a session's subscriptions, on their way to the tree, the other
//! shards and the store.

use alloc::vec::Vec;

use dunlin_base::{ShardId, Text};
use dunlin_mqtt::server::session::Changes;
use dunlin_store::StoreOp;

use crate::ids::SessionIdx;
use crate::io::{BusMessage, InterestChange};
use crate::owners::Owners;
use crate::owners::routing::Subscribed;

/// What has changed as streams and flows came and went.
pub(crate) fn apply(own: &mut Owners, s: SessionIdx, changes: Changes) {
    end(own, s, changes.ended);
    for (filter, subscription) in changes.moved {
        let value = Subscribed::of(&subscription);
        own.routing.insert(s, &filter, value);
    }
}

/// Subscriptions have ended.
pub(crate) fn end(own: &mut Owners, s: SessionIdx, filters: Vec<Text>) {
    let changes = remove(own, s, filters);
    if !changes.is_empty() {
        announce(own, 0, &changes);
    }
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
