//! What the flows of a session mean for its subscriptions and for QoS 2 messages of the
//! client. Packet identifiers towards the client are unique on a connection, so no more
//! of a flow has to be remembered.

use alloc::vec::Vec;

use dunlin_base::{Instant, StreamId, Text};

use super::{Changes, Session, Subscription};
use crate::flow::{FlowFlags, FlowRefused, Wanted, stream_code};

impl Session {
    /// Opens a flow, takes it over, or recovers it. What has changed for
    /// subscriptions is in `changes` in any case; a stream to be reset with
    /// [`stream_code::FLOW_CANCELLED`] comes out.
    ///
    /// # Errors
    ///
    /// The flow is not opened.
    pub fn open_flow(
        &mut self,
        wanted: &Wanted,
        now: Instant,
        changes: &mut Changes,
    ) -> Result<Option<StreamId>, FlowRefused> {
        wanted.check().map_err(FlowRefused::Code)?;
        changes.ended.append(&mut self.expire_flows(now));
        if wanted.flags.has(FlowFlags::CLEAN) {
            if self.flows.forget(wanted.id) {
                let mut ended = self.subscriptions.end(|s| s.flow == wanted.id);
                changes.ended.append(&mut ended);
            }
            if wanted.flags.has(FlowFlags::ABORT_IF_NO_STATE) {
                return Err(FlowRefused::Code(stream_code::DISCARD_STATE));
            }
        }
        let Some(moved) = self.flows.open(wanted)? else {
            return Ok(None);
        };
        if moved.from != StreamId::CONTROL {
            self.inbound.rehome(moved.from, wanted.stream);
        }
        // Acknowledgements of what came one way go to control, and so do
        // deliveries.
        if !wanted.stream.is_unidirectional() {
            let of_flow = |s: &Subscription| s.flow == wanted.id;
            changes.moved = self.subscriptions.move_to(wanted.stream, of_flow);
        }
        Ok(moved.open.then_some(moved.from))
    }

    /// Forgets flows that were not recovered in time; their subscriptions end.
    pub(super) fn expire_flows(&mut self, now: Instant) -> Vec<Text> {
        let expired = self.flows.expire(now);
        match expired.is_empty() {
            true => Vec::new(),
            false => self.subscriptions.end(|s| expired.contains(&s.flow)),
        }
    }
}
