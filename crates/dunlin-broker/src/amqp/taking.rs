//! Links that take from a node: messages that it hands over are sent as credit, windows
//! and transport allow, and what becomes of them goes back to it.

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::codec::{DeliveryState, Received};
use dunlin_amqp::message::Attempt;
use dunlin_amqp::{Delivery as Sent, LinkId, SendError, Sending, State, Tag};
use dunlin_base::{QoS, ShardId};
use dunlin_queue::Outcome;

use crate::amqp::outgoing::{annotations_of, outcome_of};
use crate::amqp::state::{Again, Drain, End, Handed};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::owners::{Later, Owners};
use crate::queues::calls::{Call, Place};

/// Messages that need no outcome and wait at their link for its transport.
const SETTLED_MAX: u32 = 64;

/// The session of a link that takes from a node, if it is one.
pub(super) fn find(own: &mut Owners, c: ConnIdx, link: LinkId) -> Option<SessionIdx> {
    let conn = own.conns.amqp(c)?;
    let s = conn.links.get(&link).copied()?;
    is_taking(own, s).then_some(s)
}

/// Whether a link takes from a node.
pub(super) fn is_taking(own: &mut Owners, s: SessionIdx) -> bool {
    let link = own.sessions.amqp_mut(s);
    link.is_some_and(|link| matches!(link.end, End::Taking(_)))
}

/// The client has given credit, or wants what there is.
pub(super) fn handle_credit(own: &mut Owners, s: SessionIdx, drain: bool) {
    let link = own.sessions.amqp_mut(s);
    if let Some(taking) = link.and_then(|link| link.taking_mut()) {
        taking.drain = match drain {
            true => Drain::Asked,
            false => Drain::No,
        };
    }
    report(own, s, true);
    pump(own, s);
}

/// Tells the node how far it may go on: at once, or when it has little left.
fn report(own: &mut Owners, s: SessionIdx, at_once: bool) {
    let inflight_max = u32::from(own.config.sending.inflight_max);
    let Some(link) = own.sessions.amqp_mut(s) else {
        return;
    };
    let (Some(c), id) = (link.conn, link.link) else {
        return;
    };
    let attachment = link.attachment.as_ref();
    let attachment = attachment.and_then(|it| Some((it.home, it.place?)));
    let (Some((home, place)), Some(conn)) = (attachment, own.conns.amqp_mut(c)) else {
        return;
    };
    let Some(taking) = link.taking_mut() else {
        return own.outbox.note_missing();
    };
    // What needs no outcome is the link's alone from here on.
    let max = match taking.settled {
        true => inflight_max.min(SETTLED_MAX),
        false => inflight_max,
    };
    let again = u32::try_from(taking.again.len()).unwrap_or(u32::MAX);
    let credit = conn.engine.credit(id).saturating_sub(again).min(max);
    conn.note_window(id);
    let limit = taking.sent().wrapping_add(credit);
    if !at_once && limit.wrapping_sub(taking.limit) < max / 2 {
        return;
    }
    taking.limit = limit;
    let drain = taking.drain == Drain::Asked;
    let credit = Call::Credit {
        place,
        limit,
        drain,
    };
    own.call(home, credit);
}

/// A message of the node.
pub(super) fn deliver(own: &mut Owners, link: SessionRef, handed: Handed) {
    let session = own.sessions.resolve_mut(link);
    let taking = session
        .and_then(|session| session.amqp_mut())
        .and_then(|link| link.taking_mut());
    // A link that has gone says so, and the node takes it back.
    let Some(taking) = taking else {
        return;
    };
    taking.bytes += handed.message.cost();
    if handed.resumed {
        taking.again.push_back(Again::Message(handed));
    } else {
        taking.last_key = handed.key;
        taking.handed.push_back(handed);
        // All that come in a row are sent together.
        if is_next_for(own, link) {
            return;
        }
    }
    pump(own, link.at);
}

/// Whether what this shard does next is to give another new message to a link.
fn is_next_for(own: &Owners, at: SessionRef) -> bool {
    let next = own.later.front();
    matches!(
        next,
        Some(Later::Call(Call::Deliver { link, resumed: false, .. })) if *link == at
    )
}

/// The node has nothing more for the credit that the link had.
pub(super) fn drained(own: &mut Owners, link: SessionRef) {
    let session = own.sessions.resolve_mut(link);
    let taking = session
        .and_then(|session| session.amqp_mut())
        .and_then(|link| link.taking_mut());
    if let Some(taking) = taking
        && taking.drain == Drain::Asked
    {
        taking.drain = Drain::Answered;
        pump(own, link.at);
    }
}

/// Sends what was handed over.
pub(super) fn pump(own: &mut Owners, s: SessionIdx) {
    while send_again(own, s) {}
    while send_next(own, s) {}
    report(own, s, false);
    own.weigh_queue(s);
}

/// Sends what is to be said of the next delivery of an earlier attachment; `false` if
/// there is none, or it cannot be sent now.
fn send_again(own: &mut Owners, s: SessionIdx) -> bool {
    const START: DeliveryState<'static> = DeliveryState::Received(Received {
        section_number: 0,
        section_offset: 0,
    });
    let now = own.now;
    let Some(link) = own.sessions.amqp_mut(s) else {
        return false;
    };
    let (Some(c), id) = (link.conn, link.link) else {
        return false;
    };
    let taking = own.conns.checked(link.taking_mut());
    let (Some(taking), Some(conn)) = (taking, own.conns.amqp_mut(c)) else {
        return false;
    };
    let Some(again) = taking.again.front() else {
        return false;
    };
    let sending = |key: u32, state, settled| Sending {
        resume: true,
        state: Some(state),
        ..Sending::new(Tag::from(u64::from(key)), settled)
    };
    let sent = match again {
        Again::Settled(key, state) => {
            let sending = sending(*key, state.get(), true);
            let sent = conn.engine.send(id, &sending, &[], &Bytes::new());
            sent.map(|_| ())
        }
        Again::Message(handed) => {
            let sending = sending(handed.key, START, false);
            conn.send(id, &sending, &handed.message, now, attempt(handed))
        }
    };
    let refused = match sent {
        Ok(()) => None,
        Err(SendError::MessageSize) => again.message().map(|_| again.key()),
        Err(_) => {
            conn.note_window(id);
            return false;
        }
    };
    let cost = again.message().map_or(0, |message| message.cost());
    taking.bytes = taking.bytes.saturating_sub(cost);
    taking.again.pop_front();
    own.conns.touch(c);
    if let Some(key) = refused {
        say(own, s, key, (Outcome::Rejected, None), false);
    }
    true
}

/// What the header of a message says of this delivery.
fn attempt(handed: &Handed) -> Attempt {
    Attempt {
        delivery_count: u32::from(handed.failed),
        first_acquirer: handed.failed == 0 && !handed.again,
    }
}

/// Has the node hand over messages once more.
pub(super) fn want_again(own: &mut Owners, s: SessionIdx, keys: Vec<u32>) {
    if let Some((home, place)) = place_of(own, s).filter(|_| !keys.is_empty()) {
        own.call(home, Call::Again { place, keys });
    }
}

/// Where a link is attached.
fn place_of(own: &mut Owners, s: SessionIdx) -> Option<(ShardId, Place)> {
    let attachment = own.sessions.amqp_mut(s)?.attachment.as_ref()?;
    Some((attachment.home, attachment.place?))
}

/// Sends the next message; `false` if there is none, or it cannot be sent now.
fn send_next(own: &mut Owners, s: SessionIdx) -> bool {
    let limit = own
        .budget
        .unsent_limit(own.config.sending.send_backlog_bytes);
    let now = own.now;
    let Some(link) = own.sessions.amqp_mut(s) else {
        return false;
    };
    let (Some(c), id) = (link.conn, link.link) else {
        return false;
    };
    let taking = own.conns.checked(link.taking_mut());
    let (Some(taking), Some(conn)) = (taking, own.conns.amqp_mut(c)) else {
        return false;
    };
    let Some(handed) = taking.handed.front() else {
        if taking.drain == Drain::Answered {
            taking.drain = Drain::No;
            let _ = conn.engine.drained(id);
            own.conns.touch(c);
        }
        return false;
    };
    if conn.backlog() >= limit {
        conn.blocked = true;
        conn.waiting.for_transport(id);
        return false;
    }
    let sending = Sending::new(Tag::from(u64::from(handed.key)), taking.settled);
    let refused = match conn.send(id, &sending, &handed.message, now, attempt(handed)) {
        Ok(()) => false,
        // Too large for this client, or not to be written.
        Err(SendError::MessageSize) => true,
        // It goes on when the window opens or credit comes.
        Err(_) => {
            conn.note_window(id);
            return false;
        }
    };
    let Some(handed) = taking.handed.pop_front() else {
        own.outbox.note_missing();
        return false;
    };
    taking.bytes = taking.bytes.saturating_sub(handed.message.cost());
    let settled = taking.settled;
    own.conns.touch(c);
    match refused {
        true if !settled => say(own, s, handed.key, (Outcome::Rejected, None), false),
        true => {}
        false if settled => own.stats.note_sent(QoS::AtMostOnce),
        false => own.stats.note_sent(QoS::AtLeastOnce),
    }
    true
}

/// Tells the node what became of a message.
pub(super) fn say(
    own: &mut Owners,
    s: SessionIdx,
    key: u32,
    (outcome, annotations): (Outcome, Option<Bytes>),
    answer: bool,
) {
    if let Some((home, place)) = place_of(own, s) {
        let outcome = Call::Outcome {
            place,
            key,
            outcome,
            annotations,
            answer,
        };
        own.call(home, outcome);
    }
}

/// The client says what became of a message.
pub(super) fn handle_disposition(
    own: &mut Owners,
    s: SessionIdx,
    delivery: Sent,
    tag: Tag,
    state: Option<State>,
    settled: bool,
) {
    let key = tag.number().and_then(|number| u32::try_from(number).ok());
    let Some(key) = key else {
        return own.outbox.note_missing();
    };
    let said = state.as_ref().map(State::get);
    let outcome = match said.as_ref().map(DeliveryState::outcome) {
        Some(Some(outcome)) => (outcome_of(&outcome), annotations_of(&outcome)),
        // Settled without a word: it is done with.
        None if settled => (Outcome::Accepted, None),
        // How far it came.
        Some(None) | None => return,
    };
    let link = own.sessions.amqp_mut(s);
    let Some(taking) = link.and_then(|link| link.taking_mut()) else {
        return own.outbox.note_missing();
    };
    if settled {
        // It may have said the outcome before.
        if taking.answers.remove(&key).is_none() {
            say(own, s, key, outcome, false);
        }
        // The link has room for another.
        report(own, s, false);
    } else if taking.answers.insert(key, (delivery, state)).is_none() {
        say(own, s, key, outcome, true);
    }
}

/// The node has the outcome of a message: it is settled.
pub(super) fn settled(own: &mut Owners, link: SessionRef, key: u32) {
    let session = own.sessions.resolve_mut(link);
    let Some(entry) = session.and_then(|session| session.amqp_mut()) else {
        return;
    };
    let Some(c) = entry.conn else {
        return;
    };
    let Some(taking) = entry.taking_mut() else {
        return own.outbox.note_missing();
    };
    let answer = taking.answers.remove(&key);
    if let Some(state) = taking.resuming.remove(&key) {
        taking.again.push_back(Again::Settled(key, state));
        return pump(own, link.at);
    }
    if let (Some((delivery, state)), Some(conn)) = (answer, own.conns.amqp_mut(c)) {
        let state = state.as_ref().map(State::without_details);
        let _ = conn.engine.settle(delivery, state.as_ref());
        own.conns.touch(c);
    }
    report(own, link.at, false);
}
