//! Messages from clients: to the neutral message, into routing, and their
//! outcome when everything durable that depends on them is stored.

use alloc::sync::Arc;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{
    DecodeError, DeliveryState, Message as Scanned, ReceiverSettleMode, capability, condition,
};
use dunlin_amqp::message::from_amqp;
use dunlin_amqp::{LinkId, Message, State, Tag};
use dunlin_base::topic::validate_name;
use dunlin_base::{Instant, Message as Neutral, Text};

use crate::amqp::attaching::topic_of;
use crate::amqp::concluding::Why;
use crate::amqp::outcome::{rejected, settle, top_up};
use crate::amqp::state::{AmqpLink, End, Open};
use crate::amqp::{enlisting, outcomes, quota, requests, resuming};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::messages::publish;
use crate::messages::source::Source;
use crate::owners::Owners;
use crate::queues::{addresses, making};
use crate::reports::audit;

/// What a client of JMS sends to ([`capability::JMS_DESTINATION`]).
const QUEUE: i64 = 0;
const TEMPORARY_QUEUE: i64 = 2;

/// Longest time that a message is kept back.
const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A message came whole.
pub(crate) fn handle_message(own: &mut Owners, c: ConnIdx, message: Message<'_>) {
    quota::note_message(own, c);
    let (delivery, settled) = (message.delivery, message.settled);
    let second = message.rcv_settle_mode == ReceiverSettleMode::Second;
    let conn = own.conns.amqp(c);
    let Some(s) = conn.and_then(|conn| conn.links.get(&delivery.link).copied()) else {
        return;
    };
    let Some(session) = own.sessions.amqp_mut(s) else {
        return;
    };
    if matches!(session.end, End::Requests(_)) {
        return requests::handle_message(own, c, s, message);
    }
    let origin = session.reference(s);
    session.end.use_credit();
    let End::Incoming { topic, .. } = &session.end else {
        return own.outbox.note_missing();
    };
    let topic = topic.clone();
    let is_relayed = topic.is_none();
    if message.resume {
        return handle_resumed(own, c, s, &message);
    }
    let tag = message.tag;
    let open = Open { delivery, second };
    let state = message.state.as_ref().map(State::get);
    let bytes = message.payload.into_bytes();
    let checked = check(own, (c, s), &bytes, topic, message.format);
    match (state, checked) {
        (Some(DeliveryState::Transactional(state)), checked) => {
            let how = (open, settled, is_relayed);
            return enlisting::post(own, c, origin, how, state.txn_id, checked);
        }
        (_, Ok(message)) => {
            if is_relayed {
                make_queue(own, s, &message.topic);
            }
            take(own, c, origin, (open, tag, settled), message);
        }
        (_, Err((condition, text))) if !settled => {
            if second {
                outcomes::note_rejected(own, s, tag);
            }
            settle(own, c, open, &rejected(condition, text));
        }
        (_, Err(_)) => {}
    }
    top_up(own, c, s);
}

/// The message of a client, or why it is refused.
fn check(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    bytes: &Bytes,
    topic: Option<Text>,
    format: u32,
) -> Result<Neutral, Why> {
    let mapped = map(bytes, topic, own.now);
    let mut message = mapped.map_err(|_| (condition::DECODE_ERROR, "not a message"))?;
    let deliver_at = message.extra.as_ref().and_then(|extra| extra.deliver_at);
    if deliver_at.is_some_and(|at| at > own.now + DELAY_MAX) {
        return Err((condition::INVALID_FIELD, "the time of delivery is too far"));
    }
    if format != 0 {
        return Err((condition::NOT_IMPLEMENTED, "an unknown message format"));
    }
    if validate_name(&message.topic).is_err() {
        return Err((condition::NOT_FOUND, "no topic or queue to send to"));
    }
    if !own.may_publish(s, &message.topic) {
        audit::note_denied(own, s, "may not publish", &message.topic);
        let text = "may not publish to this topic";
        return Err((condition::UNAUTHORIZED_ACCESS, text));
    }
    if let (Some(conn), Some(extra)) = (own.conns.amqp(c), &mut message.extra) {
        extra.sender = conn.sender;
    }
    Ok(message)
}

/// Has the queue made of a message whose link has no address, if there is none. One with
/// an address has had that done.
fn make_queue(own: &mut Owners, s: SessionIdx, topic: &Text) {
    if addresses::is_queue(topic) {
        let user = own.sessions.get(s).and_then(|session| session.user.clone());
        making::want(own, topic.clone(), user, None);
    }
}

/// Gives a message to who gets it.
fn take(
    own: &mut Owners,
    c: ConnIdx,
    origin: SessionRef,
    (open, tag, settled): (Open, Tag, bool),
    message: Neutral,
) {
    own.stats.note_received(message.qos);
    let token = own.commits.token();
    if let Some(session) = own.sessions.amqp_mut(origin.at)
        && let End::Incoming { open: all, .. } = &mut session.end
        && !settled
    {
        all.insert(token, open);
    }
    let receipt = match open.second && !settled {
        true => outcomes::note_message(own, origin.at, token, tag),
        false => None,
    };
    let to_queue = addresses::is_queue(&message.topic);
    let message = Arc::new(message);
    let mut source = Source::of(&message, own.now).by(c);
    if to_queue {
        source = source.for_queue();
    }
    if !settled {
        source = source.answered();
    }
    source.set_receipt(receipt);
    publish::dispatch(own, Some(origin), token, &mut source, None);
}

/// The neutral message, for the topic of its link or else that in `to`.
fn map(bytes: &Bytes, topic: Option<Text>, now: Instant) -> Result<Neutral, DecodeError> {
    let topic = match topic {
        Some(topic) => topic,
        None => destination(&Scanned::scan(bytes)?)?,
    };
    from_amqp(bytes, topic, now)
}

/// Where a message goes whose link has no address: to what its `to` would be for a
/// link. Clients of JMS say with the message what capabilities say for a link. Empty if
/// there is none.
fn destination(message: &Scanned<'_>) -> Result<Text, DecodeError> {
    let to = message.properties()?.and_then(|properties| properties.to);
    let to = to.unwrap_or_default();
    let annotations = message.message_annotations()?.unwrap_or_default();
    let kind = annotations.get(capability::JMS_DESTINATION.as_str());
    Ok(match kind.and_then(|kind| kind.as_i64()) {
        Some(QUEUE | TEMPORARY_QUEUE) => Text::from(addresses::of_queue(to).unwrap_or_default()),
        _ => Text::from(topic_of(to)),
    })
}

/// The client has settled a message that it sent.
pub(super) fn settled(own: &mut Owners, c: ConnIdx, s: SessionIdx, tag: Tag) {
    outcomes::forget(own, s, tag);
    top_up(own, c, s);
}

/// The client gives up a message that it sent on an earlier attachment.
pub(super) fn handle_aborted(own: &mut Owners, c: ConnIdx, link: LinkId, tag: Tag) {
    let conn = own.conns.amqp(c);
    if let Some(s) = conn.and_then(|conn| conn.links.get(&link).copied()) {
        outcomes::forget(own, s, tag);
    }
    handle_void(own, c, link);
}

/// Nothing came of a delivery but that it used credit.
pub(super) fn handle_void(own: &mut Owners, c: ConnIdx, link: LinkId) {
    let conn = own.conns.amqp(c);
    if let Some(s) = conn.and_then(|conn| conn.links.get(&link).copied())
        && let Some(session) = own.sessions.amqp_mut(s)
    {
        session.end.use_credit();
        top_up(own, c, s);
    }
}

/// A message that came on an earlier attachment: only its state is news.
fn handle_resumed(own: &mut Owners, c: ConnIdx, s: SessionIdx, message: &Message<'_>) {
    let (delivery, tag) = (message.delivery, message.tag);
    if message.settled {
        return settled(own, c, s, tag);
    }
    let theirs = message.state.as_ref().filter(|state| state.is_terminal());
    let keep = own.sessions.amqp_mut(s).and_then(AmqpLink::keep_mut);
    let ours = keep.and_then(|keep| keep.outcomes.get(&tag).copied());
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    let _ = match (theirs, ours) {
        // The sender's outcome holds, and this side settles.
        (Some(state), _) => conn.engine.settle(delivery, Some(&state.get())),
        (None, Some(accepted)) => conn.engine.update(delivery, &resuming::state_of(accepted)),
        (None, None) => conn.engine.settle(delivery, None),
    };
    own.conns.touch(c);
    match theirs {
        Some(_) => settled(own, c, s, tag),
        None => top_up(own, c, s),
    }
}
