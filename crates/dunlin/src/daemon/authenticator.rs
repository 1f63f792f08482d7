//! A shard's side of the authenticator: questions out, answers back as mail.

use std::sync::Arc;

use dunlin_base::ConnId;
use dunlin_broker::auth::{AuthAnswer, AuthRequest};

use super::mailbox::{Address, Mail};
use crate::auth::{Authenticator, Proof};

/// Asks the authenticator for a shard.
pub(crate) struct AuthClient {
    authenticator: Option<Arc<Authenticator>>,
    shard: Address,
}

impl AuthClient {
    /// Notes how an exchange of SCRAM ended.
    pub(crate) fn note(&self, proof: Proof) {
        if let Some(authenticator) = &self.authenticator {
            authenticator.note(proof);
        }
    }

    pub(crate) const fn new(authenticator: Option<Arc<Authenticator>>, shard: Address) -> Self {
        Self {
            authenticator,
            shard,
        }
    }

    /// Asks; the answer comes as mail.
    pub(crate) fn ask(&self, conn: ConnId, request: AuthRequest) {
        let shard = self.shard.clone();
        let reply = move |answer| shard.send(Mail::Auth { conn, answer });
        match &self.authenticator {
            Some(authenticator) => authenticator.submit(request, Box::new(reply)),
            // No listener asks without a password file or keys of tokens.
            None => reply(AuthAnswer::Refuse),
        }
    }
}
