//! The engine's state, its settings, and what can be asked about it. What
//! comes from the server is in `input`, what the owner asks for in `command`,
//! what is due in `output`.

use alloc::collections::VecDeque;
use core::time::Duration;

use dunlin_base::{Instant, QoS};
use dunlin_mqtt_codec::{PacketId, ReasonCode, Version};

use super::auth::Authentication;
use super::error::PeerError;
use super::event::Event;
use super::inbound::Inbound;
use super::keep_alive::KeepAlive;
use super::negotiated::{Negotiated, Offer};
use super::outbound::Outbound;
use crate::aliases::{HashedAliases, TopicAliases};

/// Deadlines, limits and choices of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Time from CONNECT to CONNACK. Default 10 s.
    pub connect_timeout: Duration,
    /// Time from PINGREQ to any sign of life; `None` (default): half the keep
    /// alive, from 1 s to 10 s.
    pub ping_timeout: Option<Duration>,
    /// How many PUBLISHes of QoS 1 and 2 may leave before CONNACK says what
    /// the server allows, besides SUBSCRIBEs and UNSUBSCRIBEs; 0 (default)
    /// makes every packet wait for it.
    pub early_publishes: u16,
    /// Unacknowledged PUBLISHes, SUBSCRIBEs and UNSUBSCRIBEs at most. Default
    /// 65,535, which is as many as there are packet identifiers.
    pub outbound_max: u16,
    /// Exchanges of QoS 1 and 2 that the server may have begun: at least the
    /// Receive Maximum in CONNECT, twice as many where sessions with QoS 2
    /// outlive connections. Default 65,535.
    pub inbound_max: u16,
    /// Topic aliases that the server may set: at least the Topic Alias Maximum
    /// in CONNECT. Default 0.
    pub aliases_in_max: u16,
    /// Topic aliases that this client sets at most. Default 0.
    pub aliases_out_max: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            ping_timeout: None,
            early_publishes: 0,
            outbound_max: u16::MAX,
            inbound_max: u16::MAX,
            aliases_in_max: 0,
            aliases_out_max: 0,
        }
    }
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// No connection.
    Idle,
    /// CONNECT is written, CONNACK has not come.
    Connecting,
    /// CONNACK has come.
    Connected,
    /// The connection is over for MQTT; the owner closes the transport when
    /// all output has left.
    Closing,
}

/// An answer to a packet whose identifier is not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stray {
    PubRel(PacketId),
    PubComp(PacketId),
}

/// Answers that are owed to packets whose identifiers are not in use, in order.
/// Each one is answered, or the server waits for it as long as the connection
/// lasts.
#[derive(Debug)]
pub(super) struct Strays {
    owed: VecDeque<Stray>,
    max: usize,
}

impl Strays {
    /// None yet; as many as messages may be in flight, both ways.
    fn new(settings: &Settings) -> Self {
        Self {
            owed: VecDeque::new(),
            max: usize::from(settings.inbound_max) + usize::from(settings.outbound_max),
        }
    }

    pub(super) fn add(&mut self, stray: Stray) -> Result<Event<'static>, PeerError> {
        if self.owed.len() >= self.max {
            return Err(PeerError::ReceiveMaximumExceeded);
        }
        self.owed.push_back(stray);
        Ok(Event::Nothing)
    }

    pub(super) fn first(&self) -> Option<Stray> {
        self.owed.front().copied()
    }

    pub(super) fn written(&mut self) {
        self.owed.pop_front();
    }

    pub(super) fn clear(&mut self) {
        self.owed = VecDeque::new();
    }
}

/// The client's side of an MQTT session. See the [module](super) for the order
/// of calls.
#[derive(Debug)]
pub struct Session {
    pub(super) settings: Settings,
    pub(super) phase: Phase,
    /// What the last CONNECT said.
    pub(super) offer: Offer,
    pub(super) negotiated: Negotiated,
    pub(super) auth: Authentication,
    pub(super) keep_alive: KeepAlive,
    pub(super) connect_deadline: Option<Instant>,
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
    pub(super) aliases_in: TopicAliases,
    pub(super) aliases_out: HashedAliases,
    /// PUBLISHes may use topic aliases.
    pub(super) aliases_allowed: bool,
    /// A DISCONNECT to write because of a [`PeerError`](super::PeerError).
    pub(super) disconnect: Option<ReasonCode>,
    pub(super) strays: Strays,
}

impl Session {
    /// A session that has not begun.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            phase: Phase::Idle,
            offer: Offer::default(),
            negotiated: Negotiated::default(),
            auth: Authentication::default(),
            keep_alive: KeepAlive::new(settings.ping_timeout),
            connect_deadline: None,
            outbound: Outbound::new(settings.outbound_max),
            inbound: Inbound::new(settings.inbound_max),
            aliases_in: TopicAliases::new(settings.aliases_in_max),
            aliases_out: HashedAliases::new(settings.aliases_out_max),
            aliases_allowed: true,
            disconnect: None,
            strays: Strays::new(&settings),
        }
    }

    /// Where the connection stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The version of the current or last connection.
    #[must_use]
    pub fn version(&self) -> Version {
        self.offer.version
    }

    /// What the server's CONNACK allows; while it has not come, what the one
    /// before allowed, as far as that concerns what may be written.
    #[must_use]
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Changes [`Settings::early_publishes`] for connections to come.
    pub fn set_early_publishes(&mut self, publishes: u16) {
        self.settings.early_publishes = publishes;
    }

    /// PUBLISHes of QoS 1 and 2 that wait for their last acknowledgement.
    #[must_use]
    pub fn in_flight(&self) -> u16 {
        self.outbound.in_flight()
    }

    /// Whether a PUBLISH of this QoS can be written now.
    #[must_use]
    pub fn can_publish(&self, qos: QoS) -> bool {
        self.is_open_for_publish() && (qos == QoS::AtMostOnce || self.outbound.can_publish())
    }

    /// Whether a SUBSCRIBE or UNSUBSCRIBE can be written now.
    #[must_use]
    pub fn can_request(&self) -> bool {
        match self.phase {
            Phase::Connected => true,
            // Those of an earlier connection go first: a later one may undo
            // them.
            Phase::Connecting => self.offer.pipelined && !self.outbound.has_stale_requests(),
            Phase::Idle | Phase::Closing => false,
        }
    }

    /// Whether the session holds anything that a resumed session needs.
    #[must_use]
    pub fn has_session_state(&self) -> bool {
        !(self.outbound.in_flight() == 0 && self.inbound.is_empty())
    }

    /// Whether a PUBLISH can be written now as far as the connection goes.
    pub(super) fn is_open_for_publish(&self) -> bool {
        match self.phase {
            Phase::Connected => true,
            Phase::Connecting => self.offer.pipelined && !self.outbound.has_unsent(),
            Phase::Idle | Phase::Closing => false,
        }
    }
}
