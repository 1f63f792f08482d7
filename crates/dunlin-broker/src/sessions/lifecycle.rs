//! The end of a session, and what its group gets of what it had.

use dunlin_store::Seq;

use crate::ids::SessionIdx;
use crate::messages::{settle, shared};
use crate::owners::Owners;
use crate::owners::session::Session;
use crate::owners::timers::Timer;
use crate::sessions::leaving;

/// Messages of shared subscriptions go to members that are still there.
pub(crate) fn release_shared(own: &mut Owners, s: SessionIdx, ends: bool) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let old = session.reference(s);
    // What no other takes is with its session again; on an edge, if that may not have it
    // any more, it is with the home that has lent it.
    let gives_back = ends && own.members.is_edge();
    for delivery in session.take_shared(ends) {
        if gives_back {
            shared::give_again(own, delivery, old);
        } else if let Some(delivery) = shared::pass_on(own, delivery, old, ends)
            && let Some(session) = own.sessions.get_mut(s)
        {
            session.queue_mut().push(delivery);
        }
    }
    own.weigh_queue(s);
}

/// Ends a session: its subscriptions, and its entry, which comes out. Its record is
/// a matter of its kind.
pub(crate) fn end_session(own: &mut Owners, s: SessionIdx) -> Option<Session> {
    let session = own.sessions.get_mut(s)?;
    let old = session.reference(s);
    for delivery in session.take_shared(true) {
        shared::give_again(own, delivery, old);
    }
    let session = own.sessions.get_mut(s)?;
    let filters = session.take_subscriptions();
    let line = session.preparing.take();
    let removed = leaving::remove(own, s, filters);
    let mut session = own.outbox.checked(removed)?;
    own.count_out(&session);
    forget_queues(own, &session);
    give_back_rest(own, &session);
    let timer = Timer::Session(session.reference(s));
    own.timers.cancel(timer, &mut session.alarm);
    settle::release_line(own, line);
    Some(session)
}

/// Where the store has what a session had when it ended is forgotten. Of what is on its
/// way to another member of a group, or to the store, it is not: it leaves that queue yet.
fn forget_queues(own: &mut Owners, session: &Session) {
    let commits = &mut own.commits;
    session.visit_deliveries(|delivery| {
        if let Some(seq) = delivery.seq.filter(|_| delivery.share.is_some()) {
            commits.take_queue(session.key, Seq(seq));
        }
    });
}

/// What an edge has borrowed for a session that has ended, and no other member may get:
/// it was sent, to be delivered exactly once.
fn give_back_rest(own: &mut Owners, session: &Session) {
    if !own.members.is_edge() {
        return;
    }
    let (loans, outbox) = (&mut own.routing.loans, &mut own.outbox);
    session.visit_deliveries(|delivery| {
        if let Some(number) = delivery.seq {
            loans.give_back(outbox, number, true);
        }
    });
}
