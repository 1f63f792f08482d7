//! Links that are attached to a node: a queue, a subscription that outlives its
//! link, a dynamic node. The node may live on any shard; what is said to it and
//! what it says is a [`Call`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach as AttachFrame, DeliveryState, DistributionMode, Error, Map, Modified,
    Outcome as AmqpOutcome, Received, Role, Source, Target, TerminusDurability,
    TerminusExpiryPolicy, condition,
};
use dunlin_amqp::message::{Attempt, to_amqp};
use dunlin_amqp::{
    Body, Delivery as Sent, LinkId, RemoteUnsettled, Resumption, SendError, Sending, SessionId,
    State, Tag,
};
use dunlin_base::{Instant, QoS, ShardId, Text};
use dunlin_queue::{Outcome, Window};

use crate::access::Action;
use crate::amqp::attaching::{self, Refusal, create, refusal};
use crate::amqp::filters;
use crate::amqp::outcome::top_up;
use crate::amqp::outgoing::{annotations_of, outcome_of};
use crate::amqp::resuming;
use crate::amqp::state::{Again, Attachment, Drain, End, Handed, Taking};
use crate::amqp::wanting::Wanted;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::owners::{Later, Owners};
use crate::queues::calls::{Attach, Call, Expiring, Found, Place, Refusal as Why, Use};
use crate::random::home_shard;
use crate::reports::audit;
use crate::sessions::lifecycle;

/// Messages that need no outcome and wait at their link for its transport.
const SETTLED_MAX: u32 = 64;

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
        return Ok(());
    };
    let sends = wants == Use::Send;
    let s = create(own, c, link, end_of(wants, &address))?;
    if let Some((action, name)) = &right
        && !own.may(s, *action, name)
    {
        audit::note_denied(own, s, "may not use the queue", name);
        lifecycle::end_session(own, s);
        let text = "may not use this queue or topic filter";
        return Err(refusal(condition::UNAUTHORIZED_ACCESS, text));
    }
    let home = ShardId(home_shard(&address, own.config.shards));
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
            open: Window::default(),
            credit: 0,
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
            deliver(own, link, handed);
        }
        Call::Drained { link } => drained(own, link),
        Call::Settled { link, key } => settled(own, link, key),
        // These are for nodes, or for other links.
        Call::Ask(_)
        | Call::Granted { .. }
        | Call::Stolen { .. }
        | Call::Answered { .. }
        | Call::Attach(_)
        | Call::Credit { .. }
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
        return;
    };
    let Some(attachment) = &mut link.attachment else {
        return;
    };
    attachment.place = Some(place);
    let (body, generated) = (attachment.attach.clone(), attachment.generated.clone());
    let sends = matches!(link.end, End::Incoming { .. });
    let bytes_max = own.config.packet_bytes_max;
    if let Some(attach) = body.attach() {
        let address = generated.as_deref();
        // They were valid before.
        let asked = attach.source.and_then(|source| source.filter);
        let known = filters::parse_for_node(asked).unwrap_or_default();
        let known = Some(Map::new(&known)).filter(|_| !known.is_empty());
        let kept = found.unsettled.is_some() || resuming::is_kept(own, s);
        let filter = (found.filter.as_deref(), known);
        let answer = answer(&attach, (address, filter), kept, bytes_max);
        match sends {
            true => {
                if resuming::accept(own, c, s, &attach, &answer) {
                    top_up(own, c, s);
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
        Role::Receiver => AttachFrame {
            role: Role::Sender,
            source: Some(Source {
                filter: known,
                ..granted(attach.source, generated, filter, kept)
            }),
            ..common
        },
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

/// The session of a link that takes from a node, if it is one.
pub(super) fn taking(own: &mut Owners, c: ConnIdx, link: LinkId) -> Option<SessionIdx> {
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
    let inflight_max = u32::from(own.config.inflight_max);
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
        return;
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
fn deliver(own: &mut Owners, link: SessionRef, handed: Handed) {
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
    }
    pump(own, link.at);
}

/// The node has nothing more for the credit that the link had.
fn drained(own: &mut Owners, link: SessionRef) {
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
    let (Some(taking), Some(conn)) = (link.taking_mut(), own.conns.amqp_mut(c)) else {
        return false;
    };
    let Some(again) = taking.again.front() else {
        return false;
    };
    let mut bytes = Vec::new();
    let sending = |key: u32, state, settled| Sending {
        resume: true,
        state: Some(state),
        ..Sending::new(Tag::from(u64::from(key)), settled)
    };
    let sent = match again {
        Again::Settled(key, state) => {
            let sending = sending(*key, state.get(), true);
            conn.engine.send(id, &sending, &[], &Bytes::new())
        }
        Again::Message(handed) => match write(handed, now, &mut bytes) {
            true => {
                let sending = sending(handed.key, START, false);
                conn.engine.send(id, &sending, &bytes, &Bytes::new())
            }
            false => Err(SendError::MessageSize),
        },
    };
    let refused = match sent {
        Ok(_) => None,
        Err(SendError::MessageSize) => again.message().map(|_| again.key()),
        Err(_) => {
            conn.note_window(id);
            return false;
        }
    };
    conn.written += bytes.len();
    let cost = again.message().map_or(0, |message| message.cost());
    taking.bytes = taking.bytes.saturating_sub(cost);
    taking.again.pop_front();
    own.conns.touch(c);
    if let Some(key) = refused {
        say(own, s, key, (Outcome::Rejected, None), false);
    }
    true
}

/// The sections of a message; `false`: it cannot be written.
fn write(handed: &Handed, now: Instant, bytes: &mut Vec<u8>) -> bool {
    let attempt = Attempt {
        delivery_count: u32::from(handed.failed),
        first_acquirer: handed.failed == 0 && !handed.again,
    };
    bytes.reserve(128 + handed.message.payload.len());
    to_amqp(&handed.message, now, attempt, bytes).is_ok()
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
    let limit = own.budget.unsent_limit(own.config.send_backlog_bytes);
    let now = own.now;
    let Some(link) = own.sessions.amqp_mut(s) else {
        return false;
    };
    let (Some(c), id) = (link.conn, link.link) else {
        return false;
    };
    let (Some(taking), Some(conn)) = (link.taking_mut(), own.conns.amqp_mut(c)) else {
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
    let mut bytes = Vec::new();
    let is_written = write(handed, now, &mut bytes);
    let len = bytes.len();
    let sending = Sending::new(Tag::from(u64::from(handed.key)), taking.settled);
    let sent = match is_written {
        true => conn.engine.send(id, &sending, &[], &bytes.into()),
        false => Err(SendError::MessageSize),
    };
    let refused = match sent {
        Ok(_) => false,
        // Too large for this client, or not to be written.
        Err(SendError::MessageSize) => true,
        // It goes on when the window opens or credit comes.
        Err(_) => {
            conn.note_window(id);
            return false;
        }
    };
    conn.written += if refused { 0 } else { len };
    let Some(handed) = taking.handed.pop_front() else {
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
        return;
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
        return;
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
fn settled(own: &mut Owners, link: SessionRef, key: u32) {
    let session = own.sessions.resolve_mut(link);
    let Some(entry) = session.and_then(|session| session.amqp_mut()) else {
        return;
    };
    let Some(c) = entry.conn else {
        return;
    };
    let Some(taking) = entry.taking_mut() else {
        return;
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
