//! Who a client is: the policy of its listener, the authenticator's answer, and
//! enhanced authentication (MQTT 5.0 section 4.12) at CONNECT and again later.

use alloc::boxed::Box;
use alloc::format;

use bytes::Bytes;
use dunlin_base::{StreamId, Text};
use dunlin_mqtt::codec::{Auth, AuthProperties, Connect, Packet, ReasonCode, Version, decode};
use dunlin_mqtt::scram::METHOD;

use crate::auth::{AuthAnswer, AuthPolicy, AuthRequest, FirstStep};
use crate::between::claims;
use crate::fault::Fault;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::Output;
use crate::mqtt::scram::{NOT_AUTHORIZED, ScramExchange};
use crate::mqtt::{ending, send};
use crate::owners::Owners;
use crate::owners::conn::{Identity, PendingConnect, Phase};

/// What its listener asks of a client.
fn policy(own: &Owners, listener: u16) -> AuthPolicy {
    let policy = own.config.listeners.get(usize::from(listener)).copied();
    policy.unwrap_or_default()
}

pub(crate) fn authenticate(
    own: &mut Owners,
    c: ConnIdx,
    connect: &Connect<'_>,
    pending: PendingConnect,
) {
    if let Some(method) = connect.properties.authentication_method {
        return begin_exchange(own, c, method, connect, pending);
    }
    let Some(conn) = own.conns.get(c) else {
        return;
    };
    let policy = policy(own, conn.peer.listener);
    let assigned = pending.assigned.clone();
    let client_id = assigned.unwrap_or_else(|| Text::from(connect.client_id));
    let user = connect.username.map(Text::from);
    let password = connect.password.map(Bytes::copy_from_slice);
    let step = policy.first_step(&conn.peer, &client_id, user.as_ref(), password.as_ref());
    match step {
        FirstStep::Accept { user } => {
            let identity = Identity { user, data: None };
            claims::accept(own, c, connect, pending, identity);
        }
        FirstStep::Refuse => ending::refuse(own, c, ReasonCode::NotAuthorized),
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
    if let Some(conn) = own.conns.get_mut(c) {
        conn.phase = phase;
        let conn = conn.id;
        own.outbox.push(Output::Auth { conn, request });
    }
}

/// The authenticator answered for this connection.
pub(crate) fn handle_auth_answer(own: &mut Owners, c: ConnIdx, answer: AuthAnswer) {
    let Some(conn) = own.conns.get_mut(c) else {
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
            accept_pending(own, c, *pending, Identity { user, data: None });
        }
        AuthAnswer::Busy => ending::refuse(own, c, ReasonCode::ServerBusy),
        _ => ending::refuse(own, c, ReasonCode::BadUserNameOrPassword),
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
    let known = own
        .conns
        .get(c)
        .is_some_and(|conn| policy(own, conn.peer.listener).passwords);
    if method != METHOD || !known {
        //= mqtt5#[MQTT-4.12.0-1]
        return ending::refuse(own, c, ReasonCode::BadAuthenticationMethod);
    }
    let data = connect.properties.authentication_data.unwrap_or_default();
    match ScramExchange::begin(data) {
        Ok(exchange) => {
            let user = exchange.user().clone();
            let phase = Phase::Exchanging(Box::new(pending), Box::new(exchange));
            ask(own, c, phase, AuthRequest::Scram { user });
        }
        Err(fault) => ending::refuse(own, c, fault.reason),
    }
}

/// The authenticator gave the keys of a user: the challenge leaves.
fn challenge(own: &mut Owners, c: ConnIdx, answer: &AuthAnswer) {
    let nonce = format!("{:032x}", own.random.next());
    let Some(conn) = own.conns.get_mut(c) else {
        return;
    };
    let again = conn.reauth.is_some();
    let ((Phase::Exchanging(_, exchange), _) | (_, Some(exchange))) =
        (&mut conn.phase, &mut conn.reauth)
    else {
        return;
    };
    let outcome = match answer {
        AuthAnswer::Scram(credential) => exchange.challenge(&nonce, credential),
        AuthAnswer::Busy => Err(Fault::new(ReasonCode::ServerBusy, "authenticator busy")),
        _ => Err(NOT_AUTHORIZED),
    };
    let data = exchange.server_first().to_vec();
    match outcome {
        Ok(()) => send_auth(own, c, ReasonCode::ContinueAuthentication, &data),
        Err(fault) if again => ending::fail(own, c, fault),
        Err(fault) => ending::refuse(own, c, fault.reason),
    }
}

fn send_auth(own: &mut Owners, c: ConnIdx, reason: ReasonCode, data: &[u8]) {
    let packet = Packet::Auth(Auth {
        reason,
        properties: AuthProperties {
            authentication_method: Some(METHOD),
            authentication_data: Some(data),
            ..AuthProperties::default()
        },
    });
    send::send(own, c, StreamId::CONTROL, &packet);
}

/// AUTH between CONNECT and CONNACK.
pub(crate) fn handle_auth_exchange(
    own: &mut Owners,
    c: ConnIdx,
    auth: &Auth<'_>,
) -> Result<(), Fault> {
    let Some(conn) = own.conns.get_mut(c) else {
        return Ok(());
    };
    let Phase::Exchanging(_, exchange) = &conn.phase else {
        return Ok(());
    };
    //= mqtt5#[MQTT-4.12.0-5]
    if auth.properties.authentication_method != Some(METHOD)
        || auth.reason != ReasonCode::ContinueAuthentication
    {
        return Err(Fault::protocol("AUTH does not continue the exchange"));
    }
    let data = auth.properties.authentication_data.unwrap_or_default();
    match exchange.finish(data) {
        Ok(last) => {
            let identity = Identity {
                user: Some(exchange.user().clone()),
                data: Some(last),
            };
            if let Phase::Exchanging(pending, _) =
                core::mem::replace(&mut conn.phase, Phase::ExpectConnect)
            {
                accept_pending(own, c, *pending, identity);
            }
        }
        //= mqtt5#[MQTT-4.12.0-4]
        Err(fault) => ending::refuse(own, c, fault.reason),
    }
    Ok(())
}

/// AUTH of a connected client: re-authentication (section 4.12.1).
pub(crate) fn handle_reauth(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    auth: &Auth<'_>,
) -> Result<(), Fault> {
    let Some(conn) = own.conns.get_mut(c) else {
        return Ok(());
    };
    //= mqtt5#[MQTT-4.12.1-1]
    if conn.link.terms.auth_method.as_deref() != auth.properties.authentication_method
        || conn.link.terms.auth_method.is_none()
    {
        return Err(Fault::protocol("not the method of CONNECT"));
    }
    let data = auth.properties.authentication_data.unwrap_or_default();
    match (auth.reason, conn.reauth.take()) {
        (ReasonCode::ReAuthenticate, None) => {
            let exchange = ScramExchange::begin(data)?;
            let user = exchange.user().clone();
            conn.reauth = Some(Box::new(exchange));
            let conn = conn.id;
            let request = AuthRequest::Scram { user };
            own.outbox.push(Output::Auth { conn, request });
            Ok(())
        }
        (ReasonCode::ContinueAuthentication, Some(exchange)) => {
            //= mqtt5#[MQTT-4.12.1-2]
            let last = exchange.finish(data)?;
            let user = exchange.user().clone();
            if own
                .sessions
                .get(s)
                .is_some_and(|session| session.user.as_ref().is_some_and(|known| *known != user))
            {
                return Err(NOT_AUTHORIZED);
            }
            send_auth(own, c, ReasonCode::Success, &last);
            Ok(())
        }
        _ => Err(Fault::protocol("AUTH does not continue an exchange")),
    }
}
