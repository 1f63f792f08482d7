//! Who a client is: the policy of its listener, the authenticator's answer, and
//! enhanced authentication (MQTT 5.0 section 4.12) at CONNECT and again later.

use alloc::boxed::Box;
use alloc::format;

use bytes::Bytes;
use dunlin_base::transport::NetCommandKind;
use dunlin_base::{StreamId, Text};
use dunlin_mqtt::codec::{Auth, Connect, Packet, ReasonCode, Version, decode};
use dunlin_mqtt::scram::StoredKeys;
use dunlin_mqtt::server::{
    AuthExchange, METHOD_BEARER, NOT_AUTHORIZED, Reauth, auth_packet, bearer,
};

use crate::auth::{AuthAnswer, AuthRequest, FirstStep, Grant, UNANSWERED};
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::Output;
use crate::messages::throttle;
use crate::mqtt::claims;
use crate::mqtt::conn::{PendingConnect, Phase, Voucher};
use crate::mqtt::fault::Fault;
use crate::mqtt::{asking, ending, pace, records, send};
use crate::owners::Owners;
use crate::owners::common::{Identity, Standing};
use crate::owners::timers::Timer;
use crate::sessions::rights;

const BUSY: Fault = Fault::new(ReasonCode::ServerBusy, UNANSWERED);

const NO_CREDENTIALS: Fault = Fault::new(ReasonCode::NotAuthorized, "no credentials");

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
        FirstStep::Refuse => ending::refuse(own, c, NO_CREDENTIALS),
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
    if let AuthAnswer::Topic(ruling) = &answer {
        return asking::handle_ruling(own, c, ruling);
    }
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
                ..Identity::default()
            };
            accept_pending(own, c, *pending, identity);
        }
        AuthAnswer::Granted(grant) => {
            let identity = Identity {
                user: grant.user,
                expires: grant.lifetime.map(|lifetime| own.now + lifetime),
                by: Some(grant.by),
                rules: grant.rules,
                ..Identity::default()
            };
            accept_pending(own, c, *pending, identity);
        }
        AuthAnswer::Unknown => accept_unknown(own, c, *pending),
        AuthAnswer::Busy => ending::refuse(own, c, BUSY),
        AuthAnswer::TooSoon => ending::refuse(own, c, TOO_SOON),
        _ => {
            let reason = ReasonCode::BadUserNameOrPassword;
            let fault = Fault::new(reason, "wrong user name or password");
            ending::refuse(own, c, fault);
        }
    }
}

/// The authenticator knows nothing of a client, which has sent no credentials.
fn accept_unknown(own: &mut Owners, c: ConnIdx, pending: PendingConnect) {
    let Some(conn) = own.conns.mqtt(c) else {
        return;
    };
    let policy = own.policy(conn.peer.listener);
    match policy.without_credentials(&conn.peer) {
        FirstStep::Accept { user } => {
            let identity = Identity {
                user,
                ..Identity::default()
            };
            accept_pending(own, c, pending, identity);
        }
        FirstStep::Refuse | FirstStep::Ask(_) => ending::refuse(own, c, NO_CREDENTIALS),
    }
}

/// CONNECT with a token as its authentication data.
fn begin_token(own: &mut Owners, c: ConnIdx, connect: &Connect<'_>, pending: PendingConnect) {
    let (user, token) = match bearer(connect.properties.authentication_data) {
        Ok(read) => read,
        Err(fault) => return ending::refuse(own, c, fault),
    };
    if let Some(conn) = own.conns.mqtt_mut(c)
        && let Some(who) = &mut conn.who
    {
        who.user.clone_from(&user);
    }
    let request = AuthRequest::Token {
        user,
        token,
        client_id: Some(pending.client_id(connect)),
    };
    ask(own, c, Phase::Authenticating(Box::new(pending)), request);
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
    // A token is not for others to read.
    let takes_tokens =
        conn.is_some_and(|it| own.policy(it.peer.listener).tokens && it.peer.is_private());
    if method == METHOD_BEARER && takes_tokens {
        return begin_token(own, c, connect, pending);
    }
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

/// The authenticator has answered for a token that a connected client renews; `false`:
/// it was not asked about one.
fn renew(own: &mut Owners, c: ConnIdx, answer: &AuthAnswer) -> bool {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return false;
    };
    if !conn.link.reauth.take_token() {
        return false;
    }
    let Some(s) = conn.session() else {
        return true;
    };
    let known = own.sessions.mqtt(s).and_then(|it| it.user.clone());
    let fault = match answer {
        AuthAnswer::Granted(grant) if grant.user == known => {
            prolong(own, c, s, grant);
            return true;
        }
        AuthAnswer::Busy => BUSY,
        AuthAnswer::TooSoon => TOO_SOON,
        _ => NOT_AUTHORIZED,
    };
    ending::fail(own, c, fault);
    true
}

/// A connected client has another token of its user.
fn prolong(own: &mut Owners, c: ConnIdx, s: SessionIdx, grant: &Grant) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let expires = grant.lifetime.map(|lifetime| own.now + lifetime);
    let by = grant.by;
    conn.voucher = Some(Box::new(Voucher { by, expires }));
    if let Some(due) = expires {
        let timer = Timer::Conn(conn.id);
        own.timers.remind(due, timer, &mut conn.alarm);
    }
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    if session.rules != grant.rules {
        session.rules.clone_from(&grant.rules);
        let pace = pace::of(own, c, s);
        throttle::set_pace(own, c, pace);
        records::put_lasting(own, s);
        rights::handle_new_user(own, s);
    }
    send_auth(own, c, METHOD_BEARER, ReasonCode::Success, &[]);
}

/// The authenticator gave the keys of a user: the challenge leaves.
fn challenge(own: &mut Owners, c: ConnIdx, answer: &AuthAnswer) {
    if renew(own, c, answer) {
        return;
    }
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
        own.outbox.note_missing();
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
        let identity = Identity {
            user,
            standing: Standing::Listed,
            data,
            ..Identity::default()
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
    let session = own.sessions.mqtt(s);
    let known = session.and_then(|session| session.user.as_ref());
    let client_id = session.map(|session| session.client_id.clone());
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
        Reauth::Verify(user, token) => {
            let request = AuthRequest::Token {
                user,
                token,
                client_id,
            };
            own.outbox.push(Output::Auth { conn: id, request });
        }
        Reauth::Done(last) => {
            let method = link.terms.auth_method.clone().unwrap_or_default();
            send_auth(own, c, &method, ReasonCode::Success, &last);
        }
    }
    Ok(())
}
