//! Which homes a store is of, where the homes of a broker have several: what is in each of
//! them depends on how many homes there are and how many have one, and is not found any
//! more when that changes.

use core::fmt;

use dunlin_base::Text;
use dunlin_store::codec::Reader;
use dunlin_store::{Recovered, StoreOp};

/// Name of the value that says it.
const NAME: &str = "homes";

/// Its version.
const VERSION: u8 = 1;

/// The homes of one store of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreHomes {
    /// All homes of the broker.
    pub homes: u16,
    /// How many have one store.
    pub per_store: u16,
    /// How many have the stores before this one.
    pub before: u16,
}

impl fmt::Display for StoreHomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            homes,
            per_store,
            before,
        } = self;
        write!(f, "{per_store} of {homes} homes, behind {before} others")
    }
}

/// Why a home does not take a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// It is one of several, of other homes.
    #[error("the store is that of {found}; that of {wanted} is wanted")]
    Other {
        /// Those of the store.
        found: StoreHomes,
        /// Those of the configuration.
        wanted: StoreHomes,
    },
    /// It is one of several, and the homes of the configuration have one.
    #[error("the store is that of {0}, and not that of all")]
    OneOfSeveral(StoreHomes),
    /// It has something and is not one of several; the homes of the configuration have
    /// several.
    #[error("the store is that of all homes, and not that of {0} only")]
    OfAll(StoreHomes),
    /// A later release says which homes it is of.
    #[error("the store says in a way which this release does not read which homes it is of")]
    Unreadable,
}

/// Checks whether a store is that of these homes, or of all with `None`. What has to be
/// stored comes out: an empty store becomes theirs.
pub(crate) fn check(
    wanted: Option<StoreHomes>,
    recovered: &Recovered,
) -> Result<Option<StoreOp>, RestoreError> {
    let mut meta = recovered.meta.iter();
    let found = meta.find(|(name, _)| *name == *NAME);
    let found = found.map(|(_, value)| decode(value).ok_or(RestoreError::Unreadable));
    match (found.transpose()?, wanted) {
        (None, None) => Ok(None),
        (Some(found), None) => Err(RestoreError::OneOfSeveral(found)),
        (Some(found), Some(wanted)) if found == wanted => Ok(None),
        (Some(found), Some(wanted)) => Err(RestoreError::Other { found, wanted }),
        (None, Some(wanted)) => {
            let is_empty = recovered.sessions.is_empty() && recovered.retained.is_empty();
            match is_empty {
                true => Ok(Some(op(wanted))),
                false => Err(RestoreError::OfAll(wanted)),
            }
        }
    }
}

fn op(of: StoreHomes) -> StoreOp {
    let mut value = alloc::vec![VERSION];
    for number in [of.homes, of.per_store, of.before] {
        value.extend_from_slice(&number.to_le_bytes());
    }
    StoreOp::PutMeta {
        key: Text::from_static(NAME),
        value: value.into(),
    }
}

fn decode(value: &[u8]) -> Option<StoreHomes> {
    let mut r = Reader::new(value);
    r.version(VERSION).ok()?;
    let mut number = || r.u16().ok();
    Some(StoreHomes {
        homes: number()?,
        per_store: number()?,
        before: number()?,
    })
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use bytes::Bytes;
    use dunlin_base::Message;
    use dunlin_store::{Batch, MemoryStore};

    use super::*;

    const HERE: StoreHomes = StoreHomes {
        homes: 4,
        per_store: 2,
        before: 2,
    };

    fn recovered(ops: Vec<StoreOp>) -> Recovered {
        let mut store = MemoryStore::new();
        store.apply(&Batch { token: 1, ops });
        store.recover()
    }

    fn retained() -> StoreOp {
        StoreOp::PutRetained {
            message: Arc::new(Message {
                topic: Text::from("t"),
                payload: Bytes::from_static(b"x"),
                ..Message::default()
            }),
        }
    }

    #[test]
    fn a_store_is_that_of_the_homes_that_it_was_made_for() {
        let empty = recovered(Vec::new());
        assert_eq!(check(None, &empty), Ok(None));
        let Ok(Some(made)) = check(Some(HERE), &empty) else {
            panic!("it becomes theirs");
        };
        let theirs = recovered(alloc::vec![made, retained()]);
        assert_eq!(check(Some(HERE), &theirs), Ok(None));
        let others = [
            StoreHomes { homes: 5, ..HERE },
            StoreHomes {
                per_store: 1,
                ..HERE
            },
            StoreHomes { before: 0, ..HERE },
        ];
        for wanted in others {
            let found = HERE;
            let other = RestoreError::Other { found, wanted };
            assert_eq!(check(Some(wanted), &theirs), Err(other));
        }
        let one = RestoreError::OneOfSeveral(HERE);
        assert_eq!(check(None, &theirs), Err(one));
    }

    #[test]
    fn a_store_of_all_homes_is_not_that_of_some() {
        let all = recovered(alloc::vec![retained()]);
        assert_eq!(check(None, &all), Ok(None));
        assert_eq!(check(Some(HERE), &all), Err(RestoreError::OfAll(HERE)));
    }

    #[test]
    fn what_a_later_release_says_of_the_homes_is_not_read() {
        for value in [&[VERSION + 1, 4, 0, 2, 0, 2, 0][..], &[VERSION, 4, 0, 2]] {
            let later = StoreOp::PutMeta {
                key: Text::from_static(NAME),
                value: Bytes::copy_from_slice(value),
            };
            let later = recovered(alloc::vec![later]);
            for wanted in [None, Some(HERE)] {
                assert_eq!(check(wanted, &later), Err(RestoreError::Unreadable));
            }
        }
    }
}
