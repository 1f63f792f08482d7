//! Links to the services of the broker: a sender to `$management` has requests
//! carried out, whose answers go to a receiver from there or to any node.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, DeliveryState, EncodeError, Map, Message as Scanned, MessageId, Properties,
    ReceiverSettleMode, Role, Section, SenderSettleMode, Source as Terminus, Symbol,
    TerminusDurability, Value, condition,
};
use dunlin_amqp::message::from_amqp;
use dunlin_amqp::{LinkId, Message, SessionId};
use dunlin_base::topic::validate_name;
use dunlin_base::{ShardId, Text};

use crate::access::Action;
use crate::amqp::attaching::{self, Refusal, TOPICS, create};
use crate::amqp::management::{self, Response, Wanted};
use crate::amqp::outcome::{rejected, settle};
use crate::amqp::outgoing;
use crate::amqp::state::{End, Listing, Open, Origin, Query, Replies, ReplyTo, Request, Requests};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::messages::publish;
use crate::messages::source::Source;
use crate::owners::Owners;
use crate::owners::node::BINDING;
use crate::owners::routing::Hit;
use crate::queues::addresses;
use crate::queues::calls::Call;
use crate::queues::orders::{self, Answer, Ask, Asked, Asker, Order};
use crate::random::home_shard;
use crate::reports::audit;

/// The address of the management of queues.
const MANAGEMENT: &str = "$management";

/// What a request says instead of an address, where a receiver has the name of its
/// link (AMQP Link Pairing 1.0).
const PAIRED: &str = "$me";

/// Requests of a link without an answer.
const REQUESTS_MAX: u32 = 16;

/// Bytes of a request.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;

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
    let address = match (attach.role, attach.target) {
        (Role::Sender, Some(AnyTarget::Target(target))) => target.address,
        (Role::Sender, _) => None,
        (Role::Receiver, _) => attach.source.and_then(|source| source.address),
    };
    is_service(address).then(|| match attach.role {
        Role::Sender => attach_incoming(own, c, ids, attach),
        Role::Receiver => attach_outgoing(own, c, ids, attach),
    })
}

/// Whether an address is that of a service.
fn is_service(address: Option<&str>) -> bool {
    address == Some(MANAGEMENT)
}

/// The client will send requests.
fn attach_incoming(
    own: &mut Owners,
    c: ConnIdx,
    (link, session): (LinkId, SessionId),
    attach: &Attach<'_>,
) -> Result<(), Refusal> {
    let end = End::Requests(Box::new(Requests {
        name: Text::from(attach.name),
        session,
        open: BTreeMap::new(),
        last: 0,
        credit: 0,
    }));
    let s = create(own, c, link, end)?;
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.links.insert(link, s);
        let answer = Attach {
            role: Role::Receiver,
            max_message_size: Some(REQUEST_BYTES_MAX),
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
) -> Result<(), Refusal> {
    let address = match attach.target {
        Some(AnyTarget::Target(target)) => target.address,
        Some(AnyTarget::Coordinator(_)) | None => None,
    };
    let end = End::Outgoing {
        origin: Origin::Service(Box::new(Replies {
            name: Text::from(attach.name),
            session,
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
        return;
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
    let settled = message.settled;
    let bytes = message.payload.into_bytes();
    let state = match begin(own, c, s, &bytes) {
        Ok(()) => DeliveryState::ACCEPTED,
        Err((condition, text)) => rejected(condition, text),
    };
    if !settled {
        settle(own, c, open, &state);
    }
    top_up(own, c, s);
}

/// Why a request cannot be answered.
type Mute = (Symbol<'static>, &'static str);

/// Has a request carried out.
fn begin(own: &mut Owners, c: ConnIdx, s: SessionIdx, bytes: &Bytes) -> Result<(), Mute> {
    let scanned = Scanned::scan(bytes).and_then(|it| it.check().map(|()| it));
    let scanned = scanned.map_err(|_| (condition::DECODE_ERROR, "not a message"))?;
    let properties = scanned.properties().ok().flatten().unwrap_or_default();
    let to = reply_to(own, c, s, properties.reply_to)?;
    let id = properties.correlation_id.or(properties.message_id);
    let correlation = id.map(|id| id.value().to_vec().unwrap_or_default());
    let correlation = correlation.unwrap_or_default();
    if correlation.len() > CORRELATION_BYTES_MAX {
        return Err((condition::INVALID_FIELD, "the correlation-id is too long"));
    }
    let request = Request {
        to,
        correlation,
        listing: None,
    };
    let wanted = management::read(&scanned);
    let done = match wanted {
        Err(response) | Ok(Wanted::Known(response)) => Some((request, response)),
        Ok(Wanted::Order(order)) => ask_one(own, s, request, order),
        Ok(Wanted::Query(query)) => ask_all(own, s, request, query),
    };
    if let Some((request, response)) = done {
        respond(own, s, request, &response);
    }
    Ok(())
}

/// Where the answer of a request goes.
fn reply_to(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    address: Option<&str>,
) -> Result<ReplyTo, Mute> {
    let none = (
        condition::PRECONDITION_FAILED,
        "reply-to names no receiver of this connection and no topic or queue",
    );
    let address = address.filter(|address| !address.is_empty());
    let is_receiver = address.is_none_or(|it| it == PAIRED || is_service(Some(it)));
    let receiver = match is_receiver {
        true => paired(own, c, s),
        false => find_receiver(own, c, |replies| replies.address.as_deref() == address),
    };
    if let Some(receiver) = receiver {
        return Ok(ReplyTo::Link(receiver));
    }
    let topic = address.filter(|_| !is_receiver).ok_or(none)?;
    let topic = topic.strip_prefix(TOPICS).unwrap_or(topic);
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

/// The receiver of answers that has the name of a link of requests, or else any.
fn paired(own: &mut Owners, c: ConnIdx, s: SessionIdx) -> Option<SessionRef> {
    let link = own.sessions.amqp_mut(s)?;
    let End::Requests(requests) = &link.end else {
        return None;
    };
    let (name, session) = (requests.name.clone(), requests.session);
    let same = |replies: &Replies| replies.name == name && replies.session == session;
    find_receiver(own, c, same).or_else(|| find_receiver(own, c, |_| true))
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
        return None;
    };
    requests.last += 1;
    let number = requests.last;
    requests.open.insert(number, request);
    Some(Asked {
        shard,
        link: reference,
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
    let home = ShardId(home_shard(address, own.config.shards));
    if let Err(text) = check_rights(own, s, &order) {
        return Some((request, Response::failed(403, text)));
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

/// Asks all shards for their queues. A link has one such request at a time.
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
    let rows = query.offset.saturating_add(query.count);
    request.listing = Some(Box::new(Listing {
        query,
        waiting: usize::from(own.config.shards),
        views: Vec::new(),
    }));
    let asked = keep(own, s, request)?;
    for shard in 0..own.config.shards {
        let ask = Ask {
            asked,
            asker: asker(own, s),
            order: Order::List { rows },
        };
        own.call(ShardId(shard), Call::Ask(Box::new(ask)));
    }
    None
}

/// What came of a request.
pub(crate) fn answered(own: &mut Owners, link: SessionRef, number: u64, answer: Answer) {
    let session = own.sessions.resolve_mut(link);
    let Some(entry) = session.and_then(|session| session.amqp_mut()) else {
        return;
    };
    let (Some(c), End::Requests(requests)) = (entry.conn, &mut entry.end) else {
        return;
    };
    let Some(request) = requests.open.get_mut(&number) else {
        return;
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
        (Answer::List(_), None) => return,
    };
    if let Some(request) = requests.open.remove(&number) {
        respond(own, link.at, request, &response);
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
        ReplyTo::Link(_) => Text::from_static(MANAGEMENT),
        ReplyTo::Address(address) => address.clone(),
    };
    let bytes = Bytes::from(write(&request, &topic, response).unwrap_or_default());
    let Ok(message) = from_amqp(&bytes, topic, own.now) else {
        own.stats.internal_errors += 1;
        return;
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
    let mut application = alloc::vec![
        (Value::String("statusCode"), Value::Int(status)),
        (
            Value::String("statusDescription"),
            Value::String(response.text),
        ),
    ];
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
