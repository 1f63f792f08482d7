//! Links: attached to a topic or a filter, and their end.

use alloc::boxed::Box;

use dunlin_amqp::codec::{
    AnyTarget, Attach, Error, Map, Role, SenderSettleMode, Source, TerminusDurability, condition,
};
use dunlin_amqp::filter::Filters;
use dunlin_amqp::{Body, LinkId, SessionId, Tag};
use dunlin_base::topic::{Filter, validate_name};
use dunlin_base::{StreamId, Text};
use dunlin_queue::Window;

use crate::amqp::attaching::{Refusal, answer, create, refusal, topic_of};
use crate::amqp::filters::{self, Entries};
use crate::amqp::outcome::top_up;
use crate::amqp::state::{End, OPEN_KEPT_MAX, Origin, PendingAttach};
use crate::amqp::{nodes, outgoing, quota, redirecting, requests, resuming, transactions, wanting};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::memory::Part;
use crate::owners::common::Standing;
use crate::owners::node::binding_bytes;
use crate::owners::routing::{FILTERED, Subscribed};
use crate::owners::{Later, Owners};
use crate::queues::calls::{Call, Outcomes};
use crate::reports::audit;
use crate::sessions::{lifecycle, subscriptions};

/// Retain As Published in the options of a subscription.
const RETAIN_AS_PUBLISHED: u8 = 0b1000;

/// The client asks for a link.
pub(crate) fn handle_attach(
    own: &mut Owners,
    c: ConnIdx,
    (link, session): (LinkId, SessionId),
    body: Body,
    steals: Option<LinkId>,
) {
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.steals = steals.is_some();
        if let Some(old) = steals {
            let error = Error::new(condition::STOLEN, "attached again");
            let _ = conn.engine.detach(old, true, Some(&error));
        }
    }
    let Some(attach) = body.attach() else {
        return own.outbox.note_missing();
    };
    let ids = (link, session);
    let outcome = match has_room(own, c, &body) {
        Ok(()) => attach_any(own, c, ids, &attach, &body),
        refused => refused,
    };
    if let (Err(why), Some(conn)) = (outcome, own.conns.amqp_mut(c)) {
        let error = Error::new(why.condition, why.text);
        let _ = conn.engine.refuse_attach(link, &error);
    }
    let conn = own.conns.peek_amqp(c);
    if let Some(s) = conn.and_then(|conn| conn.links.get(&link).copied())
        && let Some(entry) = own.sessions.amqp_mut(s)
    {
        entry.name_bytes = attach.name.len();
        own.weigh(s);
    }
}

/// Whether there is memory for what the client says of a link. What is left of it at
/// last is for those who have none.
fn has_room(own: &mut Owners, c: ConnIdx, body: &Body) -> Result<(), Refusal> {
    own.budget.look();
    let bytes = body.bytes_len();
    let conn = own.conns.amqp(c);
    let is_first = conn.is_some_and(|conn| conn.links.is_empty());
    let room = own.budget.room(Part::Sessions);
    if (is_first && room >= bytes) || own.budget.has_room(Part::Sessions, bytes, usize::MAX) {
        return Ok(());
    }
    own.note_refused(Part::Sessions, 1);
    let text = "no memory for another link";
    Err(refusal(condition::RESOURCE_LIMIT_EXCEEDED, text))
}

fn attach_any(
    own: &mut Owners,
    c: ConnIdx,
    ids: (LinkId, SessionId),
    attach: &Attach<'_>,
    body: &Body,
) -> Result<(), Refusal> {
    let conn = own.conns.amqp(c);
    let is_unproved = conn.is_some_and(|it| it.identity.standing == Standing::Unproved);
    if is_unproved && !requests::takes_tokens(attach) {
        let text = "the client has not set a token";
        return Err(refusal(condition::UNAUTHORIZED_ACCESS, text));
    }
    if redirecting::redirect_link(own, c, ids.0, attach) {
        return Ok(());
    }
    match (requests::attach(own, c, ids, attach), attach.role) {
        (Some(done), _) => done,
        (None, Role::Sender) => attach_incoming(own, c, ids, attach, body),
        (None, Role::Receiver) => attach_outgoing(own, c, ids, attach, body),
    }
}

/// The client will send.
fn attach_incoming(
    own: &mut Owners,
    c: ConnIdx,
    (link, session): (LinkId, SessionId),
    attach: &Attach<'_>,
    body: &Body,
) -> Result<(), Refusal> {
    let target = match attach.target {
        Some(AnyTarget::Target(target)) => target,
        Some(AnyTarget::Coordinator(_)) => return transactions::attach(own, c, link, attach),
        None => return Err(refusal(condition::INVALID_FIELD, "no target")),
    };
    if let Some(wanted) = wanting::by_sender(own, attach, &target)? {
        return nodes::attach(own, c, (link, session), wanted, body);
    }
    let topic = target.address.map(topic_of);
    if topic.is_some_and(|topic| validate_name(topic).is_err()) {
        let text = "the address is no topic name";
        return Err(refusal(condition::INVALID_FIELD, text));
    }
    let (policy, second) = (target.expiry_policy, resuming::is_second(attach));
    let span = resuming::span_of(target.durable, policy, target.timeout, second);
    let span = span.filter(|_| second);
    if span.is_some() {
        resuming::check_there(own, c, true, attach.name)?;
    }
    let end = End::Incoming {
        topic: topic.map(Text::from),
        open: Window::keeping(OPEN_KEPT_MAX),
        credit: 0,
        pace: None,
    };
    let s = create(own, c, link, end)?;
    if let Some(topic) = topic
        && !own.may_publish(s, topic)
    {
        audit::note_denied(own, s, "may not publish", topic);
        lifecycle::end_session(own, s);
        let text = "may not publish to this topic";
        return Err(refusal(condition::UNAUTHORIZED_ACCESS, text));
    }
    let Some(conn) = own.conns.amqp_mut(c) else {
        return Ok(());
    };
    conn.links.insert(link, s);
    let keeps = span.map(|span| (span, session, body.clone()));
    if !resuming::claim(own, (c, s), (true, attach.name), keeps) {
        accept(own, c, s, body);
    }
    Ok(())
}

/// Attaches a client that sends to topics.
pub(super) fn accept(own: &mut Owners, c: ConnIdx, s: SessionIdx, body: &Body) {
    let bytes_max = u64::from(quota::message_bytes_max(own, c));
    let Some(attach) = body.attach() else {
        return own.outbox.note_missing();
    };
    let answer = Attach {
        role: Role::Receiver,
        max_message_size: Some(bytes_max),
        ..answer(&attach)
    };
    if resuming::accept(own, c, s, &attach, &answer) {
        top_up(own, c, s);
    }
    own.conns.touch(c);
    // The engine may have kept what the client said before this.
    own.later.push_back(Later::Unpark(c));
}

/// The client will receive.
fn attach_outgoing(
    own: &mut Owners,
    c: ConnIdx,
    (link, session): (LinkId, SessionId),
    attach: &Attach<'_>,
    body: &Body,
) -> Result<(), Refusal> {
    if let Some(wanted) = wanting::by_receiver(own, c, attach)? {
        return nodes::attach(own, c, (link, session), wanted, body);
    }
    let Some(source) = attach.source else {
        return Err(refusal(condition::INVALID_FIELD, "no source"));
    };
    let topic = source.address.map(topic_of);
    let parsed = topic.and_then(|topic| Some((topic, Filter::parse(topic).ok()?)));
    let Some((filter, parsed)) = parsed else {
        let text = "the address is no topic filter";
        return Err(refusal(condition::INVALID_FIELD, text));
    };
    // A member of a group takes what comes: another might not.
    let asked = source.filter.filter(|_| parsed.share.is_none());
    let wants = wanted(own, filter, asked)?;
    let settled = attach.snd_settle_mode == SenderSettleMode::Settled;
    let second = attach.rcv_settle_mode == dunlin_amqp::codec::ReceiverSettleMode::Second;
    let qos = match (settled, second) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => 2,
    };
    let subscribed = Subscribed {
        options: qos | RETAIN_AS_PUBLISHED | if wants.is_some() { FILTERED } else { 0 },
        restricted: false,
        identifier: 0,
        stream: StreamId::CONTROL,
    };
    let end = End::Outgoing {
        origin: Origin::Filter(Text::from(filter), subscribed),
        settled,
        drain: false,
        wants: wants.map(Box::new),
    };
    let s = create(own, c, link, end)?;
    let listener = own.conns.peek(c).map_or(0, |conn| conn.peer.listener);
    if !own.may_subscribe(s, listener, filter) {
        audit::note_denied(own, s, "may not subscribe", filter);
        lifecycle::end_session(own, s);
        let text = "may not subscribe to this filter";
        return Err(refusal(condition::UNAUTHORIZED_ACCESS, text));
    }
    let (Some(conn), Some(session)) = (own.conns.amqp_mut(c), own.sessions.get(s)) else {
        return Ok(());
    };
    conn.links.insert(link, s);
    let pending = PendingAttach {
        conn: conn.id,
        session: session.reference(s),
        attach: body.clone(),
        waiting: own.members.others().len(),
    };
    resuming::claim(own, (c, s), (false, attach.name), None);
    let changes = subscriptions::place(own, s, filter, subscribed);
    let token = own.commits.token();
    subscriptions::announce(own, token, &changes);
    own.weigh(s);
    match pending.waiting {
        0 => attached(own, &pending),
        _ => own.commits.wait(token, pending.into()),
    }
    Ok(())
}

/// What a receiver wants of what its filter matches, if there is memory for both.
fn wanted(
    own: &mut Owners,
    filter: &str,
    asked: Option<Map<'_>>,
) -> Result<Option<Filters>, Refusal> {
    let wants = filters::parse(asked).map_err(|text| refusal(condition::INVALID_FIELD, text))?;
    let wants = Some(wants.0).filter(|wants| !wants.is_empty());
    let bytes = binding_bytes(filter) + wants.as_ref().map_or(0, Filters::bytes);
    match subscriptions::check_room(own, bytes) {
        Ok(()) => Ok(wants),
        Err(text) => Err(refusal(condition::RESOURCE_LIMIT_EXCEEDED, text)),
    }
}

/// Another shard knows of a subscription: when all do, the link is there.
pub(crate) fn advance_attach(own: &mut Owners, token: u64, mut pending: PendingAttach) {
    pending.waiting = pending.waiting.saturating_sub(1);
    match pending.waiting {
        0 => attached(own, &pending),
        _ => own.commits.wait(token, pending.into()),
    }
}

/// The subscription of a receiver is in force everywhere.
fn attached(own: &mut Owners, pending: &PendingAttach) {
    let PendingAttach { conn, session, .. } = pending;
    let (Some(c), Some(entry)) = (own.conns.find(*conn), own.sessions.resolve_mut(*session)) else {
        return;
    };
    let Some(link) = entry.amqp_mut() else {
        return own.outbox.note_missing();
    };
    let filter = link.subscribed().map(|(filter, _)| filter.clone());
    let id = link.link;
    // Groups get no retained messages (MQTT 5.0 section 4.8.2).
    let walk = filter.filter(|filter| !filter.starts_with("$share/"));
    if let Some(filter) = walk {
        link.walks.start(filter);
    }
    let has_filters = link.filters().is_some();
    if let (Some(attach), Some(conn)) = (pending.attach.attach(), own.conns.amqp_mut(c)) {
        let asked = attach.source.and_then(|it| it.filter);
        // They were valid before.
        let known = filters::parse(asked.filter(|_| has_filters));
        let known = known.map_or_else(|_| Entries::new(), |(_, known)| known);
        let granted = has_filters.then(|| Map::new(&known));
        let source = attach.source.map(|source| Source {
            durable: TerminusDurability::None,
            timeout: 0,
            filter: granted,
            distribution_mode: None,
            default_outcome: None,
            ..source
        });
        let answer = Attach {
            role: Role::Sender,
            source,
            ..answer(&attach)
        };
        let _ = conn.engine.accept_attach(id, &answer);
    }
    outgoing::pump(own, session.at);
    own.conns.touch(c);
}

/// A link is gone.
pub(crate) fn handle_detached(own: &mut Owners, c: ConnIdx, link: LinkId, closed: bool) {
    let conn = own.conns.peek_amqp_mut(c);
    if let Some(s) = conn.and_then(|conn| conn.remove_link(link)) {
        handle_gone(own, c, s, closed);
    }
}

/// As [`handle_detached`], of a link that its connection does not have any more.
pub(super) fn handle_gone(own: &mut Owners, c: ConnIdx, s: SessionIdx, closed: bool) {
    transactions::handle_detached(own, c, s, closed);
    nodes::leave(own, c, s, closed);
    resuming::leave(own, c, s, closed);
}

/// Ends one link, of a receiver that does not keep up.
pub(crate) fn detach(own: &mut Owners, session: SessionRef, why: &'static str) {
    let Some(entry) = own.sessions.resolve_mut(session) else {
        return;
    };
    let (Some(c), Some(link)) = (entry.conn, entry.amqp_mut().map(|link| link.link)) else {
        return;
    };
    if let Some(conn) = own.conns.amqp_mut(c) {
        let error = Error::new(condition::RESOURCE_LIMIT_EXCEEDED, why);
        let _ = conn.engine.detach(link, true, Some(&error));
        own.conns.touch(c);
    }
}

/// A link has its name, and what is kept under it.
pub(crate) fn granted(own: &mut Owners, link: SessionRef, serial: u64, outcomes: &Outcomes) {
    let s = link.at;
    let entry = own.sessions.resolve_mut(link);
    let Some(entry) = entry.and_then(|entry| entry.amqp_mut()) else {
        return own.outbox.note_missing();
    };
    let conn = entry.conn;
    let Some(keep) = entry.keep_mut() else {
        return own.outbox.note_missing();
    };
    let outcomes = outcomes.iter();
    keep.outcomes = outcomes
        .filter_map(|(tag, accepted)| Some((Tag::new(tag)?, *accepted)))
        .collect();
    let waiting = keep.waiting.take();
    own.weigh(s);
    let (Some(c), Some(waiting)) = (conn, waiting) else {
        return resuming::finish(own, s);
    };
    match waiting.node {
        Some((home, mut attach)) => {
            if let Some(keep) = &mut attach.keep {
                keep.serial = serial;
            }
            own.call(home, Call::Attach(attach));
        }
        None => accept(own, c, s, &waiting.attach),
    }
}

/// Another link has the name of this one.
pub(crate) fn stolen(own: &mut Owners, link: SessionRef) {
    let s = link.at;
    let entry = own.sessions.resolve_mut(link);
    let Some(entry) = entry.and_then(|entry| entry.amqp_mut()) else {
        return;
    };
    let (conn, id) = (entry.conn, entry.link);
    // It was not granted, so that there is nothing to give back.
    let keep = entry.keep_mut();
    let waits = keep.is_some_and(|keep| keep.waiting.is_some());
    if waits {
        entry.terminus = None;
    }
    let Some(c) = conn else {
        if waits {
            lifecycle::end_session(own, s);
        }
        return;
    };
    if let Some(conn) = own.conns.amqp_mut(c) {
        let error = Error::new(condition::STOLEN, "attached again");
        // It may be going already.
        let _ = conn.engine.detach(id, true, Some(&error));
        conn.remove_link(id);
        own.conns.touch(c);
    }
    handle_gone(own, c, s, false);
}
