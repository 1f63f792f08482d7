//! Links that are attached to a node: a queue, a subscription that outlives its
//! link, a dynamic node. The node may live on any shard; what is said to it and
//! what it says is a [`Call`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_amqp::codec::{
    AnyTarget, Attach as AttachFrame, DeliveryState, DistributionMode, Error, Map, Modified,
    Outcome as AmqpOutcome, Role, Source, Target, TerminusDurability, TerminusExpiryPolicy,
    condition,
};
use dunlin_amqp::{Body, LinkId, RemoteUnsettled, Resumption, SessionId, State, Tag};
use dunlin_base::{ShardId, Text};
use dunlin_queue::{Outcome, Window};

use crate::access::Action;
use crate::amqp::attaching::{self, Refusal, create, refusal};
use crate::amqp::outcome::allow;
use crate::amqp::outgoing::outcome_of;
use crate::amqp::pace::Pace;
use crate::amqp::state::{Attachment, End, Handed, OPEN_KEPT_MAX, Taking};
use crate::amqp::taking::{self, is_taking, say, want_again};
use crate::amqp::wanting::{self, Wanted};
use crate::amqp::{filters, quota, resuming};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::owners::{Later, Owners};
use crate::queues::calls::{Attach, Call, Expiring, Found, Place, Refusal as Why, Use};
use crate::reports::audit;
use crate::sessions::lifecycle;

/// Asks for the node; the link is attached when it answers.
pub(super) fn attach(
    own: &mut Owners,
    c: ConnIdx,
    (link, session): (LinkId, SessionId),
    wanted: Wanted,
    body: &Body,
) -> Result<(), Refusal> {
    let Wanted {
        address,
        right,
        wants,
        create: new,
        generated,
        scope,
        span,
        search,
    } = wanted;
    let Some(frame) = body.attach() else {
        own.outbox.note_missing();
        return Ok(());
    };
    let sends = wants == Use::Send;
    let home = own.members.home(&address);
    attaching::check_there(own, home)?;
    if span.is_some() {
        resuming::check_there(own, c, sends, frame.name)?;
    }
    let s = create(own, c, link, end_of(wants, &address))?;
    if let Some((action, name)) = &right
        && !own.may(s, *action, name)
    {
        audit::note_denied(own, s, "may not use the queue", name);
        lifecycle::end_session(own, s);
        let text = "may not use this queue or topic filter";
        return Err(refusal(condition::UNAUTHORIZED_ACCESS, text));
    }
    let (Some(conn), Some(entry)) = (own.conns.amqp_mut(c), own.sessions.amqp_mut(s)) else {
        return Ok(());
    };
    conn.links.insert(link, s);
    entry.attachment = Some(Box::new(Attachment {
        home,
        right: right.map(|(_, name)| name),
        place: None,
        attach: body.clone(),
        generated: generated.then(|| address.clone()),
        scope,
        session,
    }));
    let mut attach = Box::new(Attach {
        link: entry.reference(s),
        user: entry.user.clone(),
        address,
        wants,
        create: new,
        keep: None,
        search,
    });
    if !sends {
        attach.keep = resuming::keep_of(own, c, frame.name, span);
    }
    let keeps = span.map(|span| (span, session, body.clone()));
    resuming::claim(own, (c, s), (sends, frame.name), keeps);
    if let Some(attach) = resuming::hold(own, s, home, attach) {
        own.call(home, Call::Attach(attach));
    }
    Ok(())
}

/// What a link has that wants this of the node with this address.
fn end_of(wants: Use, address: &Text) -> End {
    match wants {
        Use::Send => End::Incoming {
            topic: Some(address.clone()),
            open: Window::keeping(OPEN_KEPT_MAX),
            credit: 0,
            pace: Some(Pace::default()),
        },
        Use::Browse => End::Taking(Box::default()),
        Use::Take { settled } => End::Taking(Box::new(Taking {
            settled,
            ..Taking::default()
        })),
    }
}

/// What a node says to a link.
pub(crate) fn handle_call(own: &mut Owners, from: ShardId, call: Call) {
    match call {
        Call::Attached { place, found } => attached(own, from, place, &found),
        Call::Gone { link } => resuming::handle_over(own, link),
        Call::Refused { link, why } => refused(own, link, why),
        Call::Allow { link, limit } => allow(own, link, limit),
        Call::Deliver {
            link,
            key,
            message,
            failed,
            again,
            resumed,
        } => {
            let handed = Handed {
                key,
                message,
                failed,
                again,
                resumed,
            };
            taking::deliver(own, link, handed);
        }
        Call::Drained { link } => taking::drained(own, link),
        Call::Settled { link, key } => taking::settled(own, link, key),
        // These are for nodes, or for other links.
        Call::Ask(_)
        | Call::Granted { .. }
        | Call::Stolen { .. }
        | Call::Answered { .. }
        | Call::Attach(_)
        | Call::Make { .. }
        | Call::Credit { .. }
        | Call::Want { .. }
        | Call::Outcome { .. }
        | Call::Retire { .. }
        | Call::Leave { .. }
        | Call::Again { .. }
        | Call::Claim { .. }
        | Call::Release { .. }
        | Call::Expire(_) => {}
    }
}

/// The node has the link.
fn attached(own: &mut Owners, from: ShardId, place: Place, found: &Found) {
    let s = place.link.at;
    let session = own.sessions.resolve_mut(place.link);
    let Some(link) = session.and_then(|session| session.amqp_mut()) else {
        // It has gone meanwhile.
        let leave = Call::Leave {
            place,
            sent: found.last_key,
            closed: false,
            keeps: Vec::new(),
            expires: true,
        };
        return own.call(from, leave);
    };
    let Some(c) = link.conn else {
        return own.outbox.note_missing();
    };
    let Some(attachment) = &mut link.attachment else {
        return own.outbox.note_missing();
    };
    attachment.place = Some(place);
    let (body, generated) = (attachment.attach.clone(), attachment.generated.clone());
    let sends = matches!(link.end, End::Incoming { .. });
    let bytes_max = quota::message_bytes_max(own, c);
    if let Some(attach) = body.attach() {
        let address = generated.as_deref();
        // They were valid before.
        let source = attach.source.unwrap_or_default();
        let has_number = wanting::number_of(own, c, &source).is_some();
        let known = filters::parse_for_node(source.filter, has_number).unwrap_or_default();
        let known = Some(Map::new(&known)).filter(|_| !known.is_empty());
        let kept = found.unsettled.is_some() || resuming::is_kept(own, s);
        let filter = (found.filter.as_deref(), known);
        let answer = answer(&attach, (address, filter), kept, bytes_max);
        match sends {
            true => {
                if resuming::accept(own, c, s, &attach, &answer) {
                    allow(own, place.link, found.limit);
                }
            }
            false => accept_receiver(own, c, s, (&attach, &answer), found),
        }
    }
    own.conns.touch(c);
    // The engine may have kept what the client said before this.
    own.later.push_back(Later::Unpark(c));
}

/// What is granted of what the client asked for.
fn answer<'a>(
    attach: &AttachFrame<'a>,
    (generated, (filter, known)): (Option<&'a str>, (Option<&'a str>, Option<Map<'a>>)),
    kept: bool,
    bytes_max: u32,
) -> AttachFrame<'a> {
    let common = attaching::answer(attach);
    match attach.role {
        Role::Sender => AttachFrame {
            role: Role::Receiver,
            max_message_size: Some(u64::from(bytes_max)),
            target: attach.target.map(|target| match target {
                AnyTarget::Target(target) if kept => AnyTarget::Target(target),
                AnyTarget::Target(target) => AnyTarget::Target(Target {
                    address: generated.or(target.address),
                    durable: TerminusDurability::None,
                    expiry_policy: TerminusExpiryPolicy::SessionEnd,
                    timeout: 0,
                    ..target
                }),
                coordinator @ AnyTarget::Coordinator(_) => coordinator,
            }),
            ..common
        },
        Role::Receiver => {
            let source = granted(attach.source, generated, filter, kept);
            let durable = durability_of(source.durable, resuming::is_second(attach));
            AttachFrame {
                role: Role::Sender,
                source: Some(Source {
                    filter: known,
                    durable,
                    ..source
                }),
                ..common
            }
        }
    }
}

/// What the store keeps of a source: what is not settled only where the receiver settles
/// second.
const fn durability_of(asked: TerminusDurability, second: bool) -> TerminusDurability {
    match asked {
        TerminusDurability::UnsettledState if !second => TerminusDurability::Configuration,
        asked => asked,
    }
}

/// The source that a receiver gets: a subscription as it was asked for, else a
/// queue, which a link takes nothing of with it.
fn granted<'a>(
    asked: Option<Source<'a>>,
    generated: Option<&'a str>,
    filter: Option<&'a str>,
    kept: bool,
) -> Source<'a> {
    match (asked, filter) {
        // A subscription by its name.
        (None, filter) => Source {
            address: filter,
            durable: TerminusDurability::UnsettledState,
            expiry_policy: TerminusExpiryPolicy::Never,
            ..Source::default()
        },
        (Some(asked), Some(_)) => Source {
            distribution_mode: None,
            ..asked
        },
        (Some(asked), None) if kept => Source {
            filter: None,
            distribution_mode: Some(DistributionMode::Move),
            ..asked
        },
        (Some(asked), None) => Source {
            address: generated.or(asked.address),
            durable: TerminusDurability::None,
            expiry_policy: TerminusExpiryPolicy::SessionEnd,
            timeout: 0,
            distribution_mode: asked.distribution_mode.or(Some(DistributionMode::Move)),
            ..asked
        },
    }
}

/// The node does not take the link, or not any longer.
fn refused(own: &mut Owners, link: SessionRef, why: Why) {
    let (condition, text) = match why {
        Why::NotFound => (
            condition::NOT_FOUND,
            "there is no such queue or subscription",
        ),
        Why::NoRoom => (
            condition::RESOURCE_LIMIT_EXCEEDED,
            "no room for another queue",
        ),
        Why::NotYours => (
            condition::UNAUTHORIZED_ACCESS,
            "the subscription belongs to another user",
        ),
        Why::InUse => (
            condition::RESOURCE_LOCKED,
            "the subscription is to another filter",
        ),
        Why::Stolen => (condition::STOLEN, "attached again"),
        Why::Deleted => (condition::RESOURCE_DELETED, "the queue was deleted"),
    };
    let session = own.sessions.resolve_mut(link);
    let Some(entry) = session.and_then(|session| session.amqp_mut()) else {
        return;
    };
    let (Some(c), id) = (entry.conn, entry.link) else {
        return;
    };
    let attachment = entry.attachment.take();
    let is_attached = attachment.is_some_and(|attachment| attachment.place.is_some());
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.remove_link(id);
        let error = Error::new(condition, text);
        let _ = match is_attached {
            true => conn.engine.detach(id, true, Some(&error)),
            false => conn.engine.refuse_attach(id, &error),
        };
        own.conns.touch(c);
    }
    resuming::leave(own, c, link.at, is_attached);
}

/// A link is gone: its node hears of it. Some nodes wait for the end of the session
/// or connection before their time runs.
pub(super) fn leave(own: &mut Owners, c: ConnIdx, s: SessionIdx, closed: bool) {
    let Some(link) = own.sessions.amqp_mut(s) else {
        return;
    };
    let sent = link.taking_mut().map_or(0, |taking| taking.sent());
    let keeps = link.retiring.keys().copied().collect();
    let Some(attachment) = link.attachment.take() else {
        return;
    };
    let Some(place) = attachment.place else {
        return;
    };
    let home = attachment.home;
    let expires = closed || {
        let scope = (attachment.scope, attachment.session);
        resuming::linger(own, c, scope, home, Expiring::Node(place))
    };
    let leave = Call::Leave {
        place,
        sent,
        closed,
        keeps,
        expires,
    };
    own.call(home, leave);
}

/// The rules have changed: a link that may not take from its node any more is
/// detached. What a link sends is checked message by message.
pub(crate) fn recheck(own: &mut Owners, s: SessionIdx) {
    if !is_taking(own, s) {
        return;
    }
    let link = own.sessions.amqp_mut(s);
    let right = link.and_then(|link| link.attachment.as_ref()?.right.clone());
    let Some(right) = right.filter(|right| !own.may(s, Action::Subscribe, right)) else {
        return;
    };
    audit::note_denied(own, s, "may not use the queue", &right);
    let Some(link) = own.sessions.amqp_mut(s) else {
        return;
    };
    if let (Some(c), id) = (link.conn, link.link)
        && let Some(conn) = own.conns.amqp_mut(c)
    {
        let error = Error::new(condition::UNAUTHORIZED_ACCESS, "no longer allowed");
        let _ = conn.engine.detach(id, false, Some(&error));
        own.conns.touch(c);
    }
}

/// Answers a client that receives, with what it has not settled; what follows for that
/// from what the client has.
fn accept_receiver(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    (attach, answer): (&AttachFrame<'_>, &AttachFrame<'_>),
    found: &Found,
) {
    let Some(link) = own.sessions.amqp_mut(s) else {
        return;
    };
    let id = link.link;
    if let Some(taking) = link.taking_mut() {
        (taking.last_key, taking.limit) = (found.last_key, found.last_key);
    }
    let tags = found.unsettled.iter().flatten();
    let tags: Vec<Tag> = tags.map(|key| Tag::from(u64::from(*key))).collect();
    let map: Vec<(&[u8], _)> = tags.iter().map(|tag| (tag.as_bytes(), None)).collect();
    let map = found.unsettled.is_some().then_some(&map[..]);
    if !resuming::write(own, c, id, answer, map) {
        return;
    }
    let remote = RemoteUnsettled::new(attach);
    // One that says nothing may have had them and keeps no state.
    let unknown = match attach.unsettled.is_some() {
        true => Outcome::Released,
        false => FAILED,
    };
    let mut again = Vec::new();
    for key in found.unsettled.iter().flatten() {
        match remote.resumption(Tag::from(u64::from(*key)), None) {
            Resumption::Resend | Resumption::Forget => {
                say(own, s, *key, (unknown, None), false);
            }
            Resumption::Resume(_) | Resumption::Abort => again.push(*key),
            Resumption::Settle(state) | Resumption::Restate(state) => {
                settle_first(own, s, *key, &state);
            }
            Resumption::Wait => {}
        }
    }
    want_again(own, s, again);
}

/// Sending it counts as an attempt that failed.
const FAILED: Outcome = Outcome::Modified {
    failed: true,
    undeliverable_here: false,
};

/// The client had an outcome: the node gets it, and then the delivery is settled.
fn settle_first(own: &mut Owners, s: SessionIdx, key: u32, state: &DeliveryState<'_>) {
    let failed = AmqpOutcome::Modified(Modified {
        delivery_failed: true,
        ..Modified::default()
    });
    // One that was part of a transaction is not any more: that is gone.
    let outcome = match state {
        DeliveryState::Outcome(outcome) => *outcome,
        _ => failed,
    };
    let link = own.sessions.amqp_mut(s);
    if let Some(state) = State::new(&DeliveryState::Outcome(outcome))
        && let Some(taking) = link.and_then(|link| link.taking_mut())
    {
        taking.resuming.insert(key, state);
        say(own, s, key, (outcome_of(&outcome), None), true);
    }
}
