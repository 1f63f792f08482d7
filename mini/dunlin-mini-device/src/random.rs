//! Random bytes from a seed, for boards without a source of entropy. Knows
//! not where the seed comes from: **it is as good as its source, and each
//! device needs its own**.

use dunlin_mini_crypto::{Crypto, CryptoError, Digest, Entropy};

use crate::page::{open, seal};

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

/// Two pages of flash, number 0 and 1, that both have the generator's state.
pub trait Copies {
    /// A page.
    fn read(&self, copy: usize) -> &[u8];
    /// Replaces a page with the parts, one after the other.
    fn write(&mut self, copy: usize, parts: &[&[u8]]);
}

impl<C: Crypto> Generator<C> {
    /// The generator of a device that starts: made of a secret seed and of the
    /// state that the last start left in `copies`, which keeps one seed from
    /// giving the same bytes twice. Stores the state for the next start in both
    /// copies before anything can be drawn.
    ///
    /// Gives also whether there was a state. Without one, at the first start or
    /// with both pages damaged, only `clock` and `instead` keep it from being
    /// the first start again; the owner of a ticket is to drop it then.
    pub fn boot<P: Copies>(
        crypto: C,
        seed: &[u8],
        clock: u32,
        instead: &[u8],
        copies: &mut P,
    ) -> (Self, bool) {
        let mut this = Self {
            crypto,
            state: [0; 32],
        };
        // The copy that is read is written last: should the power fail, either
        // it is still there and nothing was drawn, or the other one is whole.
        let mut order = [1, 0];
        let mut last = open(copies.read(0));
        if last.is_none() {
            order = [0, 1];
            last = open(copies.read(1));
        }
        let known = last.is_some();
        let last = last.unwrap_or(instead);
        this.state = this.derive(0, &[seed, &clock.to_be_bytes(), last]);
        let successor = this.derive(1, &[]);
        this.state = this.derive(2, &[]);
        if let Some(front) = seal(&[&successor]) {
            for copy in order {
                copies.write(copy, &[&front, &successor]);
            }
        }
        (this, known)
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
    use std::collections::HashSet;
    use std::vec::Vec;

    use dunlin_mini_crypto::Host;

    use super::*;

    /// Bytes that a start writes.
    const WRITTEN: usize = 2 * 38;

    /// Pages that lose power after some more bytes.
    #[derive(Clone)]
    struct Flash {
        pages: [Vec<u8>; 2],
        power: usize,
    }

    impl Flash {
        fn new() -> Self {
            Self {
                pages: [std::vec![0xff; 64], std::vec![0xff; 64]],
                power: usize::MAX,
            }
        }
    }

    impl Copies for Flash {
        fn read(&self, copy: usize) -> &[u8] {
            &self.pages[copy]
        }

        fn write(&mut self, copy: usize, parts: &[&[u8]]) {
            if self.power == 0 {
                return;
            }
            self.pages[copy].fill(0xff);
            for (to, from) in self.pages[copy].iter_mut().zip(parts.concat()) {
                if self.power == 0 {
                    return;
                }
                *to = from;
                self.power -= 1;
            }
        }
    }

    fn boot(flash: &mut Flash) -> ([u8; 96], bool) {
        started(flash, b"seed", 0, b"")
    }

    fn started(flash: &mut Flash, seed: &[u8], clock: u32, instead: &[u8]) -> ([u8; 96], bool) {
        let crypto = Host::new(NoEntropy);
        let (mut generator, known) = Generator::boot(crypto, seed, clock, instead, flash);
        let mut out = [0; 96];
        let (a, b) = out.split_at_mut(33);
        generator.fill(a).unwrap();
        generator.fill(b).unwrap();
        (out, known)
    }

    #[test]
    fn the_same_start_gives_the_same_bytes() {
        let (first, known) = boot(&mut Flash::new());
        assert!(!known);
        assert_eq!(first, boot(&mut Flash::new()).0);
        assert_ne!(first[..32], first[33..65]);
        for (seed, clock, instead) in [
            (&b"need"[..], 0, &b""[..]),
            (b"seed", 1, b""),
            (b"seed", 0, b"ticket"),
        ] {
            let other = started(&mut Flash::new(), seed, clock, instead);
            assert_ne!(first, other.0);
        }
    }

    #[test]
    fn the_next_start_gives_others() {
        let mut flash = Flash::new();
        let (first, _) = boot(&mut flash);
        assert_eq!(flash.pages[0], flash.pages[1]);
        let last = flash.pages[0].clone();
        let (second, known) = boot(&mut flash);
        assert!(known);
        for block in first.chunks_exact(8) {
            assert!(!second.windows(8).any(|other| other == block));
            assert!(!last.windows(8).any(|other| other == block));
        }
    }

    #[test]
    fn no_power_cut_repeats_a_start() {
        // At each byte of one start, and at each of the next one.
        for first in 0..WRITTEN {
            for second in 0..WRITTEN {
                let mut flash = Flash::new();
                let mut seen = HashSet::new();
                assert!(seen.insert(boot(&mut flash).0));
                for power in [first, second] {
                    flash.power = power;
                    // Without power nothing is drawn.
                    let (_, known) = boot(&mut flash);
                    assert!(known, "{first} {second}");
                    flash.power = usize::MAX;
                }
                for _ in 0..2 {
                    let (drawn, known) = boot(&mut flash);
                    assert!(known, "{first} {second}");
                    assert!(seen.insert(drawn), "{first} {second}");
                }
            }
        }
    }

    #[test]
    fn one_damaged_page_loses_nothing() {
        for copy in 0..2 {
            let mut flash = Flash::new();
            let (first, _) = boot(&mut flash);
            let mut whole = flash.clone();
            flash.pages[copy][9] ^= 1;
            let (second, known) = boot(&mut flash);
            assert!(known);
            assert_ne!(first, second);
            assert_eq!(second, boot(&mut whole).0);
            assert_eq!(flash.pages, whole.pages);
        }
    }
}
