//! Retained messages for the new subscriptions of a session, page by page as it
//! drains.

use alloc::sync::Arc;

use dunlin_base::{Message, QoS};
use dunlin_queue::{Content, Delivery, Identifiers};
use dunlin_store::{Seq, StoreOp, Target};

use crate::access::Action;
use crate::ids::{SessionIdx, SessionRef};
use crate::messages::source::Source;
use crate::owners::Owners;
use crate::owners::pending::{Due, Pending, PendingPublish};
use crate::owners::routing::{Hit, Subscribed};

/// Queued messages of a session below which the next page of retained messages
/// is taken.
const QUEUE_LOW: usize = 128;

/// Bytes of them, likewise.
const QUEUE_LOW_BYTES: usize = 1 << 20;

/// How a session gets a message at most once.
pub(crate) type DeliverOnce = fn(&mut Owners, &mut Source<'_>, &Hit, bool);

/// Takes one page of retained messages for the session's new subscriptions.
/// `false` when there is nothing to take now.
pub(crate) fn walk_retained(own: &mut Owners, s: SessionIdx, once: DeliverOnce) -> bool {
    let short = !own.has_memory(0);
    let Some(session) = own.sessions.get_mut(s) else {
        return false;
    };
    // One by one where there is no memory, however many sessions walk.
    let (low, max) = match short {
        true => (1, 1),
        false => (QUEUE_LOW, usize::MAX),
    };
    if !session.queue().has_room(1, 0, low, QUEUE_LOW_BYTES) {
        return false;
    }
    let Some((filter, after)) = session.walks.take() else {
        return false;
    };
    let Some(subscription) = session.subscription(&filter) else {
        return true;
    };
    let (page, next) = own.routing.retained.page(&filter, after.as_deref(), max);
    for message in page {
        deliver_retained(own, s, &subscription, message, once);
    }
    if let Some(next) = next
        && let Some(session) = own.sessions.get_mut(s)
    {
        session.walks.put_back(filter, next);
    }
    true
}

fn deliver_retained(
    own: &mut Owners,
    s: SessionIdx,
    subscription: &Subscribed,
    message: Arc<Message>,
    once: DeliverOnce,
) {
    if message.is_expired(own.now) || !own.may(s, Action::Receive, &message.topic) {
        return;
    }
    let session = own.sessions.get(s);
    if session.is_some_and(|session| !session.wants(&message, own.now)) {
        return;
    }
    let hit = Hit::new(s, subscription, None);
    let qos = message.qos.min(hit.qos());
    //= mqtt5#[MQTT-3.3.1-8]
    let retain = true;
    if qos == QoS::AtMostOnce {
        let hit = Hit { options: 0, ..hit };
        let mut source = Source::of(&message, own.now);
        return once(own, &mut source, &hit, retain);
    }
    let (seq, level) = (own.commits.seq(), own.config.level(&message.topic));
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let cost = message.cost();
    let durable = own.config.durable && session.is_persistent();
    let identifiers: Identifiers = hit.identifiers;
    let mut delivery = Delivery {
        content: Content::Held(Arc::clone(&message)),
        seq: None,
        qos,
        retain,
        identifiers,
        share: None,
        stream: hit.stream,
        level,
        maybe_sent: false,
        failed: 0,
        added: None,
    };
    if !durable {
        session.queue_mut().push(delivery);
        return;
    }
    delivery.seq = Some(seq.0);
    session.queue_mut().reserve(cost);
    let session = session.reference(s);
    own.weigh_queue(s);
    store_retained(own, session, message, delivery);
}

/// Has the store keep a retained message for a session; it is queued then.
fn store_retained(
    own: &mut Owners,
    session: SessionRef,
    message: Arc<Message>,
    delivery: Delivery,
) {
    let cost = message.cost();
    own.commits.write_together(StoreOp::Enqueue {
        seq: Seq(delivery.seq.unwrap_or_default()),
        message,
        targets: alloc::vec![Target {
            session: session.key,
            qos: delivery.qos,
            retain: delivery.retain,
            identifiers: delivery.identifiers.to_vec(),
            shared: None,
            ..Target::default()
        }],
    });
    let mut publish = PendingPublish::default();
    publish.rest_mut().work.due.push(Due {
        session,
        delivery,
        cost,
    });
    let token = own.commits.token();
    own.commits.when_stored(token, Pending::Publish(publish));
}
