//! What a session remembers of a flow of the MQTT-next draft.

use core::time::Duration;

use dunlin_base::{Instant, StreamId};
use dunlin_mqtt::flow::FlowFlags;

/// Flows of one session, open ones and those that may be recovered.
pub(crate) const FLOWS_MAX: usize = 64;

/// What a session knows of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowState {
    pub(crate) flags: FlowFlags,
    pub(crate) expire_secs: u64,
    /// Its stream, or its last one, on the session's connection; control
    /// stands in for those of earlier connections.
    pub(crate) stream: StreamId,
    /// When that stream was lost; `None`: it is open.
    pub(crate) lost_at: Option<Instant>,
}

impl FlowState {
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        let lasts = Duration::from_secs(self.expire_secs.min(u64::from(u32::MAX)));
        self.lost_at.is_some_and(|at| at + lasts <= now)
    }

    /// Whether its subscriptions outlive its stream.
    pub(crate) const fn keeps_subscriptions(&self) -> bool {
        self.flags.has(FlowFlags::PERSISTENT_SUBSCRIPTIONS) && self.expire_secs > 0
    }
}
