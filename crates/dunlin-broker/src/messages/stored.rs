//! What follows when the store has answered: work goes on, or is asked for
//! again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::Message;

use crate::control::values::Reply;
use crate::front;
use crate::ids::SessionRef;
use crate::io::Event;
use crate::messages::{loans, posts, publish, settle, shared, taking};
use crate::owners::Owners;
use crate::owners::commits::Done;
use crate::owners::pending::Pending;
use crate::queues::{credit, dead, keeping, making, manage, nodes};
use crate::receivers;
use crate::sessions::{groups, records};

/// Something that waited for the store goes on.
pub(crate) fn handle_done(own: &mut Owners, done: Done) {
    match done {
        Done::Settled {
            token,
            pending,
            stored: true,
        } => handle_stored(own, token, pending),
        Done::Settled { token, pending, .. } => handle_refused(own, token, pending),
        Done::Loaded { session, messages } => {
            let messages: Vec<_> = messages.into_iter().map(|(seq, m)| (seq.0, m)).collect();
            handle_loaded(own, session, &messages);
        }
        Done::LoadFailed { session } => {
            handle_loaded(own, session, &[]);
            own.retry_later(Pending::Load { session });
        }
        Done::Refused(error) => own.outbox.event(Event::StoreFailed(error)),
    }
}

/// Messages that a session wanted came from the store, or are lost.
fn handle_loaded(own: &mut Owners, session: SessionRef, messages: &[(u64, Option<Arc<Message>>)]) {
    if session == shared::NONE {
        return loans::handle_loaded(own, messages);
    }
    if session == posts::LOADS {
        return posts::handle_loaded(own, messages);
    }
    if let Some(entry) = own.sessions.resolve_mut(session) {
        entry.handle_loaded(messages);
        let is_node = entry.node().is_some();
        if messages.is_empty() {
            return own.weigh_queue(session.at);
        }
        if is_node {
            nodes::bury_stranded(own, session.at);
        }
        receivers::pump(own, session.at);
    }
}

/// Work whose batch was stored.
fn handle_stored(own: &mut Owners, token: u64, pending: Pending) {
    match pending {
        Pending::Publish(publish) => settle::handle_written(own, token, publish, true),
        Pending::Front(pending) => front::handle_done(own, token, pending, true),
        Pending::Forget { client_id, .. } => records::forgotten(own, &client_id),
        Pending::Node(node) => nodes::handle_stored(own, node, true),
        Pending::Group { share, queue } => groups::handle_stored(own, share, queue, true),
        Pending::Settlement(settlement) => credit::handle_removed(own, settlement, true),
        Pending::Acquired(acquired) => {
            if let Some((s, at)) = credit::handle_key_stored(own, &acquired) {
                nodes::check_left(own, s, at);
            }
        }
        Pending::Attached(to, call) => own.call(to, *call),
        Pending::Change(node) => manage::handle_stored(own, node, true),
        Pending::Delete(asked) => manage::handle_deleted(own, asked, true),
        Pending::Purge(purge) => manage::handle_purged(own, purge, true),
        Pending::Operator(number) => own.outbox.reply(number, Reply::Stored(true)),
        Pending::Promise(it) => publish::promise(own, it.from, it.work, it.refused, None),
        Pending::Part(part) => publish::finish_part(own, *part, true),
        Pending::Take(from) => taking::ask_again(own, from),
        Pending::Binding(_)
        | Pending::Load { .. }
        | Pending::Bury(_)
        | Pending::Unburied(_)
        | Pending::Untaken(_)
        | Pending::Pass(_)
        | Pending::Posted(..)
        | Pending::Introduction(_) => {}
    }
}

/// Work whose batch the store refused.
fn handle_refused(own: &mut Owners, token: u64, pending: Pending) {
    match pending {
        Pending::Publish(publish) => settle::handle_written(own, token, publish, false),
        Pending::Front(pending) => front::handle_done(own, token, pending, false),
        // Without its record gone, a restart would bring back a session.
        Pending::Forget { .. } => own.retry_later(pending),
        Pending::Node(node) => nodes::handle_stored(own, node, false),
        Pending::Group { share, queue } => groups::handle_stored(own, share, queue, false),
        Pending::Settlement(settlement) => credit::handle_removed(own, settlement, false),
        Pending::Attached(..) | Pending::Acquired(_) | Pending::Take(_) | Pending::Posted(..) => {
            own.retry_later(pending)
        }
        Pending::Change(node) => manage::handle_stored(own, node, false),
        Pending::Delete(asked) => manage::handle_deleted(own, asked, false),
        Pending::Purge(purge) => manage::handle_purged(own, purge, false),
        Pending::Operator(number) => own.outbox.reply(number, Reply::Stored(false)),
        // What was to be noted is not: that is no matter of the transaction.
        Pending::Promise(it) => publish::promise(own, it.from, it.work, it.refused, None),
        Pending::Part(part) => publish::finish_part(own, *part, false),
        Pending::Binding(_)
        | Pending::Load { .. }
        | Pending::Bury(_)
        | Pending::Unburied(_)
        | Pending::Untaken(_)
        | Pending::Pass(_)
        | Pending::Introduction(_) => {}
    }
}

/// Asks again.
pub(crate) fn retry(own: &mut Owners) {
    for pending in own.commits.take_refused() {
        match pending {
            Pending::Front(pending) => front::retry(own, pending),
            Pending::Group { share, queue } => groups::retry(own, share, queue),
            Pending::Forget { session, client_id } => records::forget(own, session, client_id),
            Pending::Load {
                session: shared::NONE,
            } => loans::load_again(own),
            Pending::Load {
                session: posts::LOADS,
            } => posts::load_again(own),
            Pending::Take(from) => taking::undo(own, from),
            Pending::Untaken(from) => taking::try_again(own, from),
            Pending::Posted(queue, seqs) => posts::remove(own, queue, seqs),
            Pending::Load { session } => {
                if own.sessions.resolve(session).is_some() {
                    receivers::pump(own, session.at);
                }
            }
            Pending::Settlement(settlement) => credit::retry(own, settlement),
            Pending::Acquired(acquired) => keeping::record(own, *acquired),
            Pending::Bury(dead) => dead::bury(own, dead),
            Pending::Unburied(node) => dead::release(own, node),
            Pending::Pass(passed) => {
                let (to, passed) = *passed;
                loans::lend(own, to, passed);
            }
            Pending::Attached(to, call) => nodes::say_attached(own, to, call),
            Pending::Node(node) => making::retry(own, node),
            Pending::Change(_)
            | Pending::Delete(_)
            | Pending::Purge(_)
            | Pending::Operator(_)
            | Pending::Binding(_)
            | Pending::Promise(_)
            | Pending::Part(_)
            | Pending::Introduction(_)
            | Pending::Publish(_) => {}
        }
    }
}
