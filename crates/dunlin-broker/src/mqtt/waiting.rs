//! What waits for the store or for other shards before an answer leaves.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::{ConnId, StreamId, Text};
use dunlin_mqtt::server::session::Subscribing;
use dunlin_store::Seq;

use crate::ids::SessionRef;

/// A SUBSCRIBE or UNSUBSCRIBE that is not in force everywhere yet.
#[derive(Debug)]
pub(crate) struct PendingSubscribe {
    pub(crate) conn: ConnId,
    pub(crate) session: SessionRef,
    pub(crate) subscribing: Subscribing,
    /// Filters whose retained messages are due.
    pub(crate) walks: Vec<Text>,
    /// Shards and store that have not answered.
    pub(crate) waiting: usize,
}

/// Work that waits under a token.
#[derive(Debug)]
pub(crate) enum MqttPending {
    /// CONNACK waits for the session's record.
    Connect {
        conn: ConnId,
    },
    /// A CONNECT waits for its client identifier.
    Claim {
        conn: ConnId,
    },
    Subscribe(PendingSubscribe),
    /// The part of a SUBSCRIBE or UNSUBSCRIBE that the store has; the rest waits
    /// under the same token.
    SubscribeStored,
    /// A durable QoS 2 message may leave once its packet id is stored.
    Outgoing {
        session: SessionRef,
        packet_id: NonZeroU16,
    },
    /// PUBREL may leave once PUBREC is stored.
    Release {
        session: SessionRef,
        packet_id: NonZeroU16,
        seq: Seq,
    },
    /// PUBCOMP may leave once the inbound id is deleted.
    Complete {
        session: SessionRef,
        stream: StreamId,
        packet_id: NonZeroU16,
    },
}
