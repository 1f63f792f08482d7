//! What other shards send.

use bytes::Bytes;
use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ShardId, StreamId};

use crate::between::{apart, introducing};
use crate::front;
use crate::io::{
    BusMessage, InterestChange, NotTaken, Output, PassedOn, Preparation, QueueCall, ShardFigures,
};
use crate::messages::{loans, publish, settle, shared};
use crate::owners::pending::{InStore, Pending, PendingBinding};
use crate::owners::{Owners, note_unasked};
use crate::queues::{dispatch, nodes};
use crate::sessions::{groups, leaving};

pub(crate) fn handle_bus(own: &mut Owners, from: ShardId, message: BusMessage) {
    // It is gone, or has not joined.
    if !own.members.has(from) {
        return;
    }
    leave_groups(own, &message);
    match message {
        BusMessage::Handover { conn, peer, data } => {
            front::handle_opened(own, conn, peer);
            // Counted where its socket is.
            own.stats.connections -= 1;
            let stream = StreamId::CONTROL;
            handle_net(
                own,
                NetEvent::new(conn, NetEventKind::Bytes { stream, data }),
            );
        }
        BusMessage::Net(event) => handle_net(own, event),
        message @ (BusMessage::Claim { .. }
        | BusMessage::Denied { .. }
        | BusMessage::Granted { .. }
        | BusMessage::Evict { .. }
        | BusMessage::Left { .. }) => front::handle_claims(own, from, message),
        BusMessage::Holders(changes) => own.budget.holders.handle_changes(from, changes),
        BusMessage::Figures(ShardFigures(counts)) => own.figures.note(from, *counts),
        BusMessage::Command(command) => {
            if own.members.is_edge() {
                front::note_command(own, &command);
            }
            own.outbox.push(Output::Net(command));
        }
        BusMessage::Interest { token, changes } => {
            handle_changes(own, from, token, &changes);
        }
        BusMessage::InterestNoted { token } => {
            if is_asked(own, from, token) {
                handle_noted(own, token);
            }
        }
        BusMessage::Forward { forward, token } => {
            publish::handle_forward(own, from, &forward, token);
        }
        BusMessage::Messages(messages) => {
            front::handle_messages(own, from, &messages);
            own.outbox.recycle(messages);
        }
        BusMessage::Received(tokens) => {
            for token in &tokens {
                handle_received(own, from, *token);
            }
            own.outbox.recycle_answers(tokens);
        }
        BusMessage::Prepared { token, answer } => handle_prepared(own, from, token, answer),
        BusMessage::Settled { token, committed } => match own.commits.take_prepared(from, token) {
            Some(work) => settle::settle_work(own, work, InStore::answered(committed)),
            None => note_unasked(own),
        },
        BusMessage::Queue(QueueCall(call)) => dispatch::handle(own, from, call),
        BusMessage::PassedOn(PassedOn(passed)) => shared::handle_passed_on(own, from, *passed),
        BusMessage::Retained { message } => own.routing.handle_retained(from, &message),
        BusMessage::Introduced => introducing::handle_introduced(own, from),
        message @ (BusMessage::Posts { .. }
        | BusMessage::Untaken { .. }
        | BusMessage::Taken { .. }) => {
            apart::handle(own, from, message);
        }
        BusMessage::Returned { token, over } => loans::handle_returned(own, from, token, over),
    }
}

/// Sessions that have ended leave the groups in which a message is for a member.
fn leave_groups(own: &mut Owners, message: &BusMessage) {
    match message {
        BusMessage::Forward { forward, .. } => {
            for share in &forward.shares {
                leaving::leave_group(own, share);
            }
        }
        BusMessage::PassedOn(PassedOn(passed)) => {
            leaving::leave_group(own, passed.delivery.share.as_deref().unwrap_or_default());
        }
        _ => {}
    }
}

/// Something happened on a connection whose socket is elsewhere.
fn handle_net(own: &mut Owners, event: NetEvent<Bytes>) {
    if let Some(c) = own.conns.find(event.conn) {
        front::handle_event(own, c, event.kind);
    }
}

/// What the sessions of another shard want has changed, which hears that it is known.
fn handle_changes(own: &mut Owners, from: ShardId, token: u64, changes: &[InterestChange]) {
    for change in changes {
        handle_interest(own, from, change);
    }
    if token != 0 {
        let message = BusMessage::InterestNoted { token };
        own.outbox.bus(from, message);
    }
}

/// What the sessions of another shard want has changed. Where an edge has no store, it has
/// no queues of groups.
fn handle_interest(own: &mut Owners, from: ShardId, change: &InterestChange) {
    match (own.members.may_go(from), change) {
        // It is in another store.
        (true, InterestChange::Queue(..)) => {}
        (true, _) => own.routing.handle_interest_of_edge(from, change),
        (false, InterestChange::Queue(..)) if own.members.is_edge() => {}
        (false, _) => own.routing.handle_interest(from, change),
    }
    if let InterestChange::Share(share, 0) = change {
        groups::forget_empty(own, share);
    }
}

/// A shard is gone whose answer was due under a token. What a home with another store was
/// to store of a publish may not be there.
pub(crate) fn release(own: &mut Owners, from: ShardId, token: u64) {
    let is_apart = own.members.is_apart(from);
    let Some(publish) = own.commits.publish_mut(token) else {
        return handle_noted(own, token);
    };
    if is_apart {
        publish.refuse(NotTaken::Away);
    }
    count_answer(own, token);
}

/// Another shard knows what changed for it with a SUBSCRIBE.
fn handle_noted(own: &mut Owners, token: u64) {
    match own.commits.take(token) {
        Some(Pending::Front(pending)) => front::handle_noted(own, token, pending),
        Some(Pending::Introduction(it)) => introducing::go_on(own, *it),
        Some(Pending::Binding(pending)) => {
            let waiting = pending.waiting.saturating_sub(1);
            nodes::advance(own, token, PendingBinding { waiting, ..pending });
        }
        Some(other) => {
            own.outbox.note_missing();
            own.commits.wait(token, other);
        }
        None => note_unasked(own),
    }
}

/// Whether a shard answers what it was asked.
fn is_asked(own: &mut Owners, from: ShardId, token: u64) -> bool {
    let is_asked = own.members.answer(from, token);
    if !is_asked {
        note_unasked(own);
    }
    is_asked
}

/// Another shard has nothing to store for a publish.
fn handle_received(own: &mut Owners, from: ShardId, token: u64) {
    if is_asked(own, from, token) {
        count_answer(own, token);
    }
}

fn count_answer(own: &mut Owners, token: u64) {
    let Some(publish) = own.commits.publish_mut(token) else {
        return note_unasked(own);
    };
    publish.preparing = publish.preparing.saturating_sub(1);
    settle::advance(own, token);
}

/// Another shard has prepared its part of a publish.
fn handle_prepared(own: &mut Owners, from: ShardId, token: u64, answer: Preparation) {
    if !is_asked(own, from, token) {
        return;
    }
    let Some(mut publish) = own.commits.take_publish(token) else {
        return note_unasked(own);
    };
    publish.preparing = publish.preparing.saturating_sub(1);
    publish.refused = publish.refused.or(answer.refused);
    if answer.waits {
        let rest = publish.rest_mut();
        // It may prepare another part of the same.
        if !rest.participants.contains(&from) {
            rest.participants.push(from);
        }
        rest.work.ops.extend(answer.ops);
    }
    for message in &answer.dead {
        publish::place_dead(own, token, message, &mut publish);
    }
    if let Some(missed) = answer.missed {
        shared::choose_again(own, &missed, token, &mut publish);
    }
    settle::go_on(own, token, publish);
}
