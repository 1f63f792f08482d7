//! A publish on its way to its acknowledgement: its place behind earlier ones
//! of the same client, its batch, and what follows when it is stored.

use alloc::boxed::Box;

use dunlin_base::ShardId;
use dunlin_queue::Delivery;
use dunlin_store::limits::BATCH_OPS_MAX;
use dunlin_store::{Seq, StoreOp};

use crate::control::values::Reply;
use crate::ids::SessionRef;
use crate::io::{BusMessage, NotTaken, Preparation};
use crate::messages::source::Source;
use crate::messages::{posts, retained, throttle};
use crate::owners::members::Members;
use crate::owners::pending::{
    Due, InStore, Once, Pending, PendingPublish, Record, Rest, Transacted, Verdict, Work,
};
use crate::owners::{Later, Owners};
use crate::receivers;

/// How many times as many messages are kept in memory for a client that is
/// connected: it wants them soon, and reading them again has its price.
const HELD_CONNECTED_FACTOR: usize = 8;

/// Gives a publish its place behind earlier ones of the same client: one
/// that other shards prepare must not be overtaken by one that they need
/// not see [MQTT-4.6.0-5]. Beside other stores, where the client cannot be refused, it waits
/// as well while the store has earlier ones, and not in the same batch.
pub(crate) fn line_up(own: &mut Owners, token: u64, publish: PendingPublish) {
    let (line, round) = (line_of(&own.members, &publish), own.commits.round());
    let mut waits = publish.preparing > 0;
    if let Some(line) = line.filter(|_| publish.rest().is_some()) {
        let session = own.sessions.resolve_mut(line);
        waits |= session.is_some_and(|session| session.storing.is_behind(round));
    }
    if let Some(session) = line.and_then(|line| own.sessions.resolve_mut(line))
        && (waits || session.preparing.front().is_some())
    {
        session.preparing.push(token);
        waits = true;
    }
    match waits {
        true => go_on(own, token, publish),
        false => commit_publish(own, token, publish),
    }
}

/// Behind whose publishes it stands: those of its publisher. Where these are held back, a
/// will stands behind them as well.
fn line_of(members: &Members, publish: &PendingPublish) -> Option<SessionRef> {
    let record = publish.rest().and_then(|rest| rest.record.as_ref());
    match record {
        Some(Record::Put(session)) if members.has_apart() => Some(*session),
        _ => publish.origin,
    }
}

/// Stores or finishes a publish, once it is prepared and, as far as it stands in
/// line, all earlier ones of the same client are.
pub(crate) fn go_on(own: &mut Owners, token: u64, publish: PendingPublish) {
    own.commits.wait_publish(token, publish);
    advance(own, token);
}

/// As [`go_on`], for one that waits, and then for those behind it.
pub(crate) fn advance(own: &mut Owners, token: u64) {
    let mut next = Some(token);
    while let Some(token) = next.take() {
        let Some(publish) = own.commits.publish_mut(token) else {
            return own.outbox.note_missing();
        };
        if publish.preparing > 0 {
            return;
        }
        let (is_will, needs_store) = (publish.origin.is_none(), publish.rest().is_some());
        let line = line_of(&own.members, publish);
        let round = own.commits.round();
        let mut is_off = false;
        let session = line.and_then(|line| own.sessions.resolve_mut(line));
        if let Some(session) = session {
            match session.preparing.front() {
                Some(first) if first != token => return,
                Some(_) if needs_store && session.storing.is_behind(round) => return,
                _ => session.preparing.pop(),
            }
            is_off = !is_will && session.storing.is_off(token);
        }
        let Some(mut publish) = own.commits.take_publish(token) else {
            return own.outbox.note_missing();
        };
        if is_off {
            publish.refuse(NotTaken::NotStored);
        }
        commit_publish(own, token, publish);
        let session = line.and_then(|line| own.sessions.resolve_mut(line));
        next = session.and_then(|session| session.preparing.front());
    }
}

/// The session of these publishes is gone: those that are prepared go on
/// without their place in line.
pub(crate) fn release_line(own: &mut Owners, line: impl IntoIterator<Item = u64>) {
    for token in line {
        advance(own, token);
    }
}

/// Has the record of a session go with a will of it that is under way under this
/// token; `false` if there is none.
pub(crate) fn delete_with(own: &mut Owners, token: Option<u64>, gone: &Record) -> bool {
    let publish = token.and_then(|token| own.commits.publish_mut(token));
    let Some(publish) = publish else {
        return false;
    };
    publish.rest_mut().record = Some(gone.clone());
    true
}

fn commit_publish(own: &mut Owners, token: u64, mut publish: PendingPublish) {
    let record = publish.rest().and_then(|rest| rest.record.clone());
    if let Some(record) = record {
        let ops = receivers::with_will(own, token, &record);
        publish.rest_mut().work.ops.extend(ops);
    }
    let (mut stored, is_whole) = (publish.refused.is_none(), publish.is_transacted());
    if stored && publish.rest().is_some_and(|rest| !rest.posts.is_empty()) {
        posts::write(own, publish.rest_mut());
    }
    let moves = |rest: &Rest| rest.dead.is_some() || rest.passed.is_some();
    if publish.rest().is_some_and(moves) {
        // Two batches may have them: it is there before it is not here.
        let ops = &mut publish.rest_mut().work.ops;
        ops.sort_by_key(|op| matches!(op, StoreOp::Dequeue { .. }));
    }
    let ops = publish.ops_mut();
    let fits = !is_whole || ops.as_ref().is_none_or(|ops| ops.len() <= BATCH_OPS_MAX);
    stored &= fits;
    let Some(ops) = ops.filter(|_| stored) else {
        return finish_publish(own, token, publish, InStore::unasked(stored));
    };
    if is_whole {
        let ops = core::mem::take(ops);
        if let Some(from) = publish.rest().and_then(|rest| rest.taken) {
            own.commits.posts.note_attempt(from, &ops);
        }
        let pending = Pending::Publish(publish);
        return own.commits.write_whole(ops, token, pending);
    }
    for op in core::mem::take(ops) {
        own.commits.write_together(op);
    }
    let (origin, round) = (publish.origin, own.commits.round());
    if own.members.has_apart()
        && let Some(session) = origin.and_then(|origin| own.sessions.resolve_mut(origin))
        && session.is_mute()
    {
        session.storing.begin(round);
    }
    own.commits.when_stored(token, Pending::Publish(publish));
}

/// The store has the batch of a publish, or has refused it.
pub(crate) fn handle_written(own: &mut Owners, token: u64, publish: PendingPublish, stored: bool) {
    let (origin, last) = (publish.origin, own.commits.last_token());
    let holds_back = own.members.has_apart();
    let mut session = origin.and_then(|origin| own.sessions.resolve_mut(origin));
    let is_last = match &mut session {
        Some(session) if !stored && holds_back && session.is_mute() => {
            session.storing.stop(last);
            session.storing.end()
        }
        Some(session) => session.storing.end(),
        None => false,
    };
    finish_publish(own, token, publish, InStore::answered(stored));
    if is_last {
        let session = origin.and_then(|origin| own.sessions.resolve_mut(origin));
        if let Some(next) = session.and_then(|session| session.preparing.front()) {
            advance(own, next);
        }
    }
}

/// The batch of a publish was stored, or the publish is off.
fn finish_publish(own: &mut Owners, token: u64, mut publish: PendingPublish, in_store: InStore) {
    let stored = in_store.is_yes();
    if let Some(rest) = publish.take_rest() {
        if let Some(of) = rest.relayed {
            answer_relayed(own, of, stored, publish.refused);
        }
        if let Some(number) = rest.operator {
            let matched = !publish.unmatched;
            own.outbox
                .reply(number, Reply::Published { stored, matched });
        }
        finish_rest(own, token, *rest, in_store);
    }
    let Some(origin) = publish.origin else {
        return;
    };
    if own.sessions.resolve(origin).is_none() {
        return;
    }
    own.stats.publishes_refused += u64::from(!stored);
    let verdict = match (stored, publish.unmatched) {
        (false, _) => Verdict::Refused(publish.refused.unwrap_or(NotTaken::NotStored)),
        (true, true) => Verdict::Unmatched,
        (true, false) => Verdict::Accepted,
    };
    receivers::answer(own, origin, token, verdict);
}

/// Says to an edge what became of what it had this home do for a publish.
pub(crate) fn answer_relayed(
    own: &mut Owners,
    (to, token): (ShardId, u64),
    stored: bool,
    refused: Option<NotTaken>,
) {
    if stored {
        return own.outbox.answer(to, token);
    }
    let answer = Preparation {
        refused: Some(refused.unwrap_or(NotTaken::NotStored)),
        ..Preparation::default()
    };
    own.outbox.bus(to, BusMessage::Prepared { token, answer });
}

/// What follows from a publish besides its acknowledgement.
fn finish_rest(own: &mut Owners, token: u64, rest: Rest, in_store: InStore) {
    let stored = in_store.is_yes();
    if rest.unstored > 0 {
        throttle::note_stored(own, rest.unstored);
    }
    settle_work(own, rest.work, in_store);
    posts::settle(own, &rest.posts, in_store);
    if let Some(from) = rest.taken {
        own.later.push_back(Later::Taken(from, in_store));
    }
    if let Some(passed) = rest.passed.filter(|_| !stored) {
        own.retry_later(Pending::Pass(passed));
    }
    if let Some(record) = rest.record {
        own.stats.publishes_refused += u64::from(!stored);
        receivers::after_will(own, record, stored);
    }
    for to in rest.participants {
        let message = BusMessage::Settled {
            token,
            committed: stored,
        };
        own.outbox.bus(to, message);
    }
    if let Some(dead) = rest.dead {
        own.later.push_back(Later::Buried(dead, stored));
    }
    if let Some(moved) = rest.moved {
        own.later.push_back(Later::Moved(moved, stored));
    }
    #[cfg(feature = "amqp")]
    receivers::conclude(own, &rest.retirements, stored);
}

/// Who had a message has it again.
pub(crate) fn give_back(own: &mut Owners, session: SessionRef, delivery: Delivery) {
    if let Some(entry) = own.sessions.resolve_mut(session) {
        entry.queue_mut().push(delivery);
        receivers::pump(own, session.at);
    }
}

/// Gives stored deliveries to their sessions, or their room back.
pub(crate) fn settle_work(own: &mut Owners, mut work: Work, in_store: InStore) {
    let stored = in_store.is_yes();
    if let Some(change) = work.retained.take() {
        retained::settle_retained(own, &change, in_store);
    }
    for loan in core::mem::take(&mut work.loans) {
        if stored {
            own.later.push_back(Later::Lend(Box::new(loan)));
        } else if in_store.is_perhaps()
            && let (Some(seq), Some(session)) = (loan.1.delivery.seq, loan.1.queue)
        {
            let seq = Seq(seq);
            own.commits.write(StoreOp::Dequeue { seq, session });
        }
    }
    let transacted = work.take_transacted();
    settle_due(own, work, in_store);
    if let Some(transacted) = transacted {
        settle_transacted(own, *transacted, stored);
    }
}

/// What a transaction does besides what any publish does, and few others do.
fn settle_transacted(own: &mut Owners, transacted: Transacted, stored: bool) {
    if !transacted.retired.is_empty() {
        let retired = transacted.retired;
        own.later.push_back(Later::Retired(retired, stored));
    }
    if !transacted.recorded.is_empty() {
        let recorded = transacted.recorded;
        own.later.push_back(Later::Recorded(recorded, stored));
    }
    if !stored {
        return;
    }
    for message in transacted.retained {
        retained::own_stored(own, &message);
    }
    for once in transacted.once {
        let Once {
            session,
            hit,
            message,
            retain,
        } = once;
        if own.sessions.resolve(session).is_some() {
            let mut source = Source::of(&message, own.now);
            receivers::deliver_once(own, &mut source, &hit, retain);
        }
    }
}

fn settle_due(own: &mut Owners, work: Work, in_store: InStore) {
    let stored = in_store.is_yes();
    let (now, held_max) = (own.now, own.config.sessions.queue_held_max);
    let short = stored && !own.has_memory(0);
    for Due {
        session,
        mut delivery,
        cost,
    } in work.due
    {
        if let Some(seq) = delivery.seq.filter(|_| !stored) {
            let seq = Seq(seq);
            let session = own.commits.take_queue(session.key, seq);
            if in_store.is_perhaps() {
                own.commits.write(StoreOp::Dequeue { seq, session });
            }
        }
        let Some(entry) = own.sessions.resolve_mut(session) else {
            // Another member of its group gets it.
            if stored && delivery.share.is_some() {
                let delivery = Box::new(delivery);
                own.later.push_back(Later::GiveAgain(session, delivery));
            }
            continue;
        };
        entry.queue_mut().unreserve(cost);
        if stored {
            // A client that is away takes it later, from the store.
            let held_max = match entry.conn {
                Some(_) => held_max.saturating_mul(HELD_CONNECTED_FACTOR),
                None => held_max,
            };
            let message = delivery.held();
            let is_back = message.is_some_and(|it| entry.keeps_back(it, now).is_some());
            // Where memory is short, so does one that has something to take.
            let sheds = entry.queue().len() >= held_max || (short && !entry.queue().is_empty());
            if sheds && !is_back {
                delivery.shed();
            }
            entry.push(delivery, now);
            receivers::pump(own, session.at);
            own.budget.set_copies(true);
        } else {
            if let Some(node) = entry.node_mut() {
                node.delayed.end(&delivery, None);
            }
            own.weigh_queue(session.at);
        }
    }
    own.budget.set_copies(false);
}
