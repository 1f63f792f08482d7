//! Connection ids that the server chose (RFC 9000 section 5.1). This client
//! uses the empty one for itself: its socket has one connection.

use crate::wire::fill;

/// Longest connection id of QUIC version 1.
const MAX: usize = 20;

/// A connection id.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cid {
    len: u8,
    bytes: [u8; MAX],
}

impl Cid {
    /// The id of no bytes.
    pub(crate) const EMPTY: Self = Self {
        len: 0,
        bytes: [0; MAX],
    };

    /// Nothing if the id is too long.
    #[inline(never)]
    pub(crate) fn new(id: &[u8]) -> Option<Self> {
        let mut cid = Self::default();
        fill(cid.bytes.get_mut(..id.len())?, id);
        cid.len = u8::try_from(id.len()).ok()?;
        Some(cid)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// A connection id as NEW_CONNECTION_ID gives it.
#[derive(Clone, Copy)]
pub(crate) struct Issued {
    pub(crate) sequence: u32,
    pub(crate) cid: Cid,
    /// What a stateless reset of this id ends with.
    pub(crate) token: Option<[u8; 16]>,
}

impl Issued {
    /// The first one, before the server has given it.
    pub(crate) const NEW: Self = Self {
        sequence: 0,
        cid: Cid::EMPTY,
        token: None,
    };
}
