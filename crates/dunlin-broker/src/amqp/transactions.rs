//! Transactions (part 4): links to the coordinator, declaration and discharge, and
//! their end without one.
//!
//! A transaction belongs to the link that declared it, and nothing of it leaves its
//! connection before it is discharged: then all of it is prepared like one publish, on as
//! many shards as it concerns, and stored in one batch.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Coordinator as Terminus, Declared, DeliveryState, Outcome as AmqpOutcome,
    ReceiverSettleMode, Role, Symbols, capability, condition,
};
use dunlin_amqp::{Delivery as Sent, Demand, LinkId, State};
use dunlin_store::{Seq, StoreOp};

use crate::amqp::attaching::{self, Refusal};
use crate::amqp::concluding::{
    CREDIT, answer, coordinator, fail, find, forget_key, retirement, roll_back, top_up, transaction,
};
use crate::amqp::coordinator::{Coordinator, Retirement, Transaction, TransactionId};
use crate::amqp::outcome::settle;
use crate::amqp::outgoing::{self, annotations_of};
use crate::amqp::state::{End, Open};
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::NotTaken;
use crate::messages::source::Source;
use crate::messages::{publish, settle as batches};
use crate::owners::Owners;
use crate::owners::pending::{Fate, PendingPublish, Retired};
use crate::owners::timers::{Timer, Timers};
use crate::queues::calls::Call;
use crate::queues::{making, retiring};

/// The client wants a link to the coordinator.
pub(super) fn attach(
    own: &mut Owners,
    c: ConnIdx,
    link: LinkId,
    attach: &Attach<'_>,
) -> Result<(), Refusal> {
    if own.members.is_edge() {
        let text = "this server has no store for transactions";
        return Err(attaching::refusal(condition::NOT_IMPLEMENTED, text));
    }
    if own.members.has_apart() {
        let text = "this server has several stores, and no transactions over them";
        return Err(attaching::refusal(condition::NOT_IMPLEMENTED, text));
    }
    let coordinator = Coordinator {
        credit: CREDIT,
        ..Coordinator::default()
    };
    let end = End::Coordinator(Box::new(coordinator));
    let s = attaching::create(own, c, link, end)?;
    let Some(conn) = own.conns.amqp_mut(c) else {
        return Ok(());
    };
    conn.links.insert(link, s);
    let capabilities = [
        capability::LOCAL_TRANSACTIONS,
        capability::MULTI_TXNS_PER_SSN,
        capability::MULTI_SSNS_PER_TXN,
    ];
    let answer = Attach {
        role: Role::Receiver,
        rcv_settle_mode: ReceiverSettleMode::First,
        target: Some(AnyTarget::Coordinator(Terminus {
            capabilities: Some(Symbols::new(&capabilities)),
        })),
        ..attaching::answer(attach)
    };
    if conn.engine.accept_attach(link, &answer).is_ok() {
        // It was attached just now.
        let _ = conn.engine.set_credit(link, CREDIT, false);
    }
    Ok(())
}

/// The client begins or ends a transaction.
pub(super) fn handle_demand(own: &mut Owners, c: ConnIdx, delivery: Sent, demand: &Demand) {
    let conn = own.conns.amqp(c);
    let Some(s) = conn.and_then(|conn| conn.links.get(&delivery.link).copied()) else {
        return;
    };
    if let Some(coordinator) = coordinator(own, s) {
        coordinator.credit = coordinator.credit.saturating_sub(1);
    }
    match demand {
        Demand::Declare { global_id: None } => declare(own, c, s, delivery),
        Demand::Declare { .. } => {
            let text = "there are no distributed transactions";
            answer(own, c, delivery, Err((condition::NOT_IMPLEMENTED, text)));
        }
        Demand::Discharge { txn_id, fail } => discharge(own, c, s, delivery, txn_id, *fail),
    }
    top_up(own, c, s);
}

fn declare(own: &mut Owners, c: ConnIdx, s: SessionIdx, delivery: Sent) {
    let limits = own.config.transactions;
    let open = own.conns.amqp(c).map_or(0, |conn| conn.transactions.len());
    if open >= limits.max && !forget_failed(own, c) {
        let text = "too many transactions of the connection";
        let why = (condition::RESOURCE_LIMIT_EXCEEDED, text);
        return answer(own, c, delivery, Err(why));
    }
    let (id, expires) = (own.commits.token(), own.now + limits.timeout);
    let (Some(conn), Some(session)) = (own.conns.amqp_mut(c), own.sessions.amqp_mut(s)) else {
        return;
    };
    let timer = Timer::Session(session.reference(s));
    own.timers.remind(expires, timer, &mut session.alarm);
    if let Some(coordinator) = session.coordinator_mut() {
        let new = Transaction::new(expires);
        coordinator.transactions.insert(id, new);
        conn.transactions.insert(id, s);
    }
    let declared = Declared {
        txn_id: &id.to_be_bytes(),
    };
    let state = DeliveryState::Outcome(AmqpOutcome::Declared(declared));
    settle(own, c, Open::of(delivery), &state);
}

/// Forgets a transaction that was rolled back and that the client has not
/// discharged; `false` if there is none.
fn forget_failed(own: &mut Owners, c: ConnIdx) -> bool {
    let conn = own.conns.amqp(c);
    let all: Vec<_> = conn.map_or(Vec::new(), |conn| {
        conn.transactions.iter().map(|(id, s)| (*id, *s)).collect()
    });
    let failed = all.into_iter().find(|(id, s)| {
        let found = transaction(own, *s, *id);
        found.is_some_and(|transaction| transaction.failed.is_some())
    });
    failed.is_some_and(|(id, s)| take(own, c, s, id).is_some())
}

/// Takes a transaction out of the tables.
fn take(own: &mut Owners, c: ConnIdx, s: SessionIdx, id: TransactionId) -> Option<Transaction> {
    let coordinator = coordinator(own, s)?;
    let transaction = coordinator.transactions.remove(&id)?;
    coordinator.bytes = coordinator.bytes.saturating_sub(transaction.bytes);
    if let Some(conn) = own.conns.peek_amqp_mut(c) {
        conn.transactions.remove(&id);
    }
    own.weigh_queue(s);
    Some(transaction)
}

fn discharge(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    delivery: Sent,
    txn_id: &[u8],
    fail: bool,
) {
    let found = find(own, c, txn_id).filter(|(at, _)| *at == s);
    let Some(transaction) = found.and_then(|(_, id)| take(own, c, s, id)) else {
        let text = "there is no such transaction of this link";
        let why = (condition::TRANSACTION_UNKNOWN_ID, text);
        return answer(own, c, delivery, Err(why));
    };
    match transaction.failed {
        None if !fail => return commit(own, c, s, delivery, transaction),
        Some(condition) if !fail => {
            let why = (condition, "it was rolled back");
            answer(own, c, delivery, Err(why));
        }
        Some(_) | None => answer(own, c, delivery, Ok(())),
    }
    roll_back(own, transaction.retired.into_values());
}

/// Has all of a transaction prepared, and then stored in one batch.
fn commit(own: &mut Owners, c: ConnIdx, s: SessionIdx, delivery: Sent, transaction: Transaction) {
    let link = own.sessions.amqp_mut(s);
    let user = link.as_ref().and_then(|link| link.user.clone());
    let origin = link.map(|link| link.reference(s));
    let token = own.commits.token();
    let mut publish = PendingPublish::new(origin, false);
    publish.rest_mut().transacted = true;
    for post in transaction.posts {
        let deliveries = publish.rest().map_or(0, |rest| rest.work.deliveries());
        if deliveries >= own.config.transactions.deliveries_max {
            publish.refuse(NotTaken::NoRoom);
            break;
        }
        if post.is_relayed && post.to_queue {
            let topic = post.message.topic.clone();
            making::want(own, topic, user.clone(), Some(token));
        }
        let publisher = own.sessions.resolve(post.from);
        let mut source = Source::of(&post.message, own.now).by(c).transacted();
        if post.to_queue {
            source = source.for_queue();
        }
        publish::place(own, publisher, token, &mut source, &mut publish);
    }
    let retired: Vec<Retirement> = transaction.retired.into_values().collect();
    for of_link in retired.chunk_by(|a, b| a.link == b.link) {
        prepare(own, of_link, token, &mut publish);
    }
    for retirement in &retired {
        forget_key(own, retirement);
    }
    publish.rest_mut().retirements = retired;
    if let Some(coordinator) = coordinator(own, s) {
        coordinator.discharging.insert(token, delivery);
    }
    batches::line_up(own, token, publish);
}

/// Has the node of a link prepare what a transaction takes of it.
fn prepare(own: &mut Owners, retired: &[Retirement], token: u64, publish: &mut PendingPublish) {
    let Some((home, place)) = retired.first().and_then(|it| it.node) else {
        return take_all(own, retired, publish);
    };
    let outcomes = retired.iter();
    let outcomes = outcomes.map(|it| (it.key, it.outcome, added(&it.state)));
    let outcomes: Vec<_> = outcomes.collect();
    if home == own.config.shard {
        let work = &mut publish.rest_mut().work;
        let taken = retiring::prepare(own, home, place, &outcomes, work);
        let dead = work.take_dead();
        if !taken {
            publish.refuse(NotTaken::NotFound);
        }
        for message in &dead {
            publish::place_dead(own, token, message, publish);
        }
        return;
    }
    publish.preparing += 1;
    let retire = Call::Retire {
        place,
        token,
        outcomes,
    };
    own.call(home, retire);
}

/// Takes deliveries of a topic from their link that their clients are done with: the
/// queue of a group has them no longer, and no other member gets them.
fn take_all(own: &mut Owners, retired: &[Retirement], publish: &mut PendingPublish) {
    let durable = own.commits.is_durable();
    for retirement in retired.iter().filter(|it| it.ends_topic()) {
        let link = retirement.link;
        let entry = own.sessions.resolve_mut(link);
        let Some(entry) = entry.and_then(|entry| entry.amqp_mut()) else {
            // Only messages of groups come again.
            continue;
        };
        let Some(delivery) = outgoing::take(entry, retirement.key) else {
            publish.refuse(NotTaken::NotFound);
            continue;
        };
        own.weigh_queue(link.at);
        let seq = delivery.seq.map(Seq);
        let queue = seq.map_or(link.key, |seq| own.commits.take_queue(link.key, seq));
        let work = &mut publish.rest_mut().work;
        let removal = seq.filter(|_| durable).map(|seq| StoreOp::Dequeue {
            seq,
            session: queue,
        });
        work.ops.extend(removal);
        work.transacted_mut().retired.push(Retired {
            node: link,
            delivery,
            fate: Fate::Done,
            added: None,
            refusers: Vec::new(),
            here: None,
            queue,
        });
    }
}

/// The annotations that an outcome in a transaction adds to its message.
fn added(state: &State) -> Option<Bytes> {
    match state.get() {
        DeliveryState::Transactional(state) => annotations_of(&state.outcome?),
        _ => None,
    }
}

/// A link is gone: with one to the coordinator, its transactions are. Outcomes that
/// came on another one are final as soon as their transaction is, unless what the link
/// has at its node stays its own.
pub(super) fn handle_detached(own: &mut Owners, c: ConnIdx, s: SessionIdx, closed: bool) {
    let Some(link) = own.sessions.amqp_mut(s) else {
        return;
    };
    let of = link.key;
    let stays = !closed && link.keep_mut().is_some();
    let Some(coordinator) = link.coordinator_mut() else {
        let consumer = &link.consumer;
        let retiring = link.retiring.iter().map(|(key, id)| {
            let delivery = consumer.delivery(*key);
            (*key, *id, delivery.is_some_and(|it| it.share.is_some()))
        });
        let retiring: Vec<_> = retiring.collect();
        let mut off = Vec::new();
        for (key, id, is_shared) in retiring {
            if let Some(retirement) = retirement(own, c, id, (of, key)) {
                // Another member of its group gets it with the end of the link.
                let is_gone = !stays || retirement.node.is_none();
                retirement.settled = !is_shared && (retirement.settled || is_gone);
                off.extend(Some(id).filter(|_| is_shared && retirement.ends_topic()));
            }
        }
        for id in off {
            let conn = own.conns.peek_amqp(c);
            if let Some(by) = conn.and_then(|conn| conn.transactions.get(&id).copied()) {
                fail(own, by, id, condition::TRANSACTION_ROLLBACK);
            }
        }
        return;
    };
    let all = core::mem::take(&mut coordinator.transactions);
    coordinator.bytes = 0;
    if let Some(conn) = own.conns.peek_amqp_mut(c) {
        conn.transactions.retain(|_, at| *at != s);
    }
    for transaction in all.into_values() {
        roll_back(own, transaction.retired.into_values());
    }
}

/// The time of a transaction may be over.
pub(crate) fn check_expiry(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    let Some(session) = own.sessions.amqp_mut(s) else {
        return;
    };
    Timers::came(&mut session.alarm);
    let Some(coordinator) = session.coordinator_mut() else {
        return own.outbox.note_missing();
    };
    let all = coordinator.transactions.iter();
    let over = all.filter(|(_, it)| it.failed.is_none() && it.expires <= now);
    let over: Vec<TransactionId> = over.map(|(id, _)| *id).collect();
    for id in over {
        fail(own, s, id, condition::TRANSACTION_TIMEOUT);
    }
    if let Some(session) = own.sessions.amqp_mut(s) {
        let timer = Timer::Session(session.reference(s));
        let next = session.coordinator_mut().and_then(|it| it.next_expiry());
        if let Some(at) = next {
            own.timers.remind(at, timer, &mut session.alarm);
        }
    }
}
