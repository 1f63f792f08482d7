//! Links that are known again by their container and name: who has the name, and what
//! stays of a link that is detached (sections 2.6.1 and 2.6.13).
//!
//! The cases of 2.6.13 are in `dunlin_amqp::RemoteUnsettled`. Of those the broker as
//! sender meets the ones without a state of its own, as it keeps an outcome no longer
//! than its node takes to store it: a delivery that the client has not got waits in its
//! node again, one that it has is sent once more as resumed, one with an outcome is
//! settled as the client says. As receiver it keeps outcomes only: what has none yet
//! is decided before the link is attached again.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::codec::{
    Attach as AttachFrame, DeliveryState, Outcome as AmqpOutcome, ReceiverSettleMode, Rejected,
    TerminusDurability, TerminusExpiryPolicy, Unsettled,
};
use dunlin_amqp::{Body, CallError, LinkId, RemoteUnsettled, SessionId, Tag};
use dunlin_base::{ShardId, Text};

use crate::amqp::attaching::{self, Refusal};
use crate::amqp::outcomes;
use crate::amqp::state::{AmqpLink, End, Lingering};
use crate::amqp::terminus::{Ended, Keep, Scope, Span, Terminus, Waiting};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::owners::Owners;
use crate::queues::calls::{Attach, Call, Expiring, Keep as NodeKeep, Left};
use crate::queues::keeping;
use crate::sessions::lifecycle;

/// Nodes and names of a connection that wait for its end, or that of a session.
const LINGERING_MAX: usize = 1024;

/// How long something stays of a link with such a terminus; `None`: nothing does.
pub(super) fn span_of(
    durable: TerminusDurability,
    policy: TerminusExpiryPolicy,
    timeout: u32,
    second: bool,
) -> Option<Span> {
    let lasts = timeout > 0 || durable != TerminusDurability::None;
    // There is no time so long but never.
    let secs = timeout.min(u32::MAX - 1);
    let (secs, scope) = match policy {
        TerminusExpiryPolicy::Never => (u32::MAX, Scope::Link),
        TerminusExpiryPolicy::ConnectionClose => (secs, Scope::Connection),
        TerminusExpiryPolicy::SessionEnd if lasts => (secs, Scope::Session),
        TerminusExpiryPolicy::LinkDetach if timeout > 0 => (secs, Scope::Link),
        TerminusExpiryPolicy::SessionEnd | TerminusExpiryPolicy::LinkDetach => return None,
    };
    Some(Span {
        secs,
        scope,
        durable: second && durable == TerminusDurability::UnsettledState,
    })
}

/// Whether the receiving end settles after the sending one.
pub(super) fn is_second(attach: &AttachFrame<'_>) -> bool {
    attach.rcv_settle_mode == ReceiverSettleMode::Second
}

/// The name of a link among all; `None`: its container has none.
pub(super) fn name_of(own: &Owners, c: ConnIdx, sends: bool, name: &str) -> Option<Text> {
    let conn = own.conns.amqp(c)?;
    let container = conn.who.as_ref().map(|who| who.client_id.clone());
    let container = container.filter(|container| !container.is_empty())?;
    let user = conn.identity.user.as_deref();
    Some(keeping::name_of_link(sends, user, &container, name))
}

/// Refuses a link that waits for its name, if the home of that is away.
pub(super) fn check_there(
    own: &Owners,
    c: ConnIdx,
    sends: bool,
    name: &str,
) -> Result<(), Refusal> {
    let name = name_of(own, c, sends, name);
    name.map_or(Ok(()), |name| {
        attaching::check_there(own, own.members.home(&name))
    })
}

/// What its node keeps of a link that receives.
pub(super) fn keep_of(
    own: &Owners,
    c: ConnIdx,
    name: &str,
    span: Option<Span>,
) -> Option<NodeKeep> {
    let span = span?;
    Some(NodeKeep {
        name: name_of(own, c, false, name)?,
        secs: span.secs,
        durable: span.durable,
        serial: 0,
    })
}

/// A link has a name from now on. With `keeps` it waits until that is granted, and is
/// attached then; whether it does.
pub(super) fn claim(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    (sends, name): (bool, &str),
    keeps: Option<(Span, SessionId, Body)>,
) -> bool {
    let Some(name) = name_of(own, c, sends, name) else {
        return false;
    };
    let home = own.members.home(&name);
    let Some(link) = own.sessions.amqp_mut(s) else {
        return false;
    };
    let is_kept = keeps.is_some();
    let keep = keeps.map(|(span, session, attach)| Keep {
        span,
        session,
        outcomes: BTreeMap::new(),
        pending: BTreeMap::new(),
        waiting: Some(Waiting { attach, node: None }),
        ended: None,
    });
    link.terminus = Some(Box::new(Terminus {
        name: name.clone(),
        home,
        keep,
    }));
    let claim = Call::Claim {
        link: link.reference(s),
        name,
        keeps: is_kept,
    };
    own.call(home, claim);
    own.weigh(s);
    is_kept
}

/// Has a link wait for its name before it is attached to a node; gives the call back if
/// it waits for nothing.
pub(super) fn hold(
    own: &mut Owners,
    s: SessionIdx,
    home: ShardId,
    attach: Box<Attach>,
) -> Option<Box<Attach>> {
    let link = own.sessions.amqp_mut(s);
    let keep = link.and_then(|link| link.keep_mut());
    let Some(waiting) = keep.and_then(|keep| keep.waiting.as_mut()) else {
        return Some(attach);
    };
    waiting.node = Some((home, attach));
    None
}

/// A link is gone: its session ends, or stays until the outcomes of its messages are
/// known.
pub(super) fn leave(own: &mut Owners, c: ConnIdx, s: SessionIdx, closed: bool) {
    let Some(entry) = own.sessions.amqp_mut(s) else {
        return;
    };
    let link = entry.reference(s);
    let sends = matches!(entry.end, End::Incoming { .. });
    let Some(terminus) = &mut entry.terminus else {
        lifecycle::end_session(own, s);
        return;
    };
    let (home, name) = (terminus.home, terminus.name.clone());
    let Some(keep) = &mut terminus.keep else {
        let left = None;
        own.call(home, Call::Release { link, name, left });
        lifecycle::end_session(own, s);
        return;
    };
    let (scope, session) = (keep.span.scope, keep.session);
    let mut ended = Ended {
        closed,
        expires: true,
    };
    if !closed && sends {
        let what = Expiring::Terminus { name, link };
        ended.expires = linger(own, c, (scope, session), home, what);
    }
    if let Some(entry) = own.sessions.amqp_mut(s) {
        entry.conn = None;
        if let Some(keep) = entry.keep_mut() {
            keep.ended = Some(ended);
        }
    }
    finish(own, s);
}

/// What stays of a link waits for the end of its session or connection before its time
/// runs; `true`: it does not.
pub(super) fn linger(
    own: &mut Owners,
    c: ConnIdx,
    (scope, session): (Scope, SessionId),
    home: ShardId,
    what: Expiring,
) -> bool {
    let Some(conn) = own.conns.peek_amqp_mut(c).filter(|_| scope != Scope::Link) else {
        return true;
    };
    let session = (scope == Scope::Session).then_some(session);
    let same = |other: &Expiring| match (other, &what) {
        (Expiring::Node(other), Expiring::Node(place)) => {
            (other.node, other.end) == (place.node, place.end)
        }
        (Expiring::Terminus { name: other, .. }, Expiring::Terminus { name, .. }) => other == name,
        _ => false,
    };
    conn.lingering.retain(|lingering| !same(&lingering.what));
    if conn.lingering.len() >= LINGERING_MAX {
        return true;
    }
    conn.lingering.push(Lingering {
        session,
        home,
        what,
    });
    false
}

/// A session has ended, or with `None` the connection: the time runs of what waited for
/// that.
pub(super) fn expire(own: &mut Owners, c: ConnIdx, session: Option<SessionId>) {
    let Some(conn) = own.conns.peek_amqp_mut(c) else {
        return;
    };
    let all = core::mem::take(&mut conn.lingering).into_iter();
    let (ended, rest) = all.partition(|it| session.is_none() || it.session == session);
    conn.lingering = rest;
    let ended: Vec<Lingering> = ended;
    for Lingering { home, what, .. } in ended {
        if let Expiring::Terminus { link, .. } = &what
            && let Some(entry) = own.sessions.resolve_mut(*link)
            && let Some(keep) = entry.amqp_mut().and_then(AmqpLink::keep_mut)
        {
            // It has not given back what is kept yet.
            if let Some(ended) = &mut keep.ended {
                ended.expires = true;
            }
            continue;
        }
        own.call(home, Call::Expire(what));
    }
}

/// As [`finish`], of a link that waited for outcomes.
pub(super) fn handle_over(own: &mut Owners, link: SessionRef) {
    if own.sessions.resolve(link).is_some() {
        finish(own, link.at);
    }
}

/// A link that is gone gives back what is kept of it, once all of that is known.
pub(super) fn finish(own: &mut Owners, s: SessionIdx) {
    let Some(entry) = own.sessions.amqp_mut(s) else {
        return;
    };
    let link = entry.reference(s);
    let keep = entry.keep_mut();
    let ended = keep.filter(|keep| !keep.is_busy()).and_then(|it| it.ended);
    let Some(ended) = ended else {
        return;
    };
    let Some(terminus) = entry.terminus.take() else {
        return own.outbox.note_missing();
    };
    let Terminus { name, home, keep } = *terminus;
    if let Some(keep) = keep.as_ref().filter(|it| ended.closed && it.span.durable) {
        for (tag, _) in keep.outcomes.iter().filter(|(_, accepted)| **accepted) {
            keeping::forget_received(own, &name, tag.as_bytes());
        }
    }
    let left = keep.filter(|_| !ended.closed).map(|keep| {
        let outcomes = keep.outcomes.iter();
        let outcomes = outcomes.map(|(tag, is)| (Bytes::copy_from_slice(tag.as_bytes()), *is));
        Box::new(Left {
            outcomes: outcomes.collect(),
            secs: keep.span.secs,
            durable: keep.span.durable,
            expires: ended.expires,
        })
    });
    own.call(home, Call::Release { link, name, left });
    lifecycle::end_session(own, s);
}

pub(super) const fn state_of(accepted: bool) -> DeliveryState<'static> {
    match accepted {
        true => DeliveryState::ACCEPTED,
        false => DeliveryState::Outcome(AmqpOutcome::Rejected(Rejected { error: None })),
    }
}

/// Answers a client that sends, with what it has not settled, and forgets what it has.
pub(super) fn accept(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    attach: &AttachFrame<'_>,
    answer: &AttachFrame<'_>,
) -> bool {
    let Some(link) = own.sessions.amqp_mut(s) else {
        return false;
    };
    let id = link.link;
    let known: Option<Vec<(Tag, bool)>> = link.keep_mut().map(|keep| {
        let outcomes = keep.outcomes.iter();
        outcomes.map(|(tag, accepted)| (*tag, *accepted)).collect()
    });
    let map: Vec<_> = known.iter().flatten().collect();
    let map: Vec<(&[u8], _)> = map
        .iter()
        .map(|(tag, accepted)| (tag.as_bytes(), Some(state_of(*accepted))))
        .collect();
    let map = known.is_some().then_some(&map[..]);
    if !write(own, c, id, answer, map) {
        return false;
    }
    let remote = RemoteUnsettled::new(attach);
    for (tag, _) in known.into_iter().flatten() {
        if remote.is_forgotten(tag) {
            outcomes::forget(own, s, tag);
        }
    }
    true
}

/// Writes an answer with a map, as much of it as fits into a frame.
pub(super) fn write(
    own: &mut Owners,
    c: ConnIdx,
    link: LinkId,
    answer: &AttachFrame<'_>,
    map: Option<&[(&[u8], Option<DeliveryState<'_>>)]>,
) -> bool {
    let Some(conn) = own.conns.amqp_mut(c) else {
        return false;
    };
    let all = map.map_or(0, <[_]>::len);
    let mut len = all;
    loop {
        let answer = AttachFrame {
            unsettled: map.and_then(|map| map.get(..len)).map(Unsettled::new),
            incomplete_unsettled: len < all,
            ..*answer
        };
        match conn.engine.accept_attach(link, &answer) {
            Err(CallError::FrameSize) if len > 0 => len /= 2,
            answered => return answered.is_ok(),
        }
    }
}

/// Whether the link takes messages that its client settles last and that are kept.
pub(super) fn is_kept(own: &mut Owners, s: SessionIdx) -> bool {
    let link = own.sessions.amqp_mut(s);
    link.is_some_and(|link| matches!(link.end, End::Incoming { .. }) && link.keep_mut().is_some())
}
