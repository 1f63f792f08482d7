//! Up to where a copy is.

use bytes::Bytes;
use dunlin_store::codec::Reader;

use crate::chain::Place;

/// The named value that says up to where the copy is. Submitters cannot name it.
pub const POSITION: &str = "$log";

const POSITION_VERSION: u8 = 1;

/// Up to where a copy is, and of whose log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) place: Place,
    pub(crate) epoch: u64,
    pub(crate) term: u32,
}

impl Position {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = vec![POSITION_VERSION];
        for number in [
            self.place.seq,
            self.place.number,
            self.place.hash,
            self.epoch,
            u64::from(self.term),
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        r.version(POSITION_VERSION).ok()?;
        let mut next = || r.u64().ok();
        Some(Self {
            place: Place {
                seq: next()?,
                number: next()?,
                hash: next()?,
            },
            epoch: next()?,
            term: u32::try_from(next()?).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_back() {
        let position = Position {
            place: Place {
                seq: 1,
                number: u64::MAX,
                hash: 3,
            },
            epoch: 4,
            term: u32::MAX,
        };
        let bytes = position.encode();
        assert_eq!(Position::decode(&bytes), Some(position));
        assert_eq!(Position::decode(&bytes[1..]), None);
    }
}
