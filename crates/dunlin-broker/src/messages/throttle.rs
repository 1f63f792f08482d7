//! Back-pressure to publishers: from receivers, for moments only, from the store, for
//! those of retained messages, and from their quotas.
//!
//! A receiver that falls behind holds up who publishes to it until it has
//! caught up, but never longer than [`HOLD_MAX`]: a burst is smoothed, a
//! receiver that is simply slow costs others no more than that. After it,
//! QoS 0 messages to the receiver are dropped at `qos0_backlog_bytes` and
//! others queue, until it has caught up once. A receiver that falls behind again
//! and again holds its publishers again and again, as far as its subscriptions
//! reach: who may subscribe to a topic may slow it down.

use alloc::boxed::Box;
use core::time::Duration;

use crate::ids::{ConnIdx, SessionIdx};
use crate::owners::Owners;
use crate::owners::common::Behind;
use crate::owners::conn::Conn;
use crate::owners::timers::Timer;
use crate::quotas::{Pace, Verdict};

/// Longest time that one receiver holds up its publishers without a break.
pub(crate) const HOLD_MAX: Duration = Duration::from_millis(100);

/// Messages queued for a connected session at which it holds up publishers.
pub(crate) const QUEUE_HIGH: usize = 8192;

/// Publishers that one receiver holds up at a time.
const HELD_MAX: usize = 1024;

/// Publishers held for the store that go on at a time.
const RELEASED_MAX: usize = 4;

/// Time until more of them go on, when those have nothing stored.
const RELEASE_MORE: Duration = Duration::from_millis(1);

/// Holds up a publisher if this receiver is behind, or notes
/// that it is not any more.
pub(crate) fn check_pace(own: &mut Owners, s: SessionIdx, publisher: Option<ConnIdx>) {
    let (Some(session), Some(publisher)) = (own.sessions.get(s), publisher) else {
        return;
    };
    let Some(c) = session.conn else {
        return;
    };
    let behind = session.queue().len() >= QUEUE_HIGH;
    let (now, limit) = (own.now, own.config.sending.send_backlog_bytes);
    let Some(conn) = own.conns.get_mut(c) else {
        return;
    };
    if !behind && conn.backlog() < limit {
        return;
    }
    let behind = conn
        .behind
        .get_or_insert_with(|| Box::new(Behind::new(now)));
    let until = behind.since + HOLD_MAX;
    if now >= until || c == publisher || behind.holds.len() >= HELD_MAX {
        return;
    }
    let Some(id) = own.conns.get(publisher).map(|conn| conn.id) else {
        return;
    };
    if let Some(conn) = own.conns.get_mut(c)
        && let Some(behind) = &mut conn.behind
        && !behind.holds.contains(&id)
    {
        behind.holds.push(id);
        own.pause(publisher, true);
        own.timers.set(until, Timer::Release(id));
    }
}

/// A receiver may have caught up: its publishers go on.
pub(crate) fn release_publishers(own: &mut Owners, c: ConnIdx) {
    let low = own.config.sending.send_backlog_bytes / 2;
    let Some(conn) = own.conns.get(c) else {
        return;
    };
    if conn.behind.is_none() || conn.backlog() > low {
        return;
    }
    let queued = conn
        .session()
        .and_then(|s| own.sessions.get(s))
        .map_or(0, |session| session.queue().len());
    if queued <= QUEUE_HIGH / 2 {
        release_all(own, c);
    }
}

/// Releases all publishers that this connection holds up.
pub(crate) fn release_all(own: &mut Owners, c: ConnIdx) {
    let behind = own.conns.get_mut(c).and_then(|conn| conn.behind.take());
    for id in behind.map(|behind| behind.holds).into_iter().flatten() {
        if let Some(publisher) = own.conns.find(id) {
            release(own, publisher);
        }
    }
}

/// A retained message is on its way to the store. When that has too many of them,
/// their publishers are not read: what others have stored waits behind it.
pub(crate) fn note_unstored(own: &mut Owners, publisher: Option<ConnIdx>, bytes: usize) {
    if !own.unstored.add(bytes) {
        return;
    }
    if let Some(publisher) = publisher
        && let Some(conn) = own.conns.get_mut(publisher)
        && !core::mem::replace(&mut conn.unstored, true)
    {
        let id = conn.id;
        own.unstored.hold(id);
        own.pause(publisher, true);
    }
}

/// A retained message was stored, or is off.
pub(crate) fn note_stored(own: &mut Owners, bytes: usize) {
    own.unstored.remove(bytes);
    release_unstored(own);
}

/// Lets the next publishers of retained messages go on, few at a time.
pub(crate) fn release_unstored(own: &mut Owners) {
    for _ in 0..RELEASED_MAX {
        let Some(id) = own.unstored.release() else {
            return;
        };
        if let Some(publisher) = own.conns.find(id)
            && let Some(conn) = own.conns.get_mut(publisher)
        {
            conn.unstored = false;
            release(own, publisher);
        }
    }
    if own.unstored.is_stuck() && !own.unstored.reminded {
        own.unstored.reminded = true;
        own.timers.set(own.now + RELEASE_MORE, Timer::Unstored);
    }
}

/// A client has another quota: it begins again with that.
pub(crate) fn set_pace(own: &mut Owners, c: ConnIdx, pace: Option<Box<Pace>>) {
    let Some(conn) = own.conns.get_mut(c) else {
        return;
    };
    let before = core::mem::replace(&mut conn.pace, pace);
    if before.is_some_and(|pace| pace.held) {
        release(own, c);
    }
}

/// A client is read although it is ahead, as it is to end.
#[cfg(feature = "amqp")]
pub(crate) fn stop_holding(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.get_mut(c) else {
        return;
    };
    let pace = conn.pace.as_mut();
    if pace.is_some_and(|pace| core::mem::take(&mut pace.held)) {
        release(own, c);
    }
}

/// Bytes of a connection were handled, and the messages in them are noted: it is not read
/// for a while if they were too many.
pub(crate) fn pace(own: &mut Owners, c: ConnIdx, bytes: usize) -> Verdict {
    let now = own.now;
    let conn = own.conns.peek_mut(c);
    let Some((id, pace)) = conn.and_then(|conn| Some((conn.id, conn.pace.as_mut()?))) else {
        return Verdict::Go;
    };
    let verdict = pace.note_bytes(bytes, now);
    if let Verdict::Wait(time) = verdict
        && !core::mem::replace(&mut pace.held, true)
    {
        own.stats.clients_paced += 1;
        own.timers.set(now + time, Timer::Pace(id));
        own.pause(c, true);
    }
    verdict
}

/// What a client has sent is paid for.
pub(crate) fn end_pace(own: &mut Owners, c: ConnIdx) {
    let now = own.now;
    let Some(conn) = own.conns.get_mut(c) else {
        return;
    };
    let id = conn.id;
    let Some(pace) = &mut conn.pace else {
        return;
    };
    let ahead = pace.ahead(now);
    if !ahead.is_zero() {
        // More has come that was under way.
        return own.timers.set(now + ahead, Timer::Pace(id));
    }
    pace.held = false;
    release(own, c);
}

/// A publisher has been held up long enough.
pub(crate) fn release(own: &mut Owners, publisher: ConnIdx) {
    let conn = own.conns.get(publisher);
    if conn.is_some_and(Conn::is_open) {
        own.pause(publisher, false);
    }
}
