//! A publish: from a client (or a will, or another shard) to the sessions of
//! this shard and to the shards that want it.
//!
//! A message that no durable receiver waits for goes straight from the
//! publisher's bytes into the receivers' send buffers. For QoS 1 and 2 with
//! durable receivers the order is: every shard prepares, one batch is stored,
//! receivers see it, the publisher is acknowledged.

use alloc::vec::Vec;

use dunlin_base::{QoS, ShardId};
use dunlin_store::StoreOp;

use crate::access::Action;
use crate::ids::{SessionIdx, SessionRef};
use crate::io::{BusMessage, Forward, Missed, Preparation};
use crate::messages::source::Source;
use crate::messages::{deliver, retained, settle, shared};
use crate::mqtt::form::Form;
use crate::owners::Owners;
use crate::owners::node::BINDING;
use crate::owners::pending::{PendingPublish, Prepared, Record};
use crate::owners::routing::{Forwards, Hit, Matches, Scope, Wanted};
use crate::random::home_shard;

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
    let acknowledged = source.is_answered();
    let mut publish = PendingPublish {
        origin: origin.filter(|_| acknowledged),
        lossy: source.is_lossy(),
        record,
        ..PendingPublish::default()
    };
    place(own, publisher, token, source, &mut publish);
    if acknowledged {
        if source.qos() == QoS::ExactlyOnce
            && let Some(origin) = publish.origin
            && own.commits.is_durable()
            && let Some(session) = own.sessions.peek(origin.at)
        {
            // It is stored with the message that it came exactly once.
            publish.ops.extend(session.receipt(token));
        }
        settle::line_up(own, token, publish);
    }
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
    let mut found = match source.is_to_queue() {
        true => find_queue(own, source.topic()),
        false => find(own, source.topic(), publisher, None, source.qos()),
    };
    publish.unmatched = found.hits.is_empty() && found.forwards.is_empty();
    publish.refused |= publish.unmatched && source.is_to_queue();
    if source.retain() && !source.is_to_queue() {
        place_retained(own, source, publish, &mut found.forwards);
    }
    let (ops, due) = (&mut publish.ops, &mut publish.due);
    publish.refused |= !deliver::deliver_hits(own, source, &mut found.hits, ops, due);
    own.routing.recycle(found.hits);
    for (to, wanted) in found.forwards {
        publish.preparing += usize::from(acknowledged);
        send_on(own, to, wanted, acknowledged.then_some(token), source);
    }
}

/// The queue with this address, or its shard.
fn find_queue(own: &Owners, address: &str) -> Matches {
    let mut found = Matches::default();
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
    if plain_only && !source.is_held() && own.outbox.message(to, token, source.form()) {
        return;
    }
    let forward = Forward {
        message: source.message(),
        plain: wanted.plain,
        shares: wanted.shares,
        retain: wanted.retain,
        queue: wanted.queue,
        lossy: source.is_lossy(),
    };
    own.outbox.bus(to, BusMessage::Forward { forward, token });
}

/// A message from another shard, as bytes.
pub(crate) fn handle_message(own: &mut Owners, from: ShardId, token: Option<u64>, form: Form<'_>) {
    let scope = Scope {
        plain: true,
        shares: &[],
    };
    let mut source = Source::new(form, None, own.now);
    prepare(own, from, token, &scope, &mut source, Part::default());
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
    let mut part = Part::default();
    if forward.retain {
        let waits = token.is_some();
        let change = &mut part.prepared.retained;
        let taken = retained::own_retained(own, message, waits, &mut part.ops, change);
        part.refused = !taken && !forward.lossy;
    }
    let mut source = Source::of(message, own.now);
    if forward.lossy {
        source = source.lossy();
    }
    if forward.queue {
        source = source.for_queue();
    }
    if token.is_some() {
        source = source.answered();
    }
    prepare(own, from, token, &scope, &mut source, part);
}

/// This shard's part of another shard's publish.
#[derive(Debug, Default)]
struct Part {
    prepared: Prepared,
    ops: Vec<StoreOp>,
    refused: bool,
}

/// Delivers a message of another shard, and answers what must be stored.
fn prepare(
    own: &mut Owners,
    from: ShardId,
    token: Option<u64>,
    scope: &Scope<'_>,
    source: &mut Source<'_>,
    part: Part,
) {
    let Part {
        mut prepared,
        mut ops,
        mut refused,
    } = part;
    let mut found = match source.is_to_queue() {
        true => find_queue(own, source.topic()),
        false => find(own, source.topic(), None, Some(scope), source.qos()),
    };
    refused |= source.is_to_queue() && found.hits.is_empty() && !source.is_lossy();
    let (hits, due) = (&mut found.hits, &mut prepared.due);
    refused |= !deliver::deliver_hits(own, source, hits, &mut ops, due);
    own.routing.recycle(found.hits);
    let Some(token) = token else {
        return;
    };
    let shares = found.missed;
    let waits = !ops.is_empty() || !prepared.due.is_empty();
    if ops.is_empty() && prepared.due.is_empty() {
        settle::settle_due(own, prepared.due, prepared.retained, !refused);
        if !refused && shares.is_empty() {
            return own.outbox.answer(from, token);
        }
    } else {
        // A second part, when a shared subscription was chosen again.
        let all = own.commits.prepared(from, token);
        all.due.extend(prepared.due);
        if prepared.retained.is_some() {
            all.retained = prepared.retained;
        }
    }
    let missed = |shares| Missed {
        message: source.message(),
        shares,
    };
    let answer = Preparation {
        waits,
        ops,
        refused,
        missed: (!shares.is_empty()).then_some(shares).map(missed),
    };
    own.outbox.bus(from, BusMessage::Prepared { token, answer });
}

/// The owner of a topic's retained message stores it; others ask it to.
fn place_retained(
    own: &mut Owners,
    source: &mut Source<'_>,
    publish: &mut PendingPublish,
    forwards: &mut Forwards,
) {
    let owner = ShardId(home_shard(source.topic(), own.config.shards));
    if owner != own.config.shard {
        if let Some((_, wanted)) = forwards.iter_mut().find(|(to, _)| *to == owner) {
            wanted.retain = true;
            return;
        }
        let wanted = Wanted {
            retain: true,
            ..Wanted::default()
        };
        forwards.push((owner, wanted));
        return;
    }
    let message = source.message();
    let waits = source.is_answered();
    let (ops, change) = (&mut publish.ops, &mut publish.retained);
    let taken = retained::own_retained(own, &message, waits, ops, change);
    publish.refused |= !taken && !source.is_lossy();
}
