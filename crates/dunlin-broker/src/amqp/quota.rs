//! The [quota](crate::quotas) of a client. One that sends faster is not read for a while,
//! or closed; its messages have a largest size, and its user so many links and queues. Over
//! QUIC the streams of a connection have one quota for what they send, that of the first
//! client that has one, and are closed together.

use alloc::vec::Vec;

use dunlin_amqp::Reason;
use dunlin_amqp::codec::condition;

use crate::amqp::state::AmqpConn;
use crate::ids::ConnIdx;
use crate::messages::throttle;
use crate::owners::Owners;
use crate::owners::conn::Conn;
use crate::quotas::{Subject, Verdict};

/// Where the pace of a connection is kept.
fn place(own: &Owners, c: ConnIdx) -> ConnIdx {
    let carried = own.conns.peek_amqp(c).and_then(|conn| conn.carried);
    carried.map_or(c, |it| it.by)
}

/// Whom a quota is for.
fn subject<'a>(own: &'a Owners, conn: &'a AmqpConn) -> Subject<'a> {
    let who = conn.who.as_ref();
    Subject {
        client_id: who.map_or("", |who| &who.client_id),
        user: conn.identity.user.as_deref(),
        listener: Some(conn.peer.listener),
        rules: conn.identity.rules.as_deref(),
        acl: own.access.acl.as_deref(),
    }
}

/// The client is known: it has its quota from now on.
pub(super) fn begin(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let quota = own.config.quotas.of(&subject(own, conn));
    let pace = quota.and_then(|quota| quota.pace());
    let is_carried = conn.carried.is_some();
    let at = place(own, c);
    let has_one = own.conns.get(at).is_some_and(|conn| conn.pace.is_some());
    if !(is_carried && has_one) {
        throttle::set_pace(own, at, pace);
    }
}

/// Bytes of the largest message that a client may send.
pub(super) fn message_bytes_max(own: &Owners, c: ConnIdx) -> u32 {
    let pace = own
        .conns
        .peek(place(own, c))
        .and_then(|conn| conn.pace.as_ref());
    let max = own.config.clients.packet_bytes_max;
    pace.map_or(max, |pace| pace.packet_bytes_max.min(max))
}

/// Whether the user of a client may have one link more, beside sessions and queues. One
/// that is stolen is there until the client knows, and not counted.
pub(super) fn has_room_for_link(own: &Owners, c: ConnIdx) -> bool {
    let Some(conn) = own.conns.amqp(c) else {
        return true;
    };
    let quota = own.config.quotas.of(&subject(own, conn));
    let max = quota.map_or(0, |quota| quota.sessions_max);
    let user = conn.identity.user.as_ref();
    let ending = usize::from(conn.steals);
    let holders = &own.budget.holders;
    user.is_none_or(|user| holders.has_room_beside(user, max, ending))
}

/// A link is gone, for this reason: counted if a message was too large for it.
pub(super) fn note_detached(own: &mut Owners, error: Option<&Reason>) {
    let condition = error.map(|error| error.get().condition);
    if condition == Some(condition::MESSAGE_SIZE_EXCEEDED) {
        own.stats.messages_too_large += 1;
    }
}

/// A message of a client came.
pub(super) fn note_message(own: &mut Owners, c: ConnIdx) {
    let (now, at) = (own.now, place(own, c));
    if let Some(pace) = own.conns.peek_mut(at).and_then(|conn| conn.pace.as_mut()) {
        pace.note_message(now);
    }
}

/// Bytes of a client were handled: it waits if they were too many. Returns why it is to
/// be closed, and what of its connection: the streams of a QUIC connection together.
pub(super) fn check(
    own: &mut Owners,
    c: ConnIdx,
    bytes: usize,
) -> Option<(&'static str, Vec<ConnIdx>)> {
    let at = place(own, c);
    let text = match throttle::pace(own, at, bytes) {
        Verdict::Go | Verdict::Wait(_) => return None,
        Verdict::Messages => "messages faster than its quota",
        Verdict::Bytes => "bytes faster than its quota",
    };
    own.stats.clients_over_quota += 1;
    let carrier = own.conns.peek(at).and_then(Conn::carrier);
    let streams = carrier.map(|carrier| carrier.streams.values().copied().collect());
    // Their answers are read.
    match streams {
        // Streams that the client opens next have the same debt.
        Some(_) => throttle::stop_holding(own, at),
        None => throttle::set_pace(own, at, None),
    }
    Some((text, streams.unwrap_or_else(|| alloc::vec![c])))
}
