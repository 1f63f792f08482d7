//! The authenticator: a thread that verifies passwords and tokens, and others that ask
//! servers, so that shards never wait for a hash, a signature or an answer. Knows the
//! password file and the keys of tokens; knows no connection.

mod asking;
mod http;
mod ldap;
pub mod passwords;
mod rules;
mod throttle;
pub mod tokens;
mod topics;
mod web;
mod worker;

#[cfg(test)]
#[path = "../../tests/it/web.rs"]
mod fake;

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use dunlin_base::Text;
use dunlin_broker::access::{Acl, AclError};
use dunlin_broker::auth::{AuthAnswer, AuthRequest};
use http::Server;
pub(crate) use ldap::names as ldap_names;
use passwords::{PasswordError, Passwords};
use tokens::{Fetched, TokenError, Tokens};
use worker::Worker;

use crate::config::{Auth, Step};

pub use http::HttpError;
pub use ldap::{LdapConfigError, LdapError};
pub use throttle::Delays;
pub use web::WebError;

/// Most questions that wait; the next one is answered [`AuthAnswer::Busy`].
/// At a millisecond each, the last of them waits for about a second.
pub const QUEUE_MAX: usize = 1024;

/// What the answer is given to, once, on the authenticator's thread or, when
/// it is busy, on the caller's.
pub type Reply = Box<dyn FnOnce(AuthAnswer) + Send>;

/// What is done on the authenticator's thread once new passwords are in force:
/// answers from the old ones have been given before.
pub type Then = Box<dyn FnOnce() + Send>;

/// A question, and how far it has come.
struct Asked {
    request: AuthRequest,
    reply: Reply,
    /// Steps that know nothing of the client.
    passed: usize,
    /// It has waited for keys.
    has_waited: bool,
}

impl Asked {
    fn new(request: AuthRequest, reply: Reply) -> Self {
        Self {
            request,
            reply,
            passed: 0,
            has_waited: false,
        }
    }

    /// Who logs in, and from where, with a password that may be wrong.
    fn login(&self) -> Option<(Text, IpAddr)> {
        match &self.request {
            AuthRequest::Password {
                user,
                password,
                peer,
                ..
            } if !(user.is_empty() && password.is_empty()) => {
                Some((Text::from(user.as_str()), peer.addr.ip()))
            }
            _ => None,
        }
    }
}

enum Job {
    Ask(Box<Asked>),
    Note(Proof),
    /// Keys of tokens were fetched, or not.
    Fetched(Fetched),
    Replace(Box<Credentials>, Then),
}

/// Why the authenticator cannot start, or an access list cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The password file.
    #[error(transparent)]
    Passwords(#[from] PasswordError),
    /// The keys of tokens.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The server that is asked by HTTP who clients are.
    #[error("auth.http: {0}")]
    Http(HttpError),
    /// The directory that is asked by LDAP who clients are.
    #[error("auth.ldap: {0}")]
    Ldap(#[from] LdapConfigError),
    /// The server that is asked about topics.
    #[error("auth.topics: {0}")]
    Topics(HttpError),
    /// The access list cannot be read.
    #[error("cannot read the access list {}: {source}", path.display())]
    ReadAcl {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The access list is wrong.
    #[error("{}:{}: {}", path.display(), error.line, error.kind)]
    Acl {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        error: AclError,
    },
    /// There is no thread to be had.
    #[error("cannot start the authenticator's thread: {0}")]
    Thread(io::Error),
    /// The operating system gave no random key.
    #[error("cannot draw a random key: {0}")]
    Random(getrandom::Error),
}

/// Reads an access list.
///
/// # Errors
/// It cannot be read, or a line is wrong.
pub fn load_acl(path: &Path) -> Result<Acl, AuthError> {
    let text = std::fs::read_to_string(path).map_err(|source| AuthError::ReadAcl {
        path: path.into(),
        source,
    })?;
    Acl::parse(&text).map_err(|error| AuthError::Acl {
        path: path.into(),
        error,
    })
}

/// Whether a client that was given what SCRAM needs knew the password.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Its user.
    pub user: Text,
    /// Its address.
    pub address: IpAddr,
    /// It did.
    pub right: bool,
}

/// Answers [`AuthRequest`]s on a thread of its own, which ends when this is
/// dropped.
pub struct Authenticator {
    jobs: Option<Arc<SyncSender<Job>>>,
    thread: Option<JoinHandle<()>>,
    topics: Option<topics::Pool>,
}

dunlin_base::opaque_debug!(Authenticator);

/// What clients are verified with.
#[derive(Debug)]
pub struct Credentials {
    passwords: Option<Passwords>,
    tokens: Option<Tokens>,
    server: Option<Server>,
    directory: Option<ldap::Server>,
    topics: Option<topics::Server>,
    /// What is asked about a client, one after the other.
    order: Vec<Step>,
}

impl Credentials {
    /// Reads the password file and the keys of tokens, as far as there are any.
    ///
    /// # Errors
    /// A file cannot be read, or is wrong.
    pub fn load(config: &Auth) -> Result<Self, AuthError> {
        let passwords = config.password_file.as_deref();
        Ok(Self {
            passwords: passwords.map(Passwords::load).transpose()?,
            tokens: config.jwt.as_ref().map(Tokens::load).transpose()?,
            server: (config.http.as_ref().map(Server::load).transpose())
                .map_err(AuthError::Http)?,
            directory: config.ldap.as_ref().map(ldap::Server::load).transpose()?,
            topics: (config.topics.as_ref().map(topics::Server::load).transpose())
                .map_err(AuthError::Topics)?,
            order: config.steps().collect(),
        })
    }

    /// The users of the password file, each with a number that changes with the
    /// password.
    #[must_use]
    pub fn users(&self) -> Option<BTreeMap<Text, u64>> {
        self.passwords.as_ref().map(Passwords::users)
    }

    /// Starts the thread that answers from them, if there is anything to verify.
    /// `delays`: for those who have tried wrong passwords.
    ///
    /// # Errors
    /// There is no thread, or no random key, to be had.
    pub fn start(self, delays: Delays) -> Result<Option<Authenticator>, AuthError> {
        let verifies = self.passwords.is_some() || self.tokens.is_some() || self.server.is_some();
        let verifies = verifies || self.directory.is_some();
        if !verifies && self.topics.is_none() {
            return Ok(None);
        }
        let topics = self.topics.as_ref().map(topics::Pool::start);
        let topics = topics.transpose().map_err(AuthError::Thread)?;
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        let jobs = Arc::new(jobs);
        let worker = Worker::start(self, delays, &Door(Arc::downgrade(&jobs)))?;
        let thread = std::thread::Builder::new()
            .name("auth".into())
            .spawn(move || worker.run(&queue))
            .map_err(AuthError::Thread)?;
        Ok(Some(Authenticator {
            jobs: Some(jobs),
            thread: Some(thread),
            topics,
        }))
    }
}

/// The way to the authenticator for threads that it started, which does not keep it
/// alive.
#[derive(Clone)]
struct Door(Weak<SyncSender<Job>>);

impl Door {
    /// Waits while the queue is full; `false`: the authenticator has ended.
    fn send(&self, job: Job) -> bool {
        self.0.upgrade().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Does not wait; the job comes back where there is no room for it.
    fn try_send(&self, job: Job) -> Result<(), Job> {
        submit(self.0.upgrade().as_deref(), job)
    }
}

/// Does not wait; the job comes back where there is no room for it.
fn submit(jobs: Option<&SyncSender<Job>>, job: Job) -> Result<(), Job> {
    let Some(jobs) = jobs else {
        return Err(job);
    };
    jobs.try_send(job).map_err(|error| match error {
        TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
    })
}

impl Authenticator {
    /// Asks; never waits. The answer is given to `reply`.
    pub fn submit(&self, request: AuthRequest, reply: Reply) {
        let request = match (request, &self.topics) {
            (AuthRequest::Topic(request), Some(pool)) => return pool.submit(request, reply),
            (AuthRequest::Topic(request), None) => return reply(topics::ruling(&request, None)),
            (request, _) => request,
        };
        let job = Job::Ask(Box::new(Asked::new(request, reply)));
        if let Err(Job::Ask(asked)) = submit(self.jobs.as_deref(), job) {
            (asked.reply)(AuthAnswer::Busy);
        }
    }

    /// Notes how an exchange of SCRAM ended. Where the queue is full that is left out.
    pub fn note(&self, proof: Proof) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.try_send(Job::Note(proof));
        }
    }

    /// Replaces passwords and keys, for what is asked from now on, and does `then`
    /// after that. May wait for as long as the queue is full, so it is not for
    /// shards.
    pub fn replace(&self, credentials: Credentials, then: Then) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only after this sender does.
            let _ = jobs.send(Job::Replace(Box::new(credentials), then));
        }
    }
}

impl Drop for Authenticator {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported there.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::mpsc::channel;

    use bytes::Bytes;
    use dunlin_base::transport::{Peer, Transport};
    use passwords::{Change, changed};

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);

    const DELAYS: Delays = Delays {
        first: Duration::from_secs(60),
        longest: Duration::from_secs(60),
    };

    fn write(path: &Path, users: &[(&str, &str)]) {
        let mut text = None;
        for (user, password) in users {
            let change = Change::Set {
                password: password.as_bytes(),
                iterations: 4096,
            };
            text = Some(changed(path, text.as_deref(), user, change).expect("changed"));
        }
        std::fs::write(path, text.unwrap_or_default()).expect("written");
    }

    fn password(user: &str, password: &str) -> AuthRequest {
        AuthRequest::Password {
            user: Text::from(user),
            password: Bytes::copy_from_slice(password.as_bytes()),
            client_id: Text::from_static("c"),
            peer: Peer {
                addr: "192.0.2.1:1".parse().expect("address"),
                transport: Transport::Tcp,
                listener: 0,
                identity: None,
                protocol: Text::new(),
                early_data: false,
                binding: None,
            },
        }
    }

    fn load(path: &Path) -> Credentials {
        let config = Auth {
            password_file: Some(path.into()),
            ..Auth::default()
        };
        Credentials::load(&config).expect("loaded")
    }

    fn start(path: &Path) -> Authenticator {
        let started = load(path).start(DELAYS).expect("started");
        started.expect("there are passwords")
    }

    fn ask(authenticator: &Authenticator, request: AuthRequest) -> AuthAnswer {
        let (sender, answer) = channel();
        authenticator.submit(
            request,
            Box::new(move |answer| sender.send(answer).expect("waited for")),
        );
        answer.recv().expect("answered")
    }

    #[test]
    fn passwords_are_verified_and_reloaded() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("passwords");
        write(&path, &[("alice", "one"), ("bob", "two")]);
        let authenticator = start(&path);
        let accept = AuthAnswer::Accept {
            user: Some(Text::from_static("alice")),
        };
        // Twice: the second answer comes from the fingerprint.
        for _ in 0..2 {
            assert_eq!(ask(&authenticator, password("alice", "one")), accept);
            assert_eq!(
                ask(&authenticator, password("alice", "two")),
                AuthAnswer::Refuse
            );
            assert_eq!(
                ask(&authenticator, password("eve", "one")),
                AuthAnswer::Refuse
            );
        }
        write(&path, &[("alice", "three")]);
        let (sender, replaced) = channel();
        let file = load(&path);
        assert_eq!(file.users().map(|users| users.len()), Some(1));
        authenticator.replace(file, Box::new(move || sender.send(()).expect("waited for")));
        replaced.recv().expect("replaced");
        assert_eq!(
            ask(&authenticator, password("alice", "one")),
            AuthAnswer::Refuse
        );
        assert_eq!(ask(&authenticator, password("alice", "three")), accept);
    }

    #[test]
    fn scram_is_answered_for_everybody() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("passwords");
        write(&path, &[("alice", "one")]);
        let authenticator = start(&path);
        let scram = |user| {
            let user = Text::from_static(user);
            let address = ADDRESS;
            match ask(&authenticator, AuthRequest::Scram { user, address }) {
                AuthAnswer::Scram(credential) => credential,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(scram("eve"), scram("eve"));
        assert_ne!(scram("eve").salt, scram("alice").salt);
    }

    #[test]
    fn after_wrong_passwords_the_next_ones_are_not_looked_at() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("passwords");
        write(&path, &[("alice", "one"), ("bob", "two")]);
        let authenticator = start(&path);
        for _ in 0..3 {
            let answer = ask(&authenticator, password("alice", "wrong"));
            assert_eq!(answer, AuthAnswer::Refuse);
        }
        let answer = ask(&authenticator, password("alice", "one"));
        assert_eq!(answer, AuthAnswer::TooSoon);
        let user = Some(Text::from_static("bob"));
        let answer = ask(&authenticator, password("bob", "two"));
        assert_eq!(answer, AuthAnswer::Accept { user });
        // SCRAM, which only the shard sees fail.
        let scram = || AuthRequest::Scram {
            user: Text::from_static("bob"),
            address: ADDRESS,
        };
        for _ in 0..3 {
            let answer = ask(&authenticator, scram());
            assert!(matches!(answer, AuthAnswer::Scram(_)), "{answer:?}");
            authenticator.note(Proof {
                user: Text::from_static("bob"),
                address: ADDRESS,
                right: false,
            });
        }
        assert_eq!(ask(&authenticator, scram()), AuthAnswer::TooSoon);
    }

    #[test]
    fn a_full_queue_is_busy() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("passwords");
        write(&path, &[("alice", "one")]);
        let authenticator = start(&path);
        let (hold, held) = channel::<()>();
        let (reached, reach) = channel();
        // Stops the thread in a reply, so that the queue fills.
        let stop: Reply = Box::new(move |_| {
            reached.send(()).expect("waited for");
            let _ = held.recv();
        });
        let scram = || AuthRequest::Scram {
            user: Text::new(),
            address: ADDRESS,
        };
        authenticator.submit(scram(), stop);
        reach.recv().expect("stopped");
        let (sender, answers) = channel();
        for _ in 0..=QUEUE_MAX {
            let sender = sender.clone();
            let reply: Reply = Box::new(move |answer| sender.send(answer).expect("counted"));
            authenticator.submit(scram(), reply);
        }
        assert_eq!(answers.recv().expect("answered"), AuthAnswer::Busy);
        drop((hold, sender));
        assert_eq!(answers.iter().count(), QUEUE_MAX);
    }

    #[test]
    fn access_lists_name_file_and_line() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("acl");
        let error = load_acl(&path).expect_err("missing").to_string();
        assert!(error.starts_with("cannot read the access list "), "{error}");
        std::fs::write(&path, "topic a\nnonsense").expect("written");
        let error = load_acl(&path).expect_err("wrong").to_string();
        assert!(error.contains("acl:2: `nonsense` is not "), "{error}");
    }
}
