//! One exchange of SCRAM-SHA-256 (RFC 7677), the server's side.

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::Text;
use dunlin_mqtt::codec::ReasonCode;
use dunlin_mqtt::scram::{ClientFirst, StoredKeys};

use crate::auth::ScramCredential;
use crate::fault::Fault;

/// A SCRAM exchange after the client's first message.
#[derive(Debug)]
pub(crate) struct ScramExchange {
    client_first: Bytes,
    server_first: Vec<u8>,
    keys: Option<StoredKeysOpaque>,
    user: Text,
}

/// Keys that stay out of logs.
pub(crate) struct StoredKeysOpaque(StoredKeys);

impl core::fmt::Debug for StoredKeysOpaque {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("StoredKeys")
    }
}

impl ScramExchange {
    /// Reads the client's first message; the keys are still to be asked for.
    pub(crate) fn begin(data: &[u8]) -> Result<Self, Fault> {
        let first = ClientFirst::parse(data).map_err(|_| NOT_AUTHORIZED)?;
        Ok(Self {
            client_first: Bytes::copy_from_slice(data),
            server_first: Vec::new(),
            keys: None,
            user: Text::from(first.user_name()),
        })
    }

    /// The user whom the client claims to be.
    pub(crate) const fn user(&self) -> &Text {
        &self.user
    }

    /// The server's first message, once it was made.
    pub(crate) fn server_first(&self) -> &[u8] {
        &self.server_first
    }

    /// Makes the server's first message.
    pub(crate) fn challenge(
        &mut self,
        nonce: &str,
        credential: &ScramCredential,
    ) -> Result<(), Fault> {
        let first = ClientFirst::parse(&self.client_first).map_err(|_| NOT_AUTHORIZED)?;
        first
            .respond(
                nonce,
                &credential.salt,
                credential.iterations,
                &mut self.server_first,
            )
            .map_err(|_| NOT_AUTHORIZED)?;
        self.keys = Some(StoredKeysOpaque(StoredKeys {
            stored_key: credential.stored_key,
            server_key: credential.server_key,
        }));
        Ok(())
    }

    /// Checks the client's proof; returns the server's last message.
    pub(crate) fn finish(&self, client_final: &[u8]) -> Result<Bytes, Fault> {
        let first = ClientFirst::parse(&self.client_first).map_err(|_| NOT_AUTHORIZED)?;
        let keys = self.keys.as_ref().ok_or(NOT_AUTHORIZED)?;
        let mut out = Vec::new();
        first
            .verify(&self.server_first, client_final, &keys.0, &mut out)
            .map_err(|_| NOT_AUTHORIZED)?;
        Ok(out.into())
    }
}

pub(crate) const NOT_AUTHORIZED: Fault =
    Fault::new(ReasonCode::NotAuthorized, "authentication failed");
