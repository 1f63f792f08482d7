//! Queues that are made for a message, which does not wait for that: it is stored in one
//! batch with the record of its queue, as long as that is not stored by itself.

use dunlin_base::Text;
use dunlin_store::StoreOp;

use crate::config::Config;
use crate::ids::{SessionIdx, SessionRef};
use crate::owners::Owners;
use crate::owners::common::Standing;
use crate::owners::node::{Node, Stage};
use crate::owners::pending::{Pending, Work};
use crate::owners::routing::Hit;
use crate::queues::calls::{Create, Refusal};
use crate::queues::nodes;
use crate::queues::options::Kept;

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

/// Makes the queue of a message of this user that comes next, if there is none and there
/// is room for it.
pub(crate) fn make(own: &mut Owners, address: &Text, user: Option<&Text>) {
    if let Some(s) = own.sessions.find_node(address) {
        return open_early(own, s);
    }
    let Some(new) = wanted(&own.config).filter(|_| nodes::has_room(own, user)) else {
        return;
    };
    let s = nodes::insert(own, address.clone(), user.cloned(), new);
    nodes::store(own, s);
    if let Some(node) = own.sessions.node_mut(s)
        && !node.is_ready()
    {
        node.stage = Stage::Storing;
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
    if let Stage::Making(waiting) = core::mem::replace(&mut node.stage, Stage::Storing) {
        for (from, attach) in waiting {
            nodes::handle_attach(own, from, attach);
        }
    }
}

/// Has the record of a queue stored with what it is to get.
pub(crate) fn store_with(own: &Owners, hits: &[Hit], work: &mut Work) {
    let nodes = hits.iter().filter_map(|hit| {
        let node = own.sessions.get(hit.session)?.node()?;
        matches!(node.stage, Stage::Storing).then_some(node)
    });
    work.ops.extend(nodes.map(record));
}

fn record(node: &Node) -> StoreOp {
    StoreOp::PutSession {
        key: node.key,
        record: node.record(),
    }
}

/// The store has refused the record of a node; whether that is asked for again: messages
/// are there, or on their way to the store with it.
pub(crate) fn keep(own: &mut Owners, s: SessionIdx, node: SessionRef) -> bool {
    let entry = own.sessions.node_mut(s);
    let is_used = entry.is_some_and(|it| matches!(it.stage, Stage::Storing) && !it.is_empty());
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
    match own.sessions.node_mut(s).is_some_and(|node| node.is_empty()) {
        true => nodes::end(own, s, Refusal::NoRoom),
        false => nodes::store(own, s),
    }
}
