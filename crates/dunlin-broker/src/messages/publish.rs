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
use dunlin_base::{Message, QoS, ShardId, Text};

use crate::ids::{SessionIdx, SessionRef};
use crate::io::{BusMessage, Forward, Manner, Missed, NotTaken, Preparation};
use crate::messages::source::Source;
use crate::messages::{deliver, finding, loans, posts, retained, settle, shared, throttle};
use crate::owners::Owners;
use crate::owners::node::BINDING;
use crate::owners::pending::{InStore, Part, Pending, PendingPublish, Record, Work};
use crate::owners::posts::Purpose;
use crate::owners::routing::{Hit, Matches, Scope, Wanted};
use crate::queues::{addresses, making, waiting};
use crate::topics::sparkplug;

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
        true => finding::find(own, source, publisher, None),
        false if source.is_for_later() => find_waiting(own, source.topic()),
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
    for (to, mut wanted) in found.forwards.drain(..) {
        if acknowledged && own.members.is_far(to) {
            if own.members.is_apart(to) && !wanted.queue {
                let purpose = Purpose::of(wanted);
                posts::add(own, (to, token), &source.message(), purpose, publish);
                continue;
            }
            if wanted.queue && !own.members.has(to) {
                // Only its home knows whether there is such a queue, with room.
                publish.refuse(NotTaken::Away);
                continue;
            }
            for share in core::mem::take(&mut wanted.shares) {
                let message = source.message();
                place_share(own, (to, token), &message, share, publish);
            }
        }
        if wanted.is_empty() {
            continue;
        }
        let token = acknowledged.then_some(token);
        expect(own, to, token, publish);
        send_on(own, to, wanted, token, source);
    }
    own.routing.recycle(found);
    publish.add_work(work);
}

/// The answer of another shard is due for a publish.
pub(crate) fn expect(
    own: &mut Owners,
    from: ShardId,
    token: Option<u64>,
    publish: &mut PendingPublish,
) {
    if let Some(token) = token {
        publish.preparing += 1;
        own.members.expect(from, token);
    }
}

/// Gives a message that is to be kept to a shared subscription by way of another process:
/// a home lends it, an edge has its home do that.
fn place_share(
    own: &mut Owners,
    (to, token): (ShardId, u64),
    message: &Arc<Message>,
    share: Text,
    publish: &mut PendingPublish,
) {
    if !own.members.is_edge() {
        return shared::lend(own, to, message, share, publish);
    }
    let manner = Manner::new(publish.lossy, publish.is_transacted());
    let forward = Forward {
        message: Arc::clone(message),
        plain: false,
        shares: alloc::vec![share],
        retain: false,
        queue: false,
        manner,
    };
    expect(own, to, Some(token), publish);
    let token = Some(token);
    own.outbox.bus(to, BusMessage::Forward { forward, token });
}

/// Where a message waits that is published later: here, or at the home of its topic.
fn find_waiting(own: &mut Owners, topic: &str) -> Matches {
    if !own.members.is_edge() {
        return waiting::find(own);
    }
    let mut found = own.routing.take_spare();
    let wanted = Wanted {
        queue: true,
        ..Wanted::default()
    };
    found.forwards.push((own.members.home(topic), wanted));
    found
}

/// Gives a message that a transaction makes dead to the queue of its topic, if there is
/// one with room. While the home of that is away, the transaction is off: outside of one
/// the message would wait for it.
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
    let is_away = publish.refused == Some(NotTaken::Away);
    (publish.refused, publish.unmatched) = (refused, unmatched);
    if is_away {
        publish.refuse(NotTaken::Away);
    }
}

/// The queue with this address, or its shard.
fn find_queue(own: &mut Owners, address: &str) -> Matches {
    let mut found = own.routing.take_spare();
    let home = own.members.home(address);
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
    if let Some(token) = token.filter(|_| !forward.shares.is_empty() && own.members.is_far(from)) {
        return match own.members.is_edge() {
            true => loans::borrow(own, (from, token), forward),
            false => relay(own, (from, token), forward),
        };
    }
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
        source = match addresses::is_queue(&message.topic) {
            true => source.for_queue(),
            false => source.for_later(),
        };
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
    if source.is_for_later() && !may_wait(own, message) {
        let refused = Some(NotTaken::NoRoom);
        if let Some(token) = token {
            promise(own, (from, token), Work::default(), refused, None);
        }
        return;
    }
    prepare(own, (from, token), &scope, &mut source, work, refused);
}

/// Whether the sender of a message that came to an edge has room where it waits for its
/// time.
fn may_wait(own: &Owners, message: &Message) -> bool {
    let sender = message.extra.as_ref().and_then(|extra| extra.sender);
    sender.is_none_or(|sender| waiting::has_share(own, sender, message.cost()))
}

/// An edge has a message for shared subscriptions: this home chooses who gets it.
fn relay(own: &mut Owners, (from, token): (ShardId, u64), forward: &Forward) {
    let mine = own.commits.token();
    let mut publish = PendingPublish::new(None, forward.manner == Manner::Lossy);
    publish.rest_mut().relayed = Some((from, token));
    let missed = Missed {
        message: Arc::clone(&forward.message),
        shares: forward.shares.clone(),
    };
    shared::choose_again(own, &missed, mine, &mut publish);
    settle::line_up(own, mine, publish);
}

/// Stores what is durable here of a publish of an edge, which has no store: the edge is
/// answered when it is stored. Each home does that by itself.
fn keep_part(own: &mut Owners, from: (ShardId, u64), mut work: Work, refused: Option<NotTaken>) {
    let ops = core::mem::take(&mut work.ops);
    if refused.is_some() || (ops.is_empty() && !work.waits()) {
        settle::settle_work(own, work, InStore::unasked(refused.is_none()));
        return settle::answer_relayed(own, from, refused.is_none(), refused);
    }
    for op in ops {
        own.commits.write_together(op);
    }
    let token = own.commits.token();
    let part = Pending::Part(alloc::boxed::Box::new(Part { from, work }));
    own.commits.when_stored(token, part);
}

/// The store has, or has not, what is durable here of a publish of an edge.
pub(crate) fn finish_part(own: &mut Owners, part: Part, stored: bool) {
    settle::settle_work(own, part.work, InStore::answered(stored));
    settle::answer_relayed(own, part.from, stored, None);
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
    let mut found = match source.is_to_topic() {
        true => finding::find(own, source, None, Some(scope)),
        false if source.is_for_later() => waiting::find(own),
        false => find_queue(own, source.topic()),
    };
    if source.is_for_later() && found.hits.is_empty() {
        refused.get_or_insert(NotTaken::NotFound);
    }
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
    if own.members.may_go(from) && !own.members.is_edge() {
        return keep_part(own, (from, token), work, refused);
    }
    let ops = core::mem::take(&mut work.ops);
    let dead = work.take_dead();
    let waits = !ops.is_empty() || work.waits();
    if waits {
        // A second part, when a shared subscription was chosen again, or of a
        // transaction.
        own.commits.prepared(from, token).add(work);
    } else {
        settle::settle_work(own, work, InStore::unasked(refused.is_none()));
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
    let owner = own.members.home(source.topic());
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
