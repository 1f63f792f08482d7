//! Who a client is: what [`sasl`] found out, what an earlier stream of its
//! transport has proved, or what its listener allows without either.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_amqp::codec::{Error, Map, Open, Symbol, Symbols, Value, capability, condition};
use dunlin_amqp::{Body, Connection, Limits, SaslPolicy, Settings, Side};
use dunlin_base::transport::{NetCommandKind, Peer};
use dunlin_base::{Instant, Repeat, Text};
use dunlin_sasl::Mechanism;

use crate::amqp::carried::{self, Inherited};
use crate::amqp::state::{AmqpConn, AmqpPhase};
use crate::amqp::{quota, redirecting, sasl};
use crate::auth::{AuthPolicy, FirstStep};
use crate::bridges::is_bridge_name;
use crate::config::Config;
use crate::ids::ConnIdx;
use crate::io::{AccessKind, Event};
use crate::owners::Owners;
use crate::owners::common::{Identity, Standing, Who};
use crate::queues::addresses;
use crate::random::sender_number;
use crate::reports::audit;

/// Container id of the broker.
const CONTAINER_ID: &str = "dunlin";

/// What the program is.
const PRODUCT: &str = "dunlin";

/// The frame of `open`: some clients have long container ids, and properties.
const OPEN_BYTES_MAX: u32 = 4096;

/// A SASL frame with the longest token that the authenticator takes.
const TOKEN_FRAME_BYTES_MAX: u32 = 9 * 1024;

/// Sessions of a connection.
const SESSIONS_MAX: u16 = 16;

/// Links of a session.
const LINKS_MAX: u32 = 64;

/// The engine of a connection that was opened. `inherits`: it is a stream of a
/// transport on which another one came first.
pub(crate) fn engine(
    config: &Config,
    policy: AuthPolicy,
    peer: &Peer,
    inherits: bool,
    now: Instant,
) -> Connection {
    let names = sasl::offered(policy, peer, inherits).map(Mechanism::name);
    let mut mechanisms: Vec<Symbol<'_>> = names.map(Symbol::from_static).collect();
    if mechanisms.is_empty() {
        // The list must not be empty (part 5, section 5.3.3.1). Who chooses it is
        // refused.
        mechanisms.push(Symbol::from_static(Mechanism::Anonymous.name()));
    }
    let limits = Limits::default();
    let settings = Settings {
        side: Side::Server,
        container_id: CONTAINER_ID,
        sasl: SaslPolicy::Optional,
        mechanisms: Symbols::new(&mechanisms),
        limits: Limits {
            first_frame_bytes_max: OPEN_BYTES_MAX,
            sasl_frame_bytes_max: match policy.tokens {
                true => TOKEN_FRAME_BYTES_MAX,
                false => limits.sasl_frame_bytes_max,
            },
            sessions_max: SESSIONS_MAX,
            links_max: LINKS_MAX,
            unsettled_sent_max: usize::from(config.sending.inflight_max),
            partial_bytes_max: config.clients.packet_bytes_max as usize,
            open_time_out: config.clients.connect_timeout,
            ..limits
        },
    };
    Connection::new(now, &settings)
}

/// `open` of the client.
pub(crate) fn handle_open(own: &mut Owners, c: ConnIdx, body: &Body) {
    let open = body.open();
    if let Some(properties) = open.as_ref().and_then(|open| open.properties) {
        spread(own, c, properties);
    }
    let container = open.map(|open| Text::from(open.container_id));
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    conn.who = Some(Box::new(Who {
        client_id: container.unwrap_or_default(),
        user: conn.identity.user.clone(),
    }));
    decide(own, c);
}

/// What `open` asks for the streams of its QUIC connection.
fn spread(own: &mut Owners, c: ConnIdx, properties: Map<'_>) {
    let Some(carried) = own.conns.amqp(c).and_then(|conn| conn.carried) else {
        return;
    };
    let number = |name: Symbol<'_>| match properties.get(name.as_str()) {
        Some(Value::Uint(number)) => Some(number),
        _ => None,
    };
    if number(capability::ISOLATE) == Some(1) {
        let isolate = true;
        own.outbox
            .command(carried.conn, NetCommandKind::IsolateStreams { isolate });
    }
    let asked = number(capability::REPEAT).and_then(Repeat::from_asked);
    if let Some(repeat) = Repeat::granted(asked, own.config.sending.repeat_packets) {
        own.outbox
            .command(carried.conn, NetCommandKind::RepeatPackets { repeat });
    }
}

/// Answers `open`: without SASL before it, an earlier stream or the listener
/// decides.
pub(super) fn decide(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let policy = own.policy(conn.peer.listener);
    let step = policy.without_credentials(&conn.peer);
    if let AmqpPhase::Authenticated(mechanism) = conn.phase {
        return accept(own, c, cause_of(mechanism));
    }
    let identity = match carried::inherited(own, c) {
        Inherited::Undecided => return carried::wait(own, c),
        Inherited::Proved(proved) => Some((proved.into(), "as on an earlier stream")),
        Inherited::Nothing => match step {
            FirstStep::Accept { user } => {
                let cause = match &user {
                    Some(_) => "client certificate",
                    None => "no credentials needed",
                };
                let identity = Identity {
                    user,
                    ..Identity::default()
                };
                Some((identity, cause))
            }
            FirstStep::Refuse | FirstStep::Ask(_) => None,
        },
    };
    match (identity, own.conns.amqp_mut(c)) {
        (Some((identity, cause)), Some(conn)) => {
            conn.identity = identity;
            accept(own, c, cause);
        }
        _ => refuse(own, c),
    }
}

fn refuse(own: &mut Owners, c: ConnIdx) {
    let cause = "no credentials";
    close(own, c, cause);
    own.stats.clients_refused += 1;
    audit::note(own, c, AccessKind::Refused, cause);
}

/// Closes the connection of a client that may not be here.
pub(super) fn close(own: &mut Owners, c: ConnIdx, cause: &'static str) {
    let now = own.now;
    if let Some(conn) = own.conns.amqp_mut(c) {
        let error = Error::new(condition::UNAUTHORIZED_ACCESS, cause);
        let _ = conn.engine.close(now, Some(&error));
        own.conns.touch(c);
    }
}

/// What the broker says of itself. Clients of JMS put the prefix in front of the name of
/// a queue, unless it is there, and take it away from an address that they show.
const fn properties() -> [(Value<'static>, Value<'static>); 3] {
    let version = env!("CARGO_PKG_VERSION");
    [
        (Value::Symbol(capability::PRODUCT), Value::String(PRODUCT)),
        (Value::Symbol(capability::VERSION), Value::String(version)),
        (
            Value::Symbol(capability::QUEUE_PREFIX),
            Value::String(addresses::QUEUES),
        ),
    ]
}

/// The client is known: answers `open`.
fn accept(own: &mut Owners, c: ConnIdx, cause: &'static str) {
    if refuse_banned(own, c) {
        return;
    }
    let user = own
        .conns
        .amqp(c)
        .and_then(|conn| conn.identity.user.as_deref());
    if user.is_some_and(is_bridge_name) {
        return refuse(own, c);
    }
    if redirecting::redirect_connection(own, c) {
        own.stats.clients_refused += 1;
        return audit::note(own, c, AccessKind::Refused, "another server serves it");
    }
    let now = own.now;
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let takes_tokens = own.policy(conn.peer.listener).tokens && conn.peer.is_private();
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    let mut capabilities = alloc::vec![
        capability::ANONYMOUS_RELAY,
        capability::SHARED_SUBS,
        capability::DELAYED_DELIVERY,
        capability::LINK_PAIR,
    ];
    if takes_tokens {
        capabilities.push(capability::CBS);
    }
    let properties = properties();
    let open = Open {
        container_id: CONTAINER_ID,
        hostname: None,
        max_frame_size: u32::MAX,
        channel_max: u16::MAX,
        idle_time_out: None,
        outgoing_locales: None,
        incoming_locales: None,
        offered_capabilities: Some(Symbols::new(&capabilities)),
        desired_capabilities: None,
        properties: Some(Map::new(&properties)),
    };
    if conn.engine.open(now, &open).is_err() {
        return;
    }
    conn.phase = AmqpPhase::Open;
    if let Some(who) = &mut conn.who {
        who.user = conn.identity.user.clone();
        conn.sender = sender_number(who.user.as_deref(), &who.client_id);
    }
    let client_id = conn.who.as_ref().map(|who| who.client_id.clone());
    let is_proved = conn.identity.standing != Standing::Unproved;
    let (id, _) = conn.place();
    own.conns.touch(c);
    let timeout = own.config.clients.idle_timeout_max;
    own.outbox
        .command(id, NetCommandKind::SetIdleTimeout { timeout });
    if is_proved {
        let_in(own, c, cause);
    }
    own.outbox.event(Event::Connected {
        conn: id,
        client_id: client_id.unwrap_or_default(),
        resumed: false,
    });
    carried::note_proved(own, c);
}

/// Closes the connection of a client that is banned; whether it is.
pub(super) fn refuse_banned(own: &mut Owners, c: ConnIdx) -> bool {
    let Some(conn) = own.conns.amqp(c) else {
        return false;
    };
    let client_id = conn.who.as_ref().map(|who| who.client_id.clone());
    let user = conn.identity.user.clone();
    let banned = own.is_banned(c, &client_id.unwrap_or_default(), user.as_ref());
    if banned {
        let cause = "banned";
        close(own, c, cause);
        own.stats.clients_refused += 1;
        audit::note(own, c, AccessKind::Refused, cause);
    }
    banned
}

/// The client is one that may be here. Until then its transport is a stranger's.
pub(super) fn let_in(own: &mut Owners, c: ConnIdx, cause: &'static str) {
    if refuse_banned(own, c) {
        return;
    }
    if let Some((id, _)) = own.conns.amqp(c).map(AmqpConn::place) {
        own.outbox.command(id, NetCommandKind::Accept);
        own.stats.clients_accepted += 1;
        quota::begin(own, c);
        note_user(own, c, cause);
    }
}

/// Notes that a client has not set the token that it announced; says so.
pub(super) fn refuse_silent(own: &mut Owners, c: ConnIdx) -> &'static str {
    let cause = "no token came in time";
    own.stats.clients_refused += 1;
    audit::note(own, c, AccessKind::Refused, cause);
    cause
}

/// Notes who the client is.
pub(super) fn note_user(own: &mut Owners, c: ConnIdx, cause: &'static str) {
    audit::note(own, c, AccessKind::Accepted, cause);
}

const fn cause_of(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Plain => "password",
        Mechanism::External => "client certificate",
        Mechanism::Anonymous => "no credentials needed",
        other => other.name(),
    }
}
