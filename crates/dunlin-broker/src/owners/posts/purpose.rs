//! What a home is to do with a message that is posted to it, and how the store has that.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::Text;
use dunlin_store::codec::{Reader, put_text};

use crate::owners::routing::Wanted;

/// `$share` filters of one post.
const SHARES_MAX: usize = 1 << 16;

/// What a home is to do with a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Purpose {
    /// Deliver it to all matching plain subscriptions.
    pub(crate) plain: bool,
    /// Deliver it to one member of each of these `$share` filters.
    pub(crate) shares: Vec<Text>,
    /// Retain it.
    pub(crate) retain: bool,
}

/// Version of a purpose in the store.
pub(super) const VERSION: u8 = 1;

const PLAIN: u8 = 1 << 0;
const RETAIN: u8 = 1 << 1;

impl Purpose {
    /// As the store has it: with the number of the post.
    pub(super) fn encode(&self, number: u64) -> Arc<[u8]> {
        let plain = if self.plain { PLAIN } else { 0 };
        let retain = if self.retain { RETAIN } else { 0 };
        let mut out = alloc::vec![VERSION, plain | retain];
        out.extend_from_slice(&number.to_le_bytes());
        let shares = u32::try_from(self.shares.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&shares.to_le_bytes());
        for share in &self.shares {
            put_text(&mut out, share);
        }
        out.into()
    }

    /// What [`Purpose::encode`] wrote; `None`: it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<(u64, Self)> {
        let mut r = Reader::new(bytes);
        r.version(VERSION).ok()?;
        let (flags, number, count) = (r.u8().ok()?, r.u64().ok()?, r.u32().ok()? as usize);
        if count > SHARES_MAX {
            return None;
        }
        let mut shares = Vec::new();
        for _ in 0..count {
            shares.push(r.text().ok()?);
        }
        let purpose = Self {
            plain: flags & PLAIN != 0,
            shares,
            retain: flags & RETAIN != 0,
        };
        Some((number, purpose))
    }

    /// What a home wants of a message.
    pub(crate) fn of(wanted: Wanted) -> Self {
        Self {
            plain: wanted.plain,
            shares: wanted.shares,
            retain: wanted.retain,
        }
    }

    /// Bytes that it takes in memory, besides itself.
    pub(super) fn bytes(&self) -> usize {
        let shares = self.shares.iter();
        shares.map(|share| size_of::<Text>() + share.len()).sum()
    }

    /// The home is to do that, too.
    pub(super) fn add(&mut self, more: Self) {
        self.plain |= more.plain;
        self.retain |= more.retain;
        self.shares.extend(more.shares);
    }
}
