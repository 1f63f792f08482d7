//! Questions to the authenticator and its answers. Hashing a password takes
//! milliseconds, so it happens outside the shard.

use bytes::Bytes;
use dunlin_base::Text;
use dunlin_base::transport::Peer;

/// A question about a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthRequest {
    /// User name and password of a CONNECT.
    Password {
        /// User name.
        user: Text,
        /// Password.
        password: Bytes,
        /// Client identifier.
        client_id: Text,
        /// Who is there.
        peer: Peer,
    },
    /// The stored keys of a user, for SCRAM-SHA-256.
    Scram {
        /// User name, decoded.
        user: Text,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthAnswer {
    /// The client is who it says.
    Accept {
        /// Its user name.
        user: Option<Text>,
    },
    /// It is not.
    Refuse,
    /// The authenticator has too much to do.
    Busy,
    /// Keys for SCRAM; also for users that do not exist, so that they cannot
    /// be told from those that do.
    Scram(ScramCredential),
}

/// What the server keeps of a password (RFC 5802 section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramCredential {
    /// Salt.
    pub salt: Bytes,
    /// PBKDF2 iterations.
    pub iterations: u32,
    /// StoredKey.
    pub stored_key: [u8; 32],
    /// ServerKey.
    pub server_key: [u8; 32],
}
