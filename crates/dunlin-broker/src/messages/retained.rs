//! Retained messages. Every shard has the whole index; the shard that a topic
//! hashes to owns it: it puts changes in order, stores them and sends them to
//! the other shards.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::Message;
use dunlin_store::StoreOp;

use crate::io::BusMessage;
use crate::memory::Part;
use crate::owners::Owners;
use crate::owners::pending::{InStore, RetainedChange, Work};
use crate::owners::routing::Ended;

/// Takes a retained message of a topic that this shard owns. It is in
/// force at once, as subscribers have seen it live; with `waits`, its
/// publisher is acknowledged when `ops` are stored. `false`: the limit of
/// retained messages is reached.
pub(crate) fn own_retained(
    own: &mut Owners,
    message: &Arc<Message>,
    waits: bool,
    ops: &mut Vec<StoreOp>,
    retained: &mut Option<RetainedChange>,
) -> bool {
    let Some(op) = admit(own, message) else {
        return false;
    };
    let topic = &message.topic;
    let waits = waits && own.commits.is_durable();
    let order = own.routing.retained.begin_change(topic, waits);
    set_retained(own, message);
    if waits {
        ops.push(op);
        *retained = Some(RetainedChange {
            topic: topic.clone(),
            order,
        });
    } else {
        own.commits.write(op);
    }
    true
}

/// As [`own_retained`], for a message of a transaction, which is in force when that
/// is stored.
pub(crate) fn prepare_retained(own: &mut Owners, message: &Arc<Message>, work: &mut Work) -> bool {
    let Some(op) = admit(own, message) else {
        return false;
    };
    if own.commits.is_durable() {
        work.ops.push(op);
    }
    let message = Arc::clone(message);
    work.transacted_mut().retained.push(message);
    true
}

/// A retained message of a transaction was stored: it is in force. It is written once
/// more, as another may have been since.
pub(crate) fn own_stored(own: &mut Owners, message: &Arc<Message>) {
    own.routing.retained.begin_change(&message.topic, false);
    set_retained(own, message);
    own.commits.write(op_of(message));
}

/// What the store does for a retained message; `None` if there is no room.
fn admit(own: &mut Owners, message: &Arc<Message>) -> Option<StoreOp> {
    let topic = &message.topic;
    if message.payload.is_empty() {
        return Some(op_of(message));
    }
    let known = own.routing.retained.get(topic);
    let known = known.map_or(0, |known| known.cost());
    let full = own.routing.retained.len() >= own.config.retained_max;
    let more = message.cost().saturating_sub(known);
    own.budget.look();
    if (full && known == 0) || more > own.budget.room(Part::Retained) {
        own.note_refused(Part::Retained, 1);
        return None;
    }
    Some(op_of(message))
}

fn op_of(message: &Arc<Message>) -> StoreOp {
    //= mqtt5#[MQTT-3.3.1-6]
    match message.payload.is_empty() {
        true => StoreOp::DeleteRetained {
            topic: message.topic.clone(),
        },
        false => StoreOp::PutRetained {
            message: Arc::clone(message),
        },
    }
}

/// A change was stored, or is off and taken back. If a later one of its
/// topic is in force, it is written to the store again, which may have taken
/// this one last.
pub(crate) fn settle_retained(own: &mut Owners, change: &RetainedChange, in_store: InStore) {
    let (topic, order) = (&change.topic, change.order);
    let retained = &mut own.routing.retained;
    let ended = retained.end_change(topic, order, in_store.is_yes(), in_store.is_perhaps());
    let Some(ended) = own.outbox.checked(ended) else {
        return;
    };
    let removed = || {
        Arc::new(Message {
            topic: topic.clone(),
            ..Message::default()
        })
    };
    match ended {
        Ended::Nothing => {}
        Ended::Again => {
            let message = own.routing.retained.get(topic).map(Arc::clone);
            let message = message.unwrap_or_else(removed);
            own.commits.write(op_of(&message));
        }
        Ended::Back { previous, writes } => {
            let previous = previous.unwrap_or_else(removed);
            set_retained(own, &previous);
            if writes {
                own.commits.write(op_of(&previous));
            }
        }
    }
}

/// Brings an owned retained message into force everywhere.
fn set_retained(own: &mut Owners, message: &Arc<Message>) {
    let cost = |own: &Owners| {
        let retained = own.routing.retained.get(&message.topic);
        retained.map_or(0, |m| m.cost())
    };
    let before = cost(own);
    own.routing.retained.set(message);
    own.budget.change(Part::Retained, before, cost(own));
    for to in own.members.others() {
        let message = Arc::clone(message);
        own.outbox.bus(to, BusMessage::Retained { message });
    }
}
