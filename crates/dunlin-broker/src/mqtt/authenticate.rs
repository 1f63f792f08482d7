//! Who a client is: the policy of its listener, the authenticator's answer, and
//! enhanced authentication (MQTT 5.0 section 4.12) at CONNECT and again later.

use alloc::boxed::Box;
use alloc::format;

use bytes::Bytes;
use dunlin_base::transport::NetCommandKind;
use dunlin_base::{StreamId, Text};
use dunlin_mqtt::codec::{Auth, Connect, Packet, ReasonCode, Version, decode};
use dunlin_mqtt::scram::StoredKeys;
use dunlin_mqtt::server::{AuthExchange, NOT_AUTHORIZED, Reauth, auth_packet};

use crate::auth::{AuthAnswer, AuthRequest, FirstStep};
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::Output;
use crate::mqtt::claims;
use crate::mqtt::conn::{PendingConnect, Phase};
use crate::mqtt::fault::Fault;
use crate::mqtt::{ending, send};
use crate::owners::Owners;
use crate::owners::common::{Identity, Standing};

const BUSY: Fault = Fault::new(ReasonCode::ServerBusy, "the authenticator is busy");

const TOO_SOON: Fault = Fault::new(
    ReasonCode::ConnectionRateExceeded,
    "too many wrong passwords before",
);

pub(crate) fn authenticate(
    own: &mut Owners,
    c: ConnIdx,
    connect: &Connect<'_>,
    pending: PendingConnect,
) {
    if let Some(method) = connect.properties.authentication_method {
        return begin_exchange(own, c, method, connect, pending);
    }
    let Some(conn) = own.conns.mqtt(c) else {
        return;
    };
    let policy = own.policy(conn.peer.listener);
    let assigned = pending.assigned.clone();
    let client_id = assigned.unwrap_or_else(|| Text::from(connect.client_id));
    let user = connect.username.map(Text::from);
    let password = connect.password.map(Bytes::copy_from_slice);
    let step = policy.first_step(&conn.peer, &client_id, user.as_ref(), password.as_ref());
    match step {
        FirstStep::Accept { user } => {
            let identity = Identity {
                user,
                ..Identity::default()
            };
            claims::accept(own, c, connect, pending, identity);
        }
        FirstStep::Refuse => {
            let fault = Fault::new(ReasonCode::NotAuthorized, "no credentials");
            ending::refuse(own, c, fault);
        }
        FirstStep::Ask(request) => ask(own, c, Phase::Authenticating(Box::new(pending)), request),
    }
}

/// Accepts a CONNECT that was kept while its verdict was out.
fn accept_pending(own: &mut Owners, c: ConnIdx, pending: PendingConnect, identity: Identity) {
    let packet = pending.packet.clone();
    // It decoded before, so this cannot fail.
    if let Ok(Packet::Connect(connect)) = decode(&packet, Version::V5) {
        claims::accept(own, c, &connect, pending, identity);
    }
}

/// Asks the authenticator, with the connection in `phase` meanwhile.
fn ask(own: &mut Owners, c: ConnIdx, phase: Phase, request: AuthRequest) {
    if let Some(conn) = own.conns.mqtt_mut(c) {
        conn.phase = phase;
        let conn = conn.id;
        own.outbox.push(Output::Auth { conn, request });
    }
}

/// The authenticator answered for this connection.
pub(crate) fn handle_auth_answer(own: &mut Owners, c: ConnIdx, answer: AuthAnswer) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let pending = match core::mem::replace(&mut conn.phase, Phase::ExpectConnect) {
        Phase::Authenticating(pending) => pending,
        other => {
            conn.phase = other;
            return challenge(own, c, &answer);
        }
    };
    match answer {
        AuthAnswer::Accept { user } => {
            let identity = Identity {
                user,
                standing: Standing::Listed,
                expires: None,
                data: None,
            };
            accept_pending(own, c, *pending, identity);
        }
        AuthAnswer::Busy => ending::refuse(own, c, BUSY),
        AuthAnswer::TooSoon => ending::refuse(own, c, TOO_SOON),
        _ => {
            let reason = ReasonCode::BadUserNameOrPassword;
            let fault = Fault::new(reason, "wrong user name or password");
            ending::refuse(own, c, fault);
        }
    }
}

/// CONNECT with an authentication method.
fn begin_exchange(
    own: &mut Owners,
    c: ConnIdx,
    method: &str,
    connect: &Connect<'_>,
    pending: PendingConnect,
) {
    let conn = own.conns.mqtt(c);
    let conn = conn.filter(|conn| own.policy(conn.peer.listener).passwords);
    let Some(offered) = conn.map(|conn| conn.peer.binding) else {
        let reason = ReasonCode::BadAuthenticationMethod;
        let fault = Fault::new(reason, "unknown authentication method");
        return ending::refuse(own, c, fault);
    };
    match AuthExchange::begin(method, connect.properties.authentication_data, offered) {
        Ok(exchange) => {
            bind(own, c, &exchange);
            let user = exchange.user().clone();
            let Some(conn) = own.conns.mqtt_mut(c) else {
                return;
            };
            let address = conn.peer.addr.ip();
            if let Some(who) = &mut conn.who {
                who.user = Some(user.clone());
            }
            let phase = Phase::Exchanging(Box::new(pending), Box::new(exchange));
            ask(own, c, phase, AuthRequest::Scram { user, address });
        }
        Err(fault) => ending::refuse(own, c, fault),
    }
}

/// Asks the transport what an exchange is bound by, if it is. Its answer is there
/// before the client's to the challenge.
fn bind(own: &mut Owners, c: ConnIdx, exchange: &AuthExchange) {
    let conn = own.conns.mqtt(c).filter(|_| exchange.wants_channel());
    if let Some(conn) = conn.map(|conn| conn.id) {
        own.outbox.command(conn, NetCommandKind::BindChannel);
    }
}

/// The transport says what the exchange of a client is bound by.
pub(crate) fn handle_binding(own: &mut Owners, c: ConnIdx, data: Bytes) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let exchange = match &mut conn.phase {
        Phase::Exchanging(_, exchange) => Some(&mut **exchange),
        _ => conn.link.reauth.exchange(),
    };
    if let Some(exchange) = exchange {
        exchange.bind(data);
    }
}

/// The authenticator gave the keys of a user: the challenge leaves.
fn challenge(own: &mut Owners, c: ConnIdx, answer: &AuthAnswer) {
    let nonce = format!("{:032x}", own.random.next());
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let (exchange, again) = match &mut conn.phase {
        Phase::Exchanging(_, exchange) => (Some(&mut **exchange), false),
        _ => (conn.link.reauth.exchange(), true),
    };
    let Some(exchange) = exchange else {
        return;
    };
    let method = exchange.method();
    let outcome = match answer {
        AuthAnswer::Scram(known) => {
            let keys = StoredKeys {
                stored_key: known.stored_key,
                server_key: known.server_key,
            };
            exchange.challenge(&nonce, &known.salt, known.iterations, keys)
        }
        AuthAnswer::Busy => Err(BUSY),
        AuthAnswer::TooSoon => Err(TOO_SOON),
        _ => Err(NOT_AUTHORIZED),
    };
    match outcome {
        Ok(first) => {
            let first = first.to_vec();
            send_auth(own, c, method, ReasonCode::ContinueAuthentication, &first);
        }
        Err(fault) if again => ending::fail(own, c, fault),
        Err(fault) => ending::refuse(own, c, fault),
    }
}

fn send_auth(own: &mut Owners, c: ConnIdx, method: &str, reason: ReasonCode, data: &[u8]) {
    let packet = auth_packet(method, reason, data);
    send::send(own, c, StreamId::CONTROL, &packet);
}

/// AUTH between CONNECT and CONNACK.
pub(crate) fn handle_auth_exchange(
    own: &mut Owners,
    c: ConnIdx,
    auth: &Auth<'_>,
) -> Result<(), Fault> {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return Ok(());
    };
    let Phase::Exchanging(_, exchange) = &conn.phase else {
        return Ok(());
    };
    let verified = exchange.handle_auth(auth)?;
    let user = Some(exchange.user().clone());
    own.outbox.push(Output::Proof {
        user: exchange.user().clone(),
        address: conn.peer.addr.ip(),
        right: verified.is_some(),
    });
    let Some(data) = verified else {
        //= mqtt5#[MQTT-4.12.0-4]
        let fault = Fault::new(ReasonCode::NotAuthorized, "wrong password");
        ending::refuse(own, c, fault);
        return Ok(());
    };
    let data = Some(data);
    if let Phase::Exchanging(pending, _) = core::mem::replace(&mut conn.phase, Phase::ExpectConnect)
    {
        let standing = Standing::Listed;
        let identity = Identity {
            user,
            standing,
            expires: None,
            data,
        };
        accept_pending(own, c, *pending, identity);
    }
    Ok(())
}

/// AUTH of a connected client.
pub(crate) fn handle_reauth(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    auth: &Auth<'_>,
) -> Result<(), Fault> {
    let known = own
        .sessions
        .mqtt(s)
        .and_then(|session| session.user.as_ref());
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return Ok(());
    };
    let (id, offered, address) = (conn.id, conn.peer.binding, conn.peer.addr.ip());
    let link = &mut conn.link;
    let method = link.terms.auth_method.as_deref();
    match link.reauth.handle_auth(auth, method, known, offered)? {
        Reauth::Ask(user) => {
            let exchange = link.reauth.exchange();
            if exchange.is_some_and(|exchange| exchange.wants_channel()) {
                own.outbox.command(id, NetCommandKind::BindChannel);
            }
            let request = AuthRequest::Scram { user, address };
            own.outbox.push(Output::Auth { conn: id, request });
        }
        Reauth::Done(last) => {
            let method = link.terms.auth_method.clone().unwrap_or_default();
            send_auth(own, c, &method, ReasonCode::Success, &last);
        }
    }
    Ok(())
}
