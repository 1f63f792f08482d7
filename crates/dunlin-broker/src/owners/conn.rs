//! What a shard keeps of a network connection. A connection without traffic
//! owns no buffers.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::{NetCommandKind, Peer};
use dunlin_base::{ConnId, Instant, ShardId, Text};
use dunlin_mqtt::codec::Connect;
use dunlin_mqtt::server::connect::Accepted;
use dunlin_mqtt::server::{AuthExchange, Link, Stage};

use crate::ids::SessionIdx;
use crate::owners::amqp::AmqpConn;
use crate::owners::carrier::Carrier;
use crate::owners::common::ConnCore;
pub(crate) use crate::owners::common::{Identity, Who};

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

/// A CONNECT that waits for its client identifier.
#[derive(Debug)]
pub(crate) struct Claiming {
    pub(crate) pending: PendingConnect,
    pub(crate) identity: Identity,
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
#[allow(
    clippy::large_enum_variant,
    reason = "most are of MQTT, and are found without another step"
)]
pub(crate) enum Conn {
    /// MQTT, any version.
    Mqtt(MqttConn),
    /// AMQP 1.0.
    Amqp(Box<AmqpConn>),
    /// A QUIC connection whose streams are connections of AMQP.
    Carrier(Box<Carrier>),
}

impl Deref for Conn {
    type Target = ConnCore;

    fn deref(&self) -> &ConnCore {
        match self {
            Self::Mqtt(conn) => conn,
            Self::Amqp(conn) => conn,
            Self::Carrier(conn) => conn,
        }
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut ConnCore {
        match self {
            Self::Mqtt(conn) => conn,
            Self::Amqp(conn) => conn,
            Self::Carrier(conn) => conn,
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
    pub(crate) fn amqp(&self) -> Option<&AmqpConn> {
        match self {
            Self::Amqp(conn) => Some(conn),
            Self::Mqtt(_) | Self::Carrier(_) => None,
        }
    }

    pub(crate) fn amqp_mut(&mut self) -> Option<&mut AmqpConn> {
        match self {
            Self::Amqp(conn) => Some(conn),
            Self::Mqtt(_) | Self::Carrier(_) => None,
        }
    }

    pub(crate) const fn mqtt(&self) -> Option<&MqttConn> {
        match self {
            Self::Mqtt(conn) => Some(conn),
            Self::Amqp(_) | Self::Carrier(_) => None,
        }
    }

    pub(crate) const fn mqtt_mut(&mut self) -> Option<&mut MqttConn> {
        match self {
            Self::Mqtt(conn) => Some(conn),
            Self::Amqp(_) | Self::Carrier(_) => None,
        }
    }

    pub(crate) fn carrier(&self) -> Option<&Carrier> {
        match self {
            Self::Carrier(carrier) => Some(carrier),
            Self::Mqtt(_) | Self::Amqp(_) => None,
        }
    }

    pub(crate) fn carrier_mut(&mut self) -> Option<&mut Carrier> {
        match self {
            Self::Carrier(carrier) => Some(carrier),
            Self::Mqtt(_) | Self::Amqp(_) => None,
        }
    }

    /// Whether it is a stream of another entry, and no connection of the network.
    pub(crate) fn is_carried(&self) -> bool {
        self.amqp().is_some_and(|conn| conn.carried.is_some())
    }

    /// What stops or resumes reading from it.
    pub(crate) fn reading(&self, paused: bool) -> (ConnId, NetCommandKind) {
        match self.amqp().and_then(|conn| conn.carried) {
            Some(at) => {
                let stream = at.stream;
                (at.conn, NetCommandKind::PauseStream { stream, paused })
            }
            None => (self.id, NetCommandKind::PauseReading { paused }),
        }
    }

    /// The session of its client, if it has one for all that it does.
    pub(crate) const fn session(&self) -> Option<SessionIdx> {
        match self {
            Self::Mqtt(conn) => conn.session(),
            Self::Amqp(_) | Self::Carrier(_) => None,
        }
    }

    /// The shard that has its session and sees everything that happens on it.
    pub(crate) const fn handed_over(&self) -> Option<ShardId> {
        match self {
            Self::Mqtt(conn) => match conn.phase {
                Phase::HandedOver(to) => Some(to),
                _ => None,
            },
            Self::Amqp(_) | Self::Carrier(_) => None,
        }
    }

    /// Bytes on their way out.
    pub(crate) fn backlog(&self) -> usize {
        match self {
            Self::Mqtt(conn) => conn.link.backlog(),
            Self::Amqp(conn) => conn.backlog(),
            Self::Carrier(_) => 0,
        }
    }

    /// Bytes of packets that have not come whole, and of what came too early.
    pub(crate) fn unfinished(&self) -> usize {
        match self {
            Self::Mqtt(conn) => conn.link.unfinished(),
            Self::Amqp(conn) => conn.engine.unfinished_bytes(),
            Self::Carrier(_) => 0,
        }
    }

    /// Whether what it sends is read and handled as it comes.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Mqtt(conn) => conn.session().is_some() && !conn.link.parked.has_bytes(),
            Self::Amqp(conn) => conn.is_read(),
            Self::Carrier(_) => true,
        }
    }

    /// Whose it is, if that is not a matter of its session.
    pub(crate) fn user(&self) -> Option<Text> {
        self.amqp().and_then(|conn| conn.identity.user.clone())
    }

    /// Who its client says that it is, until it has its session.
    pub(crate) fn who(&self) -> Option<&Who> {
        match self {
            Self::Mqtt(conn) => conn.who.as_deref(),
            Self::Amqp(conn) => conn.who.as_deref(),
            Self::Carrier(_) => None,
        }
    }
}

impl MqttConn {
    pub(crate) fn new(id: ConnId, peer: Peer, now: Instant, connect_timeout: Duration) -> Self {
        Self {
            core: ConnCore::new(id, peer),
            phase: Phase::ExpectConnect,
            link: Link::new(now, connect_timeout),
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
