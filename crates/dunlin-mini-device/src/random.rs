//! Random bytes from a seed, for boards without a source of entropy. Knows
//! not where the seed comes from: **it is as good as whoever made it, and each
//! device needs its own**.

use dunlin_mini_crypto::{Crypto, CryptoError, Digest, Entropy};

/// The entropy of a provider that only hashes: there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEntropy;

impl Entropy for NoEntropy {
    fn fill(&mut self, _: &mut [u8]) -> Result<(), CryptoError> {
        Err(CryptoError::Entropy)
    }
}

/// A generator that forgets: who reads its state later cannot tell what it
/// gave before.
#[derive(Debug)]
pub struct Generator<C> {
    crypto: C,
    state: Digest,
}

impl<C: Crypto> Generator<C> {
    /// A generator from a secret seed and the state that the last start of the
    /// device left, which keeps one seed from giving the same bytes twice.
    /// Store [`Self::successor`] before anything is drawn.
    pub fn new(crypto: C, seed: &[u8], last: &[u8]) -> Self {
        let mut this = Self {
            crypto,
            state: [0; 32],
        };
        this.state = this.derive(0, &[seed, last]);
        this
    }

    /// The state for the next start of the device.
    pub fn successor(&mut self) -> Digest {
        let successor = self.derive(1, &[]);
        self.state = self.derive(2, &[]);
        successor
    }

    /// Hashes the state and more for a purpose.
    fn derive(&mut self, purpose: u8, more: &[&[u8]]) -> Digest {
        let state = self.state;
        let mut hash = self.crypto.hash();
        self.crypto.update(&mut hash, &[purpose]);
        self.crypto.update(&mut hash, &state);
        for part in more {
            self.crypto.update(&mut hash, part);
        }
        self.crypto.finish(hash)
    }
}

impl<C: Crypto> Entropy for Generator<C> {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        for part in out.chunks_mut(32) {
            let block = self.derive(3, &[]);
            self.state = self.derive(2, &[]);
            for (to, from) in part.iter_mut().zip(block) {
                *to = from;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dunlin_mini_crypto::Host;

    use super::*;

    fn generator(seed: &[u8], last: &[u8]) -> Generator<Host<NoEntropy>> {
        Generator::new(Host::new(NoEntropy), seed, last)
    }

    fn drawn(mut generator: Generator<Host<NoEntropy>>) -> [u8; 96] {
        let mut out = [0; 96];
        let (a, b) = out.split_at_mut(33);
        generator.fill(a).unwrap();
        generator.fill(b).unwrap();
        out
    }

    #[test]
    fn the_same_start_gives_the_same_bytes() {
        let first = drawn(generator(b"seed", b"last"));
        assert_eq!(first, drawn(generator(b"seed", b"last")));
        assert_ne!(first, drawn(generator(b"seed", b"other")));
        assert_ne!(first, drawn(generator(b"need", b"last")));
        assert_ne!(first[..32], first[33..65]);
    }

    #[test]
    fn the_next_start_gives_others() {
        let mut first = generator(b"seed", b"");
        let last = first.successor();
        let first = drawn(first);
        let second = drawn(generator(b"seed", &last));
        for block in first.chunks_exact(8) {
            assert!(!second.windows(8).any(|other| other == block));
            assert!(!last.windows(8).any(|other| other == block));
        }
    }
}
