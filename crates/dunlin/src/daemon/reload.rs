//! What the broker reads again while it runs: users, rules and certificates.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin_broker::access::{Access, Acl};
use dunlin_net::{KeyLog, ServerTls};

use super::error::StartError;
use super::mailbox::{Addresses, Mail};
use super::{certificates, machine, settings};
use crate::auth::{Authenticator, Credentials};
use crate::bridge::added::Added;
use crate::config::Config;
use crate::config::bridge::Bridge;
use crate::control::http::tls::Tls;

/// The access list, the password file and the keys of tokens.
pub(super) fn load_access(
    config: &Config,
    added: &Added,
) -> Result<(Access, Credentials), StartError> {
    let acl = config.auth.acl_file.as_deref();
    let mut acl = acl.map(crate::auth::load_acl).transpose()?;
    if let Some(acl) = &mut acl {
        let added = added.all();
        let bridges = config.bridge.iter().chain(&added);
        bridges.for_each(|bridge| bridge.allow(acl));
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
    /// Bridges that are not of the configuration.
    pub(super) added: Added,
    pub(super) shards: Addresses,
    pub(super) authenticator: Option<Arc<Authenticator>>,
    pub(super) secrets: Option<KeyLog>,
    pub(super) access: Arc<Mutex<Access>>,
    /// TLS of the HTTP door, if it has it.
    pub(super) http: Option<Tls>,
}

impl Reloader {
    /// The configuration.
    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// Bridges that are not of it.
    pub(crate) const fn added(&self) -> &Added {
        &self.added
    }

    /// The shards.
    pub(crate) fn shards(&self) -> &Addresses {
        &self.shards
    }

    /// Lets a bridge do what it is for, from now on.
    pub(crate) fn allow(&self, bridge: &Bridge) {
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(acl) = &access.acl else {
            return;
        };
        let mut acl = Acl::clone(acl);
        bridge.allow(&mut acl);
        access.acl = Some(Arc::new(acl));
        for shard in &self.shards {
            shard.send(Mail::Access(access.clone()));
        }
    }

    /// Has the shards take over limits of a configuration.
    pub(crate) fn set_limits(&self, config: &Config) {
        let limits = Arc::new(settings::running(config, machine::memory()));
        for shard in &self.shards {
            shard.send(Mail::Limits(Arc::clone(&limits)));
        }
    }

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
        // Held from here on, so that a bridge that is added meanwhile keeps its rights.
        let mut current = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let (access, credentials) = load_access(&self.config, &self.added)?;
        let development = certificates::development(&self.config)?;
        let tls: Arc<[_]> =
            certificates::load(&self.config, development.as_ref(), self.secrets.as_ref())?.into();
        let http = certificates::http(&self.config)?;
        if let (Some(door), Some(http)) = (&self.http, http) {
            door.replace(&http);
        }
        *current = access;
        drop(current);
        self.bring(credentials, Some(tls));
        Ok(())
    }

    /// Reads the password file again, and the keys of tokens, but no rules.
    ///
    /// # Errors
    /// A file cannot be read or has a mistake; then nothing changes.
    pub(crate) fn reload_users(&self) -> Result<(), StartError> {
        let mut current = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let credentials = Credentials::load(&self.config.auth)?;
        current.users = credentials.users().map(Arc::new);
        drop(current);
        self.bring(credentials, None);
        Ok(())
    }

    /// Brings into force what was read.
    fn bring(&self, credentials: Credentials, tls: Option<Arc<[Option<Arc<ServerTls>>]>>) {
        let (shards, access) = (self.shards.clone(), Arc::clone(&self.access));
        let then = move || {
            // What is in force by now.
            let access = access.lock().unwrap_or_else(PoisonError::into_inner);
            for shard in &shards {
                shard.send(Mail::Access(access.clone()));
                if let Some(tls) = &tls {
                    shard.send(Mail::Tls(Arc::clone(tls)));
                }
            }
        };
        match &self.authenticator {
            // A client that it let in with an old password comes first, so
            // that the shard disconnects it.
            Some(authenticator) => authenticator.replace(credentials, Box::new(then)),
            None => then(),
        }
    }
}
