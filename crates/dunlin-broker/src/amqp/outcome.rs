//! The outcome of what a client sent, and its credit.

use dunlin_amqp::Delivery;
use dunlin_amqp::codec::condition;
use dunlin_amqp::codec::{DeliveryState, Error, Outcome, Rejected, Symbol};

use crate::amqp::attaching::AWAY;
use crate::amqp::outcomes;
use crate::amqp::pace::Pace;
use crate::amqp::state::{End, Open};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::io::NotTaken;
use crate::owners::Owners;
use crate::owners::pending::Verdict;
use crate::queues::calls::Call;

/// What became of a publish is known.
pub(crate) fn answer(own: &mut Owners, origin: SessionRef, token: u64, verdict: Verdict) {
    outcomes::note_outcome(own, origin, token, verdict);
    let Some(session) = own.sessions.resolve_mut(origin) else {
        return;
    };
    let Some(c) = session.conn else {
        return;
    };
    let Some(link) = session.amqp_mut() else {
        return own.outbox.note_missing();
    };
    let End::Incoming { open, .. } = &mut link.end else {
        return;
    };
    // One that came settled has none.
    let Some(open) = open.take(token) else {
        return;
    };
    let state = match verdict {
        Verdict::Accepted | Verdict::Unmatched => DeliveryState::ACCEPTED,
        Verdict::Refused(why) => {
            let (condition, text) = match why {
                NotTaken::NotFound => (condition::NOT_FOUND, "there is no such queue"),
                NotTaken::NoRoom => (
                    condition::RESOURCE_LIMIT_EXCEEDED,
                    "a queue or another limit is full",
                ),
                NotTaken::NotStored => (condition::INTERNAL_ERROR, "the store refused it"),
                NotTaken::Away => (condition::INTERNAL_ERROR, AWAY),
            };
            rejected(condition, text)
        }
    };
    settle(own, c, open, &state);
    top_up(own, c, origin.at);
}

/// Why a message was not taken.
pub(super) fn rejected(condition: Symbol<'static>, text: &'static str) -> DeliveryState<'static> {
    let error = Some(Error::new(condition, text));
    DeliveryState::Outcome(Outcome::Rejected(Rejected { error }))
}

/// Says the outcome of a delivery, and settles it unless the client does first.
pub(super) fn settle(own: &mut Owners, c: ConnIdx, open: Open, state: &DeliveryState<'_>) {
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    let delivery: Delivery = open.delivery;
    // The client may have settled it already.
    let _ = match open.second {
        true => conn.engine.update(delivery, state),
        false => conn.engine.settle(delivery, Some(state)),
    };
    own.conns.touch(c);
}

/// The node of a link says how far its client may send.
pub(super) fn allow(own: &mut Owners, link: SessionRef, limit: u32) {
    let session = own.sessions.resolve_mut(link);
    let Some(entry) = session.and_then(|session| session.amqp_mut()) else {
        return;
    };
    if let End::Incoming {
        pace: Some(pace), ..
    } = &mut entry.end
    {
        pace.allow(limit);
    }
    if let Some(c) = entry.conn {
        top_up(own, c, link.at);
    }
}

/// Gives a link credit again when half of it is used up, for as many messages as
/// may be without an outcome, or not settled, and as its node has room for.
pub(super) fn top_up(own: &mut Owners, c: ConnIdx, s: SessionIdx) {
    let max = u32::from(own.config.clients.receive_maximum);
    let Some(session) = own.sessions.amqp_mut(s) else {
        return;
    };
    let (link, room) = (session.link, session.room());
    let attachment = session.attachment.as_ref();
    let place = attachment.and_then(|it| Some((it.home, it.place?)));
    let End::Incoming {
        open, credit, pace, ..
    } = &mut session.end
    else {
        return;
    };
    let unsettled = own
        .conns
        .amqp(c)
        .map(|conn| conn.engine.unsettled_received(Some(link)));
    let open = open.len().max(unsettled.unwrap_or(0));
    let may = max.saturating_sub(u32::try_from(open).unwrap_or(u32::MAX));
    let may = may.min(u32::try_from(room).unwrap_or(u32::MAX));
    let allowed = pace.as_ref().map_or(u32::MAX, Pace::credit);
    let may = may.min(allowed);
    // The node may take back what the client does not use.
    let is_more = *credit <= max / 2 && may > *credit;
    if is_more || *credit > allowed {
        *credit = if is_more { may } else { allowed };
        if let Some(conn) = own.conns.amqp_mut(c) {
            // A link that goes needs none.
            let _ = conn.engine.set_credit(link, *credit, false);
            own.conns.touch(c);
        }
    }
    if let Some((home, place)) = place
        && let Some(sent) = pace.as_mut().and_then(Pace::ask)
    {
        own.call(home, Call::Want { place, sent });
    }
}
