//! Answers to clients about queues, when they are ready or gone, and how a queue looks.

use alloc::boxed::Box;

use crate::control::values::Reply;
use crate::ids::SessionIdx;
use crate::owners::Owners;
use crate::owners::kind::SessionKind;
use crate::owners::node::{Change, Node};
use crate::owners::session::Session;
use crate::queues::addresses::QUEUES;
use crate::queues::calls::{Call, Refusal, Use};
use crate::queues::orders::{Answer, Asked, Problem, View};

/// Tells who asked.
pub(crate) fn answer(own: &mut Owners, asked: Asked, answer: Answer) {
    let Asked {
        shard,
        link,
        number,
    } = asked;
    let answer = Box::new(answer);
    // Operators ask the shard of the queue.
    let Some(link) = link else {
        return own.outbox.reply(number, Reply::Queue(answer));
    };
    own.call(
        shard,
        Call::Answered {
            link,
            number,
            answer,
        },
    );
}

/// Whether a queue is of the configuration.
pub(crate) fn is_configured(own: &Owners, address: &str) -> bool {
    let name = address.strip_prefix(QUEUES);
    let mut named = own.config.queues.named.iter();
    name.is_some_and(|name| named.any(|queue| *queue.name == *name))
}

/// A queue as it is.
pub(crate) fn view(own: &Owners, s: SessionIdx) -> Option<View> {
    let session = own.sessions.peek(s);
    let node = own.outbox.checked(session.and_then(Session::node))?;
    Some(View {
        configured: is_configured(own, &node.address),
        ..view_of(node)
    })
}

pub(crate) fn view_of(node: &Node) -> View {
    let takes = |wants: Use| matches!(wants, Use::Take { .. });
    View {
        address: node.address.clone(),
        options: node.kept.options.clone(),
        topics: node.bindings.keys().cloned().collect(),
        configured: false,
        messages: node.waiting(),
        unsettled: node.in_flight(),
        bytes: node.held_bytes(),
        consumers: node
            .ends()
            .filter(|(_, end)| takes(end.wants) && !end.is_away())
            .count(),
        first_created_ms: node
            .queue
            .front()
            .and_then(|first| first.held()?.extra.as_ref()?.created_ms),
    }
}

/// A queue is ready that a client has made or changed.
pub(crate) fn finish(own: &mut Owners, s: SessionIdx) {
    let node = own.sessions.node_mut(s);
    let Some(change) = node.and_then(|node| node.change.take()) else {
        return;
    };
    let Some(view) = view(own, s) else {
        return;
    };
    let view = Box::new(view);
    let done = match change.to {
        None => Answer::Created(view),
        Some(_) => Answer::Queue(view),
    };
    answer(own, change.asked, done);
}

/// A queue has ended while it was made or changed for a client.
pub(crate) fn handle_end(own: &mut Owners, change: Change, why: Refusal) {
    let problem = match why {
        Refusal::NoRoom => Problem::Store,
        _ => Problem::NotFound,
    };
    answer(own, change.asked, Answer::Refused(problem));
}
