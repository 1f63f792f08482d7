//! Who a client is: the policy of its listener, the authenticator's answer, and
//! enhanced authentication (MQTT 5.0 section 4.12) at CONNECT and again later.

use alloc::boxed::Box;
use alloc::format;

use bytes::Bytes;
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
    let known = own
        .conns
        .mqtt(c)
        .is_some_and(|conn| own.policy(conn.peer.listener).passwords);
    if !known {
        let reason = ReasonCode::BadAuthenticationMethod;
        let fault = Fault::new(reason, "unknown authentication method");
        return ending::refuse(own, c, fault);
    }
    match AuthExchange::begin(method, connect.properties.authentication_data) {
        Ok(exchange) => {
            let user = exchange.user().clone();
            let who = own.conns.mqtt_mut(c).and_then(|conn| conn.who.as_mut());
            who.into_iter()
                .for_each(|who| who.user = Some(user.clone()));
            let phase = Phase::Exchanging(Box::new(pending), Box::new(exchange));
            ask(own, c, phase, AuthRequest::Scram { user });
        }
        Err(fault) => ending::refuse(own, c, fault),
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
    let outcome = match answer {
        AuthAnswer::Scram(known) => {
            let keys = StoredKeys {
                stored_key: known.stored_key,
                server_key: known.server_key,
            };
            exchange.challenge(&nonce, &known.salt, known.iterations, keys)
        }
        AuthAnswer::Busy => Err(Fault::new(ReasonCode::ServerBusy, "authenticator busy")),
        _ => Err(NOT_AUTHORIZED),
    };
    match outcome {
        Ok(first) => {
            let first = first.to_vec();
            send_auth(own, c, ReasonCode::ContinueAuthentication, &first);
        }
        Err(fault) if again => ending::fail(own, c, fault),
        Err(fault) => ending::refuse(own, c, fault),
    }
}

fn send_auth(own: &mut Owners, c: ConnIdx, reason: ReasonCode, data: &[u8]) {
    send::send(own, c, StreamId::CONTROL, &auth_packet(reason, data));
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
    let link = &mut conn.link;
    let method = link.terms.auth_method.as_deref();
    match link.reauth.handle_auth(auth, method, known)? {
        Reauth::Ask(user) => {
            let conn = conn.id;
            let request = AuthRequest::Scram { user };
            own.outbox.push(Output::Auth { conn, request });
        }
        Reauth::Done(last) => send_auth(own, c, ReasonCode::Success, &last),
    }
    Ok(())
}
