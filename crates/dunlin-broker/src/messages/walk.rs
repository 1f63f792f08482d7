//! Retained messages for the new subscriptions of a session, page by page as it
//! drains.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{Message, QoS, Text};
use dunlin_queue::{Content, Delivery, Identifiers};
use dunlin_store::{Seq, StoreOp, Target};

use crate::access::Action;
use crate::ids::{SessionIdx, SessionRef};
use crate::messages::source::Source;
use crate::owners::Owners;
use crate::owners::pending::{Due, Pending, PendingPublish};
use crate::owners::routing::{Hit, Subscribed};
use crate::owners::timers::Timer;
use crate::owners::weigh;

/// Queued messages of a session below which the next page of retained messages
/// is taken.
const QUEUE_LOW: usize = 128;

/// Bytes of them, likewise.
const QUEUE_LOW_BYTES: usize = 1 << 20;

/// Time until walks that wait for memory look for it again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How a session gets a message at most once.
pub(crate) struct Once {
    pub(crate) deliver: fn(&mut Owners, &mut Source<'_>, &Hit, bool),
    /// By way of its queue.
    pub(crate) queues: bool,
}

/// Takes one page of retained messages for the session's new subscriptions.
/// `false` when there is nothing to take now.
pub(crate) fn walk_retained(own: &mut Owners, s: SessionIdx, once: &Once) -> bool {
    let session = own.sessions.get(s);
    if session.is_none_or(|session| session.walks.len() == 0) {
        return false;
    }
    // Its queue has changed since it was weighed.
    own.weigh_queue(s);
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
    let Some((filter, mut after)) = session.walks.take() else {
        return false;
    };
    let Some(subscription) = session.subscription(&filter) else {
        return true;
    };
    let qos_max = Hit::new(s, &subscription, None).qos();
    let (page, next) = own.routing.retained.page(&filter, after.as_deref(), max);
    let mut taken = false;
    for message in page {
        let queued = once.queues || message.qos.min(qos_max) > QoS::AtMostOnce;
        if queued && !weigh::may_take(own, s, message.cost()) {
            wait_for_memory(own, s, filter, after);
            return taken;
        }
        after = Some(message.topic.clone());
        deliver_retained(own, s, &subscription, message, once);
        // The next one is weighed against what there is with this one.
        weigh::weigh_own(own, s);
        taken = true;
    }
    if let Some(next) = next
        && let Some(session) = own.sessions.get_mut(s)
    {
        session.walks.put_back(filter, Some(next));
    }
    true
}

/// A walk goes on later, after this topic.
fn wait_for_memory(own: &mut Owners, s: SessionIdx, filter: Text, after: Option<Text>) {
    let sessions = own.sessions.len();
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    session.walks.put_back(filter, after);
    if session.walks.begin_waiting() {
        let session = session.reference(s);
        let all = &own.sessions;
        let is_there = |session| all.resolve(session).is_some();
        own.budget.walks.push(session, sessions, is_there);
    }
    remind(own);
}

fn remind(own: &mut Owners) {
    if own.budget.walks.remind() {
        own.timers.set(own.now + LOOK_AGAIN, Timer::Walks);
    }
}

/// Takes sessions whose walks have waited for memory and go on, if there is some.
pub(crate) fn take_waiting(own: &mut Owners) -> Vec<SessionRef> {
    let waiting = own.budget.walks.take();
    for session in &waiting {
        if let Some(s) = own.sessions.resolve(*session)
            && let Some(session) = own.sessions.get_mut(s)
        {
            session.walks.end_waiting();
        }
    }
    remind(own);
    waiting
}

fn deliver_retained(
    own: &mut Owners,
    s: SessionIdx,
    subscription: &Subscribed,
    message: Arc<Message>,
    once: &Once,
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
        return (once.deliver)(own, &mut source, &hit, retain);
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
