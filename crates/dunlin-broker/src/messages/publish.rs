//! A publish: from a client (or a will, or another shard) to the sessions of
//! this shard and to the shards that want it.
//!
//! A message that no durable receiver waits for goes straight from the
//! publisher's bytes into the receivers' send buffers. For QoS 1 and 2 with
//! durable receivers the order is: every shard prepares, one batch is stored,
//! receivers see it, the publisher is acknowledged.

use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Message, QoS, ShardId};

use crate::access::Action;
use crate::ids::{SessionIdx, SessionRef};
use crate::io::{BusMessage, Forward, Manner, Missed, NotTaken, Preparation};
use crate::messages::source::Source;
use crate::messages::{deliver, retained, settle, shared, throttle};
use crate::owners::Owners;
use crate::owners::node::BINDING;
use crate::owners::pending::{PendingPublish, Record, Work};
use crate::owners::routing::{Hit, Matches, Scope, Wanted};
use crate::queues::{making, waiting};
use crate::random::home_shard;
use crate::topics::sparkplug;

/// Who gets a message.
fn find(
    own: &mut Owners,
    topic: &str,
    origin: Option<SessionIdx>,
    scope: Option<&Scope<'_>>,
    qos: QoS,
) -> Matches {
    let (sessions, conns) = (&own.sessions, &own.conns);
    let access = &own.access;
    let may_receive = |s| {
        let session = sessions.get(s);
        session.is_some_and(|session| session.may(access, Action::Receive, topic))
    };
    let member = |s| shared::member(sessions, conns, s);
    let exact = qos == QoS::ExactlyOnce;
    own.routing
        .find(topic, origin, scope, exact, member, may_receive)
}

/// Routes a message of a client (with the session to acknowledge) or of
/// the server itself; `record` is stored with it.
pub(crate) fn dispatch(
    own: &mut Owners,
    origin: Option<SessionRef>,
    token: u64,
    source: &mut Source<'_>,
    record: Option<Record>,
) {
    let publisher = origin.map(|session| session.at);
    let origin = origin.filter(|_| source.is_answered());
    let is_kept = source.retain() && source.is_to_topic() && own.commits.is_durable();
    if is_kept && !source.is_answered() {
        source.follow();
    }
    if own.config.topics.sparkplug && source.is_to_topic() {
        keep_certificate(own, source);
    }
    let mut publish = PendingPublish::new(origin, source.is_lossy());
    place(own, publisher, token, source, &mut publish);
    if !source.is_answered() {
        return;
    }
    if is_kept {
        let bytes = source.cost();
        publish.rest_mut().unstored = bytes;
        throttle::note_unstored(own, source.publisher(), bytes);
    }
    if source.qos() == QoS::ExactlyOnce
        && let Some(origin) = publish.origin
        && own.commits.is_durable()
        && let Some(session) = own.sessions.peek(origin.at)
        && let Some(receipt) = session.receipt(token)
    {
        // It is stored with the message that it came exactly once.
        publish.rest_mut().work.ops.push(receipt);
    }
    if let Some(receipt) = source.take_receipt().filter(|_| own.commits.is_durable()) {
        publish.rest_mut().work.ops.push(receipt);
    }
    if record.is_some() {
        publish.rest_mut().record = record;
    }
    settle::line_up(own, token, publish);
}

/// Retains the certificate that a birth of Sparkplug is.
fn keep_certificate(own: &mut Owners, source: &Source<'_>) {
    let Some(topic) = sparkplug::certificate(source.topic()) else {
        return;
    };
    let message = Arc::new(Message {
        topic: topic.as_str().into(),
        payload: Bytes::copy_from_slice(source.payload()),
        qos: source.qos(),
        retain: true,
        ..Message::default()
    });
    let token = own.commits.token();
    let mut source = Source::of(&message, own.now).lossy();
    dispatch(own, None, token, &mut source, None);
}

/// Gives a message to who gets it, as far as that is not stored first.
pub(crate) fn place(
    own: &mut Owners,
    publisher: Option<SessionIdx>,
    token: u64,
    source: &mut Source<'_>,
    publish: &mut PendingPublish,
) {
    let acknowledged = source.is_answered();
    let mut found = match source.is_to_topic() {
        true => find(own, source.topic(), publisher, None, source.qos()),
        false if source.is_for_later() => waiting::find(own),
        false => find_queue(own, source.topic()),
    };
    let mut work = Work::default();
    if source.is_to_queue() && acknowledged {
        making::store_with(own, &found.hits, &mut work);
    }
    publish.unmatched = found.hits.is_empty() && found.forwards.is_empty();
    if publish.unmatched && !source.is_to_topic() {
        publish.refuse(making::why_missing(&own.config, source.topic()));
    }
    if source.retain() && source.is_to_topic() {
        let kept = place_retained(own, source, &mut work, &mut found.forwards);
        if !kept && !source.is_lossy() {
            publish.refuse(NotTaken::NoRoom);
        }
    }
    if !deliver::deliver_hits(own, source, &mut found.hits, &mut work) {
        publish.refuse(NotTaken::NoRoom);
    }
    for (to, wanted) in found.forwards.drain(..) {
        publish.preparing += u32::from(acknowledged);
        send_on(own, to, wanted, acknowledged.then_some(token), source);
    }
    own.routing.recycle(found);
    publish.add_work(work);
}

/// Gives a message that a transaction makes dead to the queue of its topic, if there is
/// one with room.
pub(crate) fn place_dead(
    own: &mut Owners,
    token: u64,
    message: &Arc<Message>,
    publish: &mut PendingPublish,
) {
    let (refused, unmatched) = (publish.refused, publish.unmatched);
    let source = Source::of(message, own.now).for_queue();
    let mut source = source.transacted().lossy();
    place(own, None, token, &mut source, publish);
    (publish.refused, publish.unmatched) = (refused, unmatched);
}

/// The queue with this address, or its shard.
fn find_queue(own: &mut Owners, address: &str) -> Matches {
    let mut found = own.routing.take_spare();
    let home = ShardId(home_shard(address, own.config.shards));
    if home != own.config.shard {
        let wanted = Wanted {
            queue: true,
            ..Wanted::default()
        };
        found.forwards.push((home, wanted));
    } else if let Some(s) = own.sessions.find_node(address) {
        found.hits.push(Hit::new(s, &BINDING, None));
    }
    found
}

/// Sends a message to another shard: its bytes with others, or, where more is
/// to be said of it or it is large or held already, the message itself.
fn send_on(
    own: &mut Owners,
    to: ShardId,
    wanted: Wanted,
    token: Option<u64>,
    source: &mut Source<'_>,
) {
    let plain_only = wanted.plain && wanted.shares.is_empty() && !wanted.retain;
    if plain_only && source.gather(&mut own.outbox, to, token) {
        return;
    }
    let forward = Forward {
        message: source.message(),
        plain: wanted.plain,
        shares: wanted.shares,
        retain: wanted.retain,
        queue: wanted.queue,
        manner: Manner::new(source.is_lossy(), source.is_transacted()),
    };
    own.outbox.bus(to, BusMessage::Forward { forward, token });
}

/// A message from another shard, for plain subscriptions.
pub(crate) fn handle_message(
    own: &mut Owners,
    from: ShardId,
    token: Option<u64>,
    source: &mut Source<'_>,
) {
    let scope = Scope {
        plain: true,
        shares: &[],
    };
    prepare(own, (from, token), &scope, source, Work::default(), None);
}

/// A message from another shard.
pub(crate) fn handle_forward(
    own: &mut Owners,
    from: ShardId,
    forward: &Forward,
    token: Option<u64>,
) {
    let scope = Scope {
        plain: forward.plain,
        shares: &forward.shares,
    };
    let message = &forward.message;
    let mut work = Work::default();
    let mut refused = None;
    if forward.retain {
        let waits = token.is_some();
        let taken = match forward.manner {
            Manner::Transacted | Manner::Dead => {
                retained::prepare_retained(own, message, &mut work)
            }
            Manner::Usual | Manner::Lossy => {
                let (ops, change) = (&mut work.ops, &mut work.retained);
                retained::own_retained(own, message, waits, ops, change)
            }
        };
        let is_refused = !taken && forward.manner != Manner::Lossy;
        refused = is_refused.then_some(NotTaken::NoRoom);
    }
    let mut source = Source::of(message, own.now);
    if forward.queue {
        source = source.for_queue();
    }
    if token.is_some() {
        source = source.answered();
    }
    source = match forward.manner {
        Manner::Usual => source,
        Manner::Lossy => source.lossy(),
        Manner::Transacted => source.transacted(),
        Manner::Dead => source.transacted().lossy(),
    };
    prepare(own, (from, token), &scope, &mut source, work, refused);
}

/// Delivers a message of another shard, and answers what must be stored.
fn prepare(
    own: &mut Owners,
    (from, token): (ShardId, Option<u64>),
    scope: &Scope<'_>,
    source: &mut Source<'_>,
    mut work: Work,
    mut refused: Option<NotTaken>,
) {
    if let Some(token) = token.filter(|_| source.is_transacted()) {
        let deliveries = own.commits.prepared_deliveries(from, token);
        if deliveries >= own.config.transactions.deliveries_max {
            return promise(own, (from, token), work, Some(NotTaken::NoRoom), None);
        }
    }
    let mut found = match source.is_to_queue() {
        true => find_queue(own, source.topic()),
        false => find(own, source.topic(), None, Some(scope), source.qos()),
    };
    if source.is_to_queue() {
        if found.hits.is_empty() && !source.is_lossy() {
            refused.get_or_insert_with(|| making::why_missing(&own.config, source.topic()));
        }
        if token.is_some() {
            making::store_with(own, &found.hits, &mut work);
        }
    }
    if !deliver::deliver_hits(own, source, &mut found.hits, &mut work) {
        refused.get_or_insert(NotTaken::NoRoom);
    }
    let shares = core::mem::take(&mut found.missed);
    own.routing.recycle(found);
    let Some(token) = token else {
        return;
    };
    let missed = |shares| Missed {
        message: source.message(),
        shares,
    };
    let missed = (!shares.is_empty()).then_some(shares).map(missed);
    promise(own, (from, token), work, refused, missed);
}

/// Answers another shard what it has to store for its publish, and keeps what
/// follows then.
pub(crate) fn promise(
    own: &mut Owners,
    (from, token): (ShardId, u64),
    mut work: Work,
    refused: Option<NotTaken>,
    missed: Option<Missed>,
) {
    let ops = core::mem::take(&mut work.ops);
    let dead = work.take_dead();
    let waits = !ops.is_empty() || work.waits();
    if waits {
        // A second part, when a shared subscription was chosen again, or of a
        // transaction.
        own.commits.prepared(from, token).add(work);
    } else {
        settle::settle_work(own, work, refused.is_none());
        if refused.is_none() && missed.is_none() {
            return own.outbox.answer(from, token);
        }
    }
    let answer = Preparation {
        waits,
        ops,
        refused,
        missed,
        dead,
    };
    own.outbox.bus(from, BusMessage::Prepared { token, answer });
}

/// The owner of a topic's retained message stores it; others ask it to. `false`:
/// the limit of retained messages is reached.
fn place_retained(
    own: &mut Owners,
    source: &mut Source<'_>,
    work: &mut Work,
    forwards: &mut Vec<(ShardId, Wanted)>,
) -> bool {
    let owner = ShardId(home_shard(source.topic(), own.config.shards));
    if owner != own.config.shard {
        if let Some((_, wanted)) = forwards.iter_mut().find(|(to, _)| *to == owner) {
            wanted.retain = true;
            return true;
        }
        let wanted = Wanted {
            retain: true,
            ..Wanted::default()
        };
        forwards.push((owner, wanted));
        return true;
    }
    let message = source.message();
    if source.is_transacted() {
        return retained::prepare_retained(own, &message, work);
    }
    let waits = source.is_answered();
    let (ops, change) = (&mut work.ops, &mut work.retained);
    retained::own_retained(own, &message, waits, ops, change)
}
