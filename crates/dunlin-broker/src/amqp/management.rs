//! What AMQP Management 1.0 (working draft 11) says of queues: requests to orders,
//! answers to bodies of messages. An entity has the type `dunlin.queue`, and the
//! attributes that `[[queue]]` has in the configuration.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_amqp::codec::{List, Map, Message as Scanned, Value};
use dunlin_base::Text;
use dunlin_base::topic::Filter;

use crate::amqp::state::Query;
use crate::queues::addresses::{self, QUEUES};
use crate::queues::options::Overflow;
use crate::queues::orders::{Changes, Order, Problem, View};

/// Type of a queue.
const QUEUE: &str = "dunlin.queue";

/// Type of the management node itself.
const NODE: &str = "org.amqp.management";

/// What is known of a queue, in the order of an answer.
const ATTRIBUTES: [&str; 17] = [
    "name",
    "identity",
    "type",
    "configured",
    "durable",
    "topics",
    "max_messages",
    "max_bytes",
    "full",
    "ttl",
    "levels",
    "max_deliveries",
    "dead_letter",
    "messages",
    "unsettled",
    "bytes",
    "consumers",
];

/// Operations on a queue.
const OPERATIONS: [&str; 5] = ["CREATE", "READ", "UPDATE", "DELETE", "PURGE"];

/// Most queues in one answer.
pub(super) const ROWS_MAX: usize = 1000;

/// An answer without its way back.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) text: &'static str,
    /// Queues that it tells of, if it answers a query.
    pub(super) rows: Option<usize>,
    /// The encoded value that is the body.
    pub(super) body: Vec<u8>,
}

impl Response {
    /// A body that is a map.
    fn map(status: u16, text: &'static str, entries: &[(Value<'_>, Value<'_>)]) -> Self {
        // An answer fits into what AMQP can say.
        let body = Value::Map(Map::new(entries)).to_vec();
        Self {
            status,
            text,
            rows: None,
            body: body.unwrap_or_default(),
        }
    }

    /// An answer whose body is empty.
    pub(super) fn failed(status: u16, text: &'static str) -> Self {
        Self::map(status, text, &[])
    }

    pub(super) const fn is_good(&self) -> bool {
        matches!(self.status, 200..300)
    }
}

/// What a request wants.
#[derive(Debug)]
pub(super) enum Wanted {
    /// Of one queue.
    Order(Order),
    /// Of all.
    Query(Query),
    /// What is known without asking.
    Known(Response),
    /// To set this token.
    Token(Text),
    /// To take the one that is set back.
    NoToken,
}

fn bad(text: &'static str) -> Response {
    Response::failed(400, text)
}

/// What a request wants, or what it is answered at once.
pub(super) fn read(scanned: &Scanned<'_>) -> Result<Wanted, Response> {
    let application = scanned.application_properties().ok().flatten();
    let application = application.unwrap_or_default();
    let text = |name| application.get(name).and_then(|value| value.as_str());
    let Some(operation) = text("operation") else {
        return Err(bad("the application property operation is missing"));
    };
    match operation {
        "QUERY" => return query(scanned, &application).map(Wanted::Query),
        "GET-TYPES" => return Ok(Wanted::Known(types())),
        "GET-ATTRIBUTES" => return Ok(Wanted::Known(names_by_type(&ATTRIBUTES))),
        "GET-OPERATIONS" => return Ok(Wanted::Known(names_by_type(&OPERATIONS))),
        "GET-MGMT-NODES" => {
            let mut response = Response::failed(200, "OK");
            response.body = Value::List(List::new(&[])).to_vec().unwrap_or_default();
            return Ok(Wanted::Known(response));
        }
        _ if !OPERATIONS.contains(&operation) => {
            return Err(Response::failed(501, "there is no such operation"));
        }
        _ => {}
    }
    if text("type").is_some_and(|name| name != QUEUE) {
        return Err(Response::failed(
            501,
            "there are only entities of type dunlin.queue",
        ));
    }
    let Some(name) = text("identity").or_else(|| text("name")) else {
        return Err(bad("the application property name or identity is missing"));
    };
    let Some(address) = addresses::of_queue(name) else {
        return Err(bad("the name is no name of a queue"));
    };
    let address = Text::from(address);
    let changes = || -> Result<Box<Changes>, Response> {
        let changes = changes(&body(scanned)?)?;
        changes.check(&address).map_err(bad)?;
        Ok(Box::new(changes))
    };
    Ok(Wanted::Order(match operation {
        "CREATE" => Order::Create(address.clone(), changes()?),
        "UPDATE" => Order::Update(address.clone(), changes()?),
        "DELETE" => Order::Delete(address),
        "PURGE" => Order::Purge(address, usize::MAX),
        _ => Order::Read(address),
    }))
}

/// The map that the body of a request is; a body that is missing is empty.
fn body<'a>(scanned: &Scanned<'a>) -> Result<Map<'a>, Response> {
    match scanned.body().values().next() {
        Some(Ok(Value::Map(map))) => Ok(map),
        Some(Ok(Value::Null)) | None => Ok(Map::default()),
        Some(_) => Err(bad("the body is no map")),
    }
}

fn query(scanned: &Scanned<'_>, application: &Map<'_>) -> Result<Query, Response> {
    let entity = application.get("entityType").and_then(|it| it.as_str());
    if entity.is_some_and(|entity| entity != QUEUE) {
        return Err(Response::failed(
            501,
            "there are only entities of type dunlin.queue",
        ));
    }
    let number = |name, usual: usize| match application.get(name) {
        None | Some(Value::Null) => Ok(usual),
        Some(value) => size(&value).ok_or_else(|| bad("offset and count are numbers")),
    };
    let body = body(scanned)?;
    let wanted = match body.get("attributeNames") {
        Some(Value::List(list)) => list,
        None | Some(Value::Null) => List::default(),
        Some(_) => return Err(bad("attributeNames is a list")),
    };
    let known = |value: Value<'_>| {
        let name = value.as_str()?;
        ATTRIBUTES.into_iter().find(|known| *known == name)
    };
    let names: Option<Vec<&'static str>> = match wanted.is_empty() {
        true => Some(ATTRIBUTES.to_vec()),
        // A name may come twice, but not without end.
        false => wanted.iter().take(ATTRIBUTES.len()).map(known).collect(),
    };
    Ok(Query {
        offset: number("offset", 0)?,
        count: number("count", ROWS_MAX)?.min(ROWS_MAX),
        names: names.ok_or_else(|| bad("there is no such attribute"))?,
    })
}

fn size(value: &Value<'_>) -> Option<usize> {
    let number = value.as_u64();
    let number = number.or_else(|| value.as_i64().and_then(|it| u64::try_from(it).ok()));
    number.map(|it| usize::try_from(it).unwrap_or(usize::MAX))
}

/// What a body says of the options of a queue.
fn changes(map: &Map<'_>) -> Result<Changes, Response> {
    let mut changes = Changes::default();
    for (name, value) in map.iter() {
        let name = name.as_str().unwrap_or_default();
        change(&mut changes, name, &value).ok_or_else(|| match name {
            "name" | "identity" | "type" | "configured" => bad("a queue keeps its name and type"),
            "messages" | "unsettled" | "bytes" | "consumers" => bad("a count cannot be set"),
            _ if ATTRIBUTES.contains(&name) => bad("an attribute with a value of the wrong type"),
            _ => bad("there is no such attribute"),
        })?;
    }
    Ok(changes)
}

/// One of them; `None`: it is not possible.
fn change(changes: &mut Changes, name: &str, value: &Value<'_>) -> Option<()> {
    match name {
        "durable" => match value {
            Value::Bool(durable) => changes.durable = Some(*durable),
            _ => return None,
        },
        "max_messages" => changes.messages_max = Some(size(value)?),
        "max_bytes" => changes.bytes_max = Some(size(value)?),
        "levels" => changes.levels = Some(u8::try_from(size(value)?).ok()?),
        "max_deliveries" => changes.deliveries_max = Some(u16::try_from(size(value)?).ok()?),
        "ttl" => changes.ttl = Some(Duration::from_millis(size(value)? as u64)),
        "full" => {
            let all = [Overflow::Reject, Overflow::DropNewest, Overflow::DropOldest];
            let known = all.into_iter().find(|it| Some(it.name()) == value.as_str());
            changes.overflow = Some(known?);
        }
        "dead_letter" => {
            changes.dead_letter = Some(match value {
                Value::Null | Value::String("") => Text::new(),
                value => Text::from(addresses::of_queue(value.as_str()?)?),
            });
        }
        "topics" => {
            let Value::List(list) = value else {
                return None;
            };
            changes.topics = Some(list.iter().map(topic).collect::<Option<_>>()?);
        }
        _ => return None,
    }
    Some(())
}

/// A topic filter that a queue may be bound to.
fn topic(value: Value<'_>) -> Option<Text> {
    let filter = value.as_str()?;
    let parsed = Filter::parse(filter).ok()?;
    parsed.share.is_none().then(|| Text::from(filter))
}

/// An attribute of a queue, of which `topics` are those as values.
fn attribute<'a>(view: &'a View, topics: &'a [Value<'a>], name: &str) -> Value<'a> {
    let options = &view.options;
    let name_of = |address: &'a Text| address.strip_prefix(QUEUES).unwrap_or(address);
    match name {
        "name" => Value::String(name_of(&view.address)),
        "identity" => Value::String(&view.address),
        "type" => Value::String(QUEUE),
        "configured" => Value::Bool(view.configured),
        "durable" => Value::Bool(options.durable),
        "topics" => Value::List(List::new(topics)),
        "max_messages" => Value::Ulong(options.messages_max as u64),
        "max_bytes" => Value::Ulong(options.bytes_max as u64),
        "full" => Value::String(options.overflow.name()),
        "ttl" => Value::Ulong(options.ttl.map_or(0, |ttl| ttl.as_millis() as u64)),
        "levels" => Value::Ubyte(options.levels),
        "max_deliveries" => Value::Ushort(options.deliveries_max),
        "dead_letter" => {
            let dead = options.dead_letter.as_ref();
            dead.map_or(Value::Null, |dead| Value::String(name_of(dead)))
        }
        "messages" => Value::Ulong(view.messages as u64),
        "unsettled" => Value::Ulong(view.unsettled as u64),
        "bytes" => Value::Ulong(view.bytes as u64),
        "consumers" => Value::Ulong(view.consumers as u64),
        _ => Value::Null,
    }
}

fn topics_of(view: &View) -> Vec<Value<'_>> {
    view.topics.iter().map(|it| Value::String(it)).collect()
}

/// A queue as it is.
pub(super) fn shown(status: u16, text: &'static str, view: &View) -> Response {
    let topics = topics_of(view);
    let entries = ATTRIBUTES.map(|name| (Value::String(name), attribute(view, &topics, name)));
    Response::map(status, text, &entries)
}

/// A queue was emptied.
pub(super) fn purged(messages: u64) -> Response {
    let entry = (Value::String("messages"), Value::Ulong(messages));
    Response::map(200, "OK", &[entry])
}

/// Queues as a query wants them.
pub(super) fn listed(query: &Query, views: &[View]) -> Response {
    let topics: Vec<Vec<Value<'_>>> = views.iter().map(topics_of).collect();
    let rows: Vec<Vec<Value<'_>>> = views
        .iter()
        .zip(&topics)
        .map(|(view, topics)| {
            let names = query.names.iter();
            names.map(|name| attribute(view, topics, name)).collect()
        })
        .collect();
    let results: Vec<Value<'_>> = rows.iter().map(|it| Value::List(List::new(it))).collect();
    let names: Vec<Value<'_>> = query.names.iter().map(|it| Value::String(it)).collect();
    let entries = [
        (
            Value::String("attributeNames"),
            Value::List(List::new(&names)),
        ),
        (Value::String("results"), Value::List(List::new(&results))),
    ];
    Response {
        rows: Some(views.len()),
        ..Response::map(200, "OK", &entries)
    }
}

/// Types of entities, each with those that it is one of.
fn types() -> Response {
    let none = Value::List(List::new(&[]));
    let entries = [QUEUE, NODE].map(|name| (Value::String(name), none));
    Response::map(200, "OK", &entries)
}

/// Names that hold for a queue.
fn names_by_type(names: &[&'static str]) -> Response {
    let names: Vec<Value<'_>> = names.iter().map(|it| Value::String(it)).collect();
    let entry = (Value::String(QUEUE), Value::List(List::new(&names)));
    Response::map(200, "OK", &[entry])
}

/// Why an order was not carried out.
pub(super) fn refused(problem: Problem) -> Response {
    let (status, text) = match problem {
        Problem::NotFound => (404, "there is no such queue"),
        Problem::Exists => (409, "there is such a queue already"),
        Problem::Configured => (
            403,
            "the queue is of the configuration of the broker, which alone changes it",
        ),
        Problem::Busy => (409, "the queue is being made or changed"),
        Problem::Durable => (400, "whether a queue is durable does not change"),
        Problem::NoRoom => (507, "no room for another queue"),
        Problem::Store => (500, "the store refused it"),
    };
    Response::failed(status, text)
}
