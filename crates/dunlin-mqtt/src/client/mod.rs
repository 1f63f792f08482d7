//! The client session engine: one MQTT session over any number of
//! connections, one at a time, as a state machine without sockets, clocks,
//! payload storage or an allocator.
//!
//! # How to drive an [`Engine`]
//!
//! The owner brings memory ([`Memory`]), opens a transport and then:
//!
//! 1. [`Engine::connect`] writes CONNECT.
//! 2. Bytes from the server go to [`Engine::handle_bytes`], which returns at
//!    most one [`Event`] per packet.
//! 3. After every `handle_*` call and every command, [`Engine::poll_output`]
//!    is called until it returns `false`: it writes what the protocol owes
//!    (acknowledgements, PUBREL, PINGREQ, a final DISCONNECT), one packet a
//!    call.
//! 4. [`Engine::handle_timeout`] is called at [`Engine::poll_timeout`].
//! 5. When the transport is gone: [`Engine::handle_closed`], then 1. again.
//!
//! Payloads of QoS 1 and 2 stay with the owner, under their packet identifier,
//! until [`Event::Recorded`] or [`Event::Published`]. After
//! [`Event::Connected`] the owner drains [`Engine::poll_resume`], which says
//! what must be sent again, and how.
//!
//! # When an output buffer is full
//!
//! Every command that fails with [`CommandError::SinkFull`], and every
//! [`Engine::poll_output`] that fails, has changed nothing: the owner throws
//! away what was written of that packet and calls again with more room.

mod alias;
mod command;
mod error;
mod event;
mod inbound;
mod input;
mod list;
mod negotiated;
mod outbound;
mod output;
#[cfg(all(test, feature = "alloc"))]
mod tests;

use core::time::Duration;

use dunlin_base::{Instant, QoS};
use dunlin_mqtt_codec::{PacketId, ReasonCode, Version};

#[cfg(feature = "alloc")]
pub use alias::HeapAliases;
pub use alias::{AliasFull, AliasStore, FixedAliases};
pub use error::{CommandError, PeerError};
pub use event::{Event, Owed, Resume};
pub use inbound::{InSlot, Receipt};
pub use negotiated::Negotiated;
pub use outbound::OutSlot;

use inbound::Inbound;
use outbound::Outbound;

/// What an engine's memory is made of.
pub trait Storage {
    /// Slots for packet identifiers of this client: one for each
    /// unacknowledged PUBLISH, SUBSCRIBE and UNSUBSCRIBE.
    type Outbound: AsRef<[OutSlot]> + AsMut<[OutSlot]>;
    /// Slots for packet identifiers of the server: as many as the Receive
    /// Maximum in CONNECT; twice as many where sessions with QoS 2 outlive
    /// connections.
    type Inbound: AsRef<[InSlot]> + AsMut<[InSlot]>;
    /// Topic aliases, for each direction.
    type Aliases: AliasStore;
}

/// An engine's memory.
#[derive(Clone, Debug, Default)]
pub struct Memory<S: Storage> {
    /// Packet identifiers of this client.
    pub outbound: S::Outbound,
    /// Packet identifiers of the server.
    pub inbound: S::Inbound,
    /// Aliases that the server sets; its capacity bounds the Topic Alias
    /// Maximum in CONNECT.
    pub aliases_in: S::Aliases,
    /// Aliases that this client sets.
    pub aliases_out: S::Aliases,
}

/// Memory in arrays: `OUT` and `IN` slots, no topic aliases.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedStorage<const OUT: usize, const IN: usize>;

impl<const OUT: usize, const IN: usize> Storage for FixedStorage<OUT, IN> {
    type Outbound = [OutSlot; OUT];
    type Inbound = [InSlot; IN];
    type Aliases = ();
}

impl<const OUT: usize, const IN: usize> FixedStorage<OUT, IN> {
    /// Fresh memory.
    #[must_use]
    pub fn memory() -> Memory<Self> {
        Memory {
            outbound: [OutSlot::FREE; OUT],
            inbound: [InSlot::FREE; IN],
            aliases_in: (),
            aliases_out: (),
        }
    }
}

/// Memory of a size chosen at run time.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapStorage;

#[cfg(feature = "alloc")]
impl Storage for HeapStorage {
    type Outbound = alloc::boxed::Box<[OutSlot]>;
    type Inbound = alloc::boxed::Box<[InSlot]>;
    type Aliases = HeapAliases;
}

#[cfg(feature = "alloc")]
impl HeapStorage {
    /// Fresh memory: slots for packet identifiers of the client and the
    /// server, topic aliases of the server and the client. A slot takes 16
    /// bytes at most.
    #[must_use]
    pub fn memory(outbound: u16, inbound: u16, alias_in: u16, alias_out: u16) -> Memory<Self> {
        Memory {
            outbound: alloc::vec![OutSlot::FREE; usize::from(outbound)].into(),
            inbound: alloc::vec![InSlot::FREE; usize::from(inbound)].into(),
            aliases_in: HeapAliases::new(alias_in),
            aliases_out: HeapAliases::new(alias_out),
        }
    }
}

/// Deadlines and choices of an engine.
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
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            ping_timeout: None,
            early_publishes: 0,
        }
    }
}

/// Bounds of the time that a server has to answer a ping, where the owner does
/// not choose it.
const PING_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const PING_TIMEOUT_MAX: Duration = Duration::from_secs(10);

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

/// Authentication of a connection (section 4.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Auth {
    /// CONNECT had no method.
    None,
    /// An exchange is under way.
    Active,
    /// The exchange succeeded; another may be started.
    Done,
}

/// Keep alive of a connection (section 3.1.2.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ping {
    /// PINGREQ is to be written.
    due: bool,
    /// PINGREQ is written and nothing has come since: until when to wait.
    deadline: Option<Instant>,
}

/// An answer to a packet whose identifier is not known; needs no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stray {
    PubRel(PacketId),
    PubComp(PacketId),
}

/// The client's side of an MQTT session. See the [module](self) for the order
/// of calls.
pub struct Engine<S: Storage> {
    settings: Settings,
    phase: Phase,
    version: Version,
    negotiated: Negotiated,
    outbound: Outbound<S::Outbound>,
    inbound: Inbound<S::Inbound>,
    aliases_in: S::Aliases,
    aliases_out: S::Aliases,
    /// PUBLISHes may use topic aliases.
    aliases_in_order: bool,
    auth: Auth,
    /// FNV-1a of the authentication method, to compare without keeping it.
    auth_method: u32,
    clean_start: bool,
    keep_alive: Duration,
    /// Largest packet that CONNECT allows the server.
    packet_bytes_max: u32,
    ping: Ping,
    last_sent: Instant,
    last_received: Instant,
    connect_deadline: Option<Instant>,
    read_paused: bool,
    /// A DISCONNECT to write because of a [`PeerError`].
    goodbye: Option<ReasonCode>,
    stray: Option<Stray>,
    /// Topic Alias Maximum in CONNECT.
    alias_in_max: u16,
    /// Receive Maximum in CONNECT; `None` in 3.1.1.
    receive_maximum: Option<u16>,
    /// Session Expiry Interval in CONNECT.
    session_expiry_seconds: u32,
}

impl<S: Storage> Engine<S> {
    /// A session that has not begun. At most 65,535 slots of each kind are
    /// used.
    #[must_use]
    pub fn new(memory: Memory<S>, settings: Settings) -> Self {
        Self {
            settings,
            phase: Phase::Idle,
            version: Version::V5,
            negotiated: Negotiated::default(),
            outbound: Outbound::new(memory.outbound),
            inbound: Inbound::new(memory.inbound),
            aliases_in: memory.aliases_in,
            aliases_out: memory.aliases_out,
            aliases_in_order: true,
            auth: Auth::None,
            auth_method: 0,
            clean_start: true,
            keep_alive: Duration::ZERO,
            packet_bytes_max: dunlin_base::limits::MQTT_PACKET_BYTES_MAX,
            ping: Ping::default(),
            last_sent: Instant::ZERO,
            last_received: Instant::ZERO,
            connect_deadline: None,
            read_paused: false,
            goodbye: None,
            stray: None,
            alias_in_max: 0,
            receive_maximum: None,
            session_expiry_seconds: 0,
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
        self.version
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
        let open = match self.phase {
            Phase::Connected => true,
            Phase::Connecting => self.can_publish_early(),
            Phase::Idle | Phase::Closing => false,
        };
        open && (qos == QoS::AtMostOnce || self.outbound.can_publish())
    }

    /// Whether a SUBSCRIBE or UNSUBSCRIBE can be written now.
    #[must_use]
    pub fn can_request(&self) -> bool {
        match self.phase {
            Phase::Connected => true,
            Phase::Connecting => self.can_request_early(),
            Phase::Idle | Phase::Closing => false,
        }
    }

    /// Whether the session holds anything that the server must hear of again.
    #[must_use]
    pub fn has_session_state(&self) -> bool {
        !(self.outbound.is_empty() && self.inbound.is_empty())
    }

    /// How long a server may take to answer a ping. Whoever pings often wants
    /// to know soon.
    fn ping_timeout(&self) -> Duration {
        let derived = (self.keep_alive / 2).clamp(PING_TIMEOUT_MIN, PING_TIMEOUT_MAX);
        self.settings.ping_timeout.unwrap_or(derived)
    }

    fn can_publish_early(&self) -> bool {
        self.is_pipelined() && !self.outbound.has_unsent()
    }

    /// Those of an earlier connection go first: a later one may undo them.
    fn can_request_early(&self) -> bool {
        self.is_pipelined() && !self.outbound.has_stale_requests()
    }

    /// Packets may follow CONNECT without waiting for CONNACK (section 3.1.4).
    fn is_pipelined(&self) -> bool {
        self.settings.early_publishes > 0 && self.auth == Auth::None
    }

    /// What the server would not take. Before CONNACK only that of the last
    /// connection is known, and this one may take it.
    fn not_taken(&self, error: CommandError) -> CommandError {
        match self.phase {
            Phase::Connecting => CommandError::NotConnected,
            _ => error,
        }
    }
}

/// FNV-1a of an authentication method: enough to notice that a server changes
/// it, without keeping it.
fn method_id(method: &str) -> u32 {
    alias::fnv1a(method)
}
