//! The end of transactions: answers of the coordinator, and what follows at the
//! links whose deliveries were part of one.

use alloc::vec::Vec;

use dunlin_amqp::Delivery as Sent;
use dunlin_amqp::codec::{DeliveryState, Modified, Outcome as AmqpOutcome, Symbol, condition};
use dunlin_queue::Outcome;
use dunlin_store::SessionKey;

use crate::amqp::coordinator::{Coordinator, Retirement, Transaction, TransactionId};
use crate::amqp::outcome::{rejected, settle};
use crate::amqp::outgoing;
use crate::amqp::state::Open;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::owners::Owners;
use crate::owners::pending::Verdict;
use crate::queues::calls::Call;

/// Demands that a client may send ahead.
pub(super) const CREDIT: u32 = 64;

/// Why something is refused.
pub(super) type Why = (Symbol<'static>, &'static str);

/// The transactions of a link, if it is one to the coordinator.
pub(super) fn coordinator(own: &mut Owners, s: SessionIdx) -> Option<&mut Coordinator> {
    own.sessions.amqp_mut(s)?.coordinator_mut()
}

/// One of them.
pub(super) fn transaction(
    own: &mut Owners,
    s: SessionIdx,
    id: TransactionId,
) -> Option<&mut Transaction> {
    coordinator(own, s)?.transactions.get_mut(&id)
}

/// The transaction of these bytes, with the link that declared it.
pub(super) fn find(own: &Owners, c: ConnIdx, txn_id: &[u8]) -> Option<(SessionIdx, TransactionId)> {
    let id = TransactionId::from_be_bytes(txn_id.try_into().ok()?);
    let s = own.conns.amqp(c)?.transactions.get(&id).copied()?;
    Some((s, id))
}

/// A delivery of a link whose outcome is part of a transaction.
pub(super) fn retirement(
    own: &mut Owners,
    c: ConnIdx,
    id: TransactionId,
    at: (SessionKey, u32),
) -> Option<&mut Retirement> {
    let s = own.conns.peek_amqp(c)?.transactions.get(&id).copied()?;
    transaction(own, s, id)?.retired.get_mut(&at)
}

/// Answers a demand.
pub(super) fn answer(own: &mut Owners, c: ConnIdx, delivery: Sent, answer: Result<(), Why>) {
    let state = match answer {
        Ok(()) => DeliveryState::ACCEPTED,
        Err((condition, text)) => rejected(condition, text),
    };
    settle(own, c, Open::of(delivery), &state);
}

/// Has the client send further demands, as many as may be without an answer.
pub(super) fn top_up(own: &mut Owners, c: ConnIdx, s: SessionIdx) {
    let Some(session) = own.sessions.amqp_mut(s) else {
        return;
    };
    let link = session.link;
    let Some(coordinator) = session.coordinator_mut() else {
        return own.outbox.note_missing();
    };
    let waiting = u32::try_from(coordinator.discharging.len()).unwrap_or(u32::MAX);
    let may = CREDIT.saturating_sub(waiting);
    if coordinator.credit <= CREDIT / 2 && may > coordinator.credit {
        coordinator.credit = may;
        if let Some(conn) = own.conns.amqp_mut(c) {
            // A link that goes needs none.
            let _ = conn.engine.set_credit(link, may, false);
            own.conns.touch(c);
        }
    }
}

/// A commit is stored, or off.
pub(crate) fn discharged(own: &mut Owners, origin: SessionRef, token: u64, verdict: Verdict) {
    let s = origin.at;
    let found = coordinator(own, s).and_then(|it| it.discharging.remove(&token));
    let Some(delivery) = found else {
        return own.outbox.note_missing();
    };
    let stored = !matches!(verdict, Verdict::Refused(_));
    let conn = own.sessions.amqp_mut(s).and_then(|link| link.conn);
    if let Some(c) = conn {
        let text = "a queue is full or gone, or the store refused it";
        let why = (condition::TRANSACTION_ROLLBACK, text);
        answer(own, c, delivery, stored.then_some(()).ok_or(why));
        top_up(own, c, s);
    }
}

/// What follows for a delivery from the end of its transaction, at its link.
pub(crate) fn conclude(own: &mut Owners, retirement: &Retirement, stored: bool) {
    let ends_topic = retirement.ends_topic();
    let Retirement {
        link,
        key,
        node,
        outcome,
        delivery,
        ref state,
        settled,
    } = *retirement;
    if node.is_none() && !ends_topic {
        match stored {
            true => put_back(own, link, key, outcome),
            false => put_back(own, link, key, Outcome::Released),
        }
    }
    let entry = own.sessions.resolve_mut(link);
    let conn = entry.filter(|_| !settled).and_then(|entry| entry.conn);
    let Some(c) = conn else {
        return;
    };
    // The node has it again.
    let failed = DeliveryState::Outcome(AmqpOutcome::Modified(Modified {
        delivery_failed: true,
        ..Modified::default()
    }));
    let state = match stored {
        true => state.get(),
        false => failed,
    };
    settle(own, c, Open::of(delivery), &state);
}

/// A delivery of a topic leaves its link.
fn put_back(own: &mut Owners, link: SessionRef, key: u32, outcome: Outcome) {
    if own.sessions.resolve(link).is_some() {
        outgoing::settle(own, link.at, key, outcome);
        outgoing::pump(own, link.at);
    }
}

/// What a transaction would have taken stays where it was.
pub(super) fn roll_back(own: &mut Owners, retired: impl Iterator<Item = Retirement>) {
    for retirement in retired {
        forget_key(own, &retirement);
        give_back(own, &retirement);
    }
}

pub(super) fn forget_key(own: &mut Owners, retirement: &Retirement) {
    let entry = own.sessions.resolve_mut(retirement.link);
    if let Some(link) = entry.and_then(|entry| entry.amqp_mut()) {
        link.retiring.remove(&retirement.key);
    }
}

/// A delivery that the client has settled is to be delivered again. One that it has
/// not is still the client's.
pub(super) fn give_back(own: &mut Owners, retirement: &Retirement) {
    if !retirement.settled {
        return;
    }
    let key = retirement.key;
    let Some((home, place)) = retirement.node else {
        return put_back(own, retirement.link, key, Outcome::Released);
    };
    let outcome = Outcome::Modified {
        failed: true,
        undeliverable_here: false,
    };
    let failed = Call::Outcome {
        place,
        key,
        outcome,
        annotations: None,
        answer: false,
    };
    own.call(home, failed);
}

/// A transaction is rolled back before it is discharged.
pub(super) fn fail(own: &mut Owners, s: SessionIdx, id: TransactionId, why: Symbol<'static>) {
    let Some(coordinator) = coordinator(own, s) else {
        return own.outbox.note_missing();
    };
    let Some(transaction) = coordinator.transactions.get_mut(&id) else {
        return own.outbox.note_missing();
    };
    if transaction.failed.replace(why).is_some() {
        return;
    }
    let retired = core::mem::take(&mut transaction.retired);
    transaction.posts = Vec::new();
    let bytes = core::mem::take(&mut transaction.bytes);
    coordinator.bytes = coordinator.bytes.saturating_sub(bytes);
    roll_back(own, retired.into_values());
    own.weigh_queue(s);
}
