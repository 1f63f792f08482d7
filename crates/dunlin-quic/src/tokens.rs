//! Address validation tokens (RFC 9000 section 8.1.3): which of those that we
//! issued were used, and where a client keeps those that it was given.

use core::fmt;
use core::time::Duration;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use quinn_proto::{TokenLog, TokenReuseError, TokenStore};

/// Bits of one filter: 1 MiB. At a million tokens used within their lifetime
/// one fresh token in fifty is taken for a used one, which costs its client a
/// proof of address and nothing else.
const FILTER_BITS: usize = 1 << 23;
/// Bits that stand for one token.
const HASHES: u32 = 4;
/// Tokens kept as they are, until a filter is worth its memory.
const EXACT_MAX: usize = 2048;

/// Where a client keeps the address validation tokens that servers gave it
/// (RFC 9000 section 8.1.3).
///
/// Called on the thread of a loop, so it must not wait.
pub trait AddressTokens: fmt::Debug + Send + Sync {
    /// A server gave a token.
    fn insert(&self, server_name: &str, token: Bytes);

    /// Takes out a token for a server. No token may be returned twice: who
    /// watches the network could link the two connections.
    fn take(&self, server_name: &str) -> Option<Bytes>;
}

/// [`AddressTokens`] as quinn-proto wants them.
pub(crate) struct Store(pub(crate) Arc<dyn AddressTokens>);

impl TokenStore for Store {
    fn insert(&self, server_name: &str, token: Bytes) {
        self.0.insert(server_name, token);
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        self.0.take(server_name)
    }
}

/// Which tokens were used: two sets, for tokens that expire in this period and
/// in the next, each of which becomes a Bloom filter when it has grown. It says
/// of no used token that it is fresh, as long as the process lives; at most 2 MiB.
#[derive(Default)]
pub struct UsedTokens(Mutex<Filters>);

#[derive(Default)]
struct Filters {
    /// Number of the newer period, counted in lifetimes of a token.
    period: u64,
    newer: Used,
    older: Used,
}

/// Tokens that were used.
enum Used {
    Few(HashSet<u128>),
    /// A Bloom filter.
    Many(Vec<u64>),
}

impl Default for Used {
    fn default() -> Self {
        Self::Few(HashSet::new())
    }
}

impl fmt::Debug for UsedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UsedTokens(..)")
    }
}

impl TokenLog for UsedTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        issued: SystemTime,
        lifetime: Duration,
    ) -> Result<(), TokenReuseError> {
        let expires = (issued + lifetime)
            .duration_since(UNIX_EPOCH)
            .map_err(|_| TokenReuseError)?;
        let period = expires
            .as_secs()
            .checked_div(lifetime.as_secs())
            .ok_or(TokenReuseError)?;
        let mut filters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if filters.is_fresh(period, nonce) {
            Ok(())
        } else {
            Err(TokenReuseError)
        }
    }
}

impl Filters {
    fn is_fresh(&mut self, period: u64, nonce: u128) -> bool {
        match period.checked_sub(self.period) {
            // A token that has not expired does so in this period or the next.
            Some(0) => self.newer.insert(nonce),
            Some(ahead) => {
                let older = core::mem::take(&mut self.newer);
                self.older = if ahead == 1 { older } else { Used::default() };
                self.period = period;
                self.newer.insert(nonce)
            }
            None if period + 1 == self.period => self.older.insert(nonce),
            None => false,
        }
    }
}

impl Used {
    /// Whether it was not there.
    fn insert(&mut self, nonce: u128) -> bool {
        if let Self::Few(few) = self {
            if few.len() < EXACT_MAX {
                return few.insert(nonce);
            }
            let mut filter = vec![0; FILTER_BITS / 64];
            for used in few.iter() {
                set_bits(&mut filter, *used);
            }
            *self = Self::Many(filter);
        }
        match self {
            Self::Few(_) => false,
            Self::Many(filter) => set_bits(filter, nonce),
        }
    }
}

/// Whether it was not in the filter. The nonce is random and authentic, so its
/// bits need no hashing.
fn set_bits(filter: &mut [u64], nonce: u128) -> bool {
    let mut fresh = false;
    for part in 0..HASHES {
        let bit = (nonce >> (part * 32)) as usize % FILTER_BITS;
        if let Some(word) = filter.get_mut(bit / 64) {
            fresh |= *word & (1 << (bit % 64)) == 0;
            *word |= 1 << (bit % 64);
        }
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_fresh_once_within_its_lifetime() {
        const LIFETIME: Duration = Duration::from_secs(100);
        let used = UsedTokens::default();
        let at = |secs| UNIX_EPOCH + Duration::from_secs(secs);
        let check = |nonce: u128, secs| used.check_and_insert(nonce, at(secs), LIFETIME).is_ok();
        let nonce = |n: u128| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        assert!(check(nonce(1), 1000));
        assert!(!check(nonce(1), 1000));
        assert!(check(nonce(2), 1099));
        assert!(check(nonce(3), 1100), "the next period begins");
        assert!(!check(nonce(1), 1000), "still known");
        assert!(!check(nonce(2), 1099));
        assert!(check(nonce(4), 1050), "issued before, used late");
        assert!(check(nonce(5), 1300));
        assert!(!check(nonce(6), 1100), "expired long ago");
        let mistaken = (10..10_010).filter(|n| !check(nonce(*n), 1300)).count();
        assert!(mistaken < 10, "{mistaken} fresh tokens of 10,000 refused");
        let again = (10..10_010).filter(|n| check(nonce(*n), 1300)).count();
        assert_eq!(again, 0);
    }

    #[test]
    fn no_lifetime_means_no_token() {
        let used = UsedTokens::default();
        assert!(
            used.check_and_insert(1, SystemTime::now(), Duration::ZERO)
                .is_err()
        );
    }
}
