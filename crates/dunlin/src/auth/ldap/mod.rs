//! A directory that says who a client is, by LDAP (RFC 4511): a bind with the name and
//! the password of the client, its groups from its entry. A few kinds of requests are all
//! that this needs.

mod ber;
pub(crate) mod names;
mod wire;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dunlin_base::Text;
use dunlin_broker::access::{OWN_GROUPS_MAX, OwnRules};
use dunlin_broker::auth::{AuthRequest, By, Grant};
use dunlin_broker::is_bridge_name;
use dunlin_net::{ClientTls, TlsError};
use serde_json::Value;

use super::asking::{self, Knows, Manner, Pool, Verdict};
use super::passwords::Passwords;
use super::rules::Given;
use super::{Asked, Door};
use crate::config::{Finding, Ldap, WhenDown};
use names::Filter;
pub use wire::LdapError;
use wire::{Bound, Connection, Entry, Place, Search};

/// Users whose passwords are remembered; when there are as many, those whose time is over
/// are forgotten, or else all.
const CACHE_MAX: usize = 16_384;

/// Longest password of a service.
const SECRET_BYTES_MAX: usize = 4096;

/// Why a directory cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LdapConfigError {
    /// Its authorities cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file with the password of the service cannot be used.
    #[error("cannot use {}: {why}", path.display())]
    Secret {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is no random key.
    #[error("cannot draw a random key: {0}")]
    Random(getrandom::Error),
}

/// How the entry of a user is found.
enum Find {
    /// Its name is made of the user's.
    Template(String),
    Search {
        /// Who searches; `None`: that is not said.
        service: Option<(String, Vec<u8>)>,
        base: String,
        filter: Filter,
    },
}

/// What all threads share.
struct Shared {
    place: Place,
    find: Find,
    /// Has the user's name.
    user_attribute: String,
    group_attribute: Option<String>,
    /// Groups that count; `None`: all.
    groups: Option<Vec<String>>,
    timeout: Duration,
    connections: u32,
    when_down: WhenDown,
    cache: Cache,
}

/// The directory.
#[derive(Clone)]
pub(super) struct Server(Arc<Shared>);

dunlin_base::opaque_debug!(Server);

impl Server {
    pub(super) fn load(config: &Ldap) -> Result<Self, LdapConfigError> {
        let (host, port) = config.place();
        let is_encrypted = config.is_encrypted();
        let tls = is_encrypted.then(|| {
            let builder = ClientTls::builder();
            let builder = match &config.ca_file {
                Some(path) => builder.ca_pem_file(path)?,
                None => builder.system_roots()?,
            };
            Ok::<_, TlsError>(builder.build()?.over_tcp(&[]))
        });
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(LdapConfigError::Random)?;
        Ok(Self(Arc::new(Shared {
            place: Place {
                host: host.to_owned(),
                port,
                tls: tls.transpose()?,
                start_tls: config.start_tls,
            },
            find: find(config)?,
            user_attribute: config.user_attribute.clone(),
            group_attribute: (!config.group_attribute.is_empty())
                .then(|| config.group_attribute.clone()),
            groups: config.groups.clone(),
            timeout: config.timeout.0,
            connections: config.connections,
            when_down: config.when_down,
            cache: Cache {
                kept: config.cache.0,
                key,
                known: Mutex::default(),
            },
        })))
    }

    /// Threads that ask it.
    pub(super) fn start(&self, door: &Door) -> io::Result<Pool<Box<Asked>>> {
        let manner = Manner {
            key: "auth.ldap",
            thread: "auth-ldap",
            timeout: self.0.timeout,
            connections: self.0.connections,
            when_down: self.0.when_down,
        };
        asking::about_clients(manner, door, || Asker {
            shared: Arc::clone(&self.0),
            connection: None,
        })
    }
}

fn find(config: &Ldap) -> Result<Find, LdapConfigError> {
    Ok(match config.finding() {
        Finding::Template(template) => Find::Template(template.to_owned()),
        Finding::Search { base, filter } => {
            let secret = config.bind_password_file.as_ref().map(|path| {
                let wrong = |why: String| LdapConfigError::Secret {
                    path: path.clone(),
                    why,
                };
                let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
                let text = text.trim_ascii_end();
                match text.is_empty() || text.len() > SECRET_BYTES_MAX {
                    true => Err(wrong("it is not one line with a password".into())),
                    false => Ok(text.to_vec()),
                }
            });
            Find::Search {
                service: config.bind_dn.clone().zip(secret.transpose()?),
                base: base.to_owned(),
                filter,
            }
        }
    })
}

/// Until when a password counts, and what was said with it.
type Known = (Instant, Option<Arc<OwnRules>>);

/// Passwords that were right a moment ago, as fingerprints, and what was said with them.
struct Cache {
    kept: Duration,
    key: [u8; 32],
    known: Mutex<HashMap<[u8; 32], Known>>,
}

impl Cache {
    fn fingerprint(&self, user: &str, password: &[u8]) -> [u8; 32] {
        Passwords::fingerprint(&self.key, user, password)
    }

    fn get(&self, user: &str, password: &[u8], now: Instant) -> Option<Option<Arc<OwnRules>>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, rules) = known.get(&self.fingerprint(user, password))?;
        (*until > now).then(|| rules.clone())
    }

    fn put(&self, user: &str, password: &[u8], rules: Option<Arc<OwnRules>>, now: Instant) {
        if self.kept.is_zero() {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CACHE_MAX {
            known.retain(|_, (until, _)| *until > now);
        }
        if known.len() >= CACHE_MAX {
            known.clear();
        }
        known.insert(self.fingerprint(user, password), (now + self.kept, rules));
    }
}

/// Asks the directory, on one thread.
struct Asker {
    shared: Arc<Shared>,
    /// One that was good, for the next question.
    connection: Option<Connection>,
}

impl Knows for Asker {
    type Error = LdapError;

    fn ask(&mut self, request: &AuthRequest) -> Result<Verdict, LdapError> {
        let AuthRequest::Password { user, password, .. } = request else {
            return Ok(Verdict::Ignore);
        };
        // Who sends nothing is no user; who sends no password must never be one.
        match (user.is_empty(), password.is_empty()) {
            (true, _) => return Ok(Verdict::Ignore),
            (false, true) => return Ok(Verdict::Deny),
            _ => {}
        }
        if !names::is_name(user) || is_bridge_name(user) {
            return Ok(Verdict::Deny);
        }
        let now = Instant::now();
        if let Some(rules) = self.shared.cache.get(user, password, now) {
            return Ok(allow(user, rules));
        }
        let deadline = now + self.shared.timeout;
        let kept = self.connection.take();
        let was_kept = kept.is_some();
        let mut answer = self.look_up(kept, user, password, deadline);
        // A directory closes connections on which nothing is asked for a while.
        if was_kept && matches!(&answer, Err(error) if is_lost(error)) {
            answer = self.look_up(None, user, password, deadline);
        }
        answer
    }
}

/// Whether a connection had ended before it was used.
fn is_lost(error: &LdapError) -> bool {
    match error {
        LdapError::Io(error) => error.kind() != io::ErrorKind::TimedOut,
        LdapError::Answer(_) => true,
        LdapError::Refused { .. } => false,
    }
}

impl Asker {
    fn look_up(
        &mut self,
        connection: Option<Connection>,
        user: &str,
        password: &[u8],
        deadline: Instant,
    ) -> Result<Verdict, LdapError> {
        let shared = Arc::clone(&self.shared);
        let mut connection = match connection {
            Some(connection) => connection,
            None => Connection::open(&shared.place, deadline)?,
        };
        connection.set_deadline(deadline);
        let found = match &shared.find {
            Find::Template(template) => {
                let name = names::dn(template, user);
                bound(&shared, &mut connection, &name, password)?
            }
            Find::Search {
                service,
                base,
                filter,
            } => {
                begin(&mut connection, service.as_ref())?;
                let search = Search {
                    base,
                    below: true,
                    filter: Some((filter, user)),
                    attributes: &shared.attributes(),
                };
                let mut found = connection.search(&search)?;
                match (found.pop(), found.is_empty()) {
                    (None, _) => return self.done(connection, Verdict::Ignore),
                    (Some(_), false) => {
                        return Err(LdapError::Answer("the filter finds more than one entry"));
                    }
                    (Some(entry), true) => match connection.bind(&entry.name, password)? {
                        Bound::Right => Some(entry),
                        Bound::Wrong => None,
                    },
                }
            }
        };
        let Some(entry) = found else {
            return self.done(connection, Verdict::Deny);
        };
        // A directory compares names without their case and some of their spaces; rules
        // and topics do not.
        if !entry
            .values(&shared.user_attribute)
            .any(|name| name == user)
        {
            tracing::info!(
                user,
                "refused: {} of the entry is not written like that",
                shared.user_attribute
            );
            return self.done(connection, Verdict::Deny);
        }
        let rules = shared.rules(&entry)?;
        let now = Instant::now();
        shared.cache.put(user, password, rules.clone(), now);
        self.done(connection, allow(user, rules))
    }

    /// Keeps a connection on which all went well.
    fn done(&mut self, connection: Connection, verdict: Verdict) -> Result<Verdict, LdapError> {
        self.connection = Some(connection);
        Ok(verdict)
    }
}

/// Says who searches.
fn begin(
    connection: &mut Connection,
    service: Option<&(String, Vec<u8>)>,
) -> Result<(), LdapError> {
    match service {
        None => connection.bind_anonymously(),
        Some((name, password)) => match connection.bind(name, password)? {
            Bound::Right => Ok(()),
            Bound::Wrong => Err(LdapError::Answer(
                "the password of auth.ldap.bind_dn is wrong",
            )),
        },
    }
}

/// The entry of this name, if the password is its own.
fn bound(
    shared: &Shared,
    connection: &mut Connection,
    name: &str,
    password: &[u8],
) -> Result<Option<Entry>, LdapError> {
    if connection.bind(name, password)? == Bound::Wrong {
        return Ok(None);
    }
    let search = Search {
        base: name,
        below: false,
        filter: None,
        attributes: &shared.attributes(),
    };
    let entry = connection.search(&search)?.pop();
    let entry = entry.ok_or(LdapError::Answer("a user may not read the own entry"))?;
    Ok(Some(entry))
}

impl Shared {
    /// What is read of an entry.
    fn attributes(&self) -> Vec<&str> {
        let group = self.group_attribute.as_deref();
        [self.user_attribute.as_str()]
            .into_iter()
            .chain(group)
            .collect()
    }

    /// The groups of an entry; those without a name that can be one are left out.
    fn rules(&self, entry: &Entry) -> Result<Option<Arc<OwnRules>>, LdapError> {
        let Some(attribute) = &self.group_attribute else {
            return Ok(None);
        };
        let groups = entry.values(attribute).filter_map(names::group);
        let counts = |name: &String| self.groups.as_ref().is_none_or(|it| it.contains(name));
        let groups = groups.filter(|name| super::rules::is_group(name) && counts(name));
        let groups: Vec<Value> = groups.map(Value::from).collect();
        if groups.len() > OWN_GROUPS_MAX {
            let why = "more than 16 groups: say in auth.ldap.groups which of them count";
            return Err(LdapError::Answer(why));
        }
        if groups.is_empty() {
            return Ok(None);
        }
        let groups = Value::Array(groups);
        let given = Given {
            groups: Some(&groups),
            ..Given::default()
        };
        given
            .read()
            .ok_or(LdapError::Answer("its groups cannot be used"))
    }
}

fn allow(user: &str, rules: Option<Arc<OwnRules>>) -> Verdict {
    let mut grant = Grant::new(Some(Text::from(user)), By::Ldap);
    grant.rules = rules;
    Verdict::Allow(Box::new(grant))
}
