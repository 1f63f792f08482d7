//! What all loops of a process share: counts that limits refer to, and the
//! record of used address tokens.

use std::sync::Arc;

use dunlin_quic::UsedTokens;

use crate::admission::Admission;

/// What all loops of a process share. Clones are the same one; loops with
/// different ones count each for itself.
#[derive(Clone, Debug, Default)]
pub struct NetShared {
    pub(crate) admission: Arc<Admission>,
    pub(crate) used_tokens: Arc<UsedTokens>,
}

impl NetShared {
    /// Handshakes of accepted connections that are going on.
    #[must_use]
    pub fn handshakes_pending(&self) -> usize {
        self.admission.pending()
    }
}
