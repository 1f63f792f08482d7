//! Where a session lives, and numbers that cannot be predicted: identifiers,
//! nonces and hash keys, from the secret that the shard was given.

use core::fmt;
use core::num::NonZeroU64;

use dunlin_base::{Random, ShardId};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a [`Secret`].
pub const SECRET_BYTES: usize = 32;

/// What identifiers, nonces and hash keys are made from. The shards of a
/// process share one.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// From the operating system's random numbers.
    #[must_use]
    pub const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// One that everybody can compute, for simulations.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        for (to, from) in bytes.iter_mut().zip(seed.to_le_bytes()) {
            *to = from;
        }
        Self(bytes)
    }
}

// Not for logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Numbers of one incarnation of a shard: those of different ones are never the same.
const INCARNATION_BITS: u32 = 48;

/// A generator of random numbers for cryptography: HMAC-SHA-256 of shard and
/// counter under the secret.
#[derive(Debug)]
pub(crate) struct Generator {
    secret: Secret,
    shard: ShardId,
    counter: u64,
}

impl Generator {
    /// The sequence of one shard, which has been there so often before.
    pub(crate) const fn new(secret: Secret, shard: ShardId, incarnation: u16) -> Self {
        Self {
            secret,
            shard,
            counter: (incarnation as u64) << INCARNATION_BITS,
        }
    }

    /// The next 128 bits.
    pub(crate) fn next(&mut self) -> u128 {
        self.counter += 1;
        let mut key = hmac::digest::Key::<Hmac<Sha256>>::default();
        for (to, from) in key.iter_mut().zip(self.secret.0) {
            *to = from;
        }
        let mut mac = Hmac::<Sha256>::new(&key);
        mac.update(&self.shard.0.to_le_bytes());
        mac.update(&self.counter.to_le_bytes());
        let bytes: [u8; 32] = mac.finalize().into_bytes().into();
        let first = bytes.first_chunk().copied().unwrap_or_default();
        u128::from_le_bytes(first)
    }
}

/// FNV-1a.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The number by which a client knows its own messages again, on other connections too:
/// of its user and its container id. It is in the store, so that it stays as it is.
/// `None`: the client has no id of its own.
pub(crate) fn sender_number(user: Option<&str>, container: &str) -> Option<NonZeroU64> {
    // No text has this byte.
    let user = user.unwrap_or_default().bytes().chain([0xff]);
    let number = NonZeroU64::new(fnv(user.chain(container.bytes())));
    number.filter(|_| !container.is_empty())
}

/// The shard that a client identifier belongs to: FNV-1a, mixed.
#[must_use]
pub fn home_shard(client_id: &str, shards: u16) -> u16 {
    let hash = fnv(client_id.bytes());
    (Random::new(hash).next() % u64::from(shards.max(1))) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn the_whole_secret_and_the_shard_count() {
        let numbers = |secret, shard| {
            let mut generator = Generator::new(secret, ShardId(shard), 0);
            [generator.next(), generator.next()]
        };
        let first = numbers(Secret::of_seed(1), 0);
        assert_eq!(first, numbers(Secret::of_seed(1), 0));
        assert_ne!(first[0], first[1]);
        assert_ne!(first, numbers(Secret::of_seed(1), 1));
        for byte in 0..SECRET_BYTES {
            let mut other = Secret::of_seed(1);
            other.0[byte] ^= 0x80;
            assert_ne!(first, numbers(other.clone(), 0));
            assert_eq!(format!("{other:?}"), "Secret");
        }
    }

    #[test]
    fn a_sender_keeps_its_number_over_releases() {
        let number = |user, container| sender_number(user, container).map(NonZeroU64::get);
        assert_eq!(number(Some("ann"), "c"), Some(0x7b80_cdcd_2760_9472));
        assert_ne!(number(Some("ann"), "c"), number(Some("bob"), "c"));
        assert_ne!(number(Some("ann"), "c"), number(Some("an"), "nc"));
        assert_ne!(number(None, "c"), number(Some("c"), "c"));
        assert_eq!(number(Some("ann"), ""), None);
    }

    #[test]
    fn client_ids_spread_over_shards() {
        let on_first = (0..1000)
            .filter(|i| home_shard(&format!("sensor-{i}"), 2) == 0)
            .count();
        assert!((400..600).contains(&on_first), "{on_first}");
    }
}
