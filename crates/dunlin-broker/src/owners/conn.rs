//! What a shard keeps of a network connection. A connection without traffic
//! owns no buffers.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, Instant, ShardId, StreamId, Text};
use dunlin_mqtt::codec::Connect;
use dunlin_mqtt::server::Link;

use crate::ids::SessionIdx;
use crate::mqtt::lanes::Lanes;
use crate::mqtt::scram::ScramExchange;
use crate::owners::timers::Alarm;

/// Where a connection stands.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing understood yet.
    ExpectConnect,
    /// CONNECT was read; the authenticator has it.
    Authenticating(Box<PendingConnect>),
    /// The client and the server exchange AUTH.
    Exchanging(Box<PendingConnect>, Box<ScramExchange>),
    /// Authenticated; another shard has, or decides on, the client identifier.
    Claiming(Box<Claiming>),
    /// Accepted; the session is on its way to the store and CONNACK waits.
    Storing(SessionIdx, Box<ConnAckFacts>),
    /// CONNACK was sent.
    Connected(SessionIdx),
    /// The session lives on another shard, which sees everything (QUIC).
    HandedOver(ShardId),
    /// Its session has been taken from it; Close follows in the same call.
    Ending,
    /// Closing: what still arrives is ignored.
    Closing,
}

/// A CONNECT that waits for its verdict.
#[derive(Debug)]
pub(crate) struct PendingConnect {
    /// The packet.
    pub(crate) packet: Bytes,
    /// Assigned client identifier.
    pub(crate) assigned: Option<Text>,
}

impl PendingConnect {
    /// The client identifier that the session gets.
    pub(crate) fn client_id(&self, connect: &Connect<'_>) -> Text {
        let assigned = self.assigned.clone();
        assigned.unwrap_or_else(|| Text::from(connect.client_id))
    }
}

/// The outcome of authentication, on its way into a session.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    pub(crate) user: Option<Text>,
    /// Last message of an enhanced authentication, for CONNACK.
    pub(crate) data: Option<Bytes>,
}

/// A CONNECT that waits for its client identifier.
#[derive(Debug)]
pub(crate) struct Claiming {
    pub(crate) pending: PendingConnect,
    pub(crate) identity: Identity,
}

/// What CONNACK says that the session does not know.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnAckFacts {
    pub(crate) session_present: bool,
    pub(crate) assigned: Option<Text>,
    pub(crate) server_keep_alive: Option<u16>,
    pub(crate) session_expiry: Option<u32>,
    pub(crate) auth_method: Option<Text>,
    pub(crate) auth_data: Option<Bytes>,
}

/// A network connection: what MQTT knows of it, and its place among the others
/// of this shard.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) peer: Peer,
    pub(crate) phase: Phase,
    pub(crate) link: Link,
    /// Delivery streams, if the client takes them.
    pub(crate) lanes: Option<Box<Lanes>>,
    /// SUBSCRIBEs and UNSUBSCRIBEs that wait for their answer.
    pub(crate) subscribing: u16,
    /// In the shard's list of connections to flush.
    pub(crate) dirty: bool,
    /// Queued messages wait for the transport.
    pub(crate) blocked: bool,
    /// Reading is paused.
    pub(crate) paused: bool,
    /// Since when this receiver is behind.
    pub(crate) behind_since: Option<Instant>,
    /// Publishers that it holds up.
    pub(crate) holds: Vec<ConnId>,
    pub(crate) alarm: Alarm,
    /// Re-authentication under way.
    pub(crate) reauth: Option<Box<ScramExchange>>,
}

impl Conn {
    pub(crate) fn new(id: ConnId, peer: Peer, now: Instant) -> Self {
        Self {
            id,
            peer,
            phase: Phase::ExpectConnect,
            link: Link::new(now),
            lanes: None,
            subscribing: 0,
            dirty: false,
            blocked: false,
            paused: false,
            behind_since: None,
            holds: Vec::new(),
            alarm: Alarm::default(),
            reauth: None,
        }
    }

    /// Whether both sides agreed on flow headers (ALPN).
    pub(crate) fn speaks_next(&self) -> bool {
        *self.peer.protocol == *dunlin_mqtt::flow::ALPN
    }

    /// Bytes on their way out: in the transport and not yet given to it.
    pub(crate) fn backlog(&self) -> usize {
        let held = self.lanes.as_ref().map_or(0, |lanes| lanes.held_bytes());
        self.link.streams.backlog() + held
    }

    /// Whether messages of a topic would go to a stream of which the client
    /// takes nothing. `stream` is that of their subscription.
    pub(crate) fn is_blocked_for(&self, stream: StreamId, topic: &str) -> bool {
        if !self.link.streams.is_any_blocked() {
            return false;
        }
        let stream = match &self.lanes {
            Some(lanes) if stream == StreamId::CONTROL => lanes.stream_of(topic),
            _ => Some(stream),
        };
        stream.is_some_and(|stream| self.link.streams.is_blocked(stream))
    }

    /// Whether PUBLISH for a subscription of this stream may carry an alias.
    pub(crate) fn uses_aliases(&self, stream: StreamId) -> bool {
        self.lanes.is_none() && self.link.uses_aliases(stream)
    }

    /// Takes the session from a connection that ends.
    pub(crate) fn take_session(&mut self) -> Option<SessionIdx> {
        let s = self.session()?;
        self.phase = Phase::Ending;
        Some(s)
    }

    /// The session, once CONNECT was accepted.
    pub(crate) const fn session(&self) -> Option<SessionIdx> {
        match self.phase {
            Phase::Connected(s) | Phase::Storing(s, _) => Some(s),
            _ => None,
        }
    }
}
