//! Numbers that look random, all of them from one seed: for simulations, for
//! hashing with a key, and for identifiers whose seed comes from the system.
//! Not for secrets of cryptography.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent sequence for one purpose, so that drawing more numbers
    /// for one changes nothing for another.
    #[must_use]
    pub const fn split(&self, purpose: u64) -> Self {
        let mut other = Self(self.0 ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let _ = other.next();
        Self(other.next())
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_paper() {
        let mut random = Random::new(1_234_567);
        let got = [random.next(), random.next(), random.next()];
        let want = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn bounds_are_kept() {
        let mut random = Random::new(7);
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| (3..=5).contains(&random.between(3, 5))));
    }
}
