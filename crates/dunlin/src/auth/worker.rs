//! The authenticator's thread: what is asked about a client, in which order, and the
//! questions that wait for keys of tokens.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use bytes::Bytes;
use dunlin_base::Text;
use dunlin_base::transport::Peer;
use dunlin_broker::auth::{AuthAnswer, AuthRequest, By, Grant};
use dunlin_broker::is_bridge_name;
use subtle::ConstantTimeEq;

use super::asking::Pool;
use super::passwords::Passwords;
use super::throttle::Throttle;
use super::tokens::{self, Fetched, Refused, Said, Tokens, is_like_token};
use super::{Asked, AuthError, Credentials, Delays, Door, Job};
use crate::config::Step;

mod refusals;
#[cfg(test)]
mod tests;

use refusals::Refusals;

/// Why a token is refused whose key is not known.
const NO_KEY: &str = "no key is known that it may be signed with";

/// Most questions that wait for keys; further ones with an unknown key are refused.
pub(super) const WAITING_MAX: usize = 256;

/// Time from the end of a fetch of keys during which an unknown key has none begin.
const EARLY_MIN: Duration = Duration::from_secs(10);

/// What comes of a step.
enum Outcome {
    Answer(AuthAnswer),
    /// A token lets the client not in; why, for the log.
    BadToken(&'static str),
    /// It knows nothing of the client.
    Pass,
    /// The server is to be asked, or the directory.
    Server,
    Directory,
    /// Keys may come that the token is signed with.
    Keys,
}

/// User name, password, and where they come from.
struct Login<'a> {
    user: &'a Text,
    password: &'a Bytes,
    client_id: &'a Text,
    peer: &'a Peer,
}

impl Login<'_> {
    fn is_empty(&self) -> bool {
        self.user.is_empty() && self.password.is_empty()
    }
}

/// Keys that are fetched, and who waits for them.
struct Fetching {
    wake: SyncSender<()>,
    /// When the last fetch ended; `None`: the first is under way.
    ended: Option<Instant>,
    waiting: Vec<Asked>,
}

/// What the thread owns.
pub(super) struct Worker {
    credentials: Credentials,
    /// Key of the fingerprints, which keeps them useless elsewhere.
    key: [u8; 32],
    /// For each user the last password that was right, as a fingerprint: when
    /// thousands reconnect after a restart, each hash is computed once. Bounded
    /// by the number of users.
    known: BTreeMap<Text, [u8; 32]>,
    throttle: Throttle,
    refusals: Refusals,
    fetching: Option<Fetching>,
    http: Option<Pool<Box<Asked>>>,
    ldap: Option<Pool<Box<Asked>>>,
}

impl Worker {
    /// Starts the threads that fetch and ask.
    pub(super) fn start(
        credentials: Credentials,
        delays: Delays,
        door: &Door,
    ) -> Result<Self, AuthError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(AuthError::Random)?;
        let source = credentials.tokens.as_ref().and_then(Tokens::source);
        let fetching = source.map(|source| {
            let door = door.clone();
            let deliver = move |fetched| door.send(Job::Fetched(fetched));
            tokens::start(source, deliver).map(|wake| Fetching {
                wake,
                ended: None,
                waiting: Vec::new(),
            })
        });
        let server = credentials.server.as_ref();
        let http = server.map(|server| server.start(door));
        let directory = credentials.directory.as_ref();
        let ldap = directory.map(|directory| directory.start(door));
        Ok(Self {
            fetching: fetching.transpose().map_err(AuthError::Thread)?,
            http: http.transpose().map_err(AuthError::Thread)?,
            ldap: ldap.transpose().map_err(AuthError::Thread)?,
            credentials,
            key,
            known: BTreeMap::new(),
            throttle: Throttle::new(delays),
            refusals: Refusals::default(),
        })
    }

    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            match job {
                Job::Ask(asked) => self.answer(asked, Instant::now()),
                Job::Note(proof) => self.note(&proof.user, proof.address, proof.right),
                Job::Fetched(fetched) => self.handle_fetched(fetched, Instant::now()),
                Job::Replace(credentials, then) => {
                    self.replace(*credentials);
                    then();
                }
            }
        }
    }

    fn replace(&mut self, credentials: Credentials) {
        let before = core::mem::replace(&mut self.credentials, credentials);
        if let (Some(tokens), Some(before)) = (&mut self.credentials.tokens, before.tokens) {
            tokens.adopt(before);
        }
        // A server that changed its keys is asked for them by the same order.
        if let Some(fetching) = &self.fetching {
            let _ = fetching.wake.try_send(());
        }
        self.known.clear();
    }

    /// Keys have come, or none: what waited is decided.
    fn handle_fetched(&mut self, fetched: Fetched, now: Instant) {
        if let Some(tokens) = &mut self.credentials.tokens {
            tokens.set_keys(fetched);
        }
        let Some(fetching) = &mut self.fetching else {
            return;
        };
        fetching.ended = Some(now);
        for asked in core::mem::take(&mut fetching.waiting) {
            self.answer(Box::new(asked), now);
        }
    }

    fn note(&mut self, user: &Text, address: IpAddr, right: bool) {
        if right {
            self.throttle.note_right(user, address);
        } else {
            self.throttle.note_wrong(user, address, Instant::now());
        }
    }

    fn answer(&mut self, mut asked: Box<Asked>, now: Instant) {
        let outcome = match &asked.request {
            AuthRequest::Scram { user, address } => {
                let answer = self.scram(user, *address, now);
                Outcome::Answer(answer)
            }
            // Another thread asks about topics.
            AuthRequest::Topic(_) => Outcome::Pass,
            AuthRequest::Token {
                user,
                token,
                client_id,
            } => {
                let said = Said {
                    user_name: None,
                    client_id: client_id.as_deref(),
                };
                self.token(token, said, user.as_deref())
            }
            AuthRequest::Password {
                user,
                password,
                client_id,
                peer,
            } => {
                let login = Login {
                    user,
                    password,
                    client_id,
                    peer,
                };
                let (outcome, passed) = self.login(&login, asked.passed, asked.has_waited, now);
                asked.passed = passed;
                outcome
            }
        };
        match outcome {
            Outcome::Answer(answer) => (asked.reply)(answer),
            Outcome::BadToken(why) => {
                self.refusals.note(&asked.request, why, now);
                (asked.reply)(AuthAnswer::Refuse);
            }
            Outcome::Pass => (asked.reply)(AuthAnswer::Refuse),
            Outcome::Keys => self.wait(asked, now),
            Outcome::Server => submit(self.http.as_ref(), asked),
            Outcome::Directory => submit(self.ldap.as_ref(), asked),
        }
    }

    /// The question waits for keys, if others may come soon.
    fn wait(&mut self, mut asked: Box<Asked>, now: Instant) {
        let tokens = self.credentials.tokens.as_ref();
        let refused = match tokens.is_some_and(Tokens::have_keys) {
            true => AuthAnswer::Refuse,
            // Nothing is known of the token: it may be valid.
            false => AuthAnswer::Busy,
        };
        let Some(fetching) = self.fetching.as_mut().filter(|_| !asked.has_waited) else {
            self.refusals.note(&asked.request, NO_KEY, now);
            return (asked.reply)(refused);
        };
        let ended = fetching.ended;
        let is_soon = ended.is_some_and(|at| now.saturating_duration_since(at) < EARLY_MIN);
        if is_soon || fetching.waiting.len() >= WAITING_MAX {
            self.refusals.note(&asked.request, NO_KEY, now);
            return (asked.reply)(refused);
        }
        if fetching.waiting.is_empty() && ended.is_some() {
            // One that is asked for already will do.
            let _ = fetching.wake.try_send(());
        }
        asked.has_waited = true;
        fetching.waiting.push(*asked);
    }

    fn scram(&mut self, user: &Text, address: IpAddr, now: Instant) -> AuthAnswer {
        if !self.throttle.admits(user, address, now) {
            return AuthAnswer::TooSoon;
        }
        let passwords = self.credentials.passwords.as_ref();
        passwords.map_or(AuthAnswer::Refuse, |it| AuthAnswer::Scram(it.scram(user)))
    }

    /// Goes through the steps, beginning with this one; how far it came.
    fn login(
        &mut self,
        login: &Login<'_>,
        first: usize,
        has_waited: bool,
        now: Instant,
    ) -> (Outcome, usize) {
        let address = login.peer.addr.ip();
        let is_new = first == 0 && !has_waited;
        let is_token = self.credentials.tokens.is_some() && is_like_token(login.password);
        let counts = !login.is_empty() && (!is_token || self.is_hashed(login.user));
        if is_new && counts && !self.throttle.admits(login.user, address, now) {
            return (Outcome::Answer(AuthAnswer::TooSoon), first);
        }
        let steps = self.credentials.order.clone();
        for (at, step) in steps.iter().copied().enumerate().skip(first) {
            let outcome = match step {
                Step::Certificate => certificate(login),
                Step::Password => {
                    let has_later = has_later(&steps, at, is_token);
                    self.password(login, has_later)
                }
                Step::Jwt => self.jwt(login),
                Step::Http if self.http.is_some() => Outcome::Server,
                Step::Ldap if self.ldap.is_some() && !login.user.is_empty() => Outcome::Directory,
                Step::Http | Step::Ldap => Outcome::Pass,
            };
            match outcome {
                Outcome::Pass => {}
                Outcome::Answer(answer) => {
                    self.note_outcome(login, &answer, counts);
                    return (Outcome::Answer(answer), at);
                }
                Outcome::BadToken(why) => {
                    self.note_outcome(login, &AuthAnswer::Refuse, counts);
                    return (Outcome::BadToken(why), at);
                }
                Outcome::Server => return (Outcome::Server, at + 1),
                Outcome::Directory => return (Outcome::Directory, at + 1),
                Outcome::Keys => return (Outcome::Keys, at),
            }
        }
        let answer = match login.is_empty() {
            true => AuthAnswer::Unknown,
            false => AuthAnswer::Refuse,
        };
        self.note_outcome(login, &answer, counts);
        (Outcome::Answer(answer), steps.len())
    }

    /// Whether what looks like a token is compared with a password first: what a client
    /// sends is no way around the wait after wrong ones.
    fn is_hashed(&self, user: &str) -> bool {
        let order = &self.credentials.order;
        let first = order
            .iter()
            .find(|step| matches!(step, Step::Password | Step::Jwt));
        let passwords = self.credentials.passwords.as_ref();
        first == Some(&Step::Password) && passwords.is_some_and(|it| it.has(user))
    }

    /// Counts a wrong password, or a right one.
    fn note_outcome(&mut self, login: &Login<'_>, answer: &AuthAnswer, counts: bool) {
        let right = match answer {
            AuthAnswer::Accept { .. } | AuthAnswer::Granted(_) => true,
            AuthAnswer::Refuse => false,
            _ => return,
        };
        if counts {
            self.note(login.user, login.peer.addr.ip(), right);
        }
    }

    /// The password file. Where something else may know the user, it decides only on
    /// those that it has.
    fn password(&mut self, login: &Login<'_>, has_later: bool) -> Outcome {
        let Some(passwords) = self.credentials.passwords.as_ref() else {
            return Outcome::Pass;
        };
        if login.is_empty() || (has_later && !passwords.has(login.user)) {
            return Outcome::Pass;
        }
        Outcome::Answer(match self.is_right(login.user, login.password) {
            true => AuthAnswer::Accept {
                user: Some(login.user.clone()),
            },
            false => AuthAnswer::Refuse,
        })
    }

    /// A token as password.
    fn jwt(&mut self, login: &Login<'_>) -> Outcome {
        let tokens = self.credentials.tokens.as_ref();
        let Some(tokens) = tokens.filter(|_| is_like_token(login.password)) else {
            return Outcome::Pass;
        };
        if !login.peer.is_private() && !tokens.may_be_read() {
            return Outcome::BadToken("others could read it on its way (auth.jwt.unencrypted)");
        }
        let Ok(token) = core::str::from_utf8(login.password) else {
            return Outcome::BadToken("it is no text");
        };
        let said = Said {
            user_name: Some(login.user),
            client_id: (!login.client_id.is_empty()).then_some(login.client_id),
        };
        self.token(token, said, None)
    }

    /// Verifies a token of a client that claims to be this user, if it names one.
    fn token(&mut self, token: &str, said: Said<'_>, user: Option<&str>) -> Outcome {
        let Some(tokens) = self.credentials.tokens.as_mut() else {
            return Outcome::Answer(AuthAnswer::Refuse);
        };
        let valid = match tokens.verify(token, said) {
            Err(Refused::NoKey) => return Outcome::Keys,
            Err(Refused::Invalid(why)) => return Outcome::BadToken(why),
            Ok(valid) => valid,
        };
        // A client acts for itself only, and bridges of the broker have no tokens.
        let is_itself = user.is_none_or(|user| valid.user == *user);
        if !is_itself || is_bridge_name(&valid.user) {
            return Outcome::BadToken("it is of another user");
        }
        let mut grant = Grant::new(Some(valid.user), By::Token);
        grant.lifetime = Some(valid.lifetime);
        grant.rules = valid.rules;
        Outcome::Answer(AuthAnswer::Granted(Box::new(grant)))
    }

    fn is_right(&mut self, user: &Text, password: &[u8]) -> bool {
        let fingerprint = Passwords::fingerprint(&self.key, user, password);
        let known = self.known.get(user.as_bytes());
        if known.is_some_and(|known| known.ct_eq(&fingerprint).into()) {
            return true;
        }
        let passwords = self.credentials.passwords.as_ref();
        let right = passwords.is_some_and(|passwords| passwords.verify(user, password));
        if right {
            // A copy, because the name may be a slice of a large packet.
            self.known.insert(Text::from(user.as_str()), fingerprint);
        }
        right
    }
}

/// Has a server asked; what does not fit into its queue is answered at once.
fn submit(pool: Option<&Pool<Box<Asked>>>, asked: Box<Asked>) {
    let Some(pool) = pool else {
        return (asked.reply)(AuthAnswer::Refuse);
    };
    if let Err(asked) = pool.submit(asked) {
        (asked.reply)(AuthAnswer::Busy);
    }
}

/// A certificate decides on a client that sends nothing else. Before all other steps
/// the shard itself looks at it.
fn certificate(login: &Login<'_>) -> Outcome {
    match &login.peer.identity {
        Some(user) if login.is_empty() => {
            let grant = Grant::new(Some(user.clone()), By::Certificate);
            Outcome::Answer(AuthAnswer::Granted(Box::new(grant)))
        }
        _ => Outcome::Pass,
    }
}

/// Whether a later step looks at user name and password, too.
fn has_later(steps: &[Step], at: usize, is_token: bool) -> bool {
    let mut later = steps.iter().skip(at + 1);
    later.any(|step| match step {
        Step::Http | Step::Ldap => true,
        Step::Jwt => is_token,
        Step::Certificate | Step::Password => false,
    })
}
