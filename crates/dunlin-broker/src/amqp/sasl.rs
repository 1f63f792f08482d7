//! SASL: which mechanisms are offered, and one exchange with what it has to find
//! out about its user.

use alloc::boxed::Box;
use alloc::format;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::SaslCode;
use dunlin_base::Text;
use dunlin_base::transport::{NetCommandKind, Peer};
use dunlin_sasl::Mechanism;
use dunlin_sasl::scram::StoredKeys;
use dunlin_sasl::server::{Exchange, Next, Question};

use crate::amqp::carried::{self, Inherited};
use crate::amqp::carrier::Proved;
use crate::amqp::state::{AmqpPhase, Sasl};
use crate::auth::{AuthAnswer, AuthPolicy, AuthRequest, FirstStep, UNANSWERED};
use crate::ids::ConnIdx;
use crate::io::{AccessKind, Output};
use crate::owners::Owners;
use crate::owners::common::{Standing, Who};
use crate::reports::audit;

/// What a client with a token that is not valid gets (RFC 7628 section 3.2.2): with
/// the outcome, because clients send `open` behind their token, and what they answered
/// to a challenge would come after that.
const INVALID_TOKEN: &[u8] = br#"{"status":"invalid_token"}"#;

const WRONG: &str = "wrong user name or password";

/// Time for a client to set a token that has said by MSSBCBS that one follows.
const TOKEN_TIME_OUT: Duration = Duration::from_secs(20);

/// The mechanisms that a client may choose, strongest first.
/// `inherits`: an earlier stream of the same transport says who it is.
pub(super) fn offered(
    policy: AuthPolicy,
    peer: &Peer,
    inherits: bool,
) -> impl Iterator<Item = Mechanism> + use<> {
    // A password is not for others to read.
    let is_secret = peer.is_private();
    let is_certified = policy.certificates && peer.identity.is_some();
    let is_free = policy.anonymous.allows(peer);
    let binds = peer.binding.is_some();
    let may_choose = move |mechanism: &Mechanism| match mechanism {
        Mechanism::ScramSha256 => policy.passwords,
        Mechanism::ScramSha256Plus => policy.passwords && binds,
        Mechanism::External => is_certified || inherits,
        // Without a password file a name is not believed, and counts for nothing.
        Mechanism::Plain => is_secret && (policy.asks(true) || is_free),
        Mechanism::Anonymous => is_free || inherits,
        Mechanism::OAuthBearer | Mechanism::Cbs => is_secret && policy.tokens,
    };
    Mechanism::ALL.into_iter().filter(may_choose)
}

/// The client has chosen a mechanism.
pub(super) fn handle_init(own: &mut Owners, c: ConnIdx, mechanism: &str, response: Option<&Bytes>) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let policy = own.policy(conn.peer.listener);
    let mut offered = offered(policy, &conn.peer, conn.carried.is_some());
    let Some(chosen) = offered.find(|known| known.name() == mechanism) else {
        return refuse(own, c, SaslCode::Auth, "unknown authentication method");
    };
    // Some clients leave out what is empty.
    let may_be_empty = matches!(
        chosen,
        Mechanism::Anonymous | Mechanism::Cbs | Mechanism::External
    );
    let empty = may_be_empty.then_some(&[][..]);
    let response = response.map(|response| &response[..]).or(empty);
    match Exchange::begin(chosen, response, conn.peer.binding) {
        Ok((exchange, next)) => go_on(own, c, exchange, next),
        Err(_) => refuse(own, c, SaslCode::Auth, WRONG),
    }
}

/// The client has answered a challenge.
pub(super) fn handle_response(own: &mut Owners, c: ConnIdx, response: &Bytes) {
    let sasl = own.conns.amqp_mut(c).and_then(|conn| conn.sasl.take());
    let Some(mut sasl) = sasl else {
        return own.outbox.note_missing();
    };
    match sasl.exchange.respond(response) {
        Ok(next) => go_on(own, c, sasl.exchange, next),
        Err(_) => {
            note_proof(own, c, sasl.exchange.mechanism(), false);
            refuse(own, c, SaslCode::Auth, WRONG);
        }
    }
}

/// Tells the authenticator whether a client that had to prove that it knows a password
/// did.
fn note_proof(own: &mut Owners, c: ConnIdx, mechanism: Mechanism, right: bool) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let user = conn.who.as_ref().and_then(|who| who.user.clone());
    let proves = matches!(
        mechanism,
        Mechanism::ScramSha256 | Mechanism::ScramSha256Plus
    );
    if let Some(user) = user.filter(|_| proves) {
        let address = conn.peer.addr.ip();
        own.outbox.push(Output::Proof {
            user,
            address,
            right,
        });
    }
}

/// Does what an exchange wants next.
fn go_on(own: &mut Owners, c: ConnIdx, exchange: Exchange, next: Next) {
    let mechanism = exchange.mechanism();
    match next {
        Next::Wait => challenge(own, c, exchange, &[]),
        Next::Done { user, data } => {
            note_proof(own, c, mechanism, true);
            let proved = proved(Some(user), Standing::Listed);
            accept(own, c, mechanism, proved, Some(&data));
        }
        Next::Ask(question) => {
            let question = Some(question);
            resume(own, c, Sasl { exchange, question });
        }
    }
}

/// Finds out what an exchange asks, or goes on with that.
pub(super) fn resume(own: &mut Owners, c: ConnIdx, sasl: Sasl) {
    let (exchange, Some(question)) = (sasl.exchange, sasl.question) else {
        return own.outbox.note_missing();
    };
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    conn.who = Some(Box::new(Who {
        client_id: Text::new(),
        user: claimed(&question),
    }));
    if matches!(question, Question::Anonymous | Question::External(_)) {
        return without_secret(own, c, exchange, question);
    }
    let peer = conn.peer.clone();
    let policy = own.policy(peer.listener);
    let step = match question {
        Question::Password { user, password } => {
            policy.first_step(&peer, &Text::new(), Some(&user), Some(&password))
        }
        Question::Keys { user } => FirstStep::Ask(AuthRequest::Scram {
            user,
            address: peer.addr.ip(),
        }),
        Question::Token { user, token } => FirstStep::Ask(AuthRequest::Token {
            user,
            token,
            client_id: None,
        }),
        Question::Anonymous | Question::External(_) => FirstStep::Refuse,
    };
    match step {
        FirstStep::Accept { user } => {
            let proved = proved(user, Standing::Open);
            accept(own, c, exchange.mechanism(), proved, None);
        }
        FirstStep::Refuse => refuse(own, c, SaslCode::Auth, "no credentials"),
        FirstStep::Ask(request) => ask(own, c, exchange, request),
    }
}

/// EXTERNAL and ANONYMOUS: an earlier stream says who the client is, or its
/// certificate, or it is no one.
fn without_secret(own: &mut Owners, c: ConnIdx, exchange: Exchange, question: Question) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let (peer, policy) = (conn.peer.clone(), own.policy(conn.peer.listener));
    let found = match (carried::inherited(own, c), &question) {
        (Inherited::Undecided, _) => {
            if let Some(conn) = own.conns.amqp_mut(c) {
                let question = Some(question);
                conn.sasl = Some(Box::new(Sasl { exchange, question }));
            }
            return carried::wait(own, c);
        }
        // A client acts for itself only.
        (Inherited::Proved(proved), Question::External(named)) => {
            let is_itself = named.is_none() || *named == proved.user;
            (is_itself && proved.user.is_some()).then_some(proved)
        }
        (Inherited::Proved(proved), _) => Some(proved),
        (Inherited::Nothing, Question::External(named)) => {
            let user = peer.identity.filter(|_| policy.certificates);
            let is_itself = named.is_none() || *named == user;
            (is_itself && user.is_some()).then(|| proved(user, Standing::Open))
        }
        (Inherited::Nothing, _) if exchange.mechanism() == Mechanism::Cbs => Some(Proved {
            expires: Some(own.now + TOKEN_TIME_OUT),
            ..proved(None, Standing::Unproved)
        }),
        (Inherited::Nothing, _) => {
            let is_free = policy.anonymous.allows(&peer);
            is_free.then(|| proved(None, Standing::Open))
        }
    };
    match found {
        Some(proved) => accept(own, c, exchange.mechanism(), proved, None),
        None => refuse(own, c, SaslCode::Auth, "no credentials"),
    }
}

/// Who a client says that it is.
fn claimed(question: &Question) -> Option<Text> {
    match question {
        Question::Anonymous => None,
        Question::Password { user, .. } | Question::Keys { user } => Some(user.clone()),
        Question::External(user) | Question::Token { user, .. } => user.clone(),
    }
}

const fn proved(user: Option<Text>, standing: Standing) -> Proved {
    Proved {
        user,
        standing,
        expires: None,
        rules: None,
    }
}

/// Asks the authenticator, and the transport what the exchange is bound by, if it
/// is. Until the authenticator answers nothing is read.
fn ask(own: &mut Owners, c: ConnIdx, exchange: Exchange, request: AuthRequest) {
    if !carried::admit_exchange(own, c) {
        return;
    }
    own.pause(c, true);
    if let Some(conn) = own.conns.amqp_mut(c) {
        let binds = exchange.wants_channel();
        conn.phase = AmqpPhase::Authenticating;
        conn.sasl = Some(waiting(exchange));
        let (conn, (transport, _)) = (conn.id, conn.place());
        own.outbox.push(Output::Auth { conn, request });
        if binds {
            own.outbox.command(transport, NetCommandKind::BindChannel);
        }
    }
}

/// The transport says what SASL on it is bound by.
pub(super) fn handle_binding(own: &mut Owners, c: ConnIdx, data: Bytes) {
    let sasl = own.conns.amqp_mut(c).and_then(|conn| conn.sasl.as_mut());
    if let Some(sasl) = sasl.filter(|sasl| sasl.exchange.wants_channel()) {
        sasl.exchange.bind(data);
    }
}

/// The authenticator answered.
pub(crate) fn handle_answer(own: &mut Owners, c: ConnIdx, answer: AuthAnswer) {
    let nonce = format!("{:032x}", own.random.next());
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    if conn.phase != AmqpPhase::Authenticating {
        return;
    }
    conn.phase = AmqpPhase::Opening;
    let sasl = conn.sasl.take();
    own.pause(c, false);
    let Some(mut exchange) = sasl.map(|sasl| sasl.exchange) else {
        return own.outbox.note_missing();
    };
    match answer {
        AuthAnswer::Accept { user } => {
            let proved = proved(user, Standing::Listed);
            accept(own, c, exchange.mechanism(), proved, None);
        }
        AuthAnswer::Scram(known) => {
            let keys = StoredKeys {
                stored_key: known.stored_key,
                server_key: known.server_key,
            };
            match exchange.challenge(&nonce, &known.salt, known.iterations, keys) {
                Ok(first) => challenge(own, c, exchange, &first),
                Err(_) => refuse(own, c, SaslCode::Auth, WRONG),
            }
        }
        AuthAnswer::Granted(grant) => {
            let proved = Proved {
                expires: grant.lifetime.map(|lifetime| own.now + lifetime),
                rules: grant.rules,
                ..proved(grant.user, Standing::Open)
            };
            accept(own, c, exchange.mechanism(), proved, None);
        }
        AuthAnswer::Busy => refuse(own, c, SaslCode::SysTemp, UNANSWERED),
        AuthAnswer::TooSoon => {
            refuse(own, c, SaslCode::SysTemp, "too many wrong passwords before");
        }
        AuthAnswer::Refuse if exchange.mechanism() == Mechanism::OAuthBearer => {
            let cause = "no valid token";
            refuse_with(own, c, SaslCode::Auth, cause, Some(INVALID_TOKEN));
        }
        AuthAnswer::Refuse | AuthAnswer::Unknown | AuthAnswer::Topic(_) => {
            refuse(own, c, SaslCode::Auth, WRONG)
        }
    }
}

fn waiting(exchange: Exchange) -> Box<Sasl> {
    Box::new(Sasl {
        exchange,
        question: None,
    })
}

fn challenge(own: &mut Owners, c: ConnIdx, exchange: Exchange, data: &[u8]) {
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.sasl = Some(waiting(exchange));
        // It waits for this; no mechanism has as many rounds as it allows.
        let _ = conn.engine.sasl_challenge(data);
        own.conns.touch(c);
    }
}

/// The client is this user. `data`: what the mechanism says with that.
fn accept(own: &mut Owners, c: ConnIdx, mechanism: Mechanism, proved: Proved, data: Option<&[u8]>) {
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.phase = AmqpPhase::Authenticated(mechanism);
        conn.identity = proved.into();
        let _ = conn.engine.sasl_outcome(SaslCode::Ok, data);
        own.conns.touch(c);
        carried::note_proved(own, c);
    }
}

fn refuse(own: &mut Owners, c: ConnIdx, code: SaslCode, cause: &'static str) {
    refuse_with(own, c, code, cause, None);
}

/// As [`refuse`]. `data`: what the mechanism says with that.
fn refuse_with(
    own: &mut Owners,
    c: ConnIdx,
    code: SaslCode,
    cause: &'static str,
    data: Option<&[u8]>,
) {
    own.stats.clients_refused += 1;
    audit::note(own, c, AccessKind::Refused, cause);
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.phase = AmqpPhase::Opening;
        let _ = conn.engine.sasl_outcome(code, data);
        own.conns.touch(c);
    }
}
