//! `$cbs` (AMQP Claims-based Security 1.0): a client sets a token on its open
//! connection, which says whose that is and how long it may last. By `set-token`, of
//! committee draft 01, the outcome of the message is the answer; by `put-token`, of the
//! working drafts before it and of clients in wide use, another message. By
//! `delete-token`, of the same drafts, it takes its token back.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_amqp::codec::{Message as Scanned, Properties, Symbol, Value, condition};
use dunlin_base::{Instant, Text};

use crate::access::OwnRules;
use crate::amqp::attaching::{Refusal, refusal};
use crate::amqp::carrier::Carried;
use crate::amqp::management::{Response, Wanted};
use crate::amqp::service::Service;
use crate::amqp::state::AmqpPhase;
use crate::amqp::tokens::{Pace, TOKEN_BYTES_MAX, Tokens};
use crate::amqp::{access, carried, quota};
use crate::auth::{AuthAnswer, AuthRequest, Grant, UNANSWERED};
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::io::{AccessKind, Output};
use crate::owners::common::{Identity, Standing};
use crate::owners::{Later, Owners};
use crate::random::sender_number;
use crate::reports::audit;
use crate::sessions::rights;

/// What clients call a JSON Web Token.
const TYPES: [&str; 3] = ["jwt", "amqp:jwt", "servicebus.windows.net:jwt"];

/// Whether a client may attach to a service.
pub(super) fn check(own: &Owners, c: ConnIdx, service: Service) -> Result<(), Refusal> {
    let Some(conn) = own.conns.amqp(c).filter(|_| service == Service::Cbs) else {
        return Ok(());
    };
    if !own.policy(conn.peer.listener).tokens {
        let text = "no tokens are verified here";
        return Err(refusal(condition::NOT_FOUND, text));
    }
    if !conn.peer.is_private() {
        let text = "tokens are for encrypted connections";
        return Err(refusal(condition::NOT_ALLOWED, text));
    }
    Ok(())
}

/// Whether a message is to be answered by its outcome.
pub(super) fn is_set(properties: &Properties<'_>) -> bool {
    properties.subject == Some("set-token")
}

/// The token of a request, or why it is not taken.
pub(super) fn read(scanned: &Scanned<'_>, properties: &Properties<'_>) -> Result<Wanted, Response> {
    let application = scanned.application_properties().ok().flatten();
    let application = application.unwrap_or_default();
    let text = |name| application.get(name);
    let is_set = is_set(properties);
    let operation = text("operation");
    let operation = operation.as_ref().and_then(Value::as_str);
    match operation {
        _ if is_set => {}
        Some("put-token") => {}
        // A connection has one token at most, which needs no type and no name.
        Some("delete-token") => return Ok(Wanted::NoToken),
        _ => return Err(Response::failed(501, "there is no such operation")),
    }
    let kind = text(if is_set { "token-type" } else { "type" });
    let Some(kind) = kind.as_ref().and_then(Value::as_str) else {
        return Err(Response::failed(400, "the type of the token is missing"));
    };
    if !TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
        return Err(Response::failed(
            501,
            "only tokens of type jwt are verified",
        ));
    }
    let bytes = match scanned.body().values().next() {
        Some(Ok(Value::Binary(bytes))) => Some(bytes),
        Some(Ok(value)) => value.as_str().map(str::as_bytes),
        _ => None,
    };
    let token = bytes.and_then(|bytes| core::str::from_utf8(bytes).ok());
    match token.filter(|token| !token.is_empty()) {
        None => Err(Response::failed(400, "the body is no token")),
        Some(token) if token.len() > TOKEN_BYTES_MAX => {
            Err(Response::failed(413, "the token is too long"))
        }
        Some(token) => Ok(Wanted::Token(Text::from(token))),
    }
}

/// The condition for what a status says in numbers.
pub(super) const fn condition_of(status: u16) -> Symbol<'static> {
    match status {
        401 | 403 => condition::UNAUTHORIZED_ACCESS,
        404 => condition::NOT_FOUND,
        409 => condition::PRECONDITION_FAILED,
        413 | 429 | 503 => condition::RESOURCE_LIMIT_EXCEEDED,
        501 => condition::NOT_IMPLEMENTED,
        _ => condition::INVALID_FIELD,
    }
}

/// Whether the connection may set one token more now.
pub(super) fn admit(own: &mut Owners, c: ConnIdx) -> Result<(), Response> {
    let now = own.now;
    let has_room = own.conns.amqp_mut(c).is_some_and(|conn| {
        let tokens = conn.tokens.get_or_insert_with(|| Tokens::new(now).into());
        tokens.has_room()
    });
    let admitted = has_room && !is_barred(own, c);
    match admitted && pace(own, c).is_some_and(|pace| pace.admit(now)) {
        true => Ok(()),
        false => Err(Response::failed(429, "too many tokens")),
    }
}

/// How often the client sets tokens: on QUIC on all streams together.
fn pace(own: &mut Owners, c: ConnIdx) -> Option<&mut Pace> {
    let now = own.now;
    match own.conns.amqp(c)?.carried {
        None => {
            let tokens = own.conns.amqp_mut(c)?.tokens.as_mut()?;
            Some(&mut tokens.pace)
        }
        Some(at) => {
            let carrier = own.conns.carrier_mut(at.by)?;
            Some(carrier.tokens.get_or_insert_with(|| Pace::new(now)))
        }
    }
}

/// Whether the client had its tries, and has proved nothing.
fn is_barred(own: &mut Owners, c: ConnIdx) -> bool {
    is_unproved(own, c) && pace(own, c).is_some_and(|pace| pace.is_over())
}

fn is_unproved(own: &Owners, c: ConnIdx) -> bool {
    let conn = own.conns.amqp(c);
    conn.is_some_and(|conn| conn.identity.standing == Standing::Unproved)
}

/// Has the token of a request verified.
pub(super) fn submit(own: &mut Owners, c: ConnIdx, (link, number): (SessionRef, u64), token: Text) {
    let conn = own.conns.amqp_mut(c);
    let tokens = conn.and_then(|conn| conn.tokens.as_mut());
    if tokens.is_some_and(|tokens| tokens.push(link, number, token)) {
        ask(own, c);
    }
}

/// Asks the authenticator for the next token, if there is one.
fn ask(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let token = conn.tokens.as_ref().and_then(|tokens| tokens.first());
    if let Some(token) = token {
        let who = conn.who.as_ref();
        let client_id = who.map(|who| who.client_id.clone());
        let (conn, user) = (conn.id, None);
        let request = AuthRequest::Token {
            user,
            token,
            client_id,
        };
        own.outbox.push(Output::Auth { conn, request });
    }
}

/// The authenticator has answered: the request that this is about, and its answer.
pub(super) fn decide(
    own: &mut Owners,
    c: ConnIdx,
    answer: AuthAnswer,
) -> Option<(SessionRef, u64, Response)> {
    let conn = own.conns.amqp_mut(c)?;
    let (link, number) = conn.tokens.as_mut()?.take()?;
    if conn.phase == AmqpPhase::Closing {
        return None;
    }
    let (status, text) = match answer {
        AuthAnswer::Granted(grant) => take(own, c, *grant),
        AuthAnswer::Busy | AuthAnswer::TooSoon => (503, UNANSWERED),
        _ => (401, "no valid token"),
    };
    if matches!(status, 401 | 403) {
        note_refused(own, c, text);
    }
    Some((link, number, Response::failed(status, text)))
}

/// Notes that the token of a client was refused.
fn note_refused(own: &mut Owners, c: ConnIdx, cause: &'static str) {
    own.stats.clients_refused += 1;
    audit::note(own, c, AccessKind::Refused, cause);
    if is_unproved(own, c)
        && let Some(pace) = pace(own, c)
    {
        pace.note_failure();
    }
}

/// A request is answered: the next one, unless the client had its tries.
pub(super) fn go_on(own: &mut Owners, c: ConnIdx) {
    if !is_barred(own, c) {
        return ask(own, c);
    }
    if let Some(conn) = own.conns.amqp_mut(c) {
        if let Some(tokens) = &mut conn.tokens {
            tokens.clear();
        }
        // It ends now, not for want of a token.
        conn.identity.expires = None;
    }
    access::close(own, c, "no valid token");
}

/// The connection has a valid token of this user.
fn take(own: &mut Owners, c: ConnIdx, grant: Grant) -> (u16, &'static str) {
    const ACCEPTED: (u16, &str) = (202, "Accepted");
    let Some(user) = grant.user else {
        return (401, "no valid token");
    };
    let lifetime = grant.lifetime;
    let expires = lifetime.map_or(Instant::FAR_FUTURE, |lifetime| own.now + lifetime);
    let Some(conn) = own.conns.amqp_mut(c) else {
        return ACCEPTED;
    };
    match &conn.identity.user {
        Some(known) if *known != user => {
            return (403, "the connection is that of another user");
        }
        Some(_) => extend(&mut conn.identity.expires, expires),
        None => become_user(own, c, (user, grant.rules.clone()), expires),
    }
    set_rules(own, c, grant.rules);
    renew_streams(own, c, expires);
    ACCEPTED
}

/// What the last token says holds for the links that there are, too.
fn set_rules(own: &mut Owners, c: ConnIdx, rules: Option<Arc<OwnRules>>) {
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    if conn.identity.rules == rules {
        return;
    }
    conn.identity.rules.clone_from(&rules);
    quota::begin(own, c);
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let user = conn.identity.user.clone();
    let links: Vec<SessionIdx> = conn.links.values().copied().collect();
    for s in links {
        let session = own.sessions.get_mut(s);
        if let Some(session) = session.filter(|session| session.user == user) {
            session.rules.clone_from(&rules);
            rights::handle_new_user(own, s);
        }
    }
}

/// Who has a token lives until that expires, or a later one; who has another
/// proof, as long as that.
fn extend(until: &mut Option<Instant>, expires: Instant) {
    if let Some(until) = until {
        *until = expires.max(*until);
    }
}

/// The client had no name until now.
fn become_user(
    own: &mut Owners,
    c: ConnIdx,
    (user, rules): (Text, Option<Arc<OwnRules>>),
    expires: Instant,
) {
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    if let Some(who) = &mut conn.who {
        who.user = Some(user.clone());
        conn.sender = sender_number(Some(&user), &who.client_id);
    }
    let identity = Identity {
        user: Some(user),
        expires: Some(expires),
        rules,
        ..Identity::default()
    };
    let before = core::mem::replace(&mut conn.identity, identity);
    match before.standing {
        Standing::Unproved => access::let_in(own, c, "token"),
        _ if access::refuse_banned(own, c) => {}
        _ => {
            quota::begin(own, c);
            access::note_user(own, c, "token");
        }
    }
    carried::note_proved(own, c);
}

/// The client takes its token back: what it let in ends, after the answer.
pub(super) fn delete(own: &mut Owners, c: ConnIdx) -> Response {
    let now = own.now;
    let Some(conn) = own.conns.amqp_mut(c) else {
        return Response::failed(404, "no token is set");
    };
    let waits = conn.tokens.as_ref().is_some_and(|it| it.first().is_some());
    let identity = &mut conn.identity;
    if waits {
        return Response::failed(409, "a token is being verified");
    }
    if identity.user.is_none() || identity.expires.is_none() {
        return Response::failed(404, "no token is set");
    }
    identity.expires = Some(now);
    let (carried, user) = (conn.carried, conn.identity.user.clone());
    if let Some(carried) = carried {
        expire_streams(own, carried, user.as_ref());
    }
    Response::failed(202, "Accepted")
}

/// What streams of the same transport inherited of a token is over.
fn expire_streams(own: &mut Owners, Carried { by, .. }: Carried, user: Option<&Text>) {
    let now = own.now;
    let Some(carrier) = own.conns.carrier_mut(by) else {
        return;
    };
    let proved = carrier.proved.as_mut();
    if let Some(proved) = proved.filter(|it| it.user.as_ref() == user) {
        proved.expires = proved.expires.and(Some(now));
    }
    for at in carried::streams_of(carrier) {
        if let Some(conn) = own.conns.peek_amqp_mut(at) {
            let identity = &mut conn.identity;
            if identity.user.as_ref() == user {
                identity.expires = identity.expires.and(Some(now));
            }
        }
    }
    own.later.push_back(Later::Inherit(by));
}

/// Streams of the same transport inherit from this one.
fn renew_streams(own: &mut Owners, c: ConnIdx, expires: Instant) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let (carried, user) = (conn.carried, conn.identity.user.clone());
    let Some(by) = carried.map(|carried| carried.by) else {
        return;
    };
    let (proved, now) = ((&conn.identity).into(), own.now);
    let Some(carrier) = own.conns.carrier_mut(by) else {
        return;
    };
    match &mut carrier.proved {
        Some(known) if known.user == user => extend(&mut known.expires, expires),
        Some(known) if known.user.is_none() || known.is_over(now) => *known = proved,
        _ => {}
    }
    for at in carried::streams_of(carrier) {
        let conn = own.conns.peek_amqp_mut(at);
        if let Some(conn) = conn.filter(|conn| conn.identity.user == user) {
            extend(&mut conn.identity.expires, expires);
        }
    }
}
