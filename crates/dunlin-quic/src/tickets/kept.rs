//! A ticket as the owner keeps it: opaque to everybody but the register.
//!
//! ```text
//! 0         1          9           41
//! +---------+----------+-----------+----------------------+
//! | layout  | issued   | scope     | session              |
//! | 1       | s, BE    | 32 bytes  | as TLS encoded it    |
//! +---------+----------+-----------+----------------------+
//! ```

use smallvec::SmallVec;

use super::Scope;

const LAYOUT: u8 = 1;
const HEADER_BYTES: usize = 1 + 8 + 32;

/// Bytes of a session that need no allocation.
const SESSION_INLINE_BYTES: usize = 64;

/// What is known of a ticket besides its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Seconds since 1970.
    pub(super) issued: u64,
    pub(super) scope: Scope,
    /// Within the entry, if it is of a client without a certificate: small
    /// allocations that outlive connections keep the system from getting back
    /// what was allocated around them.
    pub(super) session: SmallVec<[u8; SESSION_INLINE_BYTES]>,
}

impl Kept {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.session.len());
        bytes.push(LAYOUT);
        bytes.extend_from_slice(&self.issued.to_be_bytes());
        bytes.extend_from_slice(&self.scope);
        bytes.extend_from_slice(&self.session);
        bytes
    }

    /// `None`: of another layout, or damaged; then the ticket is worthless.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&layout, rest) = bytes.split_first()?;
        let (issued, rest) = rest.split_first_chunk::<8>()?;
        let (scope, session) = rest.split_first_chunk::<32>()?;
        (layout == LAYOUT && !session.is_empty()).then(|| Self {
            issued: u64::from_be_bytes(*issued),
            scope: *scope,
            session: SmallVec::from_slice(session),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_survive_and_damage_does_not_pass() {
        let kept = Kept {
            issued: 1_700_000_000,
            scope: [7; 32],
            session: SmallVec::from_slice(b"session"),
        };
        let bytes = kept.encode();
        assert_eq!(Kept::decode(&bytes), Some(kept));
        for cut in 0..=HEADER_BYTES {
            assert_eq!(Kept::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        let mut other = bytes;
        other[0] = 2;
        assert_eq!(Kept::decode(&other), None);
    }
}
