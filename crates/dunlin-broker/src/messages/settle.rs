//! A publish on its way to its acknowledgement: its place behind earlier ones
//! of the same client, its batch, and what follows when it is stored.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_store::Seq;

use crate::ids::SessionRef;
use crate::io::BusMessage;
use crate::messages::retained;
use crate::owners::pending::{Back, Due, Pending, PendingPublish, Record, RetainedChange, Verdict};
use crate::owners::{Later, Owners};
use crate::receivers;
use crate::sessions::records;

/// How many times as many messages are kept in memory for a client that is
/// connected: it wants them soon, and reading them again has its price.
const HELD_CONNECTED_FACTOR: usize = 8;

/// Gives a publish its place behind earlier ones of the same client: one
/// that other shards prepare must not be overtaken by one that they need
/// not see [MQTT-4.6.0-5].
pub(crate) fn line_up(own: &mut Owners, token: u64, publish: PendingPublish) {
    let origin = publish.origin;
    if let Some(session) = origin.and_then(|origin| own.sessions.resolve_mut(origin))
        && (publish.preparing > 0 || !session.preparing.is_empty())
    {
        session.preparing.push_back(token);
    }
    advance_publish(own, token, publish);
}

/// Stores or finishes a publish, once it and all earlier ones of the same
/// client are prepared.
pub(crate) fn advance_publish(own: &mut Owners, token: u64, publish: PendingPublish) {
    let origin = publish.origin;
    let mut next = Some((token, publish));
    while let Some((token, publish)) = next.take() {
        let session = origin.and_then(|origin| own.sessions.resolve_mut(origin));
        let line = session.map(|session| &mut session.preparing);
        let waits = line
            .as_ref()
            .and_then(|line| line.front())
            .is_some_and(|first| *first != token);
        if publish.preparing > 0 || waits {
            own.commits.wait(token, Pending::Publish(publish));
            return;
        }
        if let Some(line) = line {
            line.pop_front();
        }
        commit_publish(own, token, publish);
        next = next_in_line(own, origin);
    }
}

/// The client's next publish, if it is prepared.
fn next_in_line(own: &mut Owners, origin: Option<SessionRef>) -> Option<(u64, PendingPublish)> {
    let token = *own.sessions.resolve_mut(origin?)?.preparing.front()?;
    take_prepared(own, token)
}

fn take_prepared(own: &mut Owners, token: u64) -> Option<(u64, PendingPublish)> {
    match own.commits.take(token)? {
        Pending::Publish(publish) if publish.preparing == 0 => Some((token, publish)),
        other => {
            own.commits.wait(token, other);
            None
        }
    }
}

/// The session of these publishes is gone: those that are prepared go on
/// without their place in line.
pub(crate) fn release_line(own: &mut Owners, line: impl IntoIterator<Item = u64>) {
    for token in line {
        if let Some((token, publish)) = take_prepared(own, token) {
            commit_publish(own, token, publish);
        }
    }
}

/// Has the record of a session go with a will of it that is under way under this
/// token; `false` if there is none.
pub(crate) fn delete_with(own: &mut Owners, token: Option<u64>, gone: &Record) -> bool {
    let Some((token, mut publish)) = token.and_then(|token| take_publish(own, token)) else {
        return false;
    };
    publish.record = Some(gone.clone());
    own.commits.wait(token, Pending::Publish(publish));
    true
}

fn take_publish(own: &mut Owners, token: u64) -> Option<(u64, PendingPublish)> {
    match own.commits.take(token)? {
        Pending::Publish(publish) => Some((token, publish)),
        other => {
            own.commits.wait(token, other);
            None
        }
    }
}

fn commit_publish(own: &mut Owners, token: u64, mut publish: PendingPublish) {
    if let Some(record) = &publish.record {
        publish.ops.extend(records::with_will(own, token, record));
    }
    if publish.refused || publish.ops.is_empty() {
        let stored = !publish.refused;
        finish_publish(own, token, publish, stored);
    } else {
        for op in core::mem::take(&mut publish.ops) {
            own.commits.write_together(op);
        }
        own.commits.when_stored(token, Pending::Publish(publish));
    }
}

/// The batch of a publish was stored, or the publish is off.
pub(crate) fn finish_publish(own: &mut Owners, token: u64, publish: PendingPublish, stored: bool) {
    settle_due(own, publish.due, publish.retained, stored);
    if let Some(record) = publish.record {
        own.stats.publishes_refused += u64::from(!stored);
        records::after_will(own, record, stored);
    }
    for to in publish.participants {
        let message = BusMessage::Settled {
            token,
            committed: stored,
        };
        own.outbox.bus(to, message);
    }
    if let Some(back) = publish.back.filter(|_| !stored) {
        give_back(own, back);
    }
    let Some(origin) = publish.origin else {
        return;
    };
    if own.sessions.resolve(origin).is_none() {
        return;
    }
    own.stats.publishes_refused += u64::from(!stored);
    let verdict = match (stored, publish.unmatched) {
        (false, _) => Verdict::Refused,
        (true, true) => Verdict::Unmatched,
        (true, false) => Verdict::Accepted,
    };
    receivers::answer(own, origin, token, verdict);
}

/// The store refused to move a message of a group: who had it has it again, or,
/// when that session has ended, another member gets it later.
fn give_back(own: &mut Owners, back: Box<Back>) {
    let old = back.old;
    if let Some(seq) = back.delivery.seq.filter(|_| back.keeper != old.key) {
        own.commits.keep(old.key, Seq(seq), back.keeper);
    }
    match own.sessions.resolve_mut(old) {
        Some(session) => {
            session.queue_mut().push(back.delivery);
            receivers::pump(own, old.at);
        }
        None => own.retry_later(Pending::GiveAgain(back)),
    }
}

/// Gives stored deliveries to their sessions, or their room back.
pub(crate) fn settle_due(
    own: &mut Owners,
    due: Vec<Due>,
    retained: Option<RetainedChange>,
    stored: bool,
) {
    if let Some(change) = retained {
        retained::settle_retained(own, &change, stored);
    }
    let held_max = own.config.queue_held_max;
    for Due {
        session,
        mut delivery,
        cost,
    } in due
    {
        if let Some(seq) = delivery.seq.filter(|_| !stored) {
            own.commits.keeper(session.key, Seq(seq));
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
            // A client that is away takes it later, from the store. What came
            // through a shared subscription may still go to another member.
            let held_max = match entry.conn {
                Some(_) if delivery.share.is_some() => usize::MAX,
                Some(_) => held_max.saturating_mul(HELD_CONNECTED_FACTOR),
                None => held_max,
            };
            if entry.queue().len() >= held_max {
                delivery.shed();
            }
            entry.queue_mut().push(delivery);
            receivers::pump(own, session.at);
            own.budget.set_copies(true);
        }
    }
    own.budget.set_copies(false);
}
