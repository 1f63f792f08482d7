//! What may be wrong with what a client sends.

use crate::scram::ScramError;

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SaslError {
    /// A message does not follow the mechanism's grammar, or is longer than
    /// [`MESSAGE_BYTES_MAX`](crate::server::MESSAGE_BYTES_MAX).
    #[error("a SASL message is malformed")]
    Malformed,
    /// The client wants to act for another user.
    #[error("acting for another user is not supported")]
    AuthorizationIdentity,
    /// A message that the mechanism has no place for.
    #[error("a SASL message out of order")]
    OutOfOrder,
    /// SCRAM failed.
    #[error(transparent)]
    Scram(#[from] ScramError),
}
