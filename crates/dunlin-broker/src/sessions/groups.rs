//! When a group of a shared subscription has a queue in the store, and what becomes of
//! the messages in it after a restart.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{StreamId, Text};
use dunlin_queue::Delivery;
use dunlin_store::{QueuedRef, Recovered, RecoveredSession, SessionKey, StoreOp};

use crate::ids::{SessionIdx, SessionRef};
use crate::io::InterestChange;
use crate::owners::Owners;
use crate::owners::groups::{self, Joined, PROTOCOL};
use crate::owners::pending::{Passed, Pending};
use crate::owners::routing::{Hit, Subscribed};
use crate::owners::session::Session;
use crate::sessions::{records, subscriptions};

/// Whether a member keeps messages of the group: its session outlives its connection,
/// and it takes more than QoS 0.
fn is_durable(session: &Session, share: &str) -> bool {
    let subscription = session.subscription(share);
    let kept = subscription.is_some_and(|it| it.options & 3 != 0);
    kept && session.is_persistent()
}

/// A session has joined or left a group, or its state outlives its connection from
/// now on, or not: what that changes about where the messages of the group are.
pub(crate) fn update(
    own: &mut Owners,
    s: SessionIdx,
    filter: &str,
    is_member: bool,
) -> Option<InterestChange> {
    if !filter.starts_with("$share/") || !own.commits.is_durable() {
        return None;
    }
    let session = own.sessions.get(s)?;
    let key = session.key;
    let durable = is_member && is_durable(session, filter);
    let share = Text::from(filter);
    match own.routing.groups.witness(filter) {
        None if durable => join(own, share, key),
        Some(witness) if witness == key && !durable => leave(own, s, share),
        _ => None,
    }
}

/// As [`update`], of a session that has ended and is no member any more.
pub(crate) fn update_ended(
    own: &mut Owners,
    (s, key): (SessionIdx, SessionKey),
    filter: &str,
) -> Option<InterestChange> {
    if !filter.starts_with("$share/") || !own.commits.is_durable() {
        return None;
    }
    let is_witness = own.routing.groups.witness(filter) == Some(key);
    is_witness
        .then(|| leave(own, s, Text::from(filter)))
        .flatten()
}

fn join(own: &mut Owners, share: Text, member: SessionKey) -> Option<InterestChange> {
    let here = own.config.shard;
    match own.routing.groups.handle_joined(&share, here, member) {
        Joined::Ready(queue) => Some(InterestChange::Queue(share, Some(queue))),
        Joined::Making => None,
        Joined::Without => {
            let queue = own.sessions.next_key();
            own.routing.groups.add_own(&share, queue);
            store(own, share, queue);
            None
        }
    }
}

/// A durable member has left, or keeps nothing any more: another one may be there.
fn leave(own: &mut Owners, s: SessionIdx, share: Text) -> Option<InterestChange> {
    let others = own.routing.members(&share).filter(|other| *other != s);
    let others = others.filter_map(|other| own.sessions.peek(other));
    let next = { others }.find(|other| is_durable(other, &share));
    if let Some(next) = next.map(|session| session.key) {
        own.routing.groups.set_witness(&share, next);
        return None;
    }
    own.routing.groups.handle_left(&share, own.config.shard);
    Some(InterestChange::Queue(share, None))
}

/// Has the store make a queue; messages go there when it has.
pub(crate) fn store(own: &mut Owners, share: Text, queue: SessionKey) {
    own.commits.write(StoreOp::PutSession {
        key: queue,
        record: groups::record(&share),
    });
    let token = own.commits.token();
    own.commits
        .when_stored(token, Pending::Group { share, queue });
}

/// The store has, or has not, the queue of a group.
pub(crate) fn handle_stored(own: &mut Owners, share: Text, queue: SessionKey, stored: bool) {
    if !stored {
        return own.retry_later(Pending::Group { share, queue });
    }
    let here = own.config.shard;
    if own.routing.groups.handle_stored(&share, here, queue) {
        let change = InterestChange::Queue(share, Some(queue));
        subscriptions::announce(own, 0, &[change]);
    }
}

/// Asks the store again, as long as the group has members.
pub(crate) fn retry(own: &mut Owners, share: Text, queue: SessionKey) {
    if own.routing.groups.is_own(&share, queue) {
        store(own, share, queue);
    }
}

/// A member has left a group, here or on another shard: with the last one the queues go.
pub(crate) fn forget_empty(own: &mut Owners, share: &str) {
    if own.routing.has_members(share) {
        return;
    }
    for queue in own.routing.groups.remove(share) {
        let share = Text::from(share);
        own.sessions.begin_forget(&share);
        records::forget(own, queue, share);
    }
}

/// A group as the store has it.
#[derive(Default)]
struct Restored<'a> {
    queues: Vec<&'a RecoveredSession>,
    /// Durable members by client identifier.
    members: BTreeMap<&'a Text, (SessionKey, Subscribed)>,
}

/// Finds the groups after a restart, with their messages. Every shard comes to the
/// same division of them among the members.
pub(crate) fn restore(own: &mut Owners, recovered: &Recovered) {
    let mut groups: BTreeMap<&Text, Restored<'_>> = BTreeMap::new();
    for session in &recovered.sessions {
        let record = &session.record;
        if record.version == PROTOCOL {
            let group = groups.entry(&record.client_id).or_default();
            group.queues.push(session);
        }
        let kept = record.expiry_interval_secs > 0;
        for (filter, options, identifier) in &session.subscriptions {
            if kept && options & 3 != 0 && filter.starts_with("$share/") {
                let value = Subscribed {
                    options: *options,
                    restricted: false,
                    identifier: identifier.unwrap_or(0),
                    stream: StreamId::CONTROL,
                };
                let members = &mut groups.entry(filter).or_default().members;
                // A later session of a client has replaced an earlier one.
                members.insert(&record.client_id, (session.key, value));
            }
        }
    }
    for (share, group) in groups {
        restore_group(own, share, &group);
    }
}

fn restore_group(own: &mut Owners, share: &Text, group: &Restored<'_>) {
    let here = own.config.shard;
    let (homes, together) = (own.members.homes(), own.members.together());
    let home = |text: &str| homes.of(text);
    // Of the homes that have this store, one has its queues.
    let is_keeper = together.of(share) == here;
    let queue = group.queues.first().map(|queue| queue.key);
    if is_keeper {
        for queue in &group.queues {
            own.routing.groups.add_own(share, queue.key);
            own.routing.groups.handle_stored(share, here, queue.key);
        }
    }
    for (client_id, (member, _)) in &group.members {
        let groups = &mut own.routing.groups;
        match (home(client_id), queue) {
            (shard, _) if shard != here => groups.set(share, shard, queue),
            _ if groups.witness(share).is_some() => {}
            (_, Some(queue)) => groups.adopt(share, here, *member, queue),
            (_, None) => {
                let _ = join(own, share.clone(), *member);
            }
        }
    }
    if is_keeper && group.members.is_empty() && own.members.has_apart() {
        // It may have members there.
        let orphans = orphans(share, group);
        return own.routing.loans.add_orphans(share, orphans);
    }
    if is_keeper {
        forget_empty(own, share);
    }
    let queued = group.queues.iter().flat_map(|queue| {
        let messages = queue.queue.iter();
        messages.map(|message| (message.seq(), queue.key, message))
    });
    let mut queued: Vec<_> = queued.collect();
    queued.sort_unstable_by_key(|(seq, ..)| *seq);
    let members = group.members.iter().cycle();
    for ((_, queue, message), (client_id, (_, value))) in queued.into_iter().zip(members) {
        if home(client_id) == here
            && let Some(s) = own.sessions.find(client_id)
        {
            give(own, s, (share, value), queue, message);
        }
    }
}

/// What the queues of a group have that has no durable member of this store.
fn orphans(share: &Text, group: &Restored<'_>) -> Vec<Passed> {
    let queues = group.queues.iter();
    let queued = queues.flat_map(|queue| queue.queue.iter().map(|message| (queue.key, message)));
    let orphans = queued.map(|(queue, message)| Passed {
        delivery: Delivery {
            share: Some(Arc::from(share.as_str())),
            ..records::delivery(message)
        },
        queue: Some(queue),
        // None has had it since.
        old: SessionRef {
            key: queue,
            at: usize::MAX,
        },
        ends: true,
        returned: false,
    });
    orphans.collect()
}

/// Gives a session of a group a message that the group's queue in the store has.
fn give(
    own: &mut Owners,
    s: SessionIdx,
    (share, value): (&Text, &Subscribed),
    queue: SessionKey,
    message: &QueuedRef,
) {
    let hit = Hit::new(s, value, Some(share));
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    own.commits.keep(session.key, message.seq(), queue);
    session.queue_mut().push(Delivery {
        qos: message.qos().min(hit.qos()),
        retain: message.retain() && hit.retain_as_published(),
        identifiers: hit.identifiers,
        share: hit.share,
        ..records::delivery(message)
    });
    own.weigh_queue(s);
}
