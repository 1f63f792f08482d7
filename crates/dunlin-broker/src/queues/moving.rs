//! Messages of a queue that an operator moves to another, in steps: each is one batch of
//! the store, in which they are there and not here, or the other way round.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, Text};
use dunlin_queue::Delivery;
use dunlin_store::{Seq, StoreOp};

use crate::control::values::{MOVED_MAX, QueueAnswer, Reply, STEP_BYTES_MAX};
use crate::ids::SessionIdx;
use crate::io::Output;
use crate::messages::source::Source;
use crate::messages::{publish, settle};
use crate::owners::Owners;
use crate::owners::pending::{Moved, PendingPublish};
use crate::queues::{delivering, manage, nodes};
use crate::translate;

/// Begins a step; `None`: it is answered when it is decided. What waits for its time, and
/// what consumers have, stays.
pub(crate) fn begin(
    own: &mut Owners,
    number: u64,
    address: &str,
    to: &Text,
    limit: usize,
) -> Option<Reply> {
    let s = match manage::find(own, address) {
        Ok(s) => s,
        Err(problem) => return Some(Reply::Queue(Box::new(QueueAnswer::Refused(problem)))),
    };
    // Another store may take some of them and refuse others.
    let most = match own.members.is_far(own.members.home(to)) {
        true => 1,
        false => MOVED_MAX,
    };
    let limit = limit.min(most);
    let deliveries = take(own, s, limit);
    if deliveries.is_empty() {
        let empty = own
            .sessions
            .node_mut(s)
            .is_none_or(|it| it.queue.is_empty());
        if !empty {
            load(own, s, limit);
        }
        return Some(Reply::Moved {
            count: 0,
            loading: !empty,
            empty,
        });
    }
    let node = own.sessions.node_mut(s)?.reference(s);
    let token = own.commits.token();
    let mut publish = PendingPublish::new(None, false);
    let rest = publish.rest_mut();
    rest.transacted = true;
    let seqs = deliveries.iter().filter_map(|it| it.seq.map(Seq));
    rest.work.ops.extend(seqs.map(|seq| StoreOp::Dequeue {
        seq,
        session: node.key,
    }));
    for delivery in &deliveries {
        if let Some(message) = message(own, delivery, to) {
            let mut source = Source::of(&message, own.now).for_queue().transacted();
            publish::place(own, None, token, &mut source, &mut publish);
        }
    }
    publish.rest_mut().moved = Some(Box::new(Moved {
        node,
        deliveries,
        operator: number,
    }));
    settle::go_on(own, token, publish);
    None
}

/// Takes what leaves first and is in memory out of a queue.
fn take(own: &mut Owners, s: SessionIdx, limit: usize) -> Vec<Delivery> {
    while delivering::expire_front(own, s) {}
    let (mut taken, mut bytes) = (Vec::new(), 0);
    let Some(node) = own.sessions.node_mut(s) else {
        return taken;
    };
    while taken.len() < limit && bytes < STEP_BYTES_MAX {
        let first = node.queue.front().and_then(Delivery::held);
        let Some(cost) = first.map(|message| message.cost()) else {
            break;
        };
        bytes += cost;
        let Some(delivery) = node.queue.remove_front() else {
            own.outbox.note_missing();
            break;
        };
        node.taken.begin_leaving(&delivery);
        taken.push(delivery);
    }
    own.weigh_queue(s);
    taken
}

/// A message as the other queue gets it.
fn message(own: &Owners, delivery: &Delivery, to: &Text) -> Option<Arc<Message>> {
    let (message, added) = (delivery.held()?, delivery.added.as_deref());
    let message =
        translate::with_added(message, added, own.now, own.config.clients.packet_bytes_max);
    Some(Arc::new(Message {
        topic: to.clone(),
        retain: false,
        ..Message::clone(&message)
    }))
}

/// Messages are where they are to be, or are not: then they wait where they were.
pub(crate) fn moved(own: &mut Owners, moved: Moved, stored: bool) {
    let Moved {
        node,
        deliveries,
        operator,
    } = moved;
    let count = if stored { deliveries.len() } else { 0 };
    if let Some(s) = own.sessions.resolve(node)
        && let Some(node) = own.sessions.node_mut(s)
    {
        for delivery in deliveries.into_iter().rev() {
            node.taken.end_leaving(&delivery);
            if !stored {
                node.queue.put_first(delivery);
            }
        }
        delivering::pump(own, s);
        nodes::check_empty(own, s);
    }
    let reply = Reply::Moved {
        count,
        loading: false,
        empty: false,
    };
    own.outbox.reply(operator, reply);
}

/// Has messages that leave first and are only in the store loaded, unless some are on
/// their way.
pub(crate) fn load(own: &mut Owners, s: SessionIdx, limit: usize) {
    let messages_max = match own.has_memory(0) {
        true => limit,
        false => 1,
    };
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if !node.queue.begin_loading() {
        return;
    }
    let (seqs, _) = node.queue.stored_at_front(messages_max, STEP_BYTES_MAX);
    if seqs.is_empty() {
        return node.queue.end_loading();
    }
    let seqs = seqs.into_iter().map(Seq).collect();
    let node = node.reference(s);
    let request = own.commits.load(node, seqs);
    own.outbox.push(Output::Store(request));
}
