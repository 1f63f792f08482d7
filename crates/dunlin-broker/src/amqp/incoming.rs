//! Messages from clients: to the neutral message, into routing, and their
//! outcome when everything durable that depends on them is stored.

use alloc::sync::Arc;

use bytes::Bytes;
use dunlin_amqp::Message;
use dunlin_amqp::codec::{DecodeError, Message as Scanned, ReceiverSettleMode, condition};
use dunlin_amqp::message::from_amqp;
use dunlin_base::topic::validate_name;
use dunlin_base::{Instant, Message as Neutral, Text};

use crate::amqp::outcome::{rejected, settle, top_up};
use crate::amqp::requests;
use crate::amqp::state::{End, Open};
use crate::ids::ConnIdx;
use crate::messages::publish;
use crate::messages::source::Source;
use crate::owners::Owners;
use crate::queues::addresses;
use crate::reports::audit;

/// A message came whole.
pub(crate) fn handle_message(own: &mut Owners, c: ConnIdx, message: Message<'_>) {
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
    let End::Incoming { topic, credit, .. } = &mut session.end else {
        return;
    };
    *credit = credit.saturating_sub(1);
    let (topic, format) = (topic.clone(), message.format);
    let bytes = message.payload.into_bytes();
    let mapped = map(&bytes, topic, own.now);
    let refused = match &mapped {
        Err(_) => Some((condition::DECODE_ERROR, "not a message")),
        Ok(_) if format != 0 => Some((condition::NOT_IMPLEMENTED, "an unknown message format")),
        Ok(mapped) if validate_name(&mapped.topic).is_err() => {
            Some((condition::NOT_FOUND, "no topic to publish to"))
        }
        Ok(mapped) if !own.may_publish(s, &mapped.topic) => {
            audit::note_denied(own, s, "may not publish", &mapped.topic);
            Some((
                condition::UNAUTHORIZED_ACCESS,
                "may not publish to this topic",
            ))
        }
        Ok(_) => None,
    };
    let token = own.commits.token();
    let open = Open { delivery, second };
    if let (Some((condition, text)), false) = (refused, settled) {
        settle(own, c, open, &rejected(condition, text));
    }
    if let (Ok(mapped), None) = (mapped, refused) {
        own.stats.note_received(mapped.qos);
        if let Some(session) = own.sessions.amqp_mut(s)
            && let End::Incoming { open: all, .. } = &mut session.end
            && !settled
        {
            all.insert(token, open);
        }
        let to_queue = addresses::is_queue(&mapped.topic);
        let mapped = Arc::new(mapped);
        let mut source = Source::of(&mapped, own.now).by(c);
        if to_queue {
            source = source.for_queue();
        }
        if !settled {
            source = source.answered();
        }
        publish::dispatch(own, Some(origin), token, &mut source, None);
    }
    top_up(own, c, s);
}

/// The neutral message, for the topic of its link or else that in `to`.
fn map(bytes: &Bytes, topic: Option<Text>, now: Instant) -> Result<Neutral, DecodeError> {
    let topic = match topic {
        Some(topic) => topic,
        None => {
            let properties = Scanned::scan(bytes)?.properties()?;
            let to = properties.and_then(|properties| properties.to);
            Text::from(to.unwrap_or_default())
        }
    };
    from_amqp(bytes, topic, now)
}
