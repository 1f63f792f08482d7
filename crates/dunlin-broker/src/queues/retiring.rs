//! Messages of a node whose outcome is part of a transaction: they are taken out of
//! it when that is prepared, and are gone, or wait again, when it is decided.

use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::ShardId;
use dunlin_queue::{Delivery, Outcome};
use dunlin_store::{Seq, StoreOp};

use crate::ids::SessionIdx;
use crate::owners::Owners;
use crate::owners::pending::{Fate, Retired, Work};
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
    let (now, bytes_max) = (own.now, own.config.packet_bytes_max);
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
        let mut fate = fate_of(&node.kept.options, &delivery, *outcome);
        if let Fate::Buried(death) = fate {
            let copy = with(delivery.clone(), added.clone());
            let message = dead::message(node, &copy, death, (now, bytes_max));
            fate = Fate::Dead;
            work.transacted_mut().dead.extend(message);
        }
        node.take_refusers(place.end, *key, Outcome::Accepted);
        let session = node.key;
        keeping::settle(own, s, place.end, *key, Outcome::Accepted);
        if let (Fate::Done | Fate::Dead, Some(seq)) = (fate, delivery.seq.filter(|_| durable)) {
            let seq = Seq(seq);
            work.ops.push(StoreOp::Dequeue { seq, session });
        }
        if let Fate::Waits(attempts) = fate
            && durable
            && (attempts.is_some() || added.is_some())
        {
            let attempts = attempts.unwrap_or(delivery.failed);
            let copy = with(delivery.clone(), added.clone());
            work.ops.extend(credit::place_op(session, copy, attempts));
        }
        work.transacted_mut().retired.push(Retired {
            node: place.node,
            delivery,
            fate,
            added,
        });
    }
    nodes::check_left(own, s, place.end);
    delivering::pump(own, s);
    true
}

/// The transaction was stored, or it is off.
pub(crate) fn settle(own: &mut Owners, retired: Vec<Retired>, stored: bool) {
    for Retired {
        node,
        delivery,
        fate,
        added,
    } in retired
    {
        let Some(s) = own.sessions.resolve(node) else {
            continue;
        };
        match fate {
            // Its receiver had it, and may have done something with it.
            _ if !stored => {
                let attempts = delivery.failed.saturating_add(1);
                let key = own.sessions.get(s).map(|node| node.key);
                let copy = delivery.clone();
                wait(own, s, delivery, Some(attempts));
                if let Some(key) = key {
                    credit::note_place(own, key, copy, attempts);
                }
            }
            Fate::Done => {}
            Fate::Dead => own.stats.messages_dead += 1,
            // It was moved before.
            Fate::Buried(_) => {}
            Fate::Waits(attempts) => wait(own, s, with(delivery, added), attempts),
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

/// A message waits in its node again.
fn wait(own: &mut Owners, s: SessionIdx, mut delivery: Delivery, attempts: Option<u16>) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if let Some(attempts) = attempts {
        delivery.maybe_sent = true;
        delivery.failed = attempts;
    }
    node.queue.push(delivery);
}

/// What becomes of a message with an outcome. Which of the others could take one that
/// is not for its receiver is not asked.
fn fate_of(options: &QueueOptions, delivery: &Delivery, outcome: Outcome) -> Fate {
    let failed = matches!(outcome, Outcome::Modified { failed: true, .. });
    let attempts = delivery.failed.saturating_add(u16::from(failed));
    let worn = failed && options.deliveries_max > 0 && attempts >= options.deliveries_max;
    let death = match outcome {
        Outcome::Accepted => return Fate::Done,
        Outcome::Modified { .. } if worn => Death::DeliveryLimit,
        Outcome::Rejected
        | Outcome::Modified {
            undeliverable_here: true,
            ..
        } => Death::Rejected,
        Outcome::Released | Outcome::Modified { .. } => {
            return Fate::Waits(failed.then_some(attempts));
        }
    };
    match options.dead_letter.is_some() {
        true => Fate::Buried(death),
        false => Fate::Dead,
    }
}
