//! What the links of a node say: credit, and what became of messages.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_base::ShardId;
use dunlin_queue::{Delivery, Outcome, Settled};
use dunlin_store::{Seq, SessionKey, StoreOp};

use crate::ids::{SessionIdx, SessionRef};
use crate::owners::commits::target;
use crate::owners::pending::{Acquired, Pending, Settlement};
use crate::owners::{Owners, away};
use crate::queues::calls::{Call, Death, Place, Use, Waits};
use crate::queues::{delivering, keeping};
use crate::translate;

/// A link takes messages up to this key.
pub(crate) fn handle_credit(
    own: &mut Owners,
    from: ShardId,
    place: Place,
    limit: u32,
    drain: bool,
) {
    let Some(s) = find(own, from, place) else {
        return;
    };
    if let Some(node) = own.sessions.node_mut(s) {
        node.set_limit(place.end, limit, drain);
        show(own, from, s, place);
        delivering::pump(own, s);
    }
}

/// A link has sent so many messages, and wants credit for more.
pub(crate) fn handle_want(own: &mut Owners, from: ShardId, place: Place, sent: u32) {
    let Some(s) = find(own, from, place) else {
        return;
    };
    let now = own.now;
    if let Some(node) = own.sessions.node_mut(s) {
        node.senders.want(place.end, sent, now);
    }
    delivering::give_credit(own, s);
}

/// A link is attached; the last message that it may send, if it does. More follows where
/// others wait in front of it.
pub(crate) fn begin(own: &mut Owners, s: SessionIdx, at: usize, wants: Use) -> u32 {
    let (now, credit_max) = (own.now, u32::from(own.config.clients.receive_maximum));
    let Some(node) = own.sessions.node_mut(s).filter(|_| wants == Use::Send) else {
        return 0;
    };
    node.senders.insert(at, now);
    let room = delivering::room_of(node);
    let first = node.senders.is_first(at);
    let given = first.then(|| node.senders.next(room, credit_max, now));
    given.flatten().map_or(0, |(_, limit)| limit)
}

/// Shows messages to a link that takes none.
fn show(own: &mut Owners, to: ShardId, s: SessionIdx, place: Place) {
    let now = own.now;
    loop {
        let node = own.sessions.node_mut(s);
        let seen = node.and_then(|node| node.see(place.end, now, &mut own.budget.scan));
        let Some((key, (message, failed, added))) = seen else {
            return;
        };
        let bytes_max = own.config.clients.packet_bytes_max;
        let message = translate::with_added(&message, added.as_deref(), now, bytes_max);
        let deliver = Call::Deliver {
            link: place.link,
            key,
            message,
            failed,
            again: true,
            resumed: false,
        };
        own.call(to, deliver);
    }
}

/// A link wants messages once more that it has not settled.
pub(crate) fn handle_again(own: &mut Owners, from: ShardId, place: Place, keys: &[u32]) {
    let Some(s) = find(own, from, place) else {
        return;
    };
    if let Some(node) = own.sessions.node_mut(s) {
        for key in keys {
            away::resend(node, place.end, *key);
        }
    }
    delivering::pump(own, s);
}

/// The store knows a key; its link comes out, which may have waited for that to end.
pub(crate) fn handle_key_stored(
    own: &mut Owners,
    acquired: &Acquired,
) -> Option<(SessionIdx, usize)> {
    let s = own.sessions.resolve(acquired.node)?;
    let node = own.sessions.node_mut(s)?;
    let (at, _) = away::acquired(node, &acquired.name, acquired.key)?;
    // Their link has gone meanwhile and has not had them.
    for key in away::handle_key_stored(node, at, acquired.key) {
        settle(own, s, at, key, Outcome::Released);
    }
    delivering::pump(own, s);
    Some((s, at))
}

/// As [`show`], to all such links.
pub(crate) fn show_all(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let node_ref = node.reference(s);
    let all = node.ends().filter(|(_, end)| end.wants == Use::Browse);
    let all = all.map(|(at, end)| {
        let place = Place {
            node: node_ref,
            end: at,
            link: end.link,
        };
        (end.shard, place)
    });
    let all: Vec<(ShardId, Place)> = all.collect();
    for (to, place) in all {
        show(own, to, s, place);
    }
}

/// The node of a place, if the link is still there.
pub(crate) fn find(own: &mut Owners, from: ShardId, place: Place) -> Option<SessionIdx> {
    let s = own.sessions.resolve(place.node)?;
    let node = own.sessions.node_mut(s)?;
    node.end_mut(from, place).map(|_| s)
}

/// A link says what became of a message.
pub(crate) fn handle_outcome(
    own: &mut Owners,
    from: ShardId,
    place: Place,
    key: u32,
    outcome: Outcome,
    answer: bool,
) {
    let Some(s) = find(own, from, place) else {
        return;
    };
    let link = place.link;
    let waits = answer.then_some((from, link, key));
    let over = settle_for(own, s, (place.end, key), outcome, waits);
    if answer {
        match over {
            Over::Removing(session, seq) => {
                let settlement = Settlement {
                    session,
                    seq,
                    shard: from,
                    link,
                    key,
                };
                let token = own.commits.token();
                let pending = Pending::Settlement(Box::new(settlement));
                own.commits.when_removed(token, pending);
            }
            Over::Now => own.call(from, Call::Settled { link, key }),
            // It is answered then.
            Over::Dying => {}
        }
    }
    delivering::pump(own, s);
}

/// The store has, or has not, removed a message whose outcome a link waits for.
pub(crate) fn handle_removed(own: &mut Owners, settlement: Box<Settlement>, stored: bool) {
    let Settlement {
        shard, link, key, ..
    } = *settlement;
    match stored {
        true => own.call(shard, Call::Settled { link, key }),
        // After a restart it would be delivered again.
        false => own.retry_later(Pending::Settlement(settlement)),
    }
}

/// Has the store remove it again.
pub(crate) fn retry(own: &mut Owners, settlement: Box<Settlement>) {
    let (session, seq) = (settlement.session, settlement.seq);
    own.commits.write(StoreOp::Dequeue { seq, session });
    let token = own.commits.token();
    own.commits
        .when_removed(token, Pending::Settlement(settlement));
}

/// A message leaves its link with an outcome.
pub(crate) fn settle(own: &mut Owners, s: SessionIdx, end: usize, key: u32, outcome: Outcome) {
    settle_for(own, s, (end, key), outcome, None);
}

/// When the outcome of a message holds.
enum Over {
    Now,
    /// When the store has removed it.
    Removing(SessionKey, Seq),
    /// When it is with the dead.
    Dying,
}

/// As [`settle`], for a link that may wait until its message is with the dead.
fn settle_for(
    own: &mut Owners,
    s: SessionIdx,
    (end, key): (usize, u32),
    outcome: Outcome,
    waits: Waits,
) -> Over {
    let Some(node) = own.sessions.node_mut(s) else {
        return Over::Now;
    };
    let of = node.key;
    let options = &node.kept.options;
    let (deliveries_max, buries) = (options.deliveries_max, options.dead_letter.is_some());
    let Some(delivery) = node.delivery(end, key) else {
        return Over::Now;
    };
    let failed = matches!(outcome, Outcome::Modified { failed: true, .. });
    let attempts = delivery.failed.saturating_add(u16::from(failed));
    let worn = failed && deliveries_max > 0 && attempts >= deliveries_max;
    let gives_back = matches!(outcome, Outcome::Rejected | Outcome::Modified { .. });
    let copy = gives_back.then(|| delivery.clone());
    let refusers = node.take_refusers(end, key, outcome);
    let death = match outcome {
        Outcome::Rejected => Some(Death::Rejected),
        Outcome::Modified { .. } if worn => Some(Death::DeliveryLimit),
        Outcome::Modified {
            undeliverable_here: true,
            ..
        } if !node.may_set_aside(&refusers) => Some(Death::Rejected),
        _ => None,
    };
    if let Some(death) = death {
        let removed = keeping::settle(own, s, end, key, Outcome::Rejected);
        if let Some(copy) = copy.filter(|_| buries) {
            own.bury(s, copy, death, waits);
            return Over::Dying;
        }
        own.stats.messages_dead += 1;
        return remove(own, of, &removed);
    }
    let settled = keeping::settle(own, s, end, key, elsewhere(outcome, &refusers));
    let settled = match settled {
        // Another consumer gets it.
        Settled::Returned {
            delivery,
            key_stored,
        } => {
            if let Some(node) = own.sessions.node_mut(s) {
                node.set_aside(delivery, refusers);
            }
            Settled::Requeued { key_stored }
        }
        settled => settled,
    };
    if let (Settled::Requeued { .. }, Some(copy)) = (&settled, copy)
        && (failed || copy.added.is_some())
    {
        note_place(own, of, copy, attempts);
    }
    remove(own, of, &settled)
}

/// An outcome of a message that some consumers do not take: it does not go back into
/// the queue, where they would get it again.
fn elsewhere(outcome: Outcome, refusers: &[SessionRef]) -> Outcome {
    match outcome {
        Outcome::Released if !refusers.is_empty() => Outcome::Modified {
            failed: false,
            undeliverable_here: true,
        },
        Outcome::Modified { failed, .. } => Outcome::Modified {
            failed,
            undeliverable_here: !refusers.is_empty(),
        },
        outcome => outcome,
    }
}

/// A link adds annotations to a message that it has, unless they are too many.
pub(crate) fn annotate(
    own: &mut Owners,
    from: ShardId,
    place: Place,
    key: u32,
    annotations: &[u8],
) {
    let Some(s) = find(own, from, place) else {
        return;
    };
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let delivery = node.delivery(place.end, key);
    let added = delivery.and_then(|it| translate::merged(it.added.as_deref(), annotations));
    if let Some(added) = added {
        node.add(place.end, key, added);
    }
}

fn remove(own: &mut Owners, of: SessionKey, settled: &Settled) -> Over {
    let Settled::Done { seq: Some(seq), .. } = settled else {
        return Over::Now;
    };
    own.dequeue(of, Some(*seq));
    match own.commits.is_durable() {
        true => Over::Removing(of, Seq(*seq)),
        false => Over::Now,
    }
}

/// Has the store know how often a message could not be delivered, and what was added to
/// it.
pub(crate) fn note_place(own: &mut Owners, of: SessionKey, delivery: Delivery, attempts: u16) {
    if let Some(op) = place_op(of, delivery, attempts) {
        own.commits.write(op);
    }
}

/// What says that to the store.
pub(crate) fn place_op(of: SessionKey, mut delivery: Delivery, attempts: u16) -> Option<StoreOp> {
    delivery.failed = attempts;
    let (message, seq) = (delivery.held()?, delivery.seq?);
    let priority = message.extra.as_ref().and_then(|extra| extra.priority);
    Some(StoreOp::Enqueue {
        seq: Seq(seq),
        message: message.clone(),
        targets: alloc::vec![target(of, &delivery, priority)],
    })
}
