//! The authenticator of a simulated world: a table of users.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::Text;
use dunlin_broker::access::OwnRules;
use dunlin_broker::auth::{
    AuthAnswer, AuthRequest, By, Grant, Ruling, ScramCredential, TopicRequest,
};
use dunlin_sasl::scram::{ITERATIONS_MIN, StoredKeys};

/// The salt of every user.
const SALT: &[u8] = b"a salt of the sea";

/// Few, because the tests run PBKDF2 in debug builds; the client's minimum.
const ITERATIONS: u32 = ITERATIONS_MIN;

/// Users and their passwords, and what a server says of topics: for so many seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users(
    BTreeMap<String, String>,
    BTreeMap<String, (Option<bool>, u64)>,
);

impl Users {
    pub(crate) fn new(users: &[(&str, &str)]) -> Self {
        let owned = |&(user, password): &(&str, &str)| (user.to_owned(), password.to_owned());
        Self(users.iter().map(owned).collect(), BTreeMap::new())
    }

    /// Has the server say `yes`, `no` or nothing of a topic.
    pub(crate) fn rule(&mut self, topic: &str, says: &str, secs: u64) {
        let allowed = match says {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        self.1.insert(topic.to_owned(), (allowed, secs));
    }

    fn ruling(&self, request: &TopicRequest) -> AuthAnswer {
        let said = self.1.get(request.topic.as_str()).copied();
        let (allowed, secs) = said.unwrap_or((Some(false), 1));
        AuthAnswer::Topic(Box::new(Ruling {
            action: request.action,
            topic: request.topic.clone(),
            allowed,
            lifetime: Duration::from_secs(secs),
        }))
    }

    pub(crate) fn set(&mut self, user: &str, password: Option<&str>) {
        match password {
            Some(password) => self.0.insert(user.to_owned(), password.to_owned()),
            None => self.0.remove(user),
        };
    }

    /// What shards get of a password file; `None` if there never was a user.
    pub(crate) fn listed(&self) -> Option<Arc<BTreeMap<Text, u64>>> {
        let number = |(user, password): (&String, &String)| {
            let digits = password.bytes();
            let number = digits.fold(0, |sum, byte| sum * 31 + u64::from(byte));
            (Text::from(user.as_str()), number)
        };
        let users = (!self.0.is_empty()).then(|| self.0.iter().map(number).collect());
        users.map(Arc::new)
    }

    /// What follows the name of a user in a token is the seconds that it is valid, and
    /// a topic that is its only one, or other lines about it.
    fn verify(&self, user: Option<&Text>, token: &str) -> AuthAnswer {
        let valid = token.split_once('.').and_then(|(name, rest)| {
            let (secs, topic) = match rest.split_once('.') {
                Some((secs, topic)) => (secs, Some(topic)),
                None => (rest, None),
            };
            let claimed = user.is_none_or(|user| user.as_str() == name);
            let mut grant = Grant::new(Some(name.into()), By::Token);
            grant.lifetime = Some(Duration::from_secs(secs.parse().ok()?));
            // Words and lines, in a packet of one line.
            let lines = topic.map(|topic| topic.replace('~', " ").replace(';', "\n"));
            let rules = lines.as_deref().map(OwnRules::parse).transpose().ok()?;
            grant.rules = rules.map(Arc::new);
            (claimed && self.0.contains_key(name)).then_some(grant)
        });
        valid.map_or(AuthAnswer::Refuse, |grant| {
            AuthAnswer::Granted(Box::new(grant))
        })
    }

    pub(crate) fn answer(&self, request: &AuthRequest) -> AuthAnswer {
        match request {
            AuthRequest::Password { user, password, .. } => {
                let known = self.0.get(user.as_str());
                if user.as_str() == "busy" {
                    AuthAnswer::Busy
                } else if user.as_str() == "soon" {
                    AuthAnswer::TooSoon
                } else if known.is_some_and(|known| known.as_bytes() == &password[..]) {
                    AuthAnswer::Accept {
                        user: Some(user.clone()),
                    }
                } else {
                    let token = core::str::from_utf8(password).unwrap_or_default();
                    self.verify(None, token)
                }
            }
            AuthRequest::Topic(request) => self.ruling(request),
            AuthRequest::Token { user, token, .. } => self.verify(user.as_ref(), token),
            AuthRequest::Scram { user, .. } => {
                let made_up = Text::from_static("no password has this form\0");
                let password = self.0.get(user.as_str()).map(String::as_bytes);
                let password = password.unwrap_or(made_up.as_bytes());
                let keys = StoredKeys::derive(password, SALT, ITERATIONS);
                AuthAnswer::Scram(ScramCredential {
                    salt: Bytes::from_static(SALT),
                    iterations: ITERATIONS,
                    stored_key: keys.stored_key,
                    server_key: keys.server_key,
                })
            }
        }
    }
}
