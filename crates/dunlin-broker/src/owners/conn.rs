//! What a shard keeps of a network connection. A connection without traffic
//! owns no buffers.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use bytes::Bytes;
use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, Instant, ShardId, Text};
use dunlin_mqtt::codec::Connect;
use dunlin_mqtt::server::connect::Accepted;
use dunlin_mqtt::server::{AuthExchange, Link, Stage};

use crate::ids::SessionIdx;
use crate::owners::session::Standing;
use crate::owners::timers::Alarm;
use crate::owners::weigh::ConnWeight;

/// Where a connection stands.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing understood yet.
    ExpectConnect,
    /// CONNECT was read; the authenticator has it.
    Authenticating(Box<PendingConnect>),
    /// The client and the server exchange AUTH.
    Exchanging(Box<PendingConnect>, Box<AuthExchange>),
    /// Authenticated; another shard has, or decides on, the client identifier.
    Claiming(Box<Claiming>),
    /// Accepted; the session is on its way to the store and CONNACK waits.
    Storing(SessionIdx, Box<Accepted>),
    /// CONNACK was sent.
    Connected(SessionIdx),
    /// The session lives on another shard, which sees everything (QUIC).
    HandedOver(ShardId),
    /// Its session has been taken from it; Close follows in the same call.
    Ending,
    /// Closing: what still arrives is ignored.
    Closing,
}

impl Phase {
    /// Whether CONNECT was read and something else decides on it.
    pub(crate) const fn is_pending(&self) -> bool {
        matches!(
            self,
            Self::Authenticating(_) | Self::Claiming(_) | Self::Storing(..)
        )
    }

    /// What the engine knows of it.
    pub(crate) const fn stage(&self) -> Stage {
        match self {
            Self::ExpectConnect => Stage::Begin,
            Self::Exchanging(..) => Stage::Exchange,
            Self::Connected(_) => Stage::Connected,
            _ => Stage::Deaf,
        }
    }
}

/// Who a client says that it is, until it has its session.
#[derive(Debug)]
pub(crate) struct Who {
    pub(crate) client_id: Text,
    pub(crate) user: Option<Text>,
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
    pub(crate) standing: Standing,
    /// Last message of an enhanced authentication, for CONNACK.
    pub(crate) data: Option<Bytes>,
}

/// A CONNECT that waits for its client identifier.
#[derive(Debug)]
pub(crate) struct Claiming {
    pub(crate) pending: PendingConnect,
    pub(crate) identity: Identity,
}

/// What every network connection has: its place among the others of this shard.
#[derive(Debug)]
pub(crate) struct ConnCore {
    pub(crate) id: ConnId,
    pub(crate) peer: Peer,
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
    /// What the budget counts for it.
    pub(crate) weight: ConnWeight,
}

/// A connection that speaks MQTT, or has not said anything yet.
#[derive(Debug)]
pub(crate) struct MqttConn {
    core: ConnCore,
    pub(crate) phase: Phase,
    pub(crate) link: Link,
    pub(crate) who: Option<Box<Who>>,
}

/// A network connection with the front of its protocol. Another protocol is a
/// variant here and a room beside `mqtt`.
#[derive(Debug)]
pub(crate) enum Conn {
    /// MQTT, any version.
    Mqtt(MqttConn),
}

impl ConnCore {
    pub(crate) fn new(id: ConnId, peer: Peer) -> Self {
        Self {
            id,
            peer,
            dirty: false,
            blocked: false,
            paused: false,
            behind_since: None,
            holds: Vec::new(),
            alarm: Alarm::default(),
            weight: ConnWeight::default(),
        }
    }
}

impl Deref for Conn {
    type Target = ConnCore;

    fn deref(&self) -> &ConnCore {
        match self {
            Self::Mqtt(conn) => conn,
        }
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut ConnCore {
        match self {
            Self::Mqtt(conn) => conn,
        }
    }
}

impl Deref for MqttConn {
    type Target = ConnCore;

    fn deref(&self) -> &ConnCore {
        &self.core
    }
}

impl DerefMut for MqttConn {
    fn deref_mut(&mut self) -> &mut ConnCore {
        &mut self.core
    }
}

impl Conn {
    pub(crate) const fn mqtt(&self) -> Option<&MqttConn> {
        match self {
            Self::Mqtt(conn) => Some(conn),
        }
    }

    pub(crate) const fn mqtt_mut(&mut self) -> Option<&mut MqttConn> {
        match self {
            Self::Mqtt(conn) => Some(conn),
        }
    }

    /// The session of its client, if it has one for all that it does.
    pub(crate) const fn session(&self) -> Option<SessionIdx> {
        match self {
            Self::Mqtt(conn) => conn.session(),
        }
    }

    /// The shard that has its session and sees everything that happens on it.
    pub(crate) const fn handed_over(&self) -> Option<ShardId> {
        match self {
            Self::Mqtt(conn) => match conn.phase {
                Phase::HandedOver(to) => Some(to),
                _ => None,
            },
        }
    }

    /// Bytes on their way out.
    pub(crate) fn backlog(&self) -> usize {
        match self {
            Self::Mqtt(conn) => conn.link.backlog(),
        }
    }

    /// Bytes of packets that have not come whole, and of what came too early.
    pub(crate) fn unfinished(&self) -> usize {
        match self {
            Self::Mqtt(conn) => conn.link.unfinished(),
        }
    }

    /// Whether what it sends is read and handled as it comes.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Mqtt(conn) => conn.session().is_some() && !conn.link.parked.has_bytes(),
        }
    }

    /// Who its client says that it is, until it has its session.
    pub(crate) fn who(&self) -> Option<&Who> {
        match self {
            Self::Mqtt(conn) => conn.who.as_deref(),
        }
    }
}

impl MqttConn {
    pub(crate) fn new(id: ConnId, peer: Peer, now: Instant) -> Self {
        Self {
            core: ConnCore::new(id, peer),
            phase: Phase::ExpectConnect,
            link: Link::new(now),
            who: None,
        }
    }

    /// Whether both sides agreed on flow headers (ALPN).
    pub(crate) fn speaks_next(&self) -> bool {
        *self.peer.protocol == *dunlin_mqtt::flow::ALPN
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
