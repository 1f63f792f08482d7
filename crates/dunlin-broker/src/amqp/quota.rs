//! Clients that send faster than their [quota](crate::quotas): not read for a while, or
//! closed. Over QUIC the streams of a connection have one quota, that of the first client
//! that has one, and are closed together.

use alloc::vec::Vec;

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

/// The client is known: it has its quota from now on.
pub(super) fn begin(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let who = conn.who.as_ref();
    let subject = Subject {
        client_id: who.map_or("", |who| &who.client_id),
        user: conn.identity.user.as_deref(),
        listener: Some(conn.peer.listener),
        rules: conn.identity.rules.as_deref(),
        acl: own.access.acl.as_deref(),
    };
    let quota = own.config.quotas.of(&subject);
    let pace = quota.and_then(|quota| quota.pace());
    let is_carried = conn.carried.is_some();
    let at = place(own, c);
    let has_one = own.conns.get(at).is_some_and(|conn| conn.pace.is_some());
    if !(is_carried && has_one) {
        throttle::set_pace(own, at, pace);
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
