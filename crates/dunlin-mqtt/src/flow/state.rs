//! What a session remembers of flows when their streams are gone, and a connection of
//! those that could not be recovered.
//!
//! A flow is a data stream with a name. Packet identifiers towards the client
//! are unique per connection anyway, so what is left to remember are its
//! subscriptions, and where QoS 2 messages from the client stand.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{Instant, StreamId};

use super::{FlowFlags, stream_code};

/// Flows of one session, open ones and those that may be recovered.
pub const FLOWS_MAX: usize = 64;

/// Flows of one connection whose recovery failed and is remembered.
const FAILED_FLOWS_MAX: usize = 16;

/// A flow that the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Flow identifier.
    pub id: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Seconds that its state outlives the stream.
    pub expire_secs: u64,
    /// Flags.
    pub flags: FlowFlags,
}

impl Wanted {
    /// Whether the server can do what it asks for; else the code to reset its
    /// stream with.
    pub(crate) const fn check(&self) -> Result<(), u64> {
        // Even identifiers are the client's; 0 is the control flow.
        if self.id == 0 || self.id & 1 == 1 {
            return Err(stream_code::BAD_FLOW_ID);
        }
        // They look like packets.
        if self.flags.has(FlowFlags::OPTIONAL_HEADERS) {
            return Err(stream_code::OPTIONAL_HEADER);
        }
        if self.flags.has(FlowFlags::PERSISTENT_TOPIC_ALIAS) {
            return Err(stream_code::PERSISTENT_TOPIC);
        }
        Ok(())
    }
}

/// Why a flow is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowRefused {
    /// Reset its stream with this code.
    Code(u64),
    /// There is nothing to recover: as with [`stream_code::NO_FLOW_STATE`], and
    /// a client that asks again is cut off.
    Unknown,
}

/// A flow that goes on, on another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The stream that it leaves.
    pub(crate) from: StreamId,
    /// That stream is still open, and has to be reset.
    pub(crate) open: bool,
}

/// What a session knows of a flow.
#[derive(Clone, Copy, Debug)]
struct FlowState {
    flags: FlowFlags,
    expire_secs: u64,
    /// Its stream, or its last one, on the session's connection; control
    /// stands in for those of earlier connections.
    stream: StreamId,
    /// When that stream was lost; `None`: it is open.
    lost_at: Option<Instant>,
}

impl FlowState {
    fn is_expired(&self, now: Instant) -> bool {
        let lasts = Duration::from_secs(self.expire_secs.min(u64::from(u32::MAX)));
        self.lost_at.is_some_and(|at| at + lasts <= now)
    }

    /// Whether its subscriptions outlive its stream.
    const fn keeps_subscriptions(&self) -> bool {
        self.flags.has(FlowFlags::PERSISTENT_SUBSCRIPTIONS) && self.expire_secs > 0
    }
}

/// The flows of a session by identifier.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    by_id: BTreeMap<u64, FlowState>,
}

impl Flows {
    /// Whether subscriptions made on a flow outlive its stream; `None`: there
    /// is no such flow.
    pub(crate) fn keeps_subscriptions(&self, id: u64) -> Option<bool> {
        self.by_id.get(&id).map(FlowState::keeps_subscriptions)
    }

    /// The stream of a flow ended: in order, and then the flow is over, or not,
    /// and then it may be recovered. `true` if its subscriptions end.
    pub(crate) fn end(&mut self, id: u64, stream: StreamId, in_order: bool, now: Instant) -> bool {
        let Some(state) = self.by_id.get_mut(&id) else {
            return false;
        };
        // Another stream may have taken it over.
        if state.stream != stream || state.lost_at.is_some() {
            return false;
        }
        if in_order || state.expire_secs == 0 {
            return self.forget(id);
        }
        state.lost_at = Some(now);
        !state.keeps_subscriptions()
    }

    /// The connection is gone, and all streams with it; the flows whose
    /// subscriptions end.
    pub(crate) fn lose_all(&mut self, now: Instant) -> Vec<u64> {
        let all: Vec<_> = self.by_id.iter().map(|(id, s)| (*id, s.stream)).collect();
        let ended = all.into_iter();
        let ended = ended.filter(|(id, stream)| self.end(*id, *stream, false, now));
        let ended = ended.map(|(id, _)| id).collect();
        for state in self.by_id.values_mut() {
            state.stream = StreamId::CONTROL;
        }
        ended
    }

    /// Forgets flows that were not recovered in time, and says which.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<u64> {
        let all = self.by_id.iter();
        let expired = all.filter(|(_, state)| state.is_expired(now));
        let expired: Vec<u64> = expired.map(|(id, _)| *id).collect();
        for id in &expired {
            self.by_id.remove(id);
        }
        expired
    }

    /// Forgets a flow, if there is one. A stream that is still open goes on as
    /// one without a name.
    pub(crate) fn forget(&mut self, id: u64) -> bool {
        self.by_id.remove(&id).is_some()
    }

    /// Opens a flow, takes it over or recovers it, on the stream that is
    /// wanted. Only a later stream takes over (draft, section 9.14).
    pub(crate) fn open(&mut self, wanted: &Wanted) -> Result<Option<Moved>, FlowRefused> {
        let moved = match self.by_id.get(&wanted.id) {
            Some(state) => {
                let from = state.stream;
                let open = state.lost_at.is_none();
                let same_kind = from.is_unidirectional() == wanted.stream.is_unidirectional();
                if open && (!same_kind || from > wanted.stream) {
                    return Err(FlowRefused::Code(stream_code::FLOW_CANCELLED));
                }
                Some(Moved { from, open })
            }
            None if wanted.flags.has(FlowFlags::ABORT_IF_NO_STATE) => {
                return Err(FlowRefused::Unknown);
            }
            None if self.by_id.len() >= FLOWS_MAX => {
                return Err(FlowRefused::Code(stream_code::FLOW_REFUSED));
            }
            None => None,
        };
        let state = FlowState {
            flags: wanted.flags,
            expire_secs: wanted.expire_secs,
            stream: wanted.stream,
            lost_at: None,
        };
        self.by_id.insert(wanted.id, state);
        Ok(moved)
    }
}

/// The last flows of one connection that could not be recovered.
#[derive(Debug, Default)]
pub struct FailedFlows(Vec<u64>);

impl FailedFlows {
    /// Another one; `false` if the client has asked for it before.
    pub fn note(&mut self, id: u64) -> bool {
        if self.0.contains(&id) {
            return false;
        }
        if self.0.len() >= FAILED_FLOWS_MAX {
            self.0.remove(0);
        }
        self.0.push(id);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_cannot_be_recovered_is_asked_for_once() {
        let mut failed = FailedFlows::default();
        assert!(failed.note(2) && !failed.note(2));
        for id in 4..20 {
            assert!(failed.note(id));
        }
        assert!(failed.note(2), "only the last are remembered");
    }
}
