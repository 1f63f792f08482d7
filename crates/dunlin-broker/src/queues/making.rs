//! Queues that are made for a message, which does not wait for that: it is stored in one
//! batch with the record of its queue, as long as that is not stored by itself. One that is
//! made for a message of a transaction is there if the transaction is.

use alloc::vec::Vec;

use dunlin_base::{ShardId, Text};
use dunlin_store::StoreOp;

use crate::config::Config;
use crate::ids::{SessionIdx, SessionRef};
use crate::io::NotTaken;
use crate::owners::Owners;
use crate::owners::common::Standing;
use crate::owners::node::{Node, Stage};
use crate::owners::pending::{Pending, Work};
use crate::owners::routing::Hit;
use crate::queues::calls::{Call, Create, Refusal};
use crate::queues::nodes::Owner;
use crate::queues::options::Kept;
use crate::queues::{addresses, nodes};

/// How a queue is made that a client names and that is not there, if it is.
pub(crate) fn wanted(config: &Config) -> Option<Create> {
    config.queues.auto_create.then(|| Create {
        kept: Kept {
            options: config.queues.options.clone(),
            ..Kept::default()
        },
        filter: None,
        standing: Standing::Server,
        rules: None,
    })
}

/// Has the queue made of a message of this user that comes next, if there is none, where
/// its home is. `token`: that of the transaction which the message is part of. The queue is
/// part of it, too.
pub(crate) fn want(own: &mut Owners, address: Text, user: Option<Text>, token: Option<u64>) {
    if !is_made(&own.config, &address) {
        return;
    }
    let here = own.config.shard;
    let home = own.members.home(&address);
    if home == here {
        return make(own, &address, user.as_ref(), token.is_some());
    }
    let make = Call::Make {
        address,
        user,
        token,
    };
    own.call(home, make);
}

/// Whether a queue of this address is made for a message.
fn is_made(config: &Config, address: &str) -> bool {
    config.queues.auto_create && addresses::is_queue(address) && !addresses::is_dynamic(address)
}

/// Why there is no queue of this address for a message.
pub(crate) fn why_missing(config: &Config, address: &str) -> NotTaken {
    match is_made(config, address) {
        // There was no room to make it.
        true => NotTaken::NoRoom,
        false => NotTaken::NotFound,
    }
}

/// As [`want`], of a message of another shard; `of`: a transaction, by its shard and token.
pub(crate) fn handle_make(
    own: &mut Owners,
    address: &Text,
    user: Option<&Text>,
    of: Option<(ShardId, u64)>,
) {
    if let Some((from, token)) = of {
        let deliveries = own.commits.prepared_deliveries(from, token);
        if deliveries >= own.config.transactions.deliveries_max {
            // The message is not taken.
            return;
        }
    }
    make(own, address, user, of.is_some());
}

/// Makes the queue of a message of this user that comes next, if there is none and there
/// is room for it; `transacted`: it is there only if the transaction of the message is.
fn make(own: &mut Owners, address: &Text, user: Option<&Text>, transacted: bool) {
    let s = match own.sessions.find_node(address) {
        Some(s) => {
            open_early(own, s);
            s
        }
        None => {
            let owner = Owner {
                user,
                client_id: "",
                rules: None,
            };
            let Some(new) = wanted(&own.config).filter(|_| nodes::has_room(own, owner)) else {
                return;
            };
            let s = nodes::insert(own, address.clone(), user.cloned(), new);
            if let Some(node) = own.sessions.node_mut(s) {
                node.stage = Stage::Storing { alone: false };
            }
            s
        }
    };
    if !transacted {
        store_alone(own, s);
    }
}

/// Has the record of a queue stored by itself, unless it is, or was.
fn store_alone(own: &mut Owners, s: SessionIdx) {
    if let Some(node) = own.sessions.node_mut(s)
        && matches!(node.stage, Stage::Storing { alone: false })
    {
        node.stage = Stage::Storing { alone: true };
        nodes::store(own, s);
    }
}

/// A message comes for a queue that a link is making: it does not wait for the record, and
/// neither do the links. What an order makes, and what other shards are to know of, stays
/// closed until that is done.
fn open_early(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let is_plain = node.change.is_none() && node.bindings.is_empty();
    if node.is_ready() || !is_plain {
        return;
    }
    let stage = core::mem::replace(&mut node.stage, Stage::Storing { alone: true });
    if let Stage::Making(waiting) = stage {
        for (from, attach) in waiting {
            nodes::handle_attach(own, from, attach);
        }
    }
}

/// Has the record of a queue stored with what it is to get.
pub(crate) fn store_with(own: &mut Owners, hits: &[Hit], work: &mut Work) {
    for s in hits.iter().map(|hit| hit.session) {
        let Some(node) = own.sessions.node_mut(s) else {
            continue;
        };
        if !matches!(node.stage, Stage::Storing { .. }) {
            continue;
        }
        node.taken.begin_recording();
        work.ops.extend(record(node));
        work.transacted_mut().recorded.push(node.reference(s));
    }
}

fn record(node: &Node) -> Option<StoreOp> {
    node.kept.options.durable.then(|| StoreOp::PutSession {
        key: node.key,
        record: node.record(),
    })
}

/// Batches are stored, or off, that have the record of these nodes. One that was made for
/// a transaction is ready with it; if that is off it ends, unless others use it by now.
pub(crate) fn recorded(own: &mut Owners, nodes: Vec<SessionRef>, stored: bool) {
    for node in nodes {
        let entry = own.sessions.resolve_mut(node);
        let Some(entry) = entry.and_then(|entry| entry.node_mut()) else {
            // It was deleted meanwhile.
            continue;
        };
        entry.taken.end_recording();
        if !matches!(entry.stage, Stage::Storing { alone: false }) {
            continue;
        }
        if stored {
            nodes::handle_stored(own, node, true);
        } else if entry.links() > 0 {
            store_alone(own, node.at);
        } else if !is_needed(entry) {
            nodes::end(own, node.at, Refusal::NoRoom);
        } else if !entry.taken.is_recording() {
            store_alone(own, node.at);
        }
    }
}

/// Whether messages are in a node, or on their way to the store with its record.
fn is_needed(node: &Node) -> bool {
    !node.is_empty() || node.taken.is_recording()
}

/// The store has refused the record of a node; whether that is asked for again: messages
/// are there, or on their way to the store with it.
pub(crate) fn keep(own: &mut Owners, s: SessionIdx, node: SessionRef) -> bool {
    let entry = own.sessions.node_mut(s);
    let is_used =
        entry.is_some_and(|it| matches!(it.stage, Stage::Storing { .. }) && is_needed(it));
    if is_used {
        own.retry_later(Pending::Node(node));
    }
    is_used
}

/// Asks again for the record of a node, unless there is nothing in it.
pub(crate) fn retry(own: &mut Owners, node: SessionRef) {
    let Some(s) = own.sessions.resolve(node) else {
        return;
    };
    match own.sessions.node_mut(s).is_some_and(|node| is_needed(node)) {
        true => nodes::store(own, s),
        false => nodes::end(own, s, Refusal::NoRoom),
    }
}
