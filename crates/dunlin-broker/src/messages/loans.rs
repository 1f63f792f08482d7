//! Messages that are to be kept, for members of shared subscriptions on edges: lent by a
//! home, which gives one to another member when the edge has none for it or is gone. For
//! members at homes with other stores they are posted.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, QoS, ShardId, Text};
use dunlin_queue::Content;
use dunlin_store::{Seq, StoreOp};

use crate::io::{BusMessage, Forward, Manner, Output};
use crate::messages::source::Source;
use crate::messages::{deliver, finding, posts, settle, shared};
use crate::owners::Owners;
use crate::owners::pending::{Passed, PendingPublish, Work};
use crate::owners::posts::Purpose;
use crate::owners::routing::Scope;

/// Messages that no member had room for that are given to members at a time.
const TRIED_MAX: usize = 1024;

/// Sends a message to an edge, for a member there; it stays here until that is done with
/// it. If the edge is gone another member gets it.
pub(crate) fn lend(own: &mut Owners, to: ShardId, mut passed: Passed) {
    if own.members.is_apart(to) {
        return post(own, to, passed);
    }
    if !own.members.has(to) {
        return shared::pass_again(own, passed, Some(to));
    }
    let delivery = &passed.delivery;
    let (Some(share), Some(message)) = (&delivery.share, delivery.held()) else {
        return load(own, to, passed);
    };
    let forward = Forward {
        message: Arc::clone(message),
        plain: false,
        shares: alloc::vec![Text::from(&**share)],
        retain: false,
        queue: false,
        manner: Manner::Usual,
    };
    let token = own.commits.token();
    passed.old = shared::NONE;
    let before = own.routing.loans.bytes();
    own.routing.loans.lend(to, token, passed);
    shared::weigh_loans(own, before);
    let token = Some(token);
    own.outbox.bus(to, BusMessage::Forward { forward, token });
}

/// Posts a message to a home with another store, for a member there. In the store here it
/// leaves the queue of the group with that.
fn post(own: &mut Owners, to: ShardId, passed: Passed) {
    let delivery = &passed.delivery;
    let (Some(share), Some(message)) = (&delivery.share, delivery.held()) else {
        return load(own, to, passed);
    };
    let (share, message) = (Text::from(&**share), Arc::clone(message));
    let purpose = Purpose {
        shares: alloc::vec![share],
        ..Purpose::default()
    };
    let mut publish = PendingPublish::new(None, false);
    let token = own.commits.token();
    posts::add(own, (to, token), &message, purpose, &mut publish);
    if publish.refused.is_some() {
        // It waits for room.
        return shared::wait(own, passed);
    }
    let rest = publish.rest_mut();
    if let (Some(seq), Some(session)) = (delivery.seq, passed.queue) {
        let seq = Seq(seq);
        rest.work.ops.push(StoreOp::Dequeue { seq, session });
    }
    rest.passed = Some(Box::new((to, passed)));
    settle::go_on(own, token, publish);
}

/// A message for an edge, or for a member here that gets it at most once, is in the store
/// only.
fn load(own: &mut Owners, to: ShardId, passed: Passed) {
    let Some(seq) = passed.delivery.seq else {
        return shared::stay_behind(own, passed);
    };
    own.routing.loans.begin_loading(seq, to, passed);
    let request = own.commits.load(shared::NONE, alloc::vec![Seq(seq)]);
    own.outbox.push(Output::Store(request));
}

/// Messages for members came from the store, or are lost.
pub(crate) fn handle_loaded(own: &mut Owners, messages: &[(u64, Option<Arc<Message>>)]) {
    for (seq, message) in messages {
        for (to, mut passed) in own.routing.loans.end_loading(*seq) {
            if let Some(message) = message {
                passed.delivery.content = Content::Held(Arc::clone(message));
                match to == own.config.shard {
                    true => shared::pass_again(own, passed, None),
                    false => lend(own, to, passed),
                }
            }
        }
    }
}

/// Asks the store once more for what it could not read.
pub(crate) fn load_again(own: &mut Owners) {
    let seqs: Vec<Seq> = own.routing.loans.loading().map(Seq).collect();
    if !seqs.is_empty() {
        let request = own.commits.load(shared::NONE, seqs);
        own.outbox.push(Output::Store(request));
    }
}

/// A home lends this edge a message.
pub(crate) fn borrow(own: &mut Owners, (from, token): (ShardId, u64), forward: &Forward) {
    let message = &forward.message;
    let scope = Scope {
        plain: false,
        shares: &forward.shares,
    };
    let mut source = Source::of(message, own.now).answered();
    let mut found = finding::find(own, &source, None, Some(&scope));
    let memory = own.has_memory(message.cost());
    let hit = found.hits.first();
    let fits =
        hit.is_some_and(|hit| deliver::has_room(own, hit.session, message.cost(), 1, memory));
    let over = match fits {
        true => {
            let number = own.routing.loans.borrow(from, token);
            source.set_borrowed(number);
            deliver::deliver_hits(own, &mut source, &mut found.hits, &mut Work::default());
            // Not taken: it was delivered at most once.
            source.take_borrowed(true).map(|number| (number, true))
        }
        false => Some((own.routing.loans.borrow(from, token), false)),
    };
    own.routing.recycle(found);
    if let Some((number, over)) = over {
        own.routing.loans.give_back(&mut own.outbox, number, over);
    }
}

/// An edge does not have a message any more.
pub(crate) fn handle_returned(own: &mut Owners, from: ShardId, token: u64, over: bool) {
    let before = own.routing.loans.bytes();
    let Some(mut passed) = own.routing.loans.end(from, token) else {
        return;
    };
    shared::weigh_loans(own, before);
    if over {
        shared::leave_store(own, &mut passed);
        return give_kept(own, 1);
    }
    // Two edges had no room for it.
    if core::mem::replace(&mut passed.returned, true) {
        return shared::wait(own, passed);
    }
    shared::pass_again(own, passed, Some(from));
}

/// Members of a group get, after a while, messages that none had when this home began.
pub(crate) fn keep_orphans(own: &mut Owners, orphans: Vec<Passed>) {
    for passed in orphans {
        shared::wait(own, passed);
    }
}

/// Gives up to `max` messages that wait here to members once more.
fn give_kept(own: &mut Owners, max: usize) {
    let mut loading = 0;
    for _ in 0..max.min(own.routing.loans.kept()) {
        let before = own.routing.loans.bytes();
        let Some(mut passed) = own.routing.loans.take_kept() else {
            return;
        };
        shared::weigh_loans(own, before);
        passed.returned = false;
        let bytes = loading + passed.delivery.held_cost();
        let is_stored = passed.delivery.is_stored();
        if is_stored && shared::is_loaded_for(own, &passed) && own.has_memory(bytes) {
            loading = bytes;
            load(own, own.config.shard, passed);
        } else {
            shared::pass_again(own, passed, None);
        }
    }
}

/// Messages have waited for a while.
pub(crate) fn try_kept(own: &mut Owners) {
    own.routing.loans.is_due = false;
    give_kept(own, TRIED_MAX);
    shared::remind(own);
}

/// An edge is gone. What it may have given to a client exactly once is over.
pub(crate) fn handle_gone(own: &mut Owners, shard: ShardId) {
    let before = own.routing.loans.bytes();
    let ended = own.routing.loans.end_all(shard);
    shared::weigh_loans(own, before);
    for mut passed in ended {
        let message = passed.delivery.held();
        if message.is_some_and(|message| message.qos == QoS::ExactlyOnce) {
            shared::leave_store(own, &mut passed);
            continue;
        }
        shared::pass_again(own, passed, None);
    }
}
