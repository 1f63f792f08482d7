//! What becomes part of a transaction: messages that are posted, and outcomes of
//! deliveries.

use dunlin_amqp::codec::{
    DeliveryState, Error, Outcome as AmqpOutcome, Rejected, TransactionalState, condition,
};
use dunlin_amqp::{Delivery as Sent, LinkId, State, Tag};
use dunlin_base::Message;
use dunlin_queue::Outcome;
use dunlin_store::SessionKey;

use crate::amqp::concluding::{Why, coordinator, fail, find, give_back, retirement, transaction};
use crate::amqp::coordinator::{Post, Retirement, TransactionId};
use crate::amqp::outcome::{settle, top_up};
use crate::amqp::outgoing::outcome_of;
use crate::amqp::state::{End, Open};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::owners::Owners;
use crate::queues::addresses;

/// What an outcome takes until its transaction is discharged, besides its state.
const RETIREMENT_BYTES: usize = 256;

/// A message came that is part of a transaction, or is refused.
pub(super) fn post(
    own: &mut Owners,
    c: ConnIdx,
    from: SessionRef,
    (open, settled, is_relayed): (Open, bool, bool),
    txn_id: &[u8],
    message: Result<Message, Why>,
) {
    let Some((s, id)) = find(own, c, txn_id) else {
        return detach(own, c, open.delivery.link);
    };
    let taken = match message {
        Ok(message) => hold(own, from, (s, id), message, is_relayed),
        Err(why) => {
            // Its sender does not hear of it but by the discharge.
            if settled {
                fail(own, s, id, condition::TRANSACTION_ROLLBACK);
            }
            Err(why)
        }
    };
    if !settled {
        let outcome = match taken {
            Ok(()) => AmqpOutcome::Accepted,
            Err((condition, text)) => AmqpOutcome::Rejected(Rejected {
                error: Some(Error::new(condition, text)),
            }),
        };
        let state = DeliveryState::Transactional(TransactionalState {
            txn_id,
            outcome: Some(outcome),
        });
        settle(own, c, open, &state);
    }
    top_up(own, c, from.at);
}

/// Keeps a message for the commit.
fn hold(
    own: &mut Owners,
    from: SessionRef,
    (s, id): (SessionIdx, TransactionId),
    message: Message,
    is_relayed: bool,
) -> Result<(), Why> {
    let cost = message.cost();
    admit(own, s, id, cost)?;
    own.stats.note_received(message.qos);
    let to_queue = addresses::is_queue(&message.topic);
    if let Some(transaction) = transaction(own, s, id) {
        transaction.posts.push(Post {
            from,
            message: message.into(),
            to_queue,
            is_relayed,
        });
    }
    charge(own, s, id, cost);
    Ok(())
}

/// Whether a transaction has room for something more; if not, it has failed.
fn admit(own: &mut Owners, s: SessionIdx, id: TransactionId, cost: usize) -> Result<(), Why> {
    let limits = own.config.transactions;
    let memory = own.has_memory(cost) && own.full_holder(s).is_none();
    let Some(transaction) = transaction(own, s, id) else {
        own.outbox.note_missing();
        return Err((condition::TRANSACTION_UNKNOWN_ID, "there is none"));
    };
    if let Some(condition) = transaction.failed {
        return Err((condition, "it was rolled back"));
    }
    let fits = transaction.operations() < limits.operations_max
        && transaction.bytes + cost <= limits.bytes_max;
    if fits && memory {
        return Ok(());
    }
    fail(own, s, id, condition::TRANSACTION_ROLLBACK);
    let text = "too much for one transaction";
    Err((condition::RESOURCE_LIMIT_EXCEEDED, text))
}

fn charge(own: &mut Owners, s: SessionIdx, id: TransactionId, cost: usize) {
    if let Some(coordinator) = coordinator(own, s)
        && let Some(transaction) = coordinator.transactions.get_mut(&id)
    {
        transaction.bytes += cost;
        coordinator.bytes += cost;
    }
    own.weigh_queue(s);
}

/// A link named a transaction that there is not.
fn detach(own: &mut Owners, c: ConnIdx, link: LinkId) {
    if let Some(conn) = own.conns.amqp_mut(c) {
        let text = "there is no such transaction";
        let error = Error::new(condition::TRANSACTION_UNKNOWN_ID, text);
        let _ = conn.engine.detach(link, true, Some(&error));
        own.conns.touch(c);
    }
}

/// The client says what became of a delivery; `true` if that is a matter of a
/// transaction.
pub(super) fn handle_disposition(
    own: &mut Owners,
    c: ConnIdx,
    delivery: Sent,
    tag: Tag,
    state: Option<&State>,
    settled: bool,
) -> bool {
    let conn = own.conns.amqp(c);
    let s = conn.and_then(|conn| conn.links.get(&delivery.link).copied());
    let link = s.and_then(|s| own.sessions.amqp_mut(s));
    let key = tag.number().and_then(|number| u32::try_from(number).ok());
    let (Some(s), Some(link), Some(key)) = (s, link, key) else {
        return false;
    };
    if !matches!(link.end, End::Outgoing { .. } | End::Taking(_)) {
        return false;
    }
    let known = link.retiring.get(&key).copied();
    let (of, at) = (link.reference(s), (link.key, key));
    let said = state.map(State::get);
    match (said, known, state) {
        (Some(DeliveryState::Transactional(said)), _, Some(state)) => {
            let retirement = Retirement {
                link: of,
                key,
                node: link
                    .attachment
                    .as_ref()
                    .and_then(|it| Some((it.home, it.place?))),
                outcome: said.outcome.map_or(Outcome::Accepted, |it| outcome_of(&it)),
                delivery,
                state: state.clone(),
                settled,
            };
            let same = known.is_some_and(|id| id.to_be_bytes() == *said.txn_id);
            match said.outcome {
                // It has an outcome in the transaction already.
                None if same => note_settled(own, c, known, at, settled),
                None if !settled => {}
                _ => retire(own, c, said.txn_id, known, retirement),
            }
            true
        }
        (Some(said), Some(id), _) if said.outcome().is_some() => {
            // It has another outcome now than in the transaction.
            withdraw(own, c, id, at);
            if let Some(link) = own.sessions.amqp_mut(s) {
                link.retiring.remove(&key);
            }
            false
        }
        // No more than how far it came.
        (_, Some(_), _) => {
            note_settled(own, c, known, at, settled);
            true
        }
        (_, None, _) => false,
    }
}

/// The client may have settled a delivery without changing its outcome in a
/// transaction.
fn note_settled(
    own: &mut Owners,
    c: ConnIdx,
    id: Option<TransactionId>,
    at: (SessionKey, u32),
    settled: bool,
) {
    if let Some(retirement) = id.and_then(|id| retirement(own, c, id, at)) {
        retirement.settled |= settled;
    }
}

/// The outcome of a delivery is not part of its transaction any more.
fn withdraw(own: &mut Owners, c: ConnIdx, id: TransactionId, at: (SessionKey, u32)) {
    let controller = own.conns.amqp(c).and_then(|it| it.transactions.get(&id));
    let Some(s) = controller.copied() else {
        return own.outbox.note_missing();
    };
    let Some(coordinator) = coordinator(own, s) else {
        return own.outbox.note_missing();
    };
    let transaction = coordinator.transactions.get_mut(&id);
    if let Some(transaction) = transaction
        && let Some(retirement) = transaction.retired.remove(&at)
    {
        let bytes = RETIREMENT_BYTES + bytes_of(&retirement.state);
        transaction.bytes = transaction.bytes.saturating_sub(bytes);
        coordinator.bytes = coordinator.bytes.saturating_sub(bytes);
    }
    own.weigh_queue(s);
}

/// The outcome of a delivery is part of a transaction.
fn retire(
    own: &mut Owners,
    c: ConnIdx,
    txn_id: &[u8],
    known: Option<TransactionId>,
    mut retirement: Retirement,
) {
    let Some((s, id)) = find(own, c, txn_id) else {
        give_back(own, &retirement);
        return detach(own, c, retirement.delivery.link);
    };
    let (link, key) = (retirement.link, retirement.key);
    if known.is_some_and(|known| known != id) {
        // It is part of another one, which is not discharged (section 4.4.2).
        return fail(own, s, id, condition::TRANSACTION_ROLLBACK);
    }
    let at = (link.key, key);
    let before = transaction(own, s, id).and_then(|it| it.retired.get(&at));
    let before = before.map(|it| RETIREMENT_BYTES + bytes_of(&it.state));
    let now = RETIREMENT_BYTES + bytes_of(&retirement.state);
    let cost = now.saturating_sub(before.unwrap_or(0));
    if cost > 0 {
        if admit(own, s, id, cost).is_err() {
            // What is retired already is given back with the transaction.
            if known.is_none() {
                give_back(own, &retirement);
            }
            return;
        }
        charge(own, s, id, cost);
    }
    if let Some(transaction) = transaction(own, s, id) {
        let before = transaction.retired.get(&at);
        retirement.settled |= before.is_some_and(|before| before.settled);
        transaction.retired.insert(at, retirement);
    }
    if let Some(link) = own.sessions.amqp_mut(link.at) {
        link.retiring.insert(key, id);
    }
}

/// What a state takes besides its own size.
fn bytes_of(state: &State) -> usize {
    match state {
        State::Encoded(bytes) => bytes.len(),
        State::Accepted | State::Released => 0,
    }
}
