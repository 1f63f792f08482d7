//! Queues of AMQP: listed, shown, made, changed, deleted, looked into, emptied, moved.
//! What takes long goes in steps, each of which a shard does within 2 ms.

use core::time::Duration;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dunlin_base::{Message, ShardId, Text, topic};
use dunlin_broker::Overflow;
use dunlin_broker::control::values as shard;
use dunlin_broker::control::values::{QueueAnswer, QueueChanges, QueueProblem, QueueView};

use super::plane::{Outcome, Plane, silent};
use super::topics::bad;
use super::values::{
    Code, Failure, Full, PEEKED_MAX, Page, PageOf, Queue, QueueOptions, QueuedMessage, Reply,
    Request,
};

/// Messages that a shard removes in one step.
const PURGED_MAX: u64 = 1000;

/// How long steps follow each other before there is an answer.
const STEPS_TIME: Duration = Duration::from_secs(1);

/// How long messages are waited for that come from the store.
const LOAD_TIME: Duration = Duration::from_secs(1);

/// Time between two questions whether they are there.
const LOAD_PAUSE: Duration = Duration::from_millis(5);

/// Bytes of payloads in an answer.
const PAYLOADS_MAX: usize = 1 << 20;

/// In front of the name of a queue in its address.
const QUEUES: &str = "/queues/";

/// One function for each request about queues.
pub(super) fn carry_out(plane: &Plane, request: &Request) -> Outcome {
    match request {
        Request::Queues { page } => list(plane, page),
        Request::Queue { name } => one(plane, name, shard::Request::Queue),
        Request::CreateQueue { name, options } => {
            let changes = Box::new(changes(name, options)?);
            one(plane, name, |address| {
                shard::Request::CreateQueue(address, changes)
            })
        }
        Request::ChangeQueue { name, options } => {
            let changes = Box::new(changes(name, options)?);
            one(plane, name, |address| {
                shard::Request::ChangeQueue(address, changes)
            })
        }
        Request::DeleteQueue { name } => match ask(plane, name, shard::Request::DeleteQueue)? {
            QueueAnswer::Deleted => Ok(done(1, 0)),
            _ => Err(silent()),
        },
        Request::PeekQueue { name, limit } => peek(plane, name, *limit),
        Request::PurgeQueue { name, left } => purge(plane, name, *left),
        Request::MoveMessages { name, to, left } => move_messages(plane, (name, to), *left),
        _ => Err(bad("this is not about a queue")),
    }
}

fn list(plane: &Plane, page: &PageOf) -> Outcome {
    let ask = |at, limit| shard::Request::Queues { at, limit };
    let rows_of = |reply| match reply {
        shard::Reply::Queues(page) => Some(page),
        _ => None,
    };
    let (found, next) = plane.walk(page, ask, rows_of)?;
    let rows = found.into_iter().map(|(_, view)| queue(&view)).collect();
    Ok(Reply::Queues(Page { rows, next }))
}

/// What is answered by a queue as it is then.
fn one(plane: &Plane, name: &str, make: impl FnOnce(Text) -> shard::Request) -> Outcome {
    match ask(plane, name, make)? {
        QueueAnswer::Queue(view) | QueueAnswer::Created(view) => {
            Ok(Reply::Queue(Box::new(queue(&view))))
        }
        _ => Err(silent()),
    }
}

fn view(plane: &Plane, name: &str) -> Result<Box<QueueView>, Failure> {
    match ask(plane, name, shard::Request::Queue)? {
        QueueAnswer::Queue(view) => Ok(view),
        _ => Err(silent()),
    }
}

/// Asks the shard of a queue.
fn ask(
    plane: &Plane,
    name: &str,
    make: impl FnOnce(Text) -> shard::Request,
) -> Result<QueueAnswer, Failure> {
    plane.check_home()?;
    let address = address(name)?;
    match plane.shards.control(home(plane, &address), make(address)) {
        Some(shard::Reply::Queue(answer)) => match *answer {
            QueueAnswer::Refused(problem) => Err(refused(name, problem)),
            answer => Ok(answer),
        },
        _ => Err(silent()),
    }
}

fn address(name: &str) -> Result<Text, Failure> {
    let address = shard::queue_address(name).map(Text::from);
    address.ok_or_else(|| bad(format!("{name:?} is no name of a queue")))
}

/// The shard of a queue.
fn home(plane: &Plane, address: &str) -> ShardId {
    plane.shards.home(address)
}

fn refused(name: &str, problem: QueueProblem) -> Failure {
    let (code, text) = match problem {
        QueueProblem::NotFound => (Code::NotFound, format!("there is no queue {name:?}")),
        QueueProblem::Exists => (Code::Conflict, format!("there is a queue {name:?} already")),
        QueueProblem::Configured => (
            Code::Conflict,
            "the queue is of the configuration, which alone changes it".to_owned(),
        ),
        QueueProblem::Busy => (Code::Busy, "the queue is being made or changed".to_owned()),
        QueueProblem::Durable => (
            Code::BadRequest,
            "whether a queue is durable does not change".to_owned(),
        ),
        QueueProblem::NoRoom => (
            Code::Unavailable,
            "no room for another queue (queues.max, limits.memory)".to_owned(),
        ),
        QueueProblem::Store => (
            Code::Unavailable,
            "the store refuses it; the log says why".to_owned(),
        ),
    };
    Failure::new(code, text)
}

/// As shards understand it.
fn changes(name: &str, options: &QueueOptions) -> Result<QueueChanges, Failure> {
    let own = address(name)?;
    let dead_letter = match options.dead_letter.as_deref() {
        None => None,
        Some("") => Some(Text::new()),
        Some(name) => Some(address(name)?),
    };
    let topics = options.topics.as_ref().map(|topics| {
        let topics = topics.iter().map(|filter| {
            let parsed = topic::Filter::parse(filter);
            match parsed.map(|parsed| parsed.share.is_none()) {
                Ok(true) => Ok(Text::from(filter.as_str())),
                _ => Err(bad(format!("{filter:?} is no topic filter for a queue"))),
            }
        });
        topics.collect::<Result<Vec<_>, _>>()
    });
    let changes = QueueChanges {
        messages_max: options.max_messages,
        bytes_max: options.max_bytes,
        overflow: options.full.map(|full| match full {
            Full::Reject => Overflow::Reject,
            Full::DropNewest => Overflow::DropNewest,
            Full::DropOldest => Overflow::DropOldest,
        }),
        ttl: options.ttl_seconds.map(Duration::from_secs),
        levels: options.levels,
        deliveries_max: options.max_deliveries,
        dead_letter,
        durable: options.durable,
        topics: topics.transpose()?,
    };
    changes.check(&own).map_err(bad)?;
    Ok(changes)
}

/// A queue for people.
fn queue(view: &QueueView) -> Queue {
    let name = |address: &Text| address.strip_prefix(QUEUES).unwrap_or(address).to_owned();
    let options = &view.options;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_millis());
    let age = |made: i64| {
        let age = now.saturating_sub(u128::try_from(made).ok()?);
        u64::try_from(age / 1000).ok()
    };
    Queue {
        name: name(&view.address),
        configured: view.configured,
        durable: options.durable,
        topics: view.topics.iter().map(|it| it.to_string()).collect(),
        messages: view.messages,
        unsettled: view.unsettled,
        bytes: view.bytes,
        consumers: view.consumers,
        oldest_seconds: view.first_created_ms.and_then(age),
        dead_letter: options.dead_letter.as_ref().map(name),
        max_messages: options.messages_max,
        max_bytes: options.bytes_max,
        full: match options.overflow {
            Overflow::Reject => Full::Reject,
            Overflow::DropNewest => Full::DropNewest,
            Overflow::DropOldest => Full::DropOldest,
        },
        ttl_seconds: options.ttl.map(|ttl| ttl.as_secs()),
        levels: options.levels,
        max_deliveries: options.deliveries_max,
    }
}

/// The messages that leave first.
fn peek(plane: &Plane, name: &str, limit: usize) -> Outcome {
    if !(1..=PEEKED_MAX).contains(&limit) {
        return Err(bad(format!("`limit` is a number from 1 to {PEEKED_MAX}")));
    }
    let address = address(name)?;
    let at = home(plane, &address);
    let deadline = Instant::now() + LOAD_TIME;
    let found = loop {
        let request = shard::Request::Peek {
            address: address.clone(),
            limit,
        };
        match plane.shards.control(at, request) {
            Some(shard::Reply::Peeked {
                loading: true,
                rows,
            }) => {
                if Instant::now() >= deadline {
                    break rows;
                }
                std::thread::sleep(LOAD_PAUSE);
            }
            Some(shard::Reply::Peeked { rows, .. }) => break rows,
            reply => return Err(refusal(name, reply)),
        }
    };
    let (now, mut left) = (plane.now(), PAYLOADS_MAX);
    let rows = found.into_iter().map(|(message, failed)| {
        let fits = message.payload.len() <= left;
        left -= if fits { message.payload.len() } else { 0 };
        shown(&message, failed, fits, now)
    });
    let rows = rows.collect();
    Ok(Reply::Messages(Page { rows, next: None }))
}

/// What a shard says instead of an answer.
fn refusal(name: &str, reply: Option<shard::Reply>) -> Failure {
    match reply {
        Some(shard::Reply::Queue(answer)) => match *answer {
            QueueAnswer::Refused(problem) => refused(name, problem),
            _ => silent(),
        },
        _ => silent(),
    }
}

fn shown(message: &Message, failed: u16, fits: bool, now: dunlin_base::Instant) -> QueuedMessage {
    let text = core::str::from_utf8(&message.payload).ok();
    let properties = message.properties.as_deref();
    let extra = message.extra.as_deref();
    QueuedMessage {
        topic: message.topic.to_string(),
        payload: text.filter(|_| fits).map(str::to_owned),
        payload_base64: (fits && text.is_none()).then(|| BASE64.encode(&message.payload)),
        bytes: message.payload.len(),
        content_type: properties
            .and_then(|properties| properties.content_type.as_deref())
            .map(str::to_owned),
        failed_deliveries: failed,
        priority: extra.and_then(|extra| extra.priority),
        expiry_seconds: message
            .expires
            .map(|at| at.saturating_duration_since(now).as_secs()),
    }
}

fn done(count: u64, left: u64) -> Reply {
    let next = (left > 0).then(|| left.to_string());
    Reply::Done { count, next }
}

/// Removes messages, so many that wait now.
fn purge(plane: &Plane, name: &str, left: Option<u64>) -> Outcome {
    let mut left = match left {
        Some(left) => left,
        None => view(plane, name)?.messages as u64,
    };
    let (deadline, mut count) = (Instant::now() + STEPS_TIME, 0);
    while left > 0 && Instant::now() < deadline {
        let step = left.min(PURGED_MAX);
        let max = usize::try_from(step).unwrap_or(usize::MAX);
        let make = |address| shard::Request::Purge(address, max);
        let QueueAnswer::Purged(removed) = ask(plane, name, make)? else {
            return Err(silent());
        };
        count += removed;
        left = match removed < step {
            true => 0,
            false => left - step,
        };
    }
    Ok(done(count, left))
}

/// Moves messages, so many that wait now.
fn move_messages(plane: &Plane, (name, to): (&str, &str), left: Option<u64>) -> Outcome {
    let (address, other) = (address(name)?, address(to)?);
    if address == other {
        return Err(bad("both are the same queue"));
    }
    let mut left = match left {
        Some(left) => left,
        None => view(plane, name)?.messages as u64,
    };
    let (deadline, mut count) = (Instant::now() + STEPS_TIME, 0);
    let mut loaded = Instant::now() + LOAD_TIME;
    while left > 0 && Instant::now() < deadline.max(loaded) {
        let limit = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(room(plane, to)?);
        let request = shard::Request::Move {
            address: address.clone(),
            to: other.clone(),
            limit: limit.min(shard::MOVED_MAX),
        };
        let moved = match limit {
            0 => None,
            _ => plane.shards.control(home(plane, &address), request),
        };
        match moved {
            Some(shard::Reply::Moved { empty: true, .. }) => left = 0,
            Some(shard::Reply::Moved { loading: true, .. }) => std::thread::sleep(LOAD_PAUSE),
            Some(shard::Reply::Moved { count: some, .. }) if some > 0 => {
                count += some as u64;
                left = left.saturating_sub(some as u64);
                loaded = Instant::now();
            }
            None | Some(shard::Reply::Moved { .. }) if count > 0 => break,
            None if limit > 0 => return Err(silent()),
            None | Some(shard::Reply::Moved { .. }) => {
                let text = format!("the queue {to:?} has no room");
                return Err(Failure::new(Code::Conflict, text));
            }
            reply => return Err(refusal(name, reply)),
        }
    }
    Ok(done(count, left))
}

/// Messages for which a queue has room.
fn room(plane: &Plane, name: &str) -> Result<usize, Failure> {
    let view = view(plane, name)?;
    let there = view.messages + view.unsettled;
    Ok(view.options.messages_max.saturating_sub(there))
}
