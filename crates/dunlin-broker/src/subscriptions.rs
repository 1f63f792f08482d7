//! The subscriptions of a session as its streams and flows come and go.

use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{BusMessage, InterestChange};
use crate::owners::Owners;
use crate::session::{Session, Subscription};
use alloc::vec::Vec;
use dunlin_base::{ShardId, StreamId, Text};
use dunlin_store::StoreOp;

/// Ends subscriptions, by their flow and stream.
pub(crate) fn drop_subscriptions(
    own: &mut Owners,
    s: SessionIdx,
    which: impl Fn(u64, StreamId) -> bool,
) {
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let all = session.subscriptions.iter();
    let dropped: Vec<Text> = all
        .filter(|(_, subscription)| which(subscription.flow, subscription.stream))
        .map(|(text, _)| text.clone())
        .collect();
    let mut changes = Vec::new();
    for text in dropped {
        changes.extend(own.routing.remove(s, &text));
        let Some(session) = own.sessions.get_mut(s) else {
            break;
        };
        session.subscriptions.remove(text.as_bytes());
        session.walks.retain(|walk| walk.filter != text);
        if session.is_persistent() {
            let (key, filter) = (session.key, text);
            own.commits
                .write(StoreOp::DeleteSubscription { key, filter });
        }
    }
    if !changes.is_empty() {
        announce(own, 0, &changes);
    }
}

/// The flow of a stream; 0: none.
pub(crate) fn flow_of(own: &Owners, c: ConnIdx, stream: StreamId) -> u64 {
    let conn = own.conns.get(c);
    conn.map_or(0, |conn| conn.link.streams.flow_of(stream))
}

/// Whether a subscription made on a stream outlives the connection.
pub(crate) fn outlives(own: &Owners, c: ConnIdx, session: &Session, stream: StreamId) -> bool {
    if stream == StreamId::CONTROL {
        return true;
    }
    match session.flows.get(&flow_of(own, c, stream)) {
        Some(state) => state.keeps_subscriptions(),
        None => own
            .conns
            .get(c)
            .is_none_or(|conn| conn.link.terms.durable_streams),
    }
}

/// Sends interest to every other shard.
pub(crate) fn announce(own: &mut Owners, token: u64, changes: &[InterestChange]) {
    for shard in 0..own.config.shards {
        let to = ShardId(shard);
        if to != own.config.shard {
            let message = BusMessage::Interest {
                token,
                changes: changes.to_vec(),
            };
            own.outbox.bus(to, message);
        }
    }
}

/// Subscriptions made on data streams of an earlier connection go on, on
/// control.
pub(crate) fn rehome_streams(own: &mut Owners, s: SessionIdx) {
    let Some(session) = own.sessions.get(s) else {
        return;
    };
    let moved: Vec<(Text, Subscription)> = session
        .subscriptions
        .iter()
        .filter(|(_, subscription)| subscription.stream != StreamId::CONTROL)
        .map(|(text, subscription)| (text.clone(), *subscription))
        .collect();
    for (text, mut subscription) in moved {
        subscription.stream = StreamId::CONTROL;
        own.routing.insert(s, &text, subscription.value());
        if let Some(session) = own.sessions.get_mut(s) {
            session.subscriptions.insert(text, subscription);
        }
    }
}

/// Subscriptions made on a stream that ended go on, on control, when the
/// session is persistent; otherwise, or if the client wants it so, they
/// end with it, as with EMQX.
pub(crate) fn rehome_subscriptions(own: &mut Owners, c: ConnIdx, s: SessionIdx, stream: StreamId) {
    let Some(session) = own.sessions.get(s) else {
        return;
    };
    let keep = session.is_persistent() && outlives(own, c, session, stream);
    let moved = session.subscriptions.iter();
    let moved: Vec<(Text, Subscription)> = moved
        .filter(|(_, subscription)| subscription.stream == stream)
        .map(|(text, subscription)| (text.clone(), *subscription))
        .collect();
    if !keep {
        return drop_subscriptions(own, s, |_, on| on == stream);
    }
    for (text, mut subscription) in moved {
        subscription.stream = StreamId::CONTROL;
        own.routing.insert(s, &text, subscription.value());
        if let Some(session) = own.sessions.get_mut(s) {
            session.subscriptions.insert(text, subscription);
        }
    }
}
