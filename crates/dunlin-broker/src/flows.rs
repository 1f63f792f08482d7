//! Flows of the MQTT-next draft: what a session remembers when their streams
//! are gone.
//!
//! A flow is a data stream with a name. Packet identifiers towards the client
//! are unique per connection anyway, so what is left to remember are its
//! subscriptions, and where QoS 2 messages from the client stand.

use crate::ids::SessionIdx;
use crate::owners::Owners;
use crate::subscriptions;
use alloc::vec::Vec;
use dunlin_base::StreamId;

/// The stream of a flow ended: in order, and then the flow is over, or
/// not, and then it may be recovered.
pub(crate) fn end_flow(own: &mut Owners, s: SessionIdx, id: u64, stream: StreamId, in_order: bool) {
    let now = own.now;
    let Some(session) = own.sessions.get_mut(s) else {
        return;
    };
    let Some(state) = session.flows.get_mut(&id) else {
        return;
    };
    // Another stream may have taken it over.
    if state.stream != stream || state.lost_at.is_some() {
        return;
    }
    if in_order || state.expire_secs == 0 {
        return forget_flow(own, s, id);
    }
    state.lost_at = Some(now);
    if !state.keeps_subscriptions() {
        subscriptions::drop_subscriptions(own, s, |flow, _| flow == id);
    }
}

/// The connection is gone, and the streams of all flows with it, as well
/// as the subscriptions that end with their streams.
pub(crate) fn lose_streams(own: &mut Owners, s: SessionIdx, durable: bool) {
    let Some(session) = own.sessions.get(s) else {
        return;
    };
    let flows = session.flows.iter();
    let flows: Vec<_> = flows.map(|(id, state)| (*id, state.stream)).collect();
    for (id, stream) in flows {
        end_flow(own, s, id, stream, false);
    }
    let flows = own.sessions.get_mut(s).map(|session| &mut session.flows);
    for state in flows.into_iter().flat_map(|flows| flows.values_mut()) {
        state.stream = StreamId::CONTROL;
    }
    if !durable {
        subscriptions::drop_subscriptions(own, s, |flow, stream| {
            flow == 0 && stream != StreamId::CONTROL
        });
    }
}

/// Forgets flows that nobody recovered in time.
pub(crate) fn expire_flows(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    let Some(session) = own.sessions.get(s) else {
        return;
    };
    let flows = session.flows.iter();
    let expired: Vec<u64> = flows
        .filter(|(_, state)| state.is_expired(now))
        .map(|(id, _)| *id)
        .collect();
    for id in expired {
        forget_flow(own, s, id);
    }
}

pub(crate) fn forget_flow(own: &mut Owners, s: SessionIdx, id: u64) {
    let flows = own.sessions.get_mut(s).map(|session| &mut session.flows);
    // A stream that is still open goes on as one without a name.
    if flows.is_some_and(|flows| flows.remove(&id).is_some()) {
        subscriptions::drop_subscriptions(own, s, |flow, _| flow == id);
    }
}
