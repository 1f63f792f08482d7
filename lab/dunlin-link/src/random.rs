//! The only source of chance on a link: one number decides all.

/// The numbers of one seed, and deviates made of them.
#[derive(Clone, Debug)]
pub struct Random(dunlin_base::Random);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(dunlin_base::Random::new(seed))
    }

    /// An independent sequence for one purpose, so that asking for more chance
    /// in one place changes nothing in another.
    #[must_use]
    pub const fn split(&self, purpose: u64) -> Self {
        Self(self.0.split(purpose))
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `bound`, or 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number from 0 to 1, without 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability; draws nothing for 0, which is the default
    /// of every effect.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// A normal deviate with mean 0 and deviation 1 (Box-Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (core::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        let mut a = Random::new(1);
        let mut b = Random::new(1);
        assert!((0..100).all(|_| a.next() == b.next()));
        assert_ne!(
            Random::new(1).split(1).next(),
            Random::new(1).split(2).next()
        );
    }

    #[test]
    fn deviates_have_their_moments() {
        let mut random = Random::new(3);
        let n = 20_000;
        let draws: Vec<f64> = (0..n).map(|_| random.normal()).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let var = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((var - 1.0).abs() < 0.05, "{var}");
        let hits = (0..n).filter(|_| random.chance(0.25)).count();
        assert!((4_700..5_300).contains(&hits), "{hits}");
    }
}
