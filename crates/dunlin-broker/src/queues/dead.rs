//! Messages that cannot be delivered: to the queue that the options name, in one
//! batch with their removal. Those whose time has come are published on the same way.

use alloc::boxed::Box;
use alloc::sync::Arc;

use dunlin_base::{Instant, Message};
use dunlin_queue::Delivery;
use dunlin_store::{Seq, StoreOp};

use crate::ids::SessionRef;
use crate::messages::source::Source;
use crate::messages::{publish, settle};
use crate::owners::Owners;
use crate::owners::node::{Node, leaving};
use crate::owners::pending::{Dead, Pending, PendingPublish};
use crate::queues::calls::{Call, Death};
use crate::queues::{delivering, nodes};
use crate::translate;

/// Messages that wait for the home of their queue and leave their node at a time.
const LEAVING_MAX: usize = 1024;

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

/// A message whose time has come, as it is published.
fn due(delivery: &Delivery) -> Option<Arc<Message>> {
    let message = delivery.held()?;
    Some(match message.extra {
        None => Arc::clone(message),
        Some(_) => Arc::new(Message {
            extra: None,
            ..Message::clone(message)
        }),
    })
}

/// A message of a node is dead. If the store refuses to move it, it waits again. One
/// that is only in the store waits there until it is loaded.
pub(crate) fn bury(own: &mut Owners, dead: Box<Dead>) {
    if let Some(s) = own.sessions.resolve(dead.node)
        && let Some(node) = own.sessions.node_mut(s)
        && (node.kept.options.dead_letter.is_some() || dead.death == Death::Due)
        && dead.delivery.is_stored()
    {
        node.taken.end_leaving(&dead.delivery);
        node.aside.put_dead(dead.delivery, dead.death, dead.waits);
        return delivering::pump(own, s);
    }
    let how = (own.now, own.config.clients.packet_bytes_max);
    let entry = own.sessions.resolve_mut(dead.node);
    let entry = entry.as_deref().and_then(|entry| entry.node());
    let is_due = dead.death == Death::Due;
    let message = match is_due {
        true => due(&dead.delivery),
        false => entry.and_then(|entry| message(entry, &dead.delivery, dead.death, how)),
    };
    let topic = message.as_ref().map(|message| &message.topic);
    if let Some(queue) = topic.filter(|_| !is_due)
        && !own.members.has(own.members.home(queue))
    {
        return wait(own, *dead);
    }
    let seq = dead.delivery.seq.map(Seq);
    let removal = seq.map(|seq| StoreOp::Dequeue {
        seq,
        session: dead.node.key,
    });
    let mut publish = PendingPublish::new(None, true);
    let rest = publish.rest_mut();
    rest.work.ops.extend(removal);
    rest.dead = Some(dead);
    let token = own.commits.token();
    if let Some(message) = message {
        let source = Source::of(&message, own.now).answered().lossy();
        let mut source = match is_due {
            true => source,
            false => source.for_queue(),
        };
        publish::place(own, None, token, &mut source, &mut publish);
    }
    // Where there is no such queue, or no room, it is over.
    publish.refused = None;
    settle::go_on(own, token, publish);
}

/// A dead message waits for the home of its queue. It counts as a message of its node, so
/// that all of these have its limits.
fn wait(own: &mut Owners, dead: Dead) {
    let Dead {
        node: of,
        delivery,
        death,
        waits,
    } = dead;
    let Some(s) = own.sessions.resolve(of) else {
        return;
    };
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    node.taken.end_leaving(&delivery);
    if node.aside.keep_unburied((delivery, death, waits)) {
        own.retry_later(Pending::Unburied(of));
    }
    own.weigh_queue(s);
}

/// Buries dead messages of a node that wait for the home of their queue, as many as may
/// leave at a time, if that is there.
pub(crate) fn release(own: &mut Owners, of: SessionRef) {
    let Some(s) = own.sessions.resolve(of) else {
        return;
    };
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if !node.aside.end_reminder() {
        return;
    }
    let queue = node.kept.options.dead_letter.as_deref();
    let is_there = queue.is_none_or(|queue| own.members.has(own.members.home(queue)));
    while let Some(node) = own.sessions.node_mut(s)
        && is_there
        && leaving(node) < LEAVING_MAX
    {
        match node.aside.take_unburied() {
            Some((delivery, death, waits)) => own.bury(s, delivery, death, waits),
            None => break,
        }
    }
    if let Some(node) = own.sessions.node_mut(s)
        && node.aside.end_reminder()
    {
        node.aside.remind();
        own.retry_later(Pending::Unburied(of));
    }
    own.weigh_queue(s);
}

/// The store has moved a dead message, or has refused to: where its link waits for that,
/// or its time has come, it is asked again.
pub(crate) fn buried(own: &mut Owners, dead: Box<Dead>, stored: bool) {
    let is_due = dead.death == Death::Due;
    let is_wanted = dead.waits.is_some() || is_due;
    let is_wanted = is_wanted && own.sessions.resolve(dead.node).is_some();
    if !stored && is_wanted {
        return own.retry_later(Pending::Bury(dead));
    }
    // One that is past its time would be dead again at once.
    let is_over = stored || dead.death == Death::Expired;
    own.stats.messages_dead += u64::from(is_over && !is_due);
    if let Some((to, link, key)) = dead.waits {
        own.call(to, Call::Settled { link, key });
    }
    let Some(s) = own.sessions.resolve(dead.node) else {
        return;
    };
    if let Some(node) = own.sessions.node_mut(s) {
        node.taken.end_leaving(&dead.delivery);
    }
    own.weigh_queue(s);
    if !is_over {
        settle::give_back(own, dead.node, dead.delivery);
    }
    nodes::check_empty(own, s);
}
