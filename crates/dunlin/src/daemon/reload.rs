//! What the broker reads again while it runs: users, rules and certificates.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin_broker::access::Access;
use dunlin_net::KeyLog;

use super::certificates;
use super::error::StartError;
use super::mailbox::{Address, Mail};
use crate::auth::{Authenticator, Credentials};
use crate::config::Config;
use crate::control::http::tls::Tls;

/// The access list, the password file and the keys of tokens.
pub(super) fn load_access(config: &Config) -> Result<(Access, Credentials), StartError> {
    let acl = config.auth.acl_file.as_deref();
    let mut acl = acl.map(crate::auth::load_acl).transpose()?;
    if let Some(acl) = &mut acl {
        config.bridge.iter().for_each(|bridge| bridge.allow(acl));
    }
    let credentials = Credentials::load(&config.auth)?;
    let access = Access {
        acl: acl.map(Arc::new),
        users: credentials.users().map(Arc::new),
        asks: config.auth.topics.as_ref().map(|it| it.when_down.into()),
    };
    Ok((access, credentials))
}

/// Reads files again.
#[derive(Debug)]
pub(crate) struct Reloader {
    pub(super) config: Config,
    pub(super) shards: Vec<Address>,
    pub(super) authenticator: Option<Arc<Authenticator>>,
    pub(super) secrets: Option<KeyLog>,
    pub(super) access: Mutex<Access>,
    /// TLS of the HTTP door, if it has it.
    pub(super) http: Option<Tls>,
}

impl Reloader {
    /// Users and rules as last read.
    pub(crate) fn access(&self) -> Access {
        let access = self.access.lock();
        access.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As [`Daemon::reload`](super::Daemon::reload).
    ///
    /// # Errors
    /// A file cannot be read or has a mistake; then nothing changes.
    pub(crate) fn reload(&self) -> Result<(), StartError> {
        let (access, credentials) = load_access(&self.config)?;
        let development = certificates::development(&self.config)?;
        let tls: Arc<[_]> =
            certificates::load(&self.config, development.as_ref(), self.secrets.as_ref())?.into();
        let http = certificates::http(&self.config)?;
        if let (Some(door), Some(http)) = (&self.http, http) {
            door.replace(&http);
        }
        *self.access.lock().unwrap_or_else(PoisonError::into_inner) = access.clone();
        let shards = self.shards.clone();
        let then = move || {
            for shard in &shards {
                shard.send(Mail::Access(access.clone()));
                shard.send(Mail::Tls(Arc::clone(&tls)));
            }
        };
        match &self.authenticator {
            // A client that it let in with an old password comes first, so
            // that the shard disconnects it.
            Some(authenticator) => authenticator.replace(credentials, Box::new(then)),
            None => then(),
        }
        Ok(())
    }
}
