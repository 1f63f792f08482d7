//! What a shard keeps of a connection that speaks MQTT.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, Instant, ShardId, Text};
use dunlin_mqtt::codec::Connect;
use dunlin_mqtt::server::connect::Accepted;
use dunlin_mqtt::server::{AuthExchange, Link, Stage};

use crate::auth::By;
use crate::ids::SessionIdx;
use crate::owners::common::{ConnCore, Identity, Standing, Who};
use crate::owners::kind::{ConnKind, Proof};

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
    /// The shard of its session has had something sent to it.
    pub(crate) answered: bool,
    /// What vouches for the client, if that is neither the password file nor a
    /// certificate.
    pub(crate) voucher: Option<Box<Voucher>>,
}

/// What vouches for a client, and until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voucher {
    pub(crate) by: By,
    pub(crate) expires: Option<Instant>,
}

impl MqttConn {
    pub(crate) fn new(id: ConnId, peer: Peer, now: Instant, connect_timeout: Duration) -> Self {
        Self {
            core: ConnCore::new(id, peer),
            phase: Phase::ExpectConnect,
            link: Link::new(now, connect_timeout),
            who: None,
            answered: false,
            voucher: None,
        }
    }

    /// When what vouches for the client ends.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.voucher.as_ref().and_then(|voucher| voucher.expires)
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

impl ConnKind for MqttConn {
    fn session(&self) -> Option<SessionIdx> {
        Self::session(self)
    }

    fn handed_over(&self) -> Option<ShardId> {
        match self.phase {
            Phase::HandedOver(to) => Some(to),
            _ => None,
        }
    }

    fn backlog(&self) -> usize {
        self.link.backlog()
    }

    fn unfinished(&self) -> usize {
        self.link.unfinished()
    }

    fn parked_bytes(&self) -> usize {
        self.link.parked.bytes()
    }

    fn begun_bytes(&self) -> usize {
        self.link.streams.unfinished()
    }

    fn is_open(&self) -> bool {
        self.session().is_some() && !self.link.parked.has_bytes()
    }

    fn who(&self) -> Option<&Who> {
        self.who.as_deref()
    }

    fn proof(&self) -> Proof<'_> {
        match &self.phase {
            Phase::Exchanging(_, exchange) => Proof::Password(exchange.user()),
            Phase::Claiming(claiming) if claiming.identity.standing == Standing::Listed => {
                let user = claiming.identity.user.as_ref();
                user.map_or(Proof::Other, Proof::Password)
            }
            Phase::Connected(s) | Phase::Storing(s, _) => Proof::Session(*s),
            _ => Proof::Other,
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
