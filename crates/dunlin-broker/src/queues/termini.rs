//! Who has the name of a link. Another link of the same container with this name takes
//! it from the one before (section 2.6.1), on whichever connection that is; what a
//! client that sends has not settled goes with it, or is kept until its time is over.
//!
//! What a client that receives has not settled is kept at the node, under the same name.

use alloc::boxed::Box;

use dunlin_base::{ShardId, Text};
use dunlin_store::{Recovered, SessionKey};

use crate::ids::SessionRef;
use crate::memory::Part;
use crate::owners::Owners;
use crate::owners::termini::{Holder, name_bytes, outcome_bytes};
use crate::owners::timers::{Timer, Timers};
use crate::queues::calls::{Call, Left, Outcomes};
use crate::queues::keeping;

/// A link has a name from now on.
pub(crate) fn handle_claim(own: &mut Owners, link: Holder, name: Text, keeps: bool) {
    let (entry, is_new) = own.termini.entry(&name);
    let before = entry.holder.replace(link);
    let gives_back = core::mem::replace(&mut entry.keeps, keeps);
    let waited = entry.waiting.take();
    if before.is_some() && gives_back && keeps {
        // It waits for what the one before has.
        (entry.holder, entry.keeps) = (before, true);
        entry.waiting = Some(link);
    }
    let granted = keeps && entry.waiting.is_none();
    if is_new {
        own.budget.change(Part::Sessions, 0, name_bytes(&name));
    }
    for (shard, link) in before.into_iter().chain(waited) {
        own.call(shard, Call::Stolen { link });
    }
    let outcomes = take(own, &name);
    if granted {
        let outcomes = outcomes.map(|left| left.outcomes).unwrap_or_default();
        grant(own, link, outcomes);
    } else if let Some(left) = outcomes {
        forget(own, &name, left);
    }
}

fn grant(own: &mut Owners, (shard, link): Holder, outcomes: Outcomes) {
    let granted = Call::Granted {
        link,
        serial: own.commits.token(),
        outcomes,
    };
    own.call(shard, granted);
}

/// A link is gone.
pub(crate) fn handle_release(own: &mut Owners, link: Holder, name: Text, left: Option<Box<Left>>) {
    let left = left.map(|left| *left);
    let entry = own.termini.get_mut(&name);
    let Some(entry) = entry.filter(|entry| entry.holder == Some(link)) else {
        if let Some(entry) = own.termini.get_mut(&name)
            && entry.waiting == Some(link)
        {
            entry.waiting = None;
        }
        if let Some(left) = left {
            forget(own, &name, left);
        }
        return;
    };
    entry.holder = None;
    if let Some(next) = entry.waiting.take() {
        entry.holder = Some(next);
        let outcomes = left.map(|left| left.outcomes).unwrap_or_default();
        return grant(own, next, outcomes);
    }
    entry.keeps = false;
    match left {
        Some(left) if !left.outcomes.is_empty() => keep(own, &name, link, left),
        _ => remove(own, &name),
    }
}

/// Keeps what a client has not settled.
fn keep(own: &mut Owners, name: &Text, link: Holder, left: Left) {
    let (bytes, expires) = (outcome_bytes(&left.outcomes), left.expires);
    let full = !own.budget.has_room(Part::Sessions, bytes, bytes);
    let refused = match full {
        true => Some(left),
        false => own.termini.keep(name, link, left),
    };
    if let Some(left) = refused {
        own.note_refused(Part::Sessions, 1);
        forget(own, name, left);
        return remove(own, name);
    }
    own.budget.change(Part::Sessions, 0, bytes);
    if expires {
        expire(own, name);
    }
}

/// Takes what is kept of a link.
fn take(own: &mut Owners, name: &Text) -> Option<Left> {
    let left = own.termini.take(name)?;
    let bytes = outcome_bytes(&left.outcomes);
    own.budget.change(Part::Sessions, bytes, 0);
    Some(left)
}

/// What a client has not settled is settled.
fn forget(own: &mut Owners, name: &Text, left: Left) {
    if left.durable {
        forget_stored(own, name, &left.outcomes);
    }
}

fn forget_stored(own: &mut Owners, name: &Text, outcomes: &Outcomes) {
    for (tag, _) in outcomes.iter().filter(|(_, accepted)| *accepted) {
        keeping::forget_received(own, name, tag);
    }
}

fn remove(own: &mut Owners, name: &Text) {
    own.termini.remove(name);
    own.budget.change(Part::Sessions, name_bytes(name), 0);
}

/// The session or connection of a link has ended that is away.
pub(crate) fn handle_expire(own: &mut Owners, from: ShardId, link: SessionRef, name: &Text) {
    let entry = own.termini.get_mut(name);
    let away = entry.and_then(|entry| entry.away.as_ref());
    if away.is_some_and(|away| away.link == (from, link)) {
        expire(own, name);
    }
}

/// A shard is gone, with its links: none of them gives back what it had.
pub(crate) fn handle_gone(own: &mut Owners, shard: ShardId) {
    for (name, held) in own.termini.take_waiting(shard) {
        match held {
            Some(link) => handle_release(own, (shard, link), name, None),
            None => expire(own, &name),
        }
    }
}

/// The time of what is kept runs.
fn expire(own: &mut Owners, name: &Text) {
    let now = own.now;
    if let Some(at) = own.termini.expire(name, now) {
        own.timers
            .remind(at, Timer::Termini, &mut own.termini.alarm);
    }
}

/// The time of something that is kept may be over.
pub(crate) fn check_expiry(own: &mut Owners) {
    let now = own.now;
    Timers::came(&mut own.termini.alarm);
    while let Some(name) = own.termini.over(now) {
        if let Some(left) = take(own, &name) {
            forget(own, &name, left);
        }
        remove(own, &name);
    }
    if let Some(at) = own.termini.next() {
        own.timers
            .remind(at, Timer::Termini, &mut own.termini.alarm);
    }
}

/// Takes over what the store kept of links that sent.
pub(crate) fn restore(own: &mut Owners, recovered: &Recovered) {
    for (name, (secs, outcomes)) in keeping::all_received(recovered) {
        if !own.members.is_home_of(&name) {
            continue;
        }
        own.budget.change(Part::Sessions, 0, name_bytes(&name));
        let left = Left {
            outcomes,
            secs,
            durable: true,
            expires: true,
        };
        let unknown = SessionRef {
            key: SessionKey(0),
            at: usize::MAX,
        };
        own.termini.entry(&name);
        keep(own, &name, (own.config.shard, unknown), left);
    }
}
