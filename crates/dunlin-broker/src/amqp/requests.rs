//! Links to the services of the broker: a sender to `$management` or `$cbs` has
//! requests carried out, whose answers go to a receiver from there, or to any node.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, DeliveryState, EncodeError, Map, Message as Scanned, MessageId, Properties,
    ReceiverSettleMode, Role, Section, SenderSettleMode, Source as Terminus, Symbol,
    TerminusDurability, Value, capability, condition,
};
use dunlin_amqp::message::from_amqp;
use dunlin_amqp::{LinkId, Message, SessionId};
use dunlin_base::Text;
use dunlin_base::topic::validate_name;

use crate::access::Action;
use crate::amqp::attaching::{self, AWAY, Refusal, create, refusal, topic_of};
use crate::amqp::management::{self, Response, Wanted};
use crate::amqp::outcome::{rejected, settle};
use crate::amqp::service::Service;
use crate::amqp::state::{End, Listing, Open, Origin, Query, Replies, ReplyTo, Request, Requests};
use crate::amqp::{cbs, outgoing};
use crate::auth::AuthAnswer;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::messages::publish;
use crate::messages::source::Source;
use crate::owners::Owners;
use crate::owners::node::BINDING;
use crate::owners::routing::Hit;
use crate::queues::addresses;
use crate::queues::calls::Call;
use crate::queues::orders::{self, Answer, Ask, Asked, Asker, Order};
use crate::reports::audit;

/// What a request says instead of an address, where a receiver has the name of its
/// link (AMQP Link Pairing 1.0).
const PAIRED: &str = "$me";

/// Properties of a link that is one of a pair.
const PAIR: [(Value<'static>, Value<'static>); 1] =
    [(Value::Symbol(capability::PAIRED), Value::Bool(true))];

/// Requests of a link without an answer.
const REQUESTS_MAX: u32 = 16;

/// Bytes of the id that an answer repeats.
const CORRELATION_BYTES_MAX: usize = 1024;

/// Answers that wait for the credit of their receiver; later ones are dropped.
const REPLIES_MAX: usize = 64;

/// The client asks for a link to a service, or else for another one.
pub(super) fn attach(
    own: &mut Owners,
    c: ConnIdx,
    ids: (LinkId, SessionId),
    attach: &Attach<'_>,
) -> Option<Result<(), Refusal>> {
    let service = service_of(attach)?;
    Some(
        cbs::check(own, c, service).and_then(|()| match attach.role {
            Role::Sender => attach_incoming(own, c, ids, attach, service),
            Role::Receiver => attach_outgoing(own, c, ids, attach, service),
        }),
    )
}

/// Whether a link is to the service that takes tokens.
pub(super) fn takes_tokens(attach: &Attach<'_>) -> bool {
    service_of(attach) == Some(Service::Cbs)
}

/// The service that a link is to.
fn service_of(attach: &Attach<'_>) -> Option<Service> {
    let address = match (attach.role, attach.target) {
        (Role::Sender, Some(AnyTarget::Target(target))) => target.address,
        (Role::Sender, _) => None,
        (Role::Receiver, _) => attach.source.and_then(|source| source.address),
    };
    address.and_then(Service::at)
}

/// Whether a link is to be one of a pair: of two with one name and opposite directions
/// on a session (AMQP Link Pairing 1.0).
fn is_paired(attach: &Attach<'_>) -> Result<bool, Refusal> {
    let properties = attach.properties.unwrap_or_default();
    match properties.get(capability::PAIRED.as_str()) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(paired)) => Ok(paired),
        Some(_) => {
            let text = "the link property paired is no boolean";
            Err(refusal(condition::INVALID_FIELD, text))
        }
    }
}

/// The properties of the answer.
fn properties_of(paired: bool) -> Option<Map<'static>> {
    paired.then_some(Map::new(&PAIR))
}

/// The client will send requests.
fn attach_incoming(
    own: &mut Owners,
    c: ConnIdx,
    (link, session): (LinkId, SessionId),
    attach: &Attach<'_>,
    service: Service,
) -> Result<(), Refusal> {
    let paired = is_paired(attach)?;
    let end = End::Requests(Box::new(Requests {
        service,
        name: Text::from(attach.name),
        session,
        paired,
        open: BTreeMap::new(),
        last: 0,
        credit: 0,
    }));
    let s = create(own, c, link, end)?;
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.links.insert(link, s);
        let answer = Attach {
            role: Role::Receiver,
            max_message_size: Some(service.bytes_max()),
            properties: properties_of(paired),
            ..attaching::answer(attach)
        };
        let _ = conn.engine.accept_attach(link, &answer);
    }
    top_up(own, c, s);
    Ok(())
}

/// The client will receive answers.
fn attach_outgoing(
    own: &mut Owners,
    c: ConnIdx,
    (link, session): (LinkId, SessionId),
    attach: &Attach<'_>,
    service: Service,
) -> Result<(), Refusal> {
    let address = match attach.target {
        Some(AnyTarget::Target(target)) => target.address,
        Some(AnyTarget::Coordinator(_)) | None => None,
    };
    let paired = is_paired(attach)?;
    let end = End::Outgoing {
        origin: Origin::Service(Box::new(Replies {
            service,
            name: Text::from(attach.name),
            session,
            paired,
            address: address.map(Text::from),
        })),
        settled: attach.snd_settle_mode == SenderSettleMode::Settled,
        drain: false,
        wants: None,
    };
    let s = create(own, c, link, end)?;
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.links.insert(link, s);
        let answer = Attach {
            role: Role::Sender,
            source: attach.source.map(|source| Terminus {
                durable: TerminusDurability::None,
                timeout: 0,
                filter: None,
                distribution_mode: None,
                default_outcome: None,
                ..source
            }),
            properties: properties_of(paired),
            ..attaching::answer(attach)
        };
        let _ = conn.engine.accept_attach(link, &answer);
        own.conns.touch(c);
    }
    Ok(())
}

/// Gives a link credit for as many requests as may be without an answer.
fn top_up(own: &mut Owners, c: ConnIdx, s: SessionIdx) {
    let Some(session) = own.sessions.amqp_mut(s) else {
        return;
    };
    let link = session.link;
    let End::Requests(requests) = &mut session.end else {
        return own.outbox.note_missing();
    };
    let open = u32::try_from(requests.open.len()).unwrap_or(u32::MAX);
    let may = REQUESTS_MAX.saturating_sub(open);
    if requests.credit <= REQUESTS_MAX / 2 && may > requests.credit {
        requests.credit = may;
        if let Some(conn) = own.conns.amqp_mut(c) {
            let _ = conn.engine.set_credit(link, may, false);
            own.conns.touch(c);
        }
    }
}

/// A request came whole.
pub(super) fn handle_message(own: &mut Owners, c: ConnIdx, s: SessionIdx, message: Message<'_>) {
    if let Some(link) = own.sessions.amqp_mut(s)
        && let End::Requests(requests) = &mut link.end
    {
        requests.credit = requests.credit.saturating_sub(1);
    }
    let open = Open {
        delivery: message.delivery,
        second: message.rcv_settle_mode == ReceiverSettleMode::Second,
    };
    let open = (!message.settled).then_some(open);
    let bytes = message.payload.into_bytes();
    match (begin(own, c, s, &bytes, open), open) {
        (Ok(Begun::Taken), Some(open)) => settle(own, c, open, &DeliveryState::ACCEPTED),
        (Err((condition, text)), Some(open)) => {
            settle(own, c, open, &rejected(condition, text));
        }
        (Ok(_) | Err(_), _) => {}
    }
    top_up(own, c, s);
}

/// What becomes of the message of a request that is carried out.
enum Begun {
    /// It is accepted, and its answer is another message.
    Taken,
    /// Its outcome is the answer.
    Answered,
}

/// Why a request cannot be answered.
type Mute = (Symbol<'static>, &'static str);

/// Has a request carried out.
fn begin(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    bytes: &Bytes,
    open: Option<Open>,
) -> Result<Begun, Mute> {
    let service = match own.sessions.amqp_mut(s).map(|link| &link.end) {
        Some(End::Requests(requests)) => requests.service,
        _ => return Err((condition::INTERNAL_ERROR, "no link of requests")),
    };
    let scanned = Scanned::scan(bytes).and_then(|it| it.check().map(|()| it));
    let scanned = scanned.map_err(|_| (condition::DECODE_ERROR, "not a message"))?;
    let properties = scanned.properties().ok().flatten().unwrap_or_default();
    let (to, begun) = match service == Service::Cbs && cbs::is_set(&properties) {
        true => (ReplyTo::Outcome(open), Begun::Answered),
        false => (
            reply_to(own, c, (s, service), properties.reply_to)?,
            Begun::Taken,
        ),
    };
    let id = properties.correlation_id.or(properties.message_id);
    let correlation = id.map(|id| id.value().to_vec().unwrap_or_default());
    let correlation = correlation.unwrap_or_default();
    if correlation.len() > CORRELATION_BYTES_MAX {
        return Err((condition::INVALID_FIELD, "the correlation-id is too long"));
    }
    let request = Request {
        service,
        to,
        correlation,
        listing: None,
    };
    let wanted = match service {
        Service::Management => management::read(&scanned),
        Service::Cbs => cbs::read(&scanned, &properties),
    };
    let done = match wanted {
        Err(response) | Ok(Wanted::Known(response)) => Some((request, response)),
        Ok(Wanted::Order(order)) => ask_one(own, s, request, order),
        Ok(Wanted::Query(query)) => ask_all(own, s, request, query),
        Ok(Wanted::NoToken) => Some((request, cbs::delete(own, c))),
        Ok(Wanted::Token(token)) => match cbs::admit(own, c) {
            Err(response) => Some((request, response)),
            Ok(()) => {
                let asked = keep(own, s, request);
                if let Some((link, number)) = asked.and_then(|it| Some((it.link?, it.number))) {
                    cbs::submit(own, c, (link, number), token);
                }
                None
            }
        },
    };
    if let Some((request, response)) = done {
        respond(own, s, request, &response);
    }
    Ok(begun)
}

/// Where the answer of a request goes.
fn reply_to(
    own: &mut Owners,
    c: ConnIdx,
    (s, service): (SessionIdx, Service),
    address: Option<&str>,
) -> Result<ReplyTo, Mute> {
    let none = (
        condition::PRECONDITION_FAILED,
        "reply-to names no receiver of this connection and no topic or queue",
    );
    let address = address.filter(|address| !address.is_empty());
    let is_receiver = address.is_none_or(|it| it == PAIRED || it == service.address());
    let receiver = match is_receiver {
        true => paired(own, c, s),
        false => find_receiver(own, c, |replies| {
            replies.service == service && replies.address.as_deref() == address
        }),
    };
    if let Some(receiver) = receiver {
        return Ok(ReplyTo::Link(receiver));
    }
    // What becomes of tokens is said to the client itself.
    let is_topic = !is_receiver && service == Service::Management;
    let topic = address.filter(|_| is_topic).map(topic_of).ok_or(none)?;
    if validate_name(topic).is_err() {
        return Err(none);
    }
    // The broker says the name of a dynamic node only to the client that has it.
    if !addresses::is_dynamic(topic) && !own.may_publish(s, topic) {
        audit::note_denied(own, s, "may not have answers sent", topic);
        let text = "may not publish to reply-to";
        return Err((condition::UNAUTHORIZED_ACCESS, text));
    }
    Ok(ReplyTo::Address(Text::from(topic)))
}

/// The receiver of answers that has the name of a link of requests. Where the link is
/// none of a pair, any other that is none either will do.
fn paired(own: &mut Owners, c: ConnIdx, s: SessionIdx) -> Option<SessionRef> {
    let link = own.sessions.amqp_mut(s)?;
    let End::Requests(requests) = &link.end else {
        own.outbox.note_missing();
        return None;
    };
    let (name, session, paired) = (requests.name.clone(), requests.session, requests.paired);
    let service = requests.service;
    let same = |it: &Replies| {
        let is_named = it.service == service && it.name == name && it.session == session;
        is_named && (it.paired || !paired)
    };
    let any = |it: &Replies| it.service == service && !paired && !it.paired;
    find_receiver(own, c, same).or_else(|| find_receiver(own, c, any))
}

/// A receiver of answers of this connection, of which there are few.
fn find_receiver(own: &Owners, c: ConnIdx, is_it: impl Fn(&Replies) -> bool) -> Option<SessionRef> {
    let links = own.conns.amqp(c)?.links.values();
    links.copied().find_map(|s| {
        let session = own.sessions.get(s)?;
        let replies = session.amqp()?.replies()?;
        is_it(replies).then(|| session.reference(s))
    })
}

/// Keeps a request until it is answered.
fn keep(own: &mut Owners, s: SessionIdx, request: Request) -> Option<Asked> {
    let shard = own.config.shard;
    let link = own.sessions.amqp_mut(s)?;
    let reference = link.reference(s);
    let End::Requests(requests) = &mut link.end else {
        own.outbox.note_missing();
        return None;
    };
    requests.last += 1;
    let number = requests.last;
    requests.open.insert(number, request);
    Some(Asked {
        shard,
        link: Some(reference),
        number,
    })
}

fn asker(own: &mut Owners, s: SessionIdx) -> Asker {
    let link = own.sessions.amqp_mut(s);
    Asker {
        user: link.as_ref().and_then(|link| link.user.clone()),
        client_id: link
            .as_ref()
            .map(|it| it.client_id.clone())
            .unwrap_or_default(),
        rules: link.as_ref().and_then(|link| link.rules.clone()),
        standing: link.map(|link| link.standing).unwrap_or_default(),
    }
}

/// Asks for something of one queue; comes back with an answer if there is one at
/// once.
fn ask_one(
    own: &mut Owners,
    s: SessionIdx,
    request: Request,
    order: Order,
) -> Option<(Request, Response)> {
    let (address, _) = order.right()?;
    let home = own.members.home(address);
    if let Err(text) = check_rights(own, s, &order) {
        return Some((request, Response::failed(403, text)));
    }
    if !own.members.has(home) {
        return Some((request, Response::failed(503, AWAY)));
    }
    let asker = asker(own, s);
    if let Some(asked) = keep(own, s, request) {
        let ask = Ask {
            asked,
            asker,
            order,
        };
        own.call(home, Call::Ask(Box::new(ask)));
    }
    None
}

/// Whether the rules allow an order, and what it makes a queue do: take from topics
/// and send to another queue.
fn check_rights(own: &mut Owners, s: SessionIdx, order: &Order) -> Result<(), &'static str> {
    let Some((address, action)) = order.right() else {
        return Ok(());
    };
    let name = orders::right_of(address);
    if !own.may(s, action, &name) {
        audit::note_denied(own, s, "may not manage the queue", address);
        return Err("may not do this to the queue");
    }
    let Some(changes) = order.changes() else {
        return Ok(());
    };
    let topics = changes.topics.iter().flatten();
    for topic in topics {
        if !own.may(s, Action::Subscribe, topic) {
            audit::note_denied(own, s, "may not bind a queue", topic);
            return Err("may not subscribe to one of the topics");
        }
    }
    let dead = changes.dead_letter.as_ref().filter(|it| !it.is_empty());
    if let Some(dead) = dead
        && !own.may(s, Action::Publish, dead)
    {
        audit::note_denied(own, s, "may not send dead messages", dead);
        return Err("may not publish to the queue dead_letter");
    }
    Ok(())
}

/// Asks all homes for their queues. A link has one such request at a time.
fn ask_all(
    own: &mut Owners,
    s: SessionIdx,
    mut request: Request,
    query: Query,
) -> Option<(Request, Response)> {
    let is_asking = own
        .sessions
        .amqp_mut(s)
        .is_some_and(|link| match &link.end {
            End::Requests(requests) => requests.open.values().any(|it| it.listing.is_some()),
            _ => false,
        });
    if is_asking {
        let text = "another query of this link is under way";
        return Some((request, Response::failed(409, text)));
    }
    if !own.members.homes().iter().all(|home| own.members.has(home)) {
        return Some((request, Response::failed(503, AWAY)));
    }
    let rows = query.offset.saturating_add(query.count);
    request.listing = Some(Box::new(Listing {
        query,
        waiting: own.members.homes().iter().count(),
        views: Vec::new(),
    }));
    let asked = keep(own, s, request)?;
    for home in own.members.homes().iter() {
        let ask = Ask {
            asked,
            asker: asker(own, s),
            order: Order::List { rows },
        };
        own.call(home, Call::Ask(Box::new(ask)));
    }
    None
}

/// What came of a request.
pub(crate) fn answered(own: &mut Owners, link: SessionRef, number: u64, answer: Answer) {
    let session = own.sessions.resolve_mut(link);
    let Some(entry) = session.and_then(|session| session.amqp_mut()) else {
        return;
    };
    let End::Requests(requests) = &mut entry.end else {
        return own.outbox.note_missing();
    };
    let Some(request) = requests.open.get_mut(&number) else {
        return own.outbox.note_missing();
    };
    let response = match (answer, &mut request.listing) {
        (Answer::List(views), Some(listing)) => {
            listing.views.extend(views);
            listing.waiting = listing.waiting.saturating_sub(1);
            if listing.waiting > 0 {
                return;
            }
            list(listing)
        }
        (Answer::Created(view), _) => management::shown(201, "Created", &view),
        (Answer::Queue(view), _) => management::shown(200, "OK", &view),
        (Answer::Deleted, _) => Response::failed(204, "No Content"),
        (Answer::Purged(messages), _) => management::purged(messages),
        (Answer::Refused(problem), _) => management::refused(problem),
        (Answer::List(_), None) => return own.outbox.note_missing(),
    };
    conclude(own, link, number, &response);
}

/// The authenticator has answered for a token.
pub(crate) fn handle_verified(own: &mut Owners, c: ConnIdx, answer: AuthAnswer) {
    if let Some((link, number, response)) = cbs::decide(own, c, answer) {
        conclude(own, link, number, &response);
        cbs::go_on(own, c);
    }
}

/// Answers a request that was kept, if its link is still there.
fn conclude(own: &mut Owners, link: SessionRef, number: u64, response: &Response) {
    let session = own.sessions.resolve_mut(link);
    let Some(entry) = session.and_then(|session| session.amqp_mut()) else {
        return;
    };
    let Some(c) = entry.conn else {
        return;
    };
    let End::Requests(requests) = &mut entry.end else {
        return own.outbox.note_missing();
    };
    if let Some(request) = requests.open.remove(&number) {
        respond(own, link.at, request, response);
    }
    top_up(own, c, link.at);
}

/// The queues of all shards that a query wants.
fn list(listing: &mut Listing) -> Response {
    let query = &listing.query;
    listing.views.sort_by(|a, b| a.address.cmp(&b.address));
    let views = &listing.views;
    let begin = query.offset.min(views.len());
    let end = begin.saturating_add(query.count).min(views.len());
    management::listed(query, views.get(begin..end).unwrap_or_default())
}

/// Sends an answer; it is lost where the client takes none.
fn respond(own: &mut Owners, s: SessionIdx, request: Request, response: &Response) {
    let topic = match &request.to {
        ReplyTo::Link(_) => Text::from_static(request.service.address()),
        ReplyTo::Address(address) => address.clone(),
        ReplyTo::Outcome(open) => return say_outcome(own, s, *open, response),
    };
    let bytes = Bytes::from(write(&request, &topic, response).unwrap_or_default());
    let Ok(message) = from_amqp(&bytes, topic, own.now) else {
        return own.outbox.note_missing();
    };
    let message = Arc::new(message);
    let mut source = Source::of(&message, own.now);
    match request.to {
        ReplyTo::Link(to) => {
            let receiver = own.sessions.resolve_mut(to);
            let has_room = receiver.is_some_and(|it| it.queue().len() < REPLIES_MAX);
            match has_room {
                true => {
                    let hit = Hit::new(to.at, &BINDING, None);
                    outgoing::deliver_once(own, &mut source, &hit, false);
                }
                false => own.stats.messages_dropped_slow += 1,
            }
        }
        ReplyTo::Address(_) => {
            if addresses::is_queue(&message.topic) {
                source = source.for_queue();
            }
            let token = own.commits.token();
            let origin = own.sessions.peek(s).map(|session| session.reference(s));
            publish::dispatch(own, origin, token, &mut source, None);
        }
        ReplyTo::Outcome(_) => {}
    }
}

/// Says by the outcome of a request what came of it.
fn say_outcome(own: &mut Owners, s: SessionIdx, open: Option<Open>, response: &Response) {
    let conn = own.sessions.peek(s).and_then(|session| session.conn);
    if let (Some(c), Some(open)) = (conn, open) {
        let state = match response.is_good() {
            true => DeliveryState::ACCEPTED,
            false => rejected(cbs::condition_of(response.status), response.text),
        };
        settle(own, c, open, &state);
    }
}

/// The sections of an answer.
fn write(request: &Request, to: &str, response: &Response) -> Result<Vec<u8>, EncodeError> {
    let id = Value::decode(&request.correlation).ok();
    let properties = Properties {
        to: Some(to),
        correlation_id: id.and_then(MessageId::from_value),
        ..Properties::default()
    };
    let status = i32::from(response.status);
    let [code, description] = request.service.names();
    let mut application = alloc::vec![
        (Value::String(code), Value::Int(status)),
        (Value::String(description), Value::String(response.text)),
    ];
    if request.service == Service::Cbs && !response.is_good() {
        let condition = Value::Symbol(cbs::condition_of(response.status));
        application.push((Value::String("error-condition"), condition));
    }
    if let Some(rows) = response.rows {
        let rows = i32::try_from(rows).unwrap_or(i32::MAX);
        application.push((Value::String("count"), Value::Int(rows)));
    }
    let application = Value::Map(Map::new(&application));
    let mut out = Vec::with_capacity(256 + response.body.len());
    properties.encode(&mut out)?;
    Section::ApplicationProperties.encode(&application, &mut out)?;
    out.extend([0x00, 0x53, Section::AmqpValue as u8]);
    out.extend(&response.body);
    Ok(out)
}
