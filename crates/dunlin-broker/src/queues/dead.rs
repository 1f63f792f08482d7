//! Messages that cannot be delivered: to the queue that the options name, in one
//! batch with their removal.

use alloc::sync::Arc;

use dunlin_base::Message;
use dunlin_queue::{Content, Delivery};
use dunlin_store::{Seq, StoreOp};

use crate::ids::SessionRef;
use crate::messages::source::Source;
use crate::messages::{publish, settle};
use crate::owners::Owners;
use crate::owners::pending::PendingPublish;
use crate::queues::calls::Death;
use crate::translate;

/// A message of a node is dead. If the store refuses to move it, it waits again.
pub(crate) fn bury(own: &mut Owners, node: SessionRef, delivery: Delivery, death: Death) {
    own.stats.messages_dead += 1;
    let entry = own.sessions.resolve_mut(node);
    let entry = entry.as_deref().and_then(|entry| entry.node());
    let names = entry.and_then(|node| {
        let dead_letter = node.kept.options.dead_letter.clone()?;
        Some((node.address.clone(), dead_letter))
    });
    let (Some((from, address)), Content::Held(message)) = (names, &delivery.content) else {
        return own.dequeue(node.key, delivery.seq);
    };
    let mut ops = alloc::vec::Vec::new();
    ops.extend(delivery.seq.map(|seq| StoreOp::Dequeue {
        seq: Seq(seq),
        session: node.key,
    }));
    // The time that it had was for its receivers.
    let message = Arc::new(Message {
        topic: address,
        expires: None,
        retain: false,
        ..translate::dead(message, own.now, &from, death)
    });
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
