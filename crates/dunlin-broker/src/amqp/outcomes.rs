//! Outcomes that a client which sends settles last: kept by tag until it has.

use dunlin_amqp::Tag;
use dunlin_store::StoreOp;

use crate::amqp::state::AmqpLink;
use crate::amqp::terminus::Keep;
use crate::ids::{SessionIdx, SessionRef};
use crate::io::NotTaken;
use crate::owners::Owners;
use crate::owners::pending::Verdict;
use crate::owners::weigh::Weight;
use crate::queues::calls::Call;
use crate::queues::keeping;

/// A message has come whose outcome the client settles last; what the store keeps of
/// that with the message.
pub(super) fn note_message(
    own: &mut Owners,
    s: SessionIdx,
    token: u64,
    tag: Tag,
) -> Option<StoreOp> {
    let terminus = own.sessions.amqp_mut(s)?.terminus.as_mut()?;
    let keep = terminus.keep.as_mut()?;
    keep.pending.insert(token, (tag, false));
    let (span, name) = (keep.span, &terminus.name);
    span.durable
        .then(|| keeping::received(name, tag.as_bytes(), span.secs))
}

/// What became of a message is known.
pub(super) fn note_outcome(own: &mut Owners, origin: SessionRef, token: u64, verdict: Verdict) {
    let s = origin.at;
    let entry = own.sessions.resolve_mut(origin);
    let Some(terminus) = entry.and_then(|entry| entry.amqp_mut()?.terminus.as_mut()) else {
        return;
    };
    let name = terminus.name.clone();
    let Some(keep) = &mut terminus.keep else {
        return;
    };
    let Some((tag, settled)) = keep.pending.remove(&token) else {
        return;
    };
    let is_closed = keep.ended.is_some_and(|ended| ended.closed);
    let is_kept = !settled && !is_closed;
    let (accepted, is_in_store) = match verdict {
        Verdict::Accepted | Verdict::Unmatched => (true, !is_kept),
        // It may be there all the same: after a restart it would count as accepted.
        Verdict::Refused(why) => (false, why == NotTaken::NotStored),
    };
    let durable = keep.span.durable;
    if is_kept {
        keep.outcomes.insert(tag, accepted);
    }
    if durable && is_in_store {
        keeping::forget_received(own, &name, tag.as_bytes());
    }
    weigh(own, s);
    let is_over = |keep: &mut Keep| keep.ended.is_some() && !keep.is_busy();
    let link = own.sessions.amqp_mut(s);
    if link.and_then(AmqpLink::keep_mut).is_some_and(is_over) {
        let link = origin;
        own.call(own.config.shard, Call::Gone { link });
    }
}

/// A message was rejected at once.
pub(super) fn note_rejected(own: &mut Owners, s: SessionIdx, tag: Tag) {
    if let Some(keep) = own.sessions.amqp_mut(s).and_then(AmqpLink::keep_mut) {
        keep.outcomes.insert(tag, false);
    }
    weigh(own, s);
}

/// Counts what is kept, if that has changed by much.
fn weigh(own: &mut Owners, s: SessionIdx) {
    let session = own.sessions.peek(s);
    if session.is_some_and(|it| it.weight.sessions != Weight::of(it).sessions) {
        own.weigh(s);
    }
}

/// The client has settled a message that it sent.
pub(super) fn forget(own: &mut Owners, s: SessionIdx, tag: Tag) {
    let link = own.sessions.amqp_mut(s);
    let Some(terminus) = link.and_then(|link| link.terminus.as_mut()) else {
        return;
    };
    let name = terminus.name.clone();
    let Some(keep) = &mut terminus.keep else {
        return;
    };
    let durable = keep.span.durable;
    match keep.outcomes.remove(&tag) {
        Some(true) if durable => keeping::forget_received(own, &name, tag.as_bytes()),
        Some(_) => {}
        None => {
            let mut pending = keep.pending.values_mut();
            if let Some((_, settled)) = pending.find(|(it, _)| *it == tag) {
                *settled = true;
            }
        }
    }
    weigh(own, s);
}
