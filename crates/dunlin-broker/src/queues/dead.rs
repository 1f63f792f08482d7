//! Messages that cannot be delivered: to the queue that the options name, in one
//! batch with their removal.

use alloc::sync::Arc;

use dunlin_base::{Instant, Message};
use dunlin_queue::Delivery;
use dunlin_store::{Seq, StoreOp};

use crate::ids::SessionRef;
use crate::messages::source::Source;
use crate::messages::{publish, settle};
use crate::owners::Owners;
use crate::owners::node::Node;
use crate::owners::pending::PendingPublish;
use crate::queues::calls::Death;
use crate::translate;

/// A message of a node as the queue for the dead gets it, if there is one.
pub(crate) fn message(
    node: &Node,
    delivery: &Delivery,
    death: Death,
    (now, bytes_max): (Instant, u32),
) -> Option<Arc<Message>> {
    let topic = node.kept.options.dead_letter.clone()?;
    let (message, added) = (delivery.held()?, delivery.added.as_deref());
    let message = translate::with_added(message, added, now, bytes_max);
    // The time that it had was for its receivers.
    Some(Arc::new(Message {
        topic,
        expires: None,
        retain: false,
        ..translate::dead(&message, now, &node.address, death)
    }))
}

/// A message of a node is dead. If the store refuses to move it, it waits again.
pub(crate) fn bury(own: &mut Owners, node: SessionRef, delivery: Delivery, death: Death) {
    own.stats.messages_dead += 1;
    let how = (own.now, own.config.packet_bytes_max);
    let entry = own.sessions.resolve_mut(node);
    let entry = entry.as_deref().and_then(|entry| entry.node());
    let message = entry.and_then(|entry| message(entry, &delivery, death, how));
    let Some(message) = message else {
        return own.dequeue(node.key, delivery.seq);
    };
    let mut ops = alloc::vec::Vec::new();
    ops.extend(delivery.seq.map(|seq| StoreOp::Dequeue {
        seq: Seq(seq),
        session: node.key,
    }));
    let mut publish = PendingPublish::new(None, true);
    let rest = publish.rest_mut();
    rest.work.ops = ops;
    // One that is past its time would be dead again at once.
    rest.back = (death != Death::Expired).then_some((node, delivery));
    let token = own.commits.token();
    let source = Source::of(&message, own.now).for_queue();
    let mut source = source.answered().lossy();
    publish::place(own, None, token, &mut source, &mut publish);
    // Where there is no such queue, or no room, it is over.
    publish.refused = false;
    settle::go_on(own, token, publish);
}
