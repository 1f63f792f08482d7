//! Messages of a node whose outcome is part of a transaction: they are taken out of
//! it when that is prepared, and are gone, or wait again, when it is decided.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::ShardId;
use dunlin_queue::{Delivery, Outcome};
use dunlin_store::{Seq, SessionKey, StoreOp};

use crate::ids::{SessionIdx, SessionRef};
use crate::messages::settle as batches;
use crate::owners::pending::{Fate, Retired, Work};
use crate::owners::{Later, Owners};
use crate::queues::calls::{Death, Place};
use crate::queues::options::QueueOptions;
use crate::queues::{credit, dead, delivering, keeping, nodes};
use crate::translate;

/// Takes messages of a link out of their node for a transaction. `false`, and
/// nothing taken, if the link does not have all of them any more.
pub(crate) fn prepare(
    own: &mut Owners,
    from: ShardId,
    place: Place,
    outcomes: &[(u32, Outcome, Option<Bytes>)],
    work: &mut Work,
) -> bool {
    let Some(s) = credit::find(own, from, place) else {
        return false;
    };
    let durable = own.commits.is_durable();
    let (now, bytes_max) = (own.now, own.config.clients.packet_bytes_max);
    let Some(node) = own.sessions.node_mut(s) else {
        return false;
    };
    let has = |key: &u32| node.delivery(place.end, *key).is_some();
    if !outcomes.iter().all(|(key, ..)| has(key)) {
        return false;
    }
    for (key, outcome, annotations) in outcomes {
        let Some(node) = own.sessions.node_mut(s) else {
            return false;
        };
        // One key may be named twice by a link that takes it for two.
        let Some(delivery) = node.delivery(place.end, *key).cloned() else {
            continue;
        };
        let old = delivery.added.as_deref();
        let added = annotations.as_ref();
        let added = added.and_then(|new| translate::merged(old, new));
        let refusers = node.take_refusers(place.end, *key, Outcome::Accepted);
        let here = is_elsewhere(*outcome).then_some(place.link);
        let mut all = refusers.clone();
        all.extend(here);
        let is_for_others = node.may_set_aside(&all);
        let mut fate = fate_of(&node.kept.options, &delivery, *outcome, is_for_others);
        if let Fate::Buried(death) = fate {
            let copy = with(delivery.clone(), added.clone());
            let message = dead::message(node, &copy, death, (now, bytes_max));
            fate = Fate::Dead;
            work.transacted_mut().dead.extend(message);
        }
        node.taken.begin_leaving(&delivery);
        let session = node.key;
        keeping::settle(own, s, place.end, *key, Outcome::Accepted);
        let op = op_of(session, &delivery, added.as_ref(), fate);
        work.ops.extend(op.filter(|_| durable));
        work.transacted_mut().retired.push(Retired {
            node: place.node,
            delivery,
            fate,
            added,
            refusers,
            here,
            queue: session,
        });
    }
    nodes::check_left(own, s, place.end);
    delivering::pump(own, s);
    true
}

/// What the store does with a message of this fate.
fn op_of(
    session: SessionKey,
    delivery: &Delivery,
    added: Option<&Arc<[u8]>>,
    fate: Fate,
) -> Option<StoreOp> {
    match fate {
        Fate::Done | Fate::Dead => {
            let seq = Seq(delivery.seq?);
            Some(StoreOp::Dequeue { seq, session })
        }
        Fate::Waits(attempts) if attempts.is_some() || added.is_some() => {
            let attempts = attempts.unwrap_or(delivery.failed);
            let copy = with(delivery.clone(), added.cloned());
            credit::place_op(session, copy, attempts)
        }
        Fate::Waits(_) | Fate::Buried(_) => None,
    }
}

/// Whether a message is not for the link that has it.
const fn is_elsewhere(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Modified {
            undeliverable_here: true,
            ..
        }
    )
}

/// The transaction was stored, or it is off.
pub(crate) fn settle(own: &mut Owners, retired: Vec<Retired>, stored: bool) {
    for mut retired in retired {
        let entry = own.sessions.resolve_mut(retired.node);
        let Some(node) = entry.and_then(|entry| entry.node_mut()) else {
            if !stored {
                give_back(own, retired);
            }
            continue;
        };
        node.taken.end_leaving(&retired.delivery);
        let s = retired.node.at;
        let refusers = core::mem::take(&mut retired.refusers);
        let Retired {
            delivery,
            fate,
            added,
            here,
            ..
        } = retired;
        match fate {
            // Its receiver had it, and may have done something with it.
            _ if !stored => {
                let attempts = delivery.failed.saturating_add(1);
                let key = own.sessions.get(s).map(|node| node.key);
                let copy = delivery.clone();
                wait(own, s, delivery, Some(attempts), refusers);
                if let Some(key) = key {
                    credit::note_place(own, key, copy, attempts);
                }
            }
            Fate::Done => {}
            Fate::Dead => own.stats.messages_dead += 1,
            // It was moved before.
            Fate::Buried(_) => {}
            Fate::Waits(attempts) => {
                let refusers = refusers.into_iter().chain(here).collect();
                wait(own, s, with(delivery, added), attempts, refusers);
            }
        }
        delivering::pump(own, s);
        nodes::check_empty(own, s);
    }
}

/// A message with what was added to it, if something was.
fn with(delivery: Delivery, added: Option<Arc<[u8]>>) -> Delivery {
    let added = added.or_else(|| delivery.added.clone());
    Delivery { added, ..delivery }
}

/// Who had a message of a topic has it again, or another one of its group.
fn give_back(own: &mut Owners, retired: Retired) {
    let Retired {
        node: link,
        mut delivery,
        queue,
        ..
    } = retired;
    if let Some(seq) = delivery.seq.filter(|_| queue != link.key) {
        own.commits.keep(link.key, Seq(seq), queue);
    }
    delivery.maybe_sent = true;
    delivery.failed = delivery.failed.saturating_add(1);
    if own.sessions.resolve(link).is_some() {
        batches::give_back(own, link, delivery);
    } else if delivery.share.is_some() {
        let delivery = Box::new(delivery);
        own.later.push_back(Later::GiveAgain(link, delivery));
    }
}

/// A message waits in its node again, for others than those that do not take it.
fn wait(
    own: &mut Owners,
    s: SessionIdx,
    mut delivery: Delivery,
    attempts: Option<u16>,
    refusers: Vec<SessionRef>,
) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if let Some(attempts) = attempts {
        delivery.maybe_sent = true;
        delivery.failed = attempts;
    }
    let is_refused = !refusers.is_empty();
    if !is_refused || !node.has_other(&[]) {
        node.queue.push(delivery);
    } else if node.may_set_aside(&refusers) {
        node.set_aside(delivery, refusers);
    } else {
        // Those that could take it have gone meanwhile.
        own.bury(s, delivery, Death::Rejected, None);
    }
}

/// What becomes of a message with an outcome; whether others may take one that is not
/// for its receiver.
fn fate_of(
    options: &QueueOptions,
    delivery: &Delivery,
    outcome: Outcome,
    is_for_others: bool,
) -> Fate {
    let failed = matches!(outcome, Outcome::Modified { failed: true, .. });
    let attempts = delivery.failed.saturating_add(u16::from(failed));
    let worn = failed && options.deliveries_max > 0 && attempts >= options.deliveries_max;
    let death = match outcome {
        Outcome::Accepted => return Fate::Done,
        Outcome::Modified { .. } if worn => Death::DeliveryLimit,
        Outcome::Rejected => Death::Rejected,
        _ if is_elsewhere(outcome) && !is_for_others => Death::Rejected,
        Outcome::Released | Outcome::Modified { .. } => {
            return Fate::Waits(failed.then_some(attempts));
        }
    };
    match options.dead_letter.is_some() {
        true => Fate::Buried(death),
        false => Fate::Dead,
    }
}
