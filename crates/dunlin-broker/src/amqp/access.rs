//! Who a client is: SASL, or what its listener allows without it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp::codec::{Error, Open, SaslCode, Symbol, Symbols, capability, condition};
use dunlin_amqp::{Body, Connection, Limits, SaslPolicy, Settings, Side};
use dunlin_base::transport::{NetCommandKind, Peer};
use dunlin_base::{Instant, Text};
use dunlin_sasl::Mechanism;
use dunlin_sasl::server::{Exchange, Next, Question};

use crate::auth::{AuthAnswer, AuthPolicy, FirstStep};
use crate::config::Config;
use crate::ids::ConnIdx;
use crate::io::{AccessKind, Event, Output};
use crate::owners::Owners;
use crate::owners::amqp::AmqpPhase;
use crate::owners::conn::{Identity, Who};
use crate::owners::session::Standing;
use crate::reports::audit;

/// Container id of the broker.
const CONTAINER_ID: &str = "dunlin";

/// The frame of `open`: some clients have long container ids, and properties.
const OPEN_BYTES_MAX: u32 = 4096;

/// Sessions of a connection.
const SESSIONS_MAX: u16 = 16;

/// Links of a session.
const LINKS_MAX: u32 = 64;

/// The engine of a connection that was opened.
pub(crate) fn engine(config: &Config, policy: AuthPolicy, peer: &Peer, now: Instant) -> Connection {
    let mut mechanisms: Vec<Symbol<'_>> = Vec::with_capacity(3);
    if policy.certificates && peer.identity.is_some() {
        mechanisms.push(EXTERNAL);
    }
    // A password is not for others to read.
    if peer.transport.is_encrypted() || peer.addr.ip().to_canonical().is_loopback() {
        mechanisms.push(PLAIN);
    }
    if policy.anonymous.allows(peer) {
        mechanisms.push(ANONYMOUS);
    }
    let settings = Settings {
        side: Side::Server,
        container_id: CONTAINER_ID,
        sasl: SaslPolicy::Optional,
        mechanisms: Symbols::new(&mechanisms),
        limits: Limits {
            first_frame_bytes_max: OPEN_BYTES_MAX,
            sessions_max: SESSIONS_MAX,
            links_max: LINKS_MAX,
            unsettled_sent_max: usize::from(config.inflight_max),
            partial_bytes_max: config.packet_bytes_max as usize,
            open_time_out: config.connect_timeout,
            ..Limits::default()
        },
    };
    Connection::new(now, &settings)
}

const ANONYMOUS: Symbol<'static> = Symbol::from_static(Mechanism::Anonymous.name());
const PLAIN: Symbol<'static> = Symbol::from_static(Mechanism::Plain.name());
const EXTERNAL: Symbol<'static> = Symbol::from_static(Mechanism::External.name());

/// The client has chosen a mechanism.
pub(crate) fn handle_init(own: &mut Owners, c: ConnIdx, mechanism: &str, response: Option<&Bytes>) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let policy = own.policy(conn.peer.listener);
    let secret =
        conn.peer.transport.is_encrypted() || conn.peer.addr.ip().to_canonical().is_loopback();
    let proved = conn.peer.identity.as_ref();
    // Without one, it is empty: an empty challenge would get no more.
    let response = response.map_or(&[][..], |response| response);
    let begun = Mechanism::from_name(mechanism)
        .filter(|mechanism| secret || !mechanism.needs_encryption())
        .map(|mechanism| Exchange::begin(mechanism, Some(response), None));
    let step = match begun {
        Some(Ok((_, Next::Ask(Question::Password { user, password })))) => {
            let id = Text::new();
            policy.first_step(&conn.peer, &id, Some(&user), Some(&password))
        }
        // A client acts for itself only.
        Some(Ok((_, Next::Ask(Question::External(named)))))
            if policy.certificates
                && proved.is_some()
                && named.as_ref().is_none_or(|named| Some(named) == proved) =>
        {
            FirstStep::Accept {
                user: proved.cloned(),
            }
        }
        Some(Ok((_, Next::Ask(Question::Anonymous)))) if policy.anonymous.allows(&conn.peer) => {
            FirstStep::Accept { user: None }
        }
        _ => FirstStep::Refuse,
    };
    match step {
        FirstStep::Accept { user } => {
            let identity = Identity {
                user,
                ..Identity::default()
            };
            accept(own, c, identity);
        }
        FirstStep::Refuse => refuse(own, c, SaslCode::Auth, "no credentials"),
        FirstStep::Ask(request) => {
            own.pause(c, true);
            if let Some(conn) = own.conns.amqp_mut(c) {
                conn.phase = AmqpPhase::Authenticating;
                let conn = conn.id;
                own.outbox.push(Output::Auth { conn, request });
            }
        }
    }
}

/// The authenticator answered.
pub(crate) fn handle_answer(own: &mut Owners, c: ConnIdx, answer: AuthAnswer) {
    let asked = own.conns.amqp(c).map(|conn| conn.phase);
    if asked != Some(AmqpPhase::Authenticating) {
        return;
    }
    own.pause(c, false);
    match answer {
        AuthAnswer::Accept { user } => {
            let identity = Identity {
                user,
                standing: Standing::Listed,
                data: None,
            };
            accept(own, c, identity);
        }
        AuthAnswer::Busy => refuse(own, c, SaslCode::SysTemp, "the authenticator is busy"),
        _ => refuse(own, c, SaslCode::Auth, "wrong user name or password"),
    }
}

fn accept(own: &mut Owners, c: ConnIdx, identity: Identity) {
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.phase = AmqpPhase::Authenticated;
        conn.identity = identity;
        // It waits for this.
        let _ = conn.engine.sasl_outcome(SaslCode::Ok, None);
    }
}

fn refuse(own: &mut Owners, c: ConnIdx, code: SaslCode, cause: &'static str) {
    own.stats.clients_refused += 1;
    audit::note(own, c, AccessKind::Refused, cause);
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.phase = AmqpPhase::Opening;
        let _ = conn.engine.sasl_outcome(code, None);
    }
}

/// `open` of the client: without SASL before it, its listener decides.
pub(crate) fn handle_open(own: &mut Owners, c: ConnIdx, body: &Body) {
    let (now, Some(conn)) = (own.now, own.conns.amqp(c)) else {
        return;
    };
    let policy = own.policy(conn.peer.listener);
    let allowed = conn.phase == AmqpPhase::Authenticated;
    let step = policy.first_step(&conn.peer, &Text::new(), None, None);
    let container = body.open().map(|open| Text::from(open.container_id));
    let container = container.unwrap_or_default();
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    conn.who = Some(Box::new(Who {
        client_id: container.clone(),
        user: conn.identity.user.clone(),
    }));
    match step {
        _ if allowed => {}
        FirstStep::Accept { user } => conn.identity.user = user,
        FirstStep::Refuse | FirstStep::Ask(_) => {
            let error = Error::new(condition::UNAUTHORIZED_ACCESS, "no credentials");
            let _ = conn.engine.close(now, Some(&error));
            own.stats.clients_refused += 1;
            return audit::note(own, c, AccessKind::Refused, "no credentials");
        }
    }
    let capabilities = [capability::ANONYMOUS_RELAY];
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
        properties: None,
    };
    if conn.engine.open(now, &open).is_err() {
        return;
    }
    conn.phase = AmqpPhase::Open;
    let (id, standing) = (conn.id, conn.identity.standing);
    own.outbox.command(id, NetCommandKind::Accept);
    let timeout = own.config.idle_timeout_max;
    own.outbox
        .command(id, NetCommandKind::SetIdleTimeout { timeout });
    own.stats.clients_accepted += 1;
    let cause = match standing {
        Standing::Listed => "password",
        _ => "no password needed",
    };
    audit::note(own, c, AccessKind::Accepted, cause);
    own.outbox.event(Event::Connected {
        conn: id,
        client_id: container,
        resumed: false,
    });
}
